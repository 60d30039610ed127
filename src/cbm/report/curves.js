// Learning curves: mean lines with bands over seeds, marks that tell methods apart without colour, values on hover.

const CURVE = { width: 580, height: 310, left: 52, right: 14, top: 12, bottom: 40 };
const WIDE_CURVE = { width: 1180, height: 230, left: 52, right: 16, top: 12, bottom: 40 };

// A key of the legend: a piece of the line with its mark.
function methodKey(method) {
  const dash = method.dash === undefined ? (method.dashed ? "6 3" : null) : method.dash;
  return svg("svg", { width: 26, height: 12, class: "m-" + method.colour, "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, class: "mean", "stroke-dasharray": dash }),
    method.mark ? svg("path", { d: markPath(method.mark, 13, 6), class: "mark" }) : null);
}

// The marks of matplotlib with these names, so that page and picture agree.
function markPath(mark, x, y, size = 3.6) {
  const polygon = (points) => points.map(([dx, dy], k) => `${k ? "L" : "M"}${(x + dx * size).toFixed(1)},${(y + dy * size).toFixed(1)}`).join("") + "Z";
  const turned = (points, angle) => points.map(([dx, dy]) =>
    [dx * Math.cos(angle) - dy * Math.sin(angle), dx * Math.sin(angle) + dy * Math.cos(angle)]);
  const plus = [[-0.4, -1.15], [0.4, -1.15], [0.4, -0.4], [1.15, -0.4], [1.15, 0.4], [0.4, 0.4], [0.4, 1.15], [-0.4, 1.15], [-0.4, 0.4],
    [-1.15, 0.4], [-1.15, -0.4], [-0.4, -0.4]];
  switch (mark) {
    case "s": return polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case "^": return polygon([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]);
    case "v": return polygon([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]);
    case "D": return polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]);
    case "P": return polygon(plus);
    case "X": return polygon(turned(plus, Math.PI / 4));
    default: return polygon([...Array(16).keys()].map((k) => [Math.cos(k * Math.PI / 8), Math.sin(k * Math.PI / 8)]));
  }
}

// `lines`: [{slot, finished, points: [[x, mean, low, high], ...], seeds: [{seed, counted, points}]}]; `state` says what is hidden.
// `format` turns a value into words; `reference` is a level to compare with.
function curveChart({ title, note, yLabel, xLabel = "environment steps", lines, methods, state, range, fromZero, format, reference, size = CURVE }) {
  const holder = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": `${title}: ${yLabel} by ${xLabel}; arrow keys read the values` });
  const chart = { steps: [], sx: null, index: -1 };
  const draw = () => {
    const shown = lines.filter((line) => !state.hidden.has(line.slot));
    holder.replaceChildren(drawCurves(chart, { shown, all: lines, yLabel, xLabel, methods, state, range, fromZero, reference, size }));
  };
  const read = (index, x, y) => {
    chart.index = Math.max(0, Math.min(chart.steps.length - 1, index));
    const step = chart.steps[chart.index];
    const cursor = holder.querySelector(".cursor");
    if (step === undefined || !cursor) return;
    cursor.setAttribute("x1", chart.sx(step));
    cursor.setAttribute("x2", chart.sx(step));
    cursor.removeAttribute("visibility");
    const box = holder.getBoundingClientRect();
    showTooltip(curveWords(lines, methods, state, step, format), x ?? box.left + (chart.sx(step) / size.width) * box.width, y ?? box.top + 20);
  };
  const leave = () => { holder.querySelector(".cursor")?.setAttribute("visibility", "hidden"); hideTooltip(); };
  holder.addEventListener("mousemove", (event) => {
    const box = holder.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * size.width;
    read(nearest(chart.steps, (step) => Math.abs(chart.sx(step) - x)), event.clientX, event.clientY);
  });
  holder.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) { event.preventDefault(); read(chart.index + move); }
    if (event.key === "Escape") leave();
  });
  holder.addEventListener("mouseleave", leave);
  holder.addEventListener("blur", leave);
  draw();
  return { draw, node: el("figure", { class: "chart" }, el("figcaption", { text: title }),
    note ? el("p", { class: "soft small", text: note }) : null, holder) };
}

function nearest(values, distance) {
  let best = 0;
  values.forEach((value, k) => { if (distance(value) < distance(values[best])) best = k; });
  return best;
}

function drawCurves(chart, { shown, all, yLabel, xLabel, methods, state, range, fromZero, reference, size }) {
  const { width, height, left, right, top, bottom } = size;
  const xs = all.flatMap((line) => [...line.points, ...line.seeds.flatMap((seed) => seed.points)].map((point) => point[0]));
  const [x0, x1] = extent([0, ...xs]);
  const [y0, y1] = range || curveRange(shown, state, fromZero, reference);
  const sx = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const sy = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  drawAxes(picture, axisTicks(x0, x1, width > 800 ? 8 : 5), axisTicks(y0, y1, height < 250 ? 4 : 6), sx, sy, xLabel, yLabel, size);
  if (reference !== undefined) {
    picture.append(svg("line", { x1: left, x2: width - right, y1: sy(reference), y2: sy(reference), class: "reference" }));
  }
  picture.append(svg("line", { y1: top, y2: height - bottom, class: "cursor", visibility: "hidden" }));
  for (const line of shown) picture.append(...bandParts(line.points, sx, sy, methods[line.slot]));
  // Later lines lie on top: the first ones of the list come last, and CBM is never hidden by Oracle.
  const onTop = (line) => methods[line.slot].colour === "cbm";
  for (const line of [...shown].reverse().sort((a, b) => onTop(a) - onTop(b))) picture.append(...lineParts(line, methods[line.slot], state, sx, sy));
  chart.sx = sx;
  chart.steps = [...new Set(shown.flatMap((line) => (line.points.length ? line.points : line.seeds[0].points).map((point) => point[0])))]
    .sort((a, b) => a - b);
  return picture;
}

function curveRange(lines, state, fromZero, reference) {
  const values = lines.flatMap((line) => [...line.points.flatMap((point) => point.slice(1, 4)),
    ...line.seeds.filter((seed) => state.seeds || !seed.counted).flatMap((seed) => seed.points.map((point) => point[1]))])
    .concat(reference ?? []).filter((value) => value !== null);
  const [low, high] = values.length ? extent(values) : [0, 1];
  const room = (high - low) * 0.05;
  if (fromZero) return [0, high * 1.08 || 1];
  return [low >= 0 && low < high * 0.4 ? 0 : low - room, high + room];
}

function tracePath(points, sx, sy) {
  return points.map(([x, y], n) => `${n ? "L" : "M"}${sx(x).toFixed(1)},${sy(y).toFixed(1)}`).join("");
}

function bandParts(points, sx, sy, method) {
  const inside = points.filter((point) => point[2] !== null);
  if (inside.length < 2) return [];
  const edge = [...inside.map((point) => [point[0], point[3]]), ...inside.reverse().map((point) => [point[0], point[2]])];
  return [svg("path", { d: tracePath(edge, sx, sy) + "Z", class: "band m-" + method.colour })];
}

function lineParts(line, method, state, sx, sy) {
  const colour = "m-" + method.colour;
  const thin = line.seeds.filter((seed) => state.seeds || !seed.counted).map((seed) => svg("path", {
    d: tracePath(seed.points, sx, sy), class: `seed ${colour}`, "stroke-dasharray": seed.counted ? null : "2 3" }));
  const dash = !line.finished ? "2 4" : method.dashed ? "6 3" : null;
  const marks = line.points.filter((_, k) => markHere(k, line.points.length, line.slot))
    .map(([x, y]) => svg("path", { d: markPath(method.mark, sx(x), sy(y)), class: `mark ${colour}` }));
  return [...thin, svg("path", { d: tracePath(line.points, sx, sy), class: `mean ${colour}`, "stroke-dasharray": dash }), ...marks];
}

// A few marks on each line, at different places so that they do not cover each other.
function markHere(k, count, slot) {
  if (count <= 3) return true;
  const every = Math.max(2, Math.round(count / 5));
  return k % every === slot % every;
}

function curveWords(lines, methods, state, step, format) {
  const values = lines.filter((line) => !state.hidden.has(line.slot)).map((line) => [line, line.points.find((point) => point[0] === step)])
    .filter(([, point]) => point).sort(([, a], [, b]) => b[1] - a[1]);
  return [[`step ${step.toLocaleString("en")}`, "head"], ...values.map(([line, [, mean, low, high]]) =>
    [`${methods[line.slot].label}: ${format(mean)}${low === null ? "" : ` (${format(low)} to ${format(high)})`}`, ""])];
}
