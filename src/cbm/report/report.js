// Assembles the page from the payload: one section per run, each with its own chosen reward.

function start() {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const page = document.getElementById("report");
  page.replaceChildren(el("h1", { text: pageTitle(payload) }));
  if (payload.learning) page.append(learningSection(payload.learning));
  if (payload.learning && payload.runs.length) page.append(el("h1", { class: "part", text: pageTitle({ runs: payload.runs }) }));
  if (payload.runs.length > 1) page.append(comparison(payload.runs));
  const views = payload.runs.map((run) => buildRun(page, run));
  const repaint = () => views.forEach(({ heat, drawing }) => { heat.redraw(); drawing.redraw(); });
  window.addEventListener("resize", repaint);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.cbmReport = {
    payload,
    // Middle of a cell in viewport coordinates, after scrolling it into view.
    cellCenter(row, column, runIndex = 0) {
      const { heat } = views[runIndex];
      revealCell(heat, row, column);
      const before = cellCentre(heat, row, column);
      if (before.y < 80 || before.y > window.innerHeight - 20) window.scrollBy(0, before.y - window.innerHeight / 2);
      return cellCentre(heat, row, column);
    },
  };
}

function pageTitle({ runs, learning }) {
  const matters = runs.length <= 1 ? "What matters, and why" : `What matters, and why: ${runs.length} runs`;
  if (!learning) return matters;
  if (learning.runs.length > 1) return `Learning compared: ${learning.runs.length} runs`;
  return `How ${learning.methods[0].label} learned ${learning.tasks.map((task) => task.title).join(" and ")}`;
}

function comparison(runs) {
  const rewards = [...new Set(runs.flatMap((run) => run.rewards.map((reward) => reward.name)))];
  const rows = runs.map((run) => {
    const sizes = rewards.map((name) => run.rewards.find((reward) => reward.name === name));
    const link = el("a", { href: "#run-" + run.index, text: run.name });
    const cells = [run.model, run.transitions.toLocaleString("en"), duration(run.seconds), run.counts.edges, run.counts.undecided,
      run.score ? number(run.score.f1) : "no truth",
      ...sizes.map((reward) => (reward ? neededCount(run, reward) : "\u2013"))];
    return el("tr", {}, el("td", { class: "name" }, link), ...cells.map((text) => el("td", { text, class: "number" })));
  });
  const headers = ["Run", "Model", "Transitions", "Time", "Edges", "Undecided", "F1", ...rewards.map((name) => "kept: " + name)];
  return el("div", { id: "comparison" },
    el("p", { class: "soft", text: "The last columns say how many variables each reward certainly needs, and in " +
      "brackets how many more cannot be ruled out." }),
    el("div", { class: "scroll" }, table(headers, rows, "numbers")));
}

function buildRun(page, run) {
  const state = { reward: 0 };
  const heat = buildHeatMap(run, state);
  const drawing = buildDrawing(run, state);
  const reasons = el("div");
  const bars = el("div");
  const section = el("section", { class: "run", id: "run-" + run.index });
  const redraw = () => {
    if (run.rewards.length) reasons.replaceChildren(...reasonTables(run, run.rewards[state.reward]));
    heat.redraw();
    drawing.redraw();
    if (run.prediction) bars.replaceChildren(predictionBars(run.prediction, keptNames(run, state)));
  };
  section.append(...summary(run));
  if (run.rewards.length) section.append(rewardSelector(run, state, redraw), reasons);
  section.append(...heatSection(run, heat), ...drawingSection(run, drawing));
  section.append(...predictionSection(run, bars), ...trainingSection(run), ...decisionSection(run));
  page.append(section);
  redraw();
  return { heat, drawing };
}

function keptNames(run, state) {
  const reward = run.rewards[state.reward];
  return new Set(reward ? reward.kept.map(([index]) => run.variables[index]) : []);
}

// ---- 1. summary -----------------------------------------------------------------------------------------

function summary(run) {
  const cards = run.rewards.map((reward) => rewardCard(run, reward));
  const counts = run.counts;
  return [
    el("div", { class: "run-name", text: "run " + run.name + (run.finished ? "" : " (not finished)") }),
    run.in_short ? el("p", { class: "in-short", text: run.in_short }) : null,
    counts.unsettled ? el("p", { class: "notice", text: unsettledSentence(counts) }) : null,
    run.rewards.length ? el("div", { class: "cards" }, ...cards)
      : el("p", { text: "The data holds no reward, so this page shows which variable influences which, and no minimal state." }),
    el("p", { class: "soft", text: measuredSentence() }),
    factList([
      ["variables", run.variables.length], ["edges", counts.edges.toLocaleString("en")],
      ["of these, on itself", counts.self_edges], ["undecided cells", counts.undecided.toLocaleString("en")],
      ["transitions", run.transitions.toLocaleString("en")], ["time", duration(run.seconds)],
      ["model", run.model], ["cbm version", run.version || "not recorded"],
    ]),
  ].filter(Boolean);
}

function measuredSentence() {
  return "How it was measured: for every pair of variables, how much better the next value of one is predicted when the " +
    "present value of the other is known on top of everything else. The unit is nats; 0 means no help at all. This is the " +
    "conditional mutual information, CMI. What matters for a reward are the variables it depends on directly, and " +
    "whatever influences those.";
}

// ---- 2. chosen reward -----------------------------------------------------------------------------------

function rewardSelector(run, state, redraw) {
  const count = el("span", { class: "count" });
  const say = () => {
    const reward = run.rewards[state.reward];
    const kept = reward.kept.map(([index]) => index), unsure = kept.filter((index) => reward.possible.includes(index)).length;
    count.textContent = unsure ? `${kept.length - unsure} certainly needed, ${unsure} not ruled out, ${reward.dropped.length} dropped`
      : `${kept.length} kept, ${reward.dropped.length} dropped`;
  };
  const options = run.rewards.map((reward, index) => {
    const input = el("input", { type: "radio", name: "reward-" + run.index, value: index });
    input.checked = index === 0;
    input.addEventListener("change", () => { state.reward = index; say(); redraw(); });
    return el("label", {}, input, el("span", { text: reward.name }));
  });
  say();
  const group = el("div", { class: "segments" }, ...options);
  return el("div", { class: "selector" },
    el("fieldset", {}, el("span", { class: "caption", text: "Show what matters for" }), group), count);
}

function reasonTables(run, reward) {
  const row = (className) => ([index, path]) => el("tr", { class: className }, nameCell(run.variables[index]),
    el("td", {}, pathText(path, reward.links[index] === "1" && isOneLink(path)), ...undecidedLinks(reward, index)));
  const keptRows = reward.kept.filter(([index]) => !reward.possible.includes(index)).map(row("kept"));
  const possibleRows = reward.kept.filter(([index]) => reward.possible.includes(index)).map(row("kept possible"));
  const droppedRows = reward.dropped.map(([index, evidence]) => el("tr", {},
    nameCell(run.variables[index]), el("td", {}, el("span", { text: evidence }), ...undecidedLinks(reward, index))));
  const block = (title, headers, rows, empty, className) => el("div", { class: className }, el("h3", { text: title }),
    rows.length ? el("div", { class: "scroll", tabindex: 0 }, table(headers, rows)) : el("p", { class: "soft", text: empty }));
  const cdl = ` For comparison, the task-independent rule CDL, which keeps whatever the action can influence, would keep ${run.cdl}.`;
  return [
    el("h2", { text: "Which variables matter for " + reward.name }),
    el("p", { class: "soft", text: "A variable is kept when a chain of influences leads from it to the reward. " +
      (possibleRows.length ? "Where a link of the chain is undecided (-?->), it cannot be ruled out." : "") + cdl }),
    el("div", { class: "columns" },
      el("div", {},
        block(`${possibleRows.length ? "Certainly needed" : "Kept"} (${keptRows.length})`, ["Variable", "How it reaches the reward"], keptRows,
          reward.decided ? "No variable is kept." : "Nothing is known yet.", "kept-table"),
        possibleRows.length ? block(`Cannot be ruled out (${possibleRows.length})`, ["Variable", "How it may reach the reward"], possibleRows, "", "kept-table possible-table") : null),
      block(`Dropped (${droppedRows.length})`, ["Variable", "Evidence that it does not matter"], droppedRows,
        "No variable is dropped.", "dropped-table")),
  ];
}

function nameCell(name) {
  return el("td", { class: "name", text: name, title: name });
}

// A variable with an undecided link of its own may be certain by way of others.
function isOneLink(path) {
  return path.split(/-(?:\?-)?> /).length === 2;
}

// The sizes of the links, in brackets at the end, are set apart from the chain of names. No line ends within an arrow.
function pathText(path, direct) {
  const cut = path.lastIndexOf(" (CMI ");
  const chain = cut < 0 ? path : path.slice(0, cut);
  return el("span", {}, el("span", { class: "name" }, ...arrowsWhole(chain)),
    cut < 0 ? null : el("span", { class: "soft small", text: path.slice(cut) }),
    direct ? el("span", { class: "direct small", text: " direct" }) : null);
}

function arrowsWhole(chain) {
  return chain.split(/( -(?:\?-)?>)/).map((part, k) => (k % 2 ? el("span", { class: "arrow", text: part }) : part));
}

// ---- 3. and 4. matrix and drawing ---------------------------------------------------------------------------

function heatSection(run, heat) {
  const nodes = [el("h2", { text: "How strongly each variable influences each other one" }),
    el("p", { class: "soft", text: "Each row is an effect one time step later, each column a possible cause; the last column is the " +
      "action" + (run.rewards.length ? ", the rows below the gap are the rewards" : "") +
      ". The scale is logarithmic, so that weak influences stay visible. Point at a cell, or walk with the arrow keys, to read it." +
      (run.rewards.some((reward) => reward.possible.length) ? " A bar beside a name marks what the chosen reward needs; " +
        "it is broken where the variable only cannot be ruled out." : "") })];
  if (run.score) nodes.push(scoreLine(run));
  nodes.push(heat.legend, heatTools(run, heat), el("div", {}, heat.frame));
  if (run.truth) nodes.push(mistakeList(run));
  return nodes;
}

function scoreLine(run) {
  const score = run.score;
  return factList([
    ["accuracy", percent(score.accuracy)], ["precision", percent(score.precision)], ["recall", percent(score.recall)],
    ["F1", number(score.f1)], ["wrong cells (SHD)", score.shd], ["AUROC", number(score.auroc)],
    ["accuracy of self-edges alone", percent(score.self_loop_accuracy)],
  ], "facts score");
}

function heatTools(run, heat) {
  const box = el("input", { type: "checkbox" });
  box.checked = heat.keptFirst;
  box.addEventListener("change", () => { heat.keptFirst = box.checked; heat.redraw(); });
  const zoom = (factor) => () => { heat.zoom = Math.max(0.4, Math.min(4, heat.zoom * factor)); heat.redraw(); };
  const smaller = el("button", { type: "button", text: "Smaller" }), larger = el("button", { type: "button", text: "Larger" });
  smaller.addEventListener("click", zoom(1 / 1.25));
  larger.addEventListener("click", zoom(1.25));
  const order = run.rewards.length ? el("label", {}, box, el("span", { text: "Put the kept variables first" })) : null;
  return el("div", { class: "tools" }, order, el("span", {}, smaller, " ", larger));
}

// Every wrong cell of the matrix and of the rewards, in words.
function mistakeList(run) {
  const rows = [];
  for (let row = 0; row < run.variables.length + run.rewards.length; row++) {
    for (let column = 0; column <= run.variables.length; column++) {
      const facts = cellFacts(run, row, column);
      const kind = mistake(facts);
      if (kind) rows.push(cellRow(facts, kind));
    }
  }
  if (!rows.length) return el("p", { class: "soft", text: "Every cell agrees with the known graph." });
  return el("details", {}, el("summary", { text: `${plural(rows.length, "cell")} that differ from the known graph` }),
    el("div", { class: "scroll" }, table(["Cause \u2192 effect", "CMI (nats)", "Threshold (nats)", ""], rows)));
}

function cellRow(facts, note) {
  return el("tr", {}, el("td", { class: "name wide", text: `${facts.cause} \u2192 ${facts.effect}` }),
    el("td", { text: plusMinus(facts.cmi, facts.stderr) }), el("td", { text: number(facts.threshold) }), el("td", { text: note }));
}

function drawingSection(run, drawing) {
  return [el("h2", { text: "The graph" }), el("p", { class: "soft", text: "An arrow goes from a cause to what it changes one " +
    "step later. Influences of a variable on itself are not drawn." }), drawing.node];
}

// ---- 5. prediction and training -------------------------------------------------------------------------

function predictionSection(run, bars) {
  if (!run.prediction) return [];
  const nodes = [el("h2", { text: "How well the model predicts" }), el("p", { class: "soft", text: "One step ahead, on held-out " +
    "data, in units of the usual change of each variable. The bar is the model's error, the black tick the error of saying " +
    "\u201cnothing changes\u201d; a bar beyond its tick is red. Names of kept variables are coloured." }), bars];
  const rollout = run.prediction.rollout;
  if (rollout.length > 1) {
    const line = (key) => rollout.filter((point) => point[key] !== null).map((point) => [point.steps, point[key]]);
    nodes.push(el("div", { class: "charts" }, lineChart({
      title: "Predicting further ahead", xLabel: "steps ahead", yLabel: "error (usual changes)", zero: true,
      series: [{ name: "model", points: line("error") }, { name: "nothing changes", points: line("baseline"), dashed: true }],
    })));
  }
  return nodes;
}

const SERIES_NAMES = {
  loss_full: "all inputs", loss_masked: "one input hidden",
  held_out_full: "all inputs, held-out", held_out_masked: "one input hidden, held-out",
};
const PHASES = { dynamics: "Learning how variables change", rewards: "Learning the rewards" };

function trainingSection(run) {
  const charts = run.training.map((phase) => lineChart({
    title: PHASES[phase.phase] || phase.phase, xLabel: "training step", yLabel: "loss (nats)",
    series: phase.series.map(([key, points]) => ({ name: SERIES_NAMES[key] || key, points })),
  }));
  if (!charts.length) return [];
  return [el("h2", { text: "Training" }), el("p", { class: "soft", text: "A curve that is still falling at its end means that " +
    "longer training would give a better graph. " + run.training_note }), el("div", { class: "charts" }, ...charts)];
}

start();
