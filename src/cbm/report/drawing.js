// The graph as a picture, from the positions in layout.js. Self-edges are left out: nearly every variable has one.

const HAIRBALL = 40;

function buildDrawing(run, state) {
  const holder = el("div", { class: "drawing" });
  const note = el("span");
  const box = el("input", { type: "checkbox" });
  box.checked = run.variables.length <= HAIRBALL;
  const toggle = el("label", {}, box, el("span", { text: "Draw the variables that do not matter too" }));
  const every = el("input", { type: "checkbox" });
  const links = el("label", { class: "every-link" }, every, el("span", { text: "Draw every link" }));
  const redraw = () => {
    const reward = run.rewards[state.reward];
    const showDropped = box.checked || !reward;
    const crowded = reward && reward.kept.length > HAIRBALL;
    links.hidden = !crowded;
    const room = (holder.clientWidth || 1200) - 4;
    holder.replaceChildren(drawGraph(run, reward, showDropped, room, crowded && !every.checked));
    holder.scrollLeft = holder.scrollWidth;  // a wide graph is read from the reward backwards
    const hidden = reward ? reward.dropped.length : 0;
    note.textContent = [
      !showDropped && hidden ? `${plural(hidden, "variable")} that this reward does not need, and their edges, are not drawn.` : "",
      crowded && !every.checked ? "Of each variable only its strongest link towards the reward is drawn, until you point at it." : "",
    ].join(" ");
  };
  every.addEventListener("change", redraw);
  box.addEventListener("change", redraw);
  return { node: el("div", {}, el("div", { class: "tools" }, toggle, links, note), drawingLegend(run), holder), redraw };
}

function drawingLegend(run) {
  const line = (className) => svg("svg", { width: 34, height: 10 },
    svg("line", { x1: 1, y1: 5, x2: 33, y2: 5, class: "edge " + className }));
  const key = (picture, text) => el("span", { class: "key" }, picture, el("span", { text }));
  return el("div", { class: "legend" },
    key(line("toward"), "one step closer to the reward"),
    key(line("lateral"), "other influence among needed variables"),
    key(line("faint"), "influence on variables that do not matter"),
    run.counts.undecided ? key(line("toward undecided"), "undecided, cannot be ruled out") : null,
    el("span", { text: "Point at a variable: its causes turn blue, its effects orange." }));
}

function drawGraph(run, reward, showDropped, room, sparse) {
  const layout = layoutGraph(run, reward, showDropped, room);
  const picture = svg("svg", {
    width: layout.width, height: layout.height, viewBox: `0 0 ${layout.width} ${layout.height}`,
    role: "group", "aria-label": "Causal graph",
  });
  const prefix = "arrow-" + run.index + "-";
  picture.append(arrowHeads(prefix));
  if (reward) columnCaptions(picture, layout);
  if (layout.bandTop !== null) bandCaption(picture, layout, reward);
  const chosen = graphEdges(run, reward, layout);
  if (sparse) hushAllButOne(run, reward, chosen);
  const edges = chosen.map((edge) => drawEdge(edge, layout, prefix));
  softenCrowds(picture, edges);
  edges.sort((a, b) => a.weight - b.weight).forEach((edge) => picture.append(edge.path));
  for (const node of layout.nodes.values()) picture.append(drawNode(node, picture, edges, layout));
  return picture;
}

// Of each variable one link towards the reward stays in view: a decided one if there is one, and the strongest of those.
function hushAllButOne(run, reward, edges) {
  const strength = (edge) => (edge.effect === "reward" ? reward.cmi[edge.cause] : run.cmi[edge.effect][edge.cause]);
  const better = (a, b) => !b || (a.undecided === b.undecided ? strength(a) > strength(b) : !a.undecided);
  const best = new Map();
  for (const edge of edges) {
    edge.quiet = true;
    if (edge.kind === "toward" && better(edge, best.get(edge.cause))) best.set(edge.cause, edge);
  }
  for (const edge of best.values()) edge.quiet = false;
}

// Many lines of one kind are drawn lighter, so that the paths to the reward stay readable.
function softenCrowds(picture, edges) {
  const count = (kind) => edges.filter((edge) => edge.kind === kind).length;
  const opacity = (lines, most, least) => Math.max(least, Math.min(most, (most * 30) / Math.max(1, lines)));
  picture.style.setProperty("--lateral-opacity", opacity(count("lateral"), 0.8, 0.22));
  picture.style.setProperty("--faint-opacity", opacity(count("faint"), 0.8, 0.25));
}

function arrowHeads(prefix) {
  const colours = { toward: "--accent", lateral: "--ink-faint", faint: "--line-strong", plain: "--ink-faint" };
  const markers = Object.entries(colours).map(([kind, colour]) => {
    const tip = svg("path", { d: "M0,0 L8,4 L0,8 z", fill: cssColour(colour) });
    return svg("marker", {
      id: prefix + kind, markerWidth: 8, markerHeight: 8, refX: 7.5, refY: 4, orient: "auto",
      markerUnits: "userSpaceOnUse", viewBox: "0 0 8 8",
    }, tip);
  });
  return svg("defs", {}, ...markers);
}

function columnCaptions(picture, layout) {
  const caption = (x, text) =>
    picture.append(svg("text", { x, y: MARGIN - 4, "text-anchor": "middle", class: "band-label", text }));
  layout.columns.forEach((column) => {
    const steps = layout.distance.get(column[0]);
    const text = steps === 1 ? "direct causes" : `${steps} steps away`;
    caption(layout.nodes.get(column[0]).x, text);
  });
  caption(layout.nodes.get("reward").x, "reward");
}

function bandCaption(picture, layout, reward) {
  const y = layout.bandTop;
  picture.append(svg("line", { x1: MARGIN, y1: y, x2: layout.width - MARGIN, y2: y, class: "band-line" }));
  const text = `not needed for ${reward.name} (${plural(reward.dropped.length, "variable")})`;
  picture.append(svg("text", { x: layout.width / 2, y: y + 19, "text-anchor": "middle", class: "band-label", text }));
}

// Every edge between two drawn nodes, with the part it plays for this reward.
function graphEdges(run, reward, layout) {
  const edges = [];
  const d = run.variables.length;
  const kept = (key) => layout.distance.has(key);
  for (let effect = 0; effect < d; effect++) {
    if (!layout.nodes.has(effect)) continue;
    for (let column = 0; column <= d; column++) {
      const cause = column === d ? "action" : column;
      if (run.links[effect][column] !== "1" || cause === effect || !layout.nodes.has(cause)) continue;
      const undecided = run.verdict[effect][column] === "u";
      edges.push({ cause, effect, undecided, kind: edgeKind(cause, effect, kept, layout.distance, reward) });
    }
  }
  if (!reward) return edges;
  for (const cause of directCauses(reward)) {
    edges.push({ cause, effect: "reward", undecided: reward.verdict[cause] === "u", kind: "toward" });
  }
  return edges;
}

function edgeKind(cause, effect, kept, distance, reward) {
  if (!reward) return "plain";
  if (!kept(effect)) return "faint";
  if (cause === "action") return "lateral";
  return distance.get(cause) > distance.get(effect) ? "toward" : "lateral";
}

function drawEdge(edge, layout, prefix) {
  const from = layout.nodes.get(edge.cause), to = layout.nodes.get(edge.effect);
  const classes = "edge " + edge.kind + (edge.undecided ? " undecided" : "") + (edge.quiet ? " quiet" : "");
  const path = svg("path", { d: edgePath(from, to), class: classes, "marker-end": `url(#${prefix}${edge.kind})` });
  return { ...edge, path, weight: { faint: 0, plain: 1, lateral: 1, toward: 2 }[edge.kind] };
}

function edgePath(from, to) {
  if (from.role === "dropped" || to.role === "dropped") return gridPath(from, to);
  const forward = to.x - to.width / 2 > from.x + from.width / 2;
  const backward = from.x - from.width / 2 > to.x + to.width / 2;
  if (forward || backward) {
    const side = forward ? 1 : -1;
    const x1 = from.x + (side * from.width) / 2, x2 = to.x - (side * to.width) / 2;
    // Opposite directions leave and arrive a little apart, so that a pair of edges is seen as two.
    const y1 = from.y + side * -4, y2 = to.y + side * -4;
    const bend = Math.max(30, Math.abs(x2 - x1) * 0.45) * side;
    return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
  }
  const x1 = from.x - from.width / 2, x2 = to.x - to.width / 2;
  const bulge = 18 + Math.min(40, Math.abs(to.y - from.y) * 0.22);
  return `M${x1},${from.y + 5} C${x1 - bulge},${from.y + 5} ${x2 - bulge},${to.y - 5} ${x2},${to.y - 5}`;
}

// Into and inside the grid: from box border to box border, slightly bent.
function gridPath(from, to) {
  const dx = to.x - from.x, dy = to.y - from.y;
  const start = borderPoint(from, dx, dy), end = borderPoint(to, -dx, -dy);
  const bendX = (start.x + end.x) / 2 - dy * 0.12, bendY = (start.y + end.y) / 2 + dx * 0.12;
  return `M${start.x},${start.y} Q${bendX},${bendY} ${end.x},${end.y}`;
}

function borderPoint(node, dx, dy) {
  const scale = Math.min(node.width / 2 / Math.max(1e-6, Math.abs(dx)), node.height / 2 / Math.max(1e-6, Math.abs(dy)));
  return { x: node.x + dx * scale, y: node.y + dy * scale };
}

function drawNode(node, picture, edges, layout) {
  const label = shorten(node.label, node.role === "dropped" ? 20 : 24);
  const group = svg("g", { class: "node " + node.role, tabindex: 0, "data-name": node.label, role: "img" },
    svg("title", { text: node.label }),
    svg("rect", { x: node.x - node.width / 2, y: node.y - node.height / 2, width: node.width, height: node.height,
      rx: node.role === "reward" || node.role === "action" ? 13 : 5 }),
    svg("text", { x: node.x, y: node.y + 4, "text-anchor": "middle", text: label }));
  node.group = group;
  group.setAttribute("aria-label", nodeDescription(node, edges, layout));
  const focus = () => lightUp(node, picture, edges, layout);
  const clear = () => dimAll(picture);
  group.addEventListener("mouseenter", focus);
  group.addEventListener("focus", focus);
  group.addEventListener("mouseleave", clear);
  group.addEventListener("blur", clear);
  return group;
}

function nodeDescription(node, edges, layout) {
  const names = (keys) => keys.map((key) => layout.nodes.get(key).label).join(", ") || "none";
  const causes = edges.filter((edge) => edge.effect === node.key).map((edge) => edge.cause);
  const effects = edges.filter((edge) => edge.cause === node.key).map((edge) => edge.effect);
  return `${node.label}; causes: ${names(causes)}; effects: ${names(effects)}`;
}

function lightUp(node, picture, edges, layout) {
  dimAll(picture);
  picture.classList.add("focused");
  node.group.classList.add("lit");
  for (const edge of edges) {
    if (edge.cause !== node.key && edge.effect !== node.key) continue;
    edge.path.classList.add("lit", edge.effect === node.key ? "incoming" : "outgoing");
    layout.nodes.get(edge.cause).group.classList.add("lit");
    layout.nodes.get(edge.effect).group.classList.add("lit");
  }
}

function dimAll(picture) {
  picture.classList.remove("focused");
  picture.querySelectorAll(".lit").forEach((part) => part.classList.remove("lit", "incoming", "outgoing"));
}
