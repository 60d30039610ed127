// Which variable was kept: over time for one run (strips), and in the end for all methods (matrix).

const STRIP = { width: 1180, right: 16, top: 18, bottom: 38 };
// More variables than these with one and the same simple history share a row; what was kept deserves its name longer.
const LUMPS = [["1", "kept throughout", 24], ["0", "never kept", 5]];

function stripSection(task, methods, runs) {
  if (!task.strips.length) return [];
  const holder = el("div", { class: "strip" });
  const every = el("input", { type: "checkbox" });
  const choice = el("select", { "aria-label": "Run" }, ...task.strips.map((strip, k) =>
    el("option", { value: k, text: `${methods[strip.slot].label}, seed ${strip.seed}${runs[strip.run].finished ? "" : " (not finished)"}` })));
  const first = task.strips.findIndex((strip) => methods[strip.slot].colour === "cbm");
  choice.value = String(Math.max(0, first, task.strips.findIndex((strip) => strip.masks.length > 1 && first < 0)));
  const draw = () => holder.replaceChildren(...stripChart(task, task.strips[Number(choice.value)], every.checked));
  choice.addEventListener("change", draw);
  every.addEventListener("change", draw);
  draw();
  const tools = el("div", { class: "tools strip-tools" }, el("label", {}, el("span", { text: "Run" }), choice),
    el("label", {}, every, el("span", { text: "A row for every variable" })));
  return [el("h3", { text: "Which variables one run kept, and when" }), tools, holder];
}

function stripChart(task, strip, everyVariable) {
  const rows = stripRows(task, strip, everyVariable);
  const step = rows.length > 60 ? 12 : 17;
  const labels = rows.map((row) => shorten(row.label, 30));
  const left = Math.min(230, Math.max(60, Math.max(...labels.map((label) => label.length)) * 6.7 + 22));
  const { width, right, top, bottom } = STRIP;
  const height = top + rows.length * step + bottom;
  const sx = (x) => left + (x / strip.end) * (width - left - right);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Kept variables over time" });
  rows.forEach((row, k) => picture.append(stripRow(row, labels[k], strip, task.oracle !== null, sx, left, top + k * step, step)));
  for (const reset of strip.resets) {
    picture.append(svg("g", { class: "reset" }, svg("title", { text: `step ${reset.toLocaleString("en")}: the policy began anew` }),
      svg("line", { x1: sx(reset), x2: sx(reset), y1: top - 4, y2: height - bottom }),
      svg("path", { d: markPath("v", sx(reset), top - 8, 4) })));
  }
  for (const tick of axisTicks(0, strip.end, 8)) {
    picture.append(svg("line", { x1: sx(tick), x2: sx(tick), y1: height - bottom, y2: height - bottom + 4, class: "axis" }),
      svg("text", { x: sx(tick), y: height - bottom + 16, "text-anchor": "middle", text: tickText(tick) }));
  }
  picture.append(svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }),
    svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle", text: "environment steps" }));
  return [stripLegend(task, strip), el("div", { class: "drawing" }, picture)];
}

// The variables that are needed come first, then the ones that come and go, then all with one plain history in one row.
function stripRows(task, strip, everyVariable) {
  const needed = new Set(task.oracle || []);
  const history = (index) => strip.masks.filter(([, bits]) => bits !== null).map(([, bits]) => bits[index]).join("");
  const single = (index) => ({ label: task.variables[index], index, needed: needed.has(index), names: [task.variables[index]] });
  const order = task.variables.map((_, index) => index);
  if (everyVariable) return [...order.filter((k) => needed.has(k)), ...order.filter((k) => !needed.has(k))].map(single);
  const others = order.filter((k) => !needed.has(k));
  const kinds = LUMPS.map(([bit, words, most]) => ({ words, most, members: others.filter((k) => [...history(k)].every((b) => b === bit)) }))
    .filter((kind) => kind.members.length > kind.most);
  const lumped = new Set(kinds.flatMap((kind) => kind.members));
  const lumps = kinds.map(({ words, members }) => ({
    label: `${members.length} ${needed.size ? "others" : "variables"} ${words}`, index: members[0], needed: false, lump: true,
    names: members.map((k) => task.variables[k]) }));
  return [...order.filter((k) => needed.has(k)), ...others.filter((k) => !lumped.has(k))].map(single).concat(lumps);
}

function stripRow(row, label, strip, known, sx, left, y, step) {
  const bars = [];
  strip.masks.forEach(([from, bits], k) => {
    const to = k + 1 < strip.masks.length ? strip.masks[k + 1][0] : strip.end;
    const kind = bits === null ? "before" : bits[row.index] === "1" ? (row.needed || !known ? "right" : "extra") : row.needed ? "lost" : "";
    const last = bars[bars.length - 1];
    if (last && last.kind === kind) last.to = to;
    else bars.push({ kind, from, to });
  });
  const words = { before: "before the first decision: seen", right: "kept", extra: "kept", lost: "needed, but dropped", "": "dropped" };
  return svg("g", {},
    svg("text", { x: left - 10, y: y + step - 4.5, "text-anchor": "end", class: "label" + (row.needed ? " needed" : "") + (row.lump ? " lump" : ""),
      text: label }, svg("title", { text: row.names.join(", ") })),
    svg("rect", { x: left, y: y + 1, width: sx(strip.end) - left, height: step - 2, class: "track" }),
    ...bars.filter((bar) => bar.kind).map((bar) => svg("rect", { x: sx(bar.from), y: y + 1, width: Math.max(0.5, sx(bar.to) - sx(bar.from)),
      height: step - 2, class: "strip-" + bar.kind },
    svg("title", { text: `${row.names.length > 1 ? row.label : row.names[0]}: ${words[bar.kind]}, steps ${bar.from.toLocaleString("en")} to ` +
      bar.to.toLocaleString("en") }))));
}

function colourKey(className, text) {
  return el("span", { class: "key" }, svg("svg", { width: 16, height: 12 }, svg("rect", { width: 16, height: 12, class: className })), el("span", { text }));
}

function stripLegend(task, strip) {
  const shown = strip.masks.some(([, bits]) => bits === null);
  const missing = strip.masks.some(([, bits]) => bits !== null && (task.oracle || []).some((index) => bits[index] === "0"));
  return el("div", { class: "legend" },
    colourKey("strip-right", task.oracle ? "kept, and needed for the task" : "kept"),
    task.oracle ? colourKey("strip-extra", "kept, not needed") : null,
    missing ? colourKey("strip-lost", "needed, but dropped") : null,
    shown ? colourKey("strip-before", "before the first decision: everything is seen") : null,
    strip.resets.length ? el("span", { class: "key" }, svg("svg", { width: 10, height: 12 }, svg("g", { class: "reset" },
      svg("path", { d: markPath("v", 5, 6, 4) }))), el("span", { text: `the policy began anew (${strip.resets.length})` })) : null,
    el("span", { text: `${plural(strip.decisions, "decision")}` }));
}

// ---- methods x variables ----------------------------------------------------------------------------------

function keptSection(task, methods) {
  if (!task.kept.length) return [];
  const needed = new Set(task.oracle || []);
  const order = task.variables.map((_, index) => index);
  const columns = [...order.filter((k) => needed.has(k)), ...order.filter((k) => !needed.has(k))];
  const labels = columns.map((k) => shorten(task.variables[k], 26));
  const names = task.kept.map((row) => shorten(methods[row.slot].label, 26));
  const left = Math.max(84, Math.max(...names.map((name) => name.length)) * 7 + 20), gap = needed.size ? 10 : 0, cell = 20;
  const w = Math.max(11, Math.min(22, Math.floor((STRIP.width - left - gap - 12) / columns.length)));
  const head = Math.max(...labels.map((label) => label.length)) * 6.2 + 12;
  const x = (k) => left + k * w + (k >= needed.size ? gap : 0);
  const width = x(columns.length) + 12, height = head + task.kept.length * cell + (needed.size ? 26 : 8);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Variables kept by each method" });
  columns.forEach((index, k) => picture.append(svg("text", { x: 0, y: 0, transform: `translate(${x(k) + w / 2 + 3.6} ${head - 7}) rotate(-90)`,
    class: "label" + (needed.has(index) ? " needed" : ""), text: labels[k] }, svg("title", { text: task.variables[index] }))));
  task.kept.forEach((row, r) => picture.append(keptRow(task, methods[row.slot], names[r], row, columns, needed, x, w, head + r * cell, cell, left)));
  if (needed.size) picture.append(...keptBrackets(columns.length, needed.size, x, w, head + task.kept.length * cell + 6));
  return [el("h3", { text: "Who kept which variable in the end" }), keptLegend(task), el("div", { class: "drawing" }, picture)];
}

function keptRow(task, method, name, row, columns, needed, x, w, y, cell, left) {
  const parts = [svg("text", { x: left - 12, y: y + 14, "text-anchor": "end", class: "method", text: name }, svg("title", { text: method.label }))];
  columns.forEach((index, k) => {
    const share = row.count[index] / row.of, wanted = needed.has(index);
    const inner = cell - 4, filled = inner * share;
    const words = `${task.variables[index]}: kept by ${method.label} in ${row.count[index]} of ${plural(row.of, "seed")}` +
      (needed.size ? (wanted ? " (needed)" : " (not needed)") : "");
    parts.push(svg("g", {}, svg("title", { text: words }),
      svg("rect", { x: x(k) + 1, y: y + 2, width: w - 2, height: inner, class: "track" }),
      share > 0 ? svg("rect", { x: x(k) + 1, y: y + 2 + inner - filled, width: w - 2, height: filled,
        class: wanted || !task.oracle ? "strip-right" : "strip-extra" }) : null,
      wanted && share < 1 ? svg("rect", { x: x(k) + 1.8, y: y + 2.8, width: w - 3.6, height: inner - 1.6, class: "lost-frame" }) : null));
  });
  return svg("g", {}, ...parts);
}

function keptBrackets(count, needed, x, w, y) {
  const bracket = (from, to, text) => {
    const a = x(from) + 1, b = x(to - 1) + w - 1;
    return [svg("path", { d: `M${a},${y - 3}V${y}H${b}V${y - 3}`, class: "bracket" }),
      svg("text", { x: (a + b) / 2, y: y + 15, "text-anchor": "middle", text })];
  };
  return [...bracket(0, needed, needed > 5 ? `what the task needs (${needed})` : `needed (${needed})`),
    ...(count > needed ? bracket(needed, count, `not needed (${count - needed})`) : [])];
}

function keptLegend(task) {
  const partly = task.kept.some((row) => row.count.some((count) => count > 0 && count < row.of));
  const missing = task.oracle && task.kept.some((row) => task.oracle.some((index) => row.count[index] < row.of));
  return el("div", { class: "legend" },
    colourKey("strip-right", task.oracle ? "kept, and needed (in the oracle's set)" : "kept"),
    task.oracle ? colourKey("strip-extra", "kept, not needed") : null,
    missing ? colourKey("lost-frame", "needed, but dropped by some or all seeds") : null,
    partly ? el("span", { text: "A cell that is filled in part was kept by that share of the seeds." }) : null);
}
