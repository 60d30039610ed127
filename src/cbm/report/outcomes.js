// How policies do when irrelevant variables change (bars), and how far ahead models predict (curves).

function outcomeSection(task, methods) {
  if (!task.bars.length) return [];
  const success = task.measure === "success";
  const values = task.bars.flatMap((row) => [row.in, row.out]).filter(Boolean).flatMap((entry) => [entry.mean, entry.high, ...entry.each])
    .filter((value) => value !== null);
  const low = success ? 0 : Math.min(0, ...values), high = success ? 1 : Math.max(...values, 0) || 1;
  const names = task.bars.map((row) => shorten(methods[row.slot].label, 30));
  const left = Math.max(84, Math.max(...names.map((name) => name.length)) * 7 + 20), plot = 640, step = 44, top = 6;
  const width = left + plot + 330, height = top + task.bars.length * step + 30;
  const sx = (value) => left + ((value - low) / (high - low)) * plot;
  const picture = svg("svg", { class: "outcome", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": "In and out of distribution" });
  const bottom = height - 28;
  for (const tick of axisTicks(low, high, 5)) {
    picture.append(svg("line", { x1: sx(tick), x2: sx(tick), y1: top, y2: bottom, class: "grid" }),
      svg("text", { x: sx(tick), y: bottom + 16, "text-anchor": "middle", text: success ? `${Math.round(100 * tick)} %` : tickText(tick) }));
  }
  task.bars.forEach((row, k) => picture.append(outcomeRow(row, methods[row.slot], names[k], success, sx, left, left + plot + 14, top + k * step)));
  picture.append(svg("line", { x1: sx(Math.max(low, 0)), x2: sx(Math.max(low, 0)), y1: top, y2: bottom, class: "axis" }));
  return [el("h3", { text: "In and out of distribution" }),
    el("p", { class: "soft", text: "Out of distribution, every variable the task does not need is replaced by noise at each step. A policy that does " +
      "not look at them does not care." }),
    el("div", { class: "legend" }, colourKey("plain-in", "in distribution"), colourKey("plain-out", "out of distribution"),
      task.bars.some((row) => row.in && row.in.each.length > 1) ? el("span", { text: "dots: seeds; whiskers: 95 % bootstrap interval over seeds" }) : null),
    el("div", { class: "drawing" }, picture)];
}

function outcomeRow(row, method, name, success, sx, left, textX, y) {
  const words = (entry) => (!entry ? "not measured" : success ? percent(entry.mean) : number(entry.mean));
  const drop = row.drop === null ? "" : success ? `, ${dropWords(100 * row.drop.mean, " points")}`
    : `, ${dropWords(row.drop.mean, "")}`;
  return svg("g", { class: "m-" + method.colour },
    svg("text", { x: left - 12, y: y + 24, "text-anchor": "end", class: "method", text: name }),
    ...outcomeBar(row.in, "bar-in", sx, y + 3), ...outcomeBar(row.out, "bar-out", sx, y + 20),
    svg("text", { x: textX, y: y + 24, class: "value", text: `${words(row.in)} \u2192 ${words(row.out)}${drop}` }));
}

function dropWords(value, unit) {
  const size = Math.abs(value) < 0.05 ? "0" : Math.abs(value).toFixed(1);
  return size === "0" ? "no drop" : `${value > 0 ? "\u2212" : "+"}${size}${unit}`;
}

function outcomeBar(entry, className, sx, y) {
  if (!entry) return [];
  const from = Math.min(sx(0), sx(entry.mean)), height = 15, middle = y + height / 2;
  const whisker = entry.low === null ? [] : [
    svg("line", { x1: sx(entry.low), x2: sx(entry.high), y1: middle, y2: middle, class: "whisker" }),
    ...[entry.low, entry.high].map((value) => svg("line", { x1: sx(value), x2: sx(value), y1: middle - 4, y2: middle + 4, class: "whisker" }))];
  return [svg("rect", { x: from, y, width: Math.abs(sx(entry.mean) - sx(0)), height, class: className }), ...whisker,
    ...entry.each.filter(() => entry.each.length > 1).map((value) => svg("circle", { cx: sx(value), cy: middle, r: 2.6, class: "seed-dot" }))];
}

// ---- prediction error over steps --------------------------------------------------------------------------

function predictionErrorSection(task, methods) {
  if (!task.prediction.length) return [];
  const values = task.prediction.flatMap((line) => line.points.map((point) => point[1])).filter((value) => value > 0);
  const logarithmic = values.length > 0 && Math.max(...values) > 20 * Math.min(...values);
  const models = [...new Set(task.prediction.filter((line) => line.place !== "still").map((line) => line.model))];
  const charts = [["in", "In distribution"], ["out", "Distractors replaced"]].map(([place, title]) =>
    errorChart(sameErrors(task.prediction.filter((line) => line.place === place || line.place === "still"), methods), models, values, logarithmic, title));
  return [el("h3", { text: "How far ahead the dynamics predict" }),
    el("p", { class: "soft", text: "Mean error after so many predicted steps, in units of each variable's typical change in a step, on the same scale in both pictures" +
      (logarithmic ? ", which is logarithmic. " : ". ") + "On the right, variables that do not matter were replaced by values far outside the data." }),
    el("div", { class: "charts" }, ...charts.filter(Boolean))];
}

// Methods that use one and the same model have equal errors: one line with several names.
function sameErrors(lines, methods) {
  const found = new Map();
  for (const line of lines) {
    const key = JSON.stringify([line.model, line.place, line.points]);
    const look = line.place === "still" ? { label: "nothing changes", colour: "other-1", mark: "" } : methods[line.slot];
    if (found.has(key) && look.mark) found.get(key).names.push(look.label);
    else found.set(key, { ...line, look, names: [look.label] });
  }
  return [...found.values()].sort((a, b) => (a.place === "still") - (b.place === "still"));
}

function errorChart(lines, models, values, logarithmic, title) {
  if (!lines.some((line) => line.place !== "still")) return null;
  const { width, height, left, right, top, bottom } = CURVE;
  const [x0, x1] = extent(lines.flatMap((line) => line.points.map((point) => point[0])));
  const low = logarithmic ? Math.log10(Math.min(...values)) : 0, high = logarithmic ? Math.log10(Math.max(...values)) : Math.max(...values, 0) || 1;
  const room = (high - low) * 0.05 || 0.5;
  const y0 = logarithmic ? low - room : 0, y1 = high + room;
  const sx = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const sy = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const scale = (y) => (logarithmic ? Math.log10(Math.max(y, 1e-12)) : y);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  drawAxes(picture, axisTicks(x0, x1, 5), logarithmic ? [] : axisTicks(y0, y1, 5), sx, sy, "predicted steps", "error (in typical changes)", CURVE);
  for (const tick of logarithmic ? logTicks(y0, y1) : []) {
    picture.append(svg("line", { x1: left, x2: width - right, y1: sy(Math.log10(tick)), y2: sy(Math.log10(tick)), class: "grid" }),
      svg("text", { x: left - 7, y: sy(Math.log10(tick)) + 4, "text-anchor": "end", text: tickText(tick) }));
  }
  const name = (line) => line.names.join(" and ") + (line.model ? `, ${line.model}` : "");
  const dash = (line) => (line.place === "still" ? "2 4" : models.indexOf(line.model) > 0 ? "6 3" : null);
  for (const line of lines) {
    const { colour, mark } = line.look, points = line.points.map(([x, y]) => [x, scale(y)]);
    picture.append(svg("path", { d: tracePath(points, sx, sy), class: "mean m-" + colour, "stroke-dasharray": dash(line) },
      svg("title", { text: name(line) })),
    ...points.filter((_, k) => mark && markHere(k, points.length, line.slot)).map(([x, y]) =>
      svg("path", { d: markPath(mark, sx(x), sy(y)), class: "mark m-" + colour })));
  }
  const keys = lines.map((line) => el("span", { class: "key" }, methodKey({ ...line.look, dash: dash(line) }), el("span", { text: name(line) })));
  return el("figure", { class: "chart" }, el("figcaption", { text: title }), el("div", { class: "legend" }, ...keys), picture);
}

// 1, 2 and 5 times powers of ten, or the powers alone where these would be too many.
function logTicks(low, high) {
  const ticks = (factors) => [...Array(Math.ceil(high) - Math.floor(low) + 1).keys()].flatMap((k) => factors.map((factor) => factor * 10 ** (Math.floor(low) + k)))
    .filter((tick) => Math.log10(tick) >= low && Math.log10(tick) <= high);
  return ticks([1, 2, 5]).length <= 7 ? ticks([1, 2, 5]) : ticks([1]);
}
