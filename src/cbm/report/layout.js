// Positions for the drawing: the reward at the right, its direct causes next to it, their causes further left,
// the action at the far left, and the variables that do not matter in a grid underneath.

const NODE_HEIGHT = 26;
const ROW_STEP = 36;
const WIDE_GAP = 110;
const NARROW_GAP = 44;
const MAX_ROWS = 15;
const CHARACTER = 7;
const GRID_CHARACTER = 6.4;
const GRID_STEP = 26;
const MARGIN = 24;

function nodeWidth(label) {
  return Math.max(46, shorten(label, 24).length * CHARACTER + 20);
}

function parentsOf(run, variable) {
  const found = [];
  for (let j = 0; j < run.variables.length; j++) {
    if (j !== variable && run.links[variable][j] === "1") found.push(j);
  }
  return found;
}

// Those that keep a variable in the state: also undecided ones, where these cannot be ruled out.
function directCauses(reward) {
  return [...reward.links].flatMap((bit, variable) => (bit === "1" ? [variable] : []));
}

// Number of steps from each kept variable to the reward: 1 for its direct causes.
function distancesToReward(run, reward, kept) {
  const distance = new Map();
  let front = directCauses(reward).filter((variable) => kept.has(variable));
  for (let steps = 1; front.length; steps++) {
    front.forEach((variable) => distance.set(variable, steps));
    const next = new Set();
    for (const variable of front) {
      for (const parent of parentsOf(run, variable)) if (kept.has(parent) && !distance.has(parent)) next.add(parent);
    }
    front = [...next];
  }
  return distance;
}

// Layers nearest to the reward first; long ones are cut into columns that fit on a screen.
function keptColumns(run, reward) {
  const kept = new Set(reward.kept.map(([index]) => index));
  const distance = distancesToReward(run, reward, kept);
  const layers = [];
  for (const [variable, steps] of distance) (layers[steps - 1] ||= []).push(variable);
  const columns = [];
  let previous = null;
  for (const layer of layers) {
    sortByNeighbours(run, layer, previous);
    const pieces = Math.ceil(layer.length / MAX_ROWS);
    const size = Math.ceil(layer.length / pieces);
    for (let start = 0; start < layer.length; start += size) columns.push(layer.slice(start, start + size));
    previous = layer;
  }
  return { columns, distance };
}

// A variable sits near the mean height of the effects it has in the layer to its right: fewer crossings.
function sortByNeighbours(run, layer, nearer) {
  layer.sort((a, b) => a - b);
  if (!nearer) return;
  const height = new Map();
  for (const variable of layer) {
    const places = nearer.map((child, place) => (run.links[child][variable] === "1" ? place : -1)).filter((p) => p >= 0);
    height.set(variable, places.reduce((sum, place) => sum + place, 0) / Math.max(1, places.length) / nearer.length);
  }
  layer.sort((a, b) => height.get(a) - height.get(b) || a - b);
}

function layoutGraph(run, reward, showDropped, room) {
  const nodes = new Map();
  const { columns, distance } = reward ? keptColumns(run, reward) : { columns: [], distance: new Map() };
  const rows = Math.max(1, ...columns.map((column) => column.length));
  const middle = MARGIN + 22 + (rows * ROW_STEP) / 2;
  let right = placeLayers(run, reward, columns, nodes, middle, room);
  const keptBottom = MARGIN + 22 + rows * ROW_STEP + 10;
  let height = reward ? keptBottom : MARGIN;
  if (showDropped && nodes.size - (reward ? 2 : 1) < run.variables.length) {
    const widened = Math.max(right, Math.min(room, 1000));
    for (const node of nodes.values()) node.x += (widened - right) / 2;
    right = widened;
    height = placeGrid(run, nodes, MARGIN, right - MARGIN, reward ? keptBottom + 34 : MARGIN);
  }
  const bandTop = reward && height > keptBottom ? keptBottom : null;
  return { nodes, distance, columns, width: right, height: height + MARGIN / 2, bandTop };
}

// Fills from left to right: action, the farthest causes, ..., the direct causes, the reward.
function placeLayers(run, reward, columns, nodes, middle, room) {
  let x = MARGIN;
  const widthOf = (column) => Math.max(...column.map((variable) => nodeWidth(run.variables[variable])));
  const ends = nodeWidth("action") + (reward ? nodeWidth(reward.name) : 0);
  const boxes = columns.reduce((sum, column) => sum + widthOf(column), ends) + 2 * MARGIN;
  const gap = Math.max(NARROW_GAP, Math.min(WIDE_GAP, (room - boxes) / (columns.length + 1)));
  const place = (key, label, left, width, y, role) =>
    nodes.set(key, { key, label, x: left + width / 2, y, width, height: NODE_HEIGHT, role });
  place("action", "action", x, nodeWidth("action"), middle, "action");
  x += nodeWidth("action") + gap;
  for (const column of [...columns].reverse()) {
    const width = widthOf(column);
    column.forEach((variable, row) => {
      const y = middle + (row - (column.length - 1) / 2) * ROW_STEP;
      const role = reward.links[variable] === "1" ? "kept direct-parent" : "kept";
      const unsure = reward.possible.includes(variable) ? " possible" : "";
      place(variable, run.variables[variable], x, width, y, role + unsure);
    });
    x += width + gap;
  }
  if (!reward) return x;
  place("reward", reward.name, x, nodeWidth(reward.name), middle, "reward");
  return x + nodeWidth(reward.name) + MARGIN;
}

function placeGrid(run, nodes, left, right, top) {
  const dropped = run.variables.map((_, index) => index).filter((index) => !nodes.has(index));
  const labels = dropped.map((index) => shorten(run.variables[index], 20));
  const width = Math.max(50, ...labels.map((label) => label.length * GRID_CHARACTER + 14));
  const perRow = Math.max(1, Math.floor((right - left + 14) / (width + 14)));
  const used = Math.min(dropped.length, perRow) * (width + 14) - 14;
  const first = (left + right - used) / 2;
  dropped.forEach((index, k) => {
    const x = first + (k % perRow) * (width + 14) + width / 2;
    const y = top + Math.floor(k / perRow) * (GRID_STEP + 10) + 10;
    nodes.set(index, { key: index, label: run.variables[index], x, y, width, height: 20, role: "dropped" });
  });
  return top + Math.ceil(dropped.length / perRow) * (GRID_STEP + 10);
}
