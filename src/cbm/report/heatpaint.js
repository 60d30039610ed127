// Painting of the matrix: colour scale, cells, marks, labels and the legend.

function heatTheme() {
  const ramp = [...Array(RAMP_STEPS).keys()].map((step) => hexToRgb(cssColour(`--ramp-${step}`)));
  const names = ["paper", "panel", "line", "line-strong", "ink", "ink-soft", "ink-faint", "accent", "accent-soft",
    "missed", "spurious", "mark-on-light", "mark-on-dark"];
  return { ramp, ...Object.fromEntries(names.map((name) => [name, cssColour("--" + name)])) };
}

function hexToRgb(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

// Logarithmic above the reference threshold and linear below it, so that 0 has a colour and strong
// self-edges do not flatten everything else.
function colourPosition(run, cmi) {
  const knee = run.scale.knee, top = run.scale.top;
  return Math.min(1, Math.log1p(Math.max(0, cmi) / knee) / Math.log1p(top / knee));
}

function rampColour(theme, position) {
  const scaled = position * (RAMP_STEPS - 1);
  const low = Math.min(RAMP_STEPS - 2, Math.floor(scaled));
  const mix = scaled - low;
  const channels = theme.ramp[low].map((value, k) => Math.round(value + mix * (theme.ramp[low + 1][k] - value)));
  return `rgb(${channels.join(",")})`;
}

function labelFont(view, bold) {
  const family = '"DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace';
  return `${bold ? "600 " : ""}${view.font}px ${family}`;
}

function drawHeatMap(view) {
  const context = view.canvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  const theme = heatTheme();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, view.frameWidth, view.frameHeight);
  context.save();
  context.beginPath();
  context.rect(view.left, view.top, view.frameWidth - view.left, view.frameHeight - view.top);
  context.clip();
  forVisibleCells(view, (row, column, x, y) => paintCell(context, view, theme, row, column, x, y));
  paintSeparators(context, view, theme);
  paintCrosshair(context, view, theme);
  context.restore();
  paintRowLabels(context, view, theme);
  paintColumnLabels(context, view, theme);
  paintCorner(context, view, theme);
}

function forVisibleCells(view, paint) {
  const { frame, cell, left, top, order, d } = view;
  const firstRow = Math.max(0, Math.floor((frame.scrollTop - REWARD_GAP) / cell));
  const lastRow = Math.min(view.rows - 1, Math.ceil((frame.scrollTop + view.frameHeight - top) / cell));
  const firstColumn = Math.max(0, Math.floor((frame.scrollLeft - ACTION_GAP) / cell));
  const lastColumn = Math.min(view.columns - 1, Math.ceil((frame.scrollLeft + view.frameWidth - left) / cell));
  for (let r = firstRow; r <= lastRow; r++) {
    const row = r < d ? order[r] : r;
    const y = rowY(view, row);
    for (let c = firstColumn; c <= lastColumn; c++) {
      const column = c < d ? order[c] : c;
      paint(row, column, columnX(view, column), y);
    }
  }
}

function paintCell(context, view, theme, row, column, x, y) {
  const size = view.cell - 1;
  const facts = cellFacts(view.run, row, column);
  if (facts.untested || facts.cmi === null) {
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (facts.untested) return;
  }
  const position = facts.cmi === null ? 0 : colourPosition(view.run, facts.cmi);
  if (facts.cmi !== null) {
    context.fillStyle = rampColour(theme, position);
    context.fillRect(x, y, size, size);
  }
  const ink = position > 0.55 ? theme["mark-on-dark"] : theme["mark-on-light"];
  if (facts.verdict === "u") paintHatch(context, x, y, size, ink);
  if (facts.edge) paintEdgeMark(context, x, y, size, theme, ink);
  const wrong = mistake(facts);
  if (wrong) paintMistake(context, x, y, size, theme, wrong);
}

// An edge has a dark frame; on a dark cell a light line inside the frame keeps it visible.
function paintEdgeMark(context, x, y, size, theme, ink) {
  context.strokeStyle = theme["mark-on-light"];
  context.lineWidth = size >= 16 ? 2 : 1;
  const inset = context.lineWidth / 2;
  context.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  if (ink === theme["mark-on-light"] || size < 24) return;
  const inner = context.lineWidth + 0.5;
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.strokeRect(x + inner, y + inner, size - 2 * inner, size - 2 * inner);
}

function paintHatch(context, x, y, size, ink) {
  context.save();
  context.beginPath();
  context.rect(x, y, size, size);
  context.clip();
  context.strokeStyle = ink;
  context.globalAlpha = 0.75;
  context.lineWidth = 1;
  const step = Math.max(3, size / 5);
  context.beginPath();
  for (let offset = step / 2; offset < 2 * size; offset += step) {
    context.moveTo(x + offset, y);
    context.lineTo(x + offset - size, y + size);
  }
  context.stroke();
  context.restore();
}

// Colour and shape both differ: a red cross for a missed edge, a green disc for a spurious one.
function paintMistake(context, x, y, size, theme, kind) {
  const line = size >= 16 ? 2.5 : 1.6;
  context.lineWidth = line;
  context.strokeStyle = context.fillStyle = theme[kind];
  context.strokeRect(x + line / 2, y + line / 2, size - line, size - line);
  const middleX = x + size / 2, middleY = y + size / 2, reach = size * 0.2;
  context.beginPath();
  if (kind === "spurious") {
    context.arc(middleX, middleY, reach, 0, 2 * Math.PI);
    context.fill();
    return;
  }
  context.moveTo(middleX - reach, middleY - reach);
  context.lineTo(middleX + reach, middleY + reach);
  context.moveTo(middleX + reach, middleY - reach);
  context.lineTo(middleX - reach, middleY + reach);
  context.stroke();
}

// Thin lines between groups of variables that share a prefix, or between kept and dropped ones.
function paintSeparators(context, view, theme) {
  const cuts = view.keptFirst ? [view.kept.size] : view.run.groups.map((group) => group.start);
  const right = view.left + view.columns * view.cell + ACTION_GAP - view.frame.scrollLeft;
  const bottom = view.top + view.d * view.cell - view.frame.scrollTop;
  context.fillStyle = theme["ink-faint"];
  for (const cut of cuts) {
    if (cut <= 0 || cut >= view.d) continue;
    const x = view.left + cut * view.cell - view.frame.scrollLeft - 1;
    const y = view.top + cut * view.cell - view.frame.scrollTop - 1;
    context.fillRect(x, view.top - view.frame.scrollTop, 1, bottom - view.top + view.frame.scrollTop);
    context.fillRect(view.left - view.frame.scrollLeft, y, right - view.left + view.frame.scrollLeft, 1);
  }
}

function paintCrosshair(context, view, theme) {
  if (!view.active) return;
  const [row, column] = view.active;
  const x = columnX(view, column), y = rowY(view, row);
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.11;
  context.fillRect(view.left, y, view.frameWidth, view.cell - 1);
  context.fillRect(x, view.top, view.cell - 1, view.frameHeight);
  context.globalAlpha = 1;
  context.strokeStyle = theme.accent;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, view.cell + 1, view.cell + 1);
}

function labelStyle(view, theme, index, isActive) {
  const isReward = index > view.d;
  const kept = isReward ? index - view.d - 1 === view.state.reward : view.kept.has(index);
  if (isActive) return { colour: theme.accent, bold: true, kept, unsure: !isReward && view.possible.has(index) };
  if (index === view.d) return { colour: theme.ink, bold: true, kept: false };
  const unsure = !isReward && view.possible.has(index);
  return { colour: kept ? theme.ink : theme["ink-faint"], bold: kept && !unsure, kept, unsure };
}

// Labels are numbered: variables 0..d-1, the action d, rewards from d+1 on.
function labelText(view, index) {
  if (index === view.d) return "action";
  return view.labels[index < view.d ? index : index - 1];
}

// A solid bar for what is certainly needed, a broken one for what cannot be ruled out.
function paintKeptBar(context, broken, x, y, width, height) {
  if (!broken) { context.fillRect(x, y, width, height); return; }
  const along = Math.max(width, height), piece = along / 5;
  for (let k = 0; k < 5; k += 2) {
    if (height > width) context.fillRect(x, y + k * piece, width, piece);
    else context.fillRect(x + k * piece, y, piece, height);
  }
}

function paintRowLabels(context, view, theme) {
  context.save();
  context.beginPath();
  context.rect(0, view.top, view.left, view.frameHeight);
  context.clip();
  context.fillStyle = theme.paper;
  context.fillRect(0, view.top, view.left, view.frameHeight);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let row = 0; row < view.rows; row++) {
    const y = rowY(view, row);
    if (y + view.cell < view.top || y > view.frameHeight) continue;
    const index = row < view.d ? row : row + 1;
    const style = labelStyle(view, theme, index, view.active && view.active[0] === row);
    if (style.kept) {
      if (!style.unsure) {
        context.fillStyle = theme["accent-soft"];
        context.fillRect(0, y, view.left - 3, view.cell - 1);
      }
      context.fillStyle = theme.accent;
      paintKeptBar(context, style.unsure, view.left - 5, y, 3, view.cell - 1);
    }
    context.fillStyle = style.colour;
    context.font = labelFont(view, style.bold);
    context.fillText(labelText(view, index), view.left - 9, y + (view.cell - 1) / 2 + 0.5);
  }
  context.restore();
}

function paintColumnLabels(context, view, theme) {
  context.save();
  context.beginPath();
  context.rect(view.left - 2, 0, view.frameWidth, view.top);
  context.clip();
  context.fillStyle = theme.paper;
  context.fillRect(view.left - 2, 0, view.frameWidth, view.top);
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (let column = 0; column < view.columns; column++) {
    const x = columnX(view, column);
    if (x < view.left - view.cell || x > view.frameWidth) continue;
    const style = labelStyle(view, theme, column, view.active && view.active[1] === column);
    if (style.kept) {
      context.fillStyle = theme.accent;
      paintKeptBar(context, style.unsure, x, view.top - 5, view.cell - 1, 3);
    }
    context.save();
    context.translate(x + (view.cell - 1) / 2 + (view.slanted ? 2 : 0), view.top - 10);
    context.rotate(view.slanted ? -Math.PI / 4 : -Math.PI / 2);
    context.fillStyle = style.colour;
    context.font = labelFont(view, style.bold);
    context.fillText(labelText(view, column), 0, 0);
    context.restore();
  }
  context.restore();
}

function paintCorner(context, view, theme) {
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, view.left - 2, view.top);
  context.fillStyle = theme["ink-soft"];
  context.font = "11.5px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.fillText("cause, now \u2192", view.left - 9, view.top - 30);
  context.fillText("effect, next \u2193", view.left - 9, view.top - 12);
}

// ---- legend ---------------------------------------------------------------------------------------------

function heatLegend(run) {
  const sample = (position, mark) => (context, size, theme) => {
    context.fillStyle = rampColour(theme, position);
    context.fillRect(0, 0, size, size);
    mark(context, size, theme);
  };
  const marks = [["edge", sample(0.35, (c, s, t) => paintEdgeMark(c, 0, 0, s, t, t["mark-on-light"]))]];
  if (run.counts.undecided) marks.push(["undecided", sample(0.2, (c, s, t) => paintHatch(c, 0, 0, s, t["mark-on-light"]))]);
  if (run.truth) {
    marks.push(["missed: in the known graph, not found", sample(0.1, (c, s, t) => paintMistake(c, 0, 0, s, t, "missed"))]);
    marks.push(["spurious: found, not in the known graph", sample(0.1, (c, s, t) => paintMistake(c, 0, 0, s, t, "spurious"))]);
  }
  const keys = marks.map(([text, paint]) => el("span", { class: "key" }, swatch(paint, 18), el("span", { text })));
  return [colourBar(run), ...keys];
}

function swatch(paint, size) {
  const canvas = el("canvas", { width: size * 2, height: size * 2, "aria-hidden": "true" });
  canvas.style.width = canvas.style.height = size + "px";
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  paint(context, size, heatTheme());
  return canvas;
}

function colourBar(run) {
  const width = 300, left = 8, theme = heatTheme();
  const picture = svg("svg", { width: width + 60, height: 40, role: "img", "aria-label": "Colour scale in nats" });
  const place = (cmi) => left + colourPosition(run, cmi) * width;
  for (let k = 0; k < 100; k++) {
    const x = left + (k * width) / 100, fill = rampColour(theme, (k + 0.5) / 100);
    picture.append(svg("rect", { x, y: 4, width: width / 100 + 0.5, height: 12, fill }));
  }
  let last = -Infinity;
  for (const tick of [0, 0.001, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30]) {
    if (tick > run.scale.top || place(tick) - last < 30) continue;
    last = place(tick);
    picture.append(svg("line", { x1: last, x2: last, y1: 16, y2: 20, stroke: theme["ink-faint"] }));
    picture.append(svg("text", { x: last, y: 32, "text-anchor": "middle", "font-size": 11, fill: theme["ink-soft"], text: String(tick) }));
  }
  picture.append(svg("text", { x: left + width + 8, y: 14, "font-size": 11.5, fill: theme["ink-soft"], text: "nats" }));
  return picture;
}
