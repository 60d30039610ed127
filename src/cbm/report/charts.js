// Line charts (training, rollouts) and the bars of prediction error.

const CHART = { width: 540, height: 236, left: 54, right: 14, top: 12, bottom: 40 };

// Round numbers (1, 2, 5 times a power of ten) that cover the range.
function axisTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push(Number(tick.toPrecision(10)));
  }
  return ticks;
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return Number((value / 1e6).toPrecision(3)) + " M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(3)) + " k";
  return String(Number(value.toPrecision(4)));
}

function extent(values) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

// `series` is a list of {name, points: [[x, y], ...]}; colours follow their order.
function lineChart({ title, xLabel, yLabel, series, zero = false }) {
  const points = series.flatMap((line) => line.points);
  const [x0, x1] = extent(points.map((point) => point[0]));
  let [y0, y1] = extent(points.map((point) => point[1]));
  if (zero) y0 = Math.min(0, y0);
  y1 += (y1 - y0) * 0.06;
  const { width, height, left, right, top, bottom } = CHART;
  const sx = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const sy = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${yLabel} by ${xLabel}` });
  drawAxes(picture, axisTicks(x0, x1, 5), axisTicks(y0, y1, 4), sx, sy, xLabel, yLabel);
  series.forEach((line, k) => {
    const path = line.points.map(([x, y], n) => `${n ? "L" : "M"}${sx(x).toFixed(1)},${sy(y).toFixed(1)}`).join("");
    const colour = "series-" + (1 + (k % 4));
    picture.append(svg("path", { d: path, class: "series " + colour, "stroke-dasharray": line.dashed ? "5 4" : null }));
    if (line.points.length <= 24) {
      line.points.forEach(([x, y]) => picture.append(svg("circle", { cx: sx(x), cy: sy(y), r: 2.6, class: "dot " + colour })));
    }
  });
  return el("figure", { class: "chart" }, el("figcaption", { text: title }), chartLegend(series), picture);
}

function drawAxes(picture, xTicks, yTicks, sx, sy, xLabel, yLabel, size = CHART) {
  const { width, height, left, right, top, bottom } = size;
  for (const tick of yTicks) {
    picture.append(svg("line", { x1: left, x2: width - right, y1: sy(tick), y2: sy(tick), class: "grid" }));
    picture.append(svg("text", { x: left - 7, y: sy(tick) + 4, "text-anchor": "end", text: tickText(tick) }));
  }
  for (const tick of xTicks) {
    picture.append(svg("line", { x1: sx(tick), x2: sx(tick), y1: height - bottom, y2: height - bottom + 4, class: "axis" }));
    picture.append(svg("text", { x: sx(tick), y: height - bottom + 17, "text-anchor": "middle", text: tickText(tick) }));
  }
  picture.append(svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }));
  picture.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", text: xLabel }));
  const middle = (top + height - bottom) / 2;
  picture.append(svg("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`, text: yLabel }));
}

function chartLegend(series) {
  const keys = series.map((line, k) => {
    const picture = svg("svg", { width: 22, height: 8 }, svg("line", {
      x1: 0, x2: 22, y1: 4, y2: 4, class: "series series-" + (1 + (k % 4)), "stroke-dasharray": line.dashed ? "5 4" : null,
    }));
    return el("span", { class: "key" }, picture, el("span", { text: line.name }));
  });
  return el("div", { class: "legend" }, ...keys);
}

// One bar per variable, a tick where "nothing changes" would be; long lists run over several columns.
function predictionBars(prediction, keptNames) {
  const count = prediction.variables.length;
  const columns = count <= 20 ? 1 : count <= 60 ? 2 : 3;
  const perColumn = Math.ceil(count / columns);
  const finite = prediction.baseline.concat(prediction.error).filter((value) => value !== null);
  const highestBaseline = Math.max(...prediction.baseline.map((value) => value || 0));
  const limit = Math.min(Math.max(...finite), Math.max(highestBaseline, 1e-9) * 1.6) || 1;
  const holder = el("div", { class: "bar-columns" });
  for (let start = 0; start < count; start += perColumn) {
    const indices = [...Array(Math.min(perColumn, count - start)).keys()].map((k) => start + k);
    holder.append(barColumn(prediction, indices, limit, keptNames, columns));
  }
  return holder;
}

function barColumn(prediction, indices, limit, keptNames, columns) {
  const step = 18;
  const labels = prediction.variables.map((name) => shorten(name, columns === 3 ? 16 : 24));
  const left = Math.max(...labels.map((label) => label.length)) * 6.9 + 12;
  const plot = { 1: 620, 2: 330, 3: 180 }[columns];
  const width = left + plot + 48, height = indices.length * step + 6;
  const picture = svg("svg", { class: "bars", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Prediction error per variable" });
  indices.forEach((index, row) => {
    const error = prediction.error[index], baseline = prediction.baseline[index];
    const y = row * step + 3;
    const length = (value) => Math.min(1, Math.max(0, (value || 0) / limit)) * plot;
    const worse = error !== null && baseline !== null && error > baseline;
    const classes = (keptNames.has(prediction.variables[index]) ? "kept " : "") + (worse ? "worse" : "");
    picture.append(svg("g", { class: classes },
      svg("title", { text: `${prediction.variables[index]}: error ${number(error)}, nothing changes ${number(baseline)}` }),
      svg("text", { x: left - 8, y: y + 10.5, "text-anchor": "end", class: "label", text: labels[index] }),
      svg("rect", { x: left, y, width: plot, height: 13, class: "track" }),
      svg("rect", { x: left, y: y + 2, width: length(error), height: 9, class: "bar" }),
      svg("line", { x1: left + length(baseline), x2: left + length(baseline), y1: y, y2: y + 13, class: "tick" }),
      svg("text", { x: left + plot + 6, y: y + 10.5, text: number(error, 2) })));
  });
  return picture;
}
