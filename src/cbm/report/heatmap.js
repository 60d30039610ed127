// The matrix: rows are effects at t+1 (then one row per reward), columns are causes at t (the action last).
// Only the visible part is drawn, on one canvas that stays in place while its frame scrolls, so labels
// stay in view and a thousand variables cost no more than fifty.

const RAMP_STEPS = 7;
const MIN_CELL = 10;
const MAX_CELL = 36;
const ACTION_GAP = 8;
const REWARD_GAP = 14;
const MANY = 80;  // with more variables, the kept ones come first until you say otherwise

function buildHeatMap(run, state) {
  const d = run.variables.length;
  const view = {
    run, state, d, rows: d + run.rewards.length, columns: d + 1,
    keptFirst: run.rewards.length > 0 && run.variables.length > MANY, zoom: 1, active: null, order: null, place: null,
    canvas: el("canvas", { tabindex: 0, role: "img", "aria-label": heatMapDescription(run) }),
    extent: el("div", { class: "extent" }), legend: el("div", { class: "legend" }),
  };
  view.frame = el("div", { class: "viewport" }, view.extent, view.canvas);
  view.redraw = () => {
    measureHeatMap(view);
    drawHeatMap(view);
    view.legend.replaceChildren(...heatLegend(run));
  };
  connectHeatMap(view);
  return view;
}

function heatMapDescription(run) {
  return `Matrix of conditional mutual information between ${run.variables.length} variables. ` +
    "Use the arrow keys to move from cell to cell.";
}

function keptSet(view) {
  const reward = view.run.rewards[view.state.reward];
  return new Set(reward ? reward.kept.map(([index]) => index) : []);
}

function possibleSet(view) {
  const reward = view.run.rewards[view.state.reward];
  return new Set(reward ? reward.possible : []);
}

// ---- geometry -------------------------------------------------------------------------------------------

function measureHeatMap(view) {
  const { d, run } = view;
  view.kept = keptSet(view);
  view.possible = possibleSet(view);
  view.order = [...Array(d).keys()];
  if (view.keptFirst) view.order.sort((a, b) => view.kept.has(b) - view.kept.has(a) || a - b);
  view.place = new Int32Array(d);
  view.order.forEach((variable, position) => { view.place[variable] = position; });

  const room = (view.frame.parentElement || document.body).clientWidth - 2;
  const labels = run.variables.concat(run.rewards.map((reward) => reward.name), ["action"]);
  const fit = Math.min((room - 150) / view.columns, 860 / view.rows);
  view.cell = Math.round(Math.max(MIN_CELL, Math.min(MAX_CELL, fit)) * view.zoom);
  view.font = Math.max(8.5, Math.min(12.5, view.cell * 0.88));
  view.slanted = view.cell >= 22;
  const context = view.canvas.getContext("2d");
  context.font = labelFont(view, true);
  view.labels = labels.map((label) => shorten(label, 24));
  const widest = Math.max(...view.labels.map((label) => context.measureText(label).width));
  view.left = Math.ceil(Math.max(96, widest + 20));
  const columnLabel = Math.max(...view.labels.slice(0, d).map((label) => context.measureText(label).width), 40);
  view.top = Math.ceil((view.slanted ? columnLabel * 0.72 + 18 : columnLabel + 14) + 18);
  const overhang = view.slanted ? Math.ceil(columnLabel * 0.72) : 8;
  view.width = view.left + view.columns * view.cell + ACTION_GAP + overhang;
  view.height = view.top + view.rows * view.cell + (run.rewards.length ? REWARD_GAP : 0) + 8;
  sizeFrame(view, room);
}

function sizeFrame(view, room) {
  const tall = view.height > 1320;
  const height = tall ? Math.min(view.height, Math.max(480, Math.round(window.innerHeight * 0.88))) : view.height;
  view.frame.style.width = Math.min(view.width, room) + 2 + (tall ? 14 : 0) + "px";
  view.frame.style.height = height + 2 + (view.width > room ? 14 : 0) + "px";
  view.extent.style.width = view.width + "px";
  view.extent.style.height = view.height + "px";
  view.canvas.style.width = view.canvas.style.height = "0";  // its old size would call for scroll bars that nobody needs
  view.frameWidth = Math.min(view.width, view.frame.clientWidth);  // scroll bars may take no room at all
  view.frameHeight = Math.min(view.height, view.frame.clientHeight);
  const ratio = window.devicePixelRatio || 1;
  view.canvas.width = Math.round(view.frameWidth * ratio);
  view.canvas.height = Math.round(view.frameHeight * ratio);
  view.canvas.style.width = view.frameWidth + "px";
  view.canvas.style.height = view.frameHeight + "px";
}

function columnX(view, column) {
  const position = column < view.d ? view.place[column] : column;
  return view.left + position * view.cell + (column === view.d ? ACTION_GAP : 0) - view.frame.scrollLeft;
}

function rowY(view, row) {
  const position = row < view.d ? view.place[row] : row;
  return view.top + position * view.cell + (row >= view.d ? REWARD_GAP : 0) - view.frame.scrollTop;
}

function cellAt(view, x, y) {
  if (x < view.left || y < view.top) return null;
  let column = Math.floor((x + view.frame.scrollLeft - view.left) / view.cell);
  let row = Math.floor((y + view.frame.scrollTop - view.top) / view.cell);
  if (column >= view.d) column = Math.floor((x + view.frame.scrollLeft - view.left - ACTION_GAP) / view.cell);
  if (row >= view.d) row = Math.floor((y + view.frame.scrollTop - view.top - REWARD_GAP) / view.cell);
  if (column < 0 || row < 0 || column >= view.columns || row >= view.rows) return null;
  return [row < view.d ? view.order[row] : row, column < view.d ? view.order[column] : column];
}

// Where a cell is on the screen, after scrolling it into view (used by the tests and by the keyboard).
function revealCell(view, row, column) {
  const { frame, cell } = view;
  const x = columnX(view, column), y = rowY(view, row);
  if (x < view.left) frame.scrollLeft -= view.left - x;
  if (x + cell > view.frameWidth) frame.scrollLeft += x + cell - view.frameWidth;
  if (y < view.top) frame.scrollTop -= view.top - y;
  if (y + cell > view.frameHeight) frame.scrollTop += y + cell - view.frameHeight;
}

function cellCentre(view, row, column) {
  const bounds = view.canvas.getBoundingClientRect();
  return { x: bounds.left + columnX(view, column) + view.cell / 2, y: bounds.top + rowY(view, row) + view.cell / 2 };
}

// ---- what a cell says -----------------------------------------------------------------------------------

// The reasons come as [row, column, number of the text]; looked up by cell once they are sorted so.
function cellReason(run, row, column) {
  run.reasonAt ||= new Map(run.reason.map(([r, c, text]) => [r + "," + c, run.reasons[text]]));
  return run.reasonAt.get(row + "," + column) || "";
}

const VERDICTS = { e: "edge", n: "no edge", u: "undecided" };

function cellFacts(run, row, column) {
  const d = run.variables.length;
  const cause = column < d ? run.variables[column] : "action";
  if (row < d) {
    return {
      cause, effect: run.variables[row], cmi: run.cmi[row][column], stderr: run.stderr[row][column],
      threshold: run.thresholds[row][column], verdict: run.verdict[row][column],
      edge: run.edges[row][column] === "1", truth: run.truth ? run.truth.edges[row][column] === "1" : null,
      reason: cellReason(run, row, column), limit: run.limits[row], settled: run.settled[row][column] === "1",
      resampled: run.bootstrap ? `came out of ${run.bootstrap.edges[row][column]} of ${run.bootstrap.replicates} resampled logs` : null,
    };
  }
  const reward = run.rewards[row - d];
  const known = { cause, effect: "reward " + reward.name, reason: cellReason(run, row, column), limit: reward.limit };
  if (column === d) {
    if (!reward.action) return { ...known, untested: true };
    return { ...known, ...reward.action, edge: reward.action.verdict === "e", truth: null, settled: true };
  }
  return {
    ...known, cmi: reward.cmi[column], stderr: reward.stderr[column],
    threshold: reward.thresholds[column], verdict: reward.verdict[column],
    edge: reward.edges[column] === "1", truth: reward.truth ? reward.truth[column] === "1" : null,
    settled: reward.settled[column] === "1",
  };
}

function mistake(facts) {
  if (facts.truth === null || facts.untested || facts.truth === facts.edge) return null;
  return facts.truth ? "missed" : "spurious";
}

function cellLines(facts) {
  const lines = [[`${facts.cause} \u2192 ${facts.effect}`, "head"]];
  if (facts.untested) return [...lines, ["not measured: for a reward, only the state variables are recorded"]];
  lines.push([`CMI ${plusMinus(facts.cmi, facts.stderr)} nats`], [`threshold ${number(facts.threshold)} nats`]);
  const known = facts.limit !== null && facts.limit !== undefined;
  const beyond = facts.verdict === "n" && known ? ` above ${number(facts.limit)} nats` : "";
  lines.push([`verdict: ${VERDICTS[facts.verdict]}${beyond}`]);
  if (facts.verdict === "u") {
    lines.push([`why: ${facts.reason || "no reason is recorded"}`, "doubt"], [`best guess: ${facts.edge ? "an edge" : "no edge"}`]);
  }
  if (known && facts.verdict !== "n") lines.push([`limit of detection ${number(facts.limit)} nats`]);
  if (facts.resampled) lines.push([facts.resampled]);
  if (!facts.settled) lines.push(["cut short: it had not settled when the time was up", "doubt"]);
  const wrong = mistake(facts);
  if (wrong === "missed") lines.push(["missed: the known graph has this edge", "missed"]);
  if (wrong === "spurious") lines.push(["spurious: the known graph does not have this edge", "spurious"]);
  return lines;
}

// ---- interaction ----------------------------------------------------------------------------------------

function connectHeatMap(view) {
  const { canvas, frame } = view;
  canvas.addEventListener("mousemove", (event) => {
    const bounds = canvas.getBoundingClientRect();
    activate(view, cellAt(view, event.clientX - bounds.left, event.clientY - bounds.top), event.clientX, event.clientY);
  });
  canvas.addEventListener("mouseleave", () => activate(view, null));
  canvas.addEventListener("blur", () => activate(view, null));
  canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) moveActive(view, 0, 0); });
  canvas.addEventListener("keydown", (event) => heatMapKey(view, event));
  frame.addEventListener("scroll", () => drawHeatMap(view));
}

function heatMapKey(view, event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (event.key === "Escape") activate(view, null);
  if (!moves[event.key]) return;
  event.preventDefault();
  moveActive(view, ...moves[event.key]);
}

function moveActive(view, down, right) {
  const [row, column] = view.active || [view.order[0], view.order[0]];
  const step = (index, by, count) => {
    const position = (index < view.d ? view.place[index] : index) + (view.active ? by : 0);
    const bounded = Math.max(0, Math.min(count - 1, position));
    return bounded < view.d ? view.order[bounded] : bounded;
  };
  const next = [step(row, down, view.rows), step(column, right, view.columns)];
  revealCell(view, ...next);
  const { x, y } = cellCentre(view, ...next);
  activate(view, next, x, y);
}

function activate(view, cell, x, y) {
  const changed = String(cell) !== String(view.active);
  view.active = cell;
  if (changed) drawHeatMap(view);
  if (cell) showTooltip(cellLines(cellFacts(view.run, ...cell)), x, y);
  else hideTooltip();
}
