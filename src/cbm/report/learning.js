// The part of the page about learning runs: what each task came to, curves, table, abstraction, robustness, settings.

function learningSection(learning) {
  const { methods, tasks, runs } = learning;
  const state = { hidden: new Set(), seeds: false, redraw: [] };
  const section = el("section", { id: "learning" }, taskCards(tasks, methods), stoppedSentence(runs));
  if (methods.length > 1 || runs.length > 1) section.append(methodBar(methods, runs, state));
  for (const [k, task] of tasks.entries()) section.append(taskSection(task, k, methods, runs, state));
  section.append(...runSection(runs));
  return section;
}

// ---- 1. summary -------------------------------------------------------------------------------------------

function taskCards(tasks, methods) {
  return el("div", { class: "cards" }, ...tasks.map((task, k) => {
    const row = task.rows.find((one) => methods[one.slot].colour === "cbm" && one.final) || task.rows.find((one) => one.final);
    const head = el("a", { class: "reward", href: "#task-" + k, text: task.title });
    if (!row) return el("article", { class: "card" }, head, el("div", { class: "big", text: "No evaluation yet" }));
    const kept = task.rows.length === 1 ? task.kept.find((one) => one.slot === row.slot && one.of === 1) : null;
    return el("article", { class: "card" }, head, el("div", { class: "big", text: cardHeadline(task, row, methods) }),
      kept ? keptChips(task.variables.filter((_, index) => kept.count[index])) : null, el("p", { text: cardSentence(task, row, methods) }));
  }));
}

function keptChips(names) {
  const chips = names.slice(0, 18).map((text) => el("li", { text }));
  if (names.length > chips.length) chips.push(el("li", { class: "more", text: `and ${names.length - chips.length} more` }));
  return el("ul", { class: "chips" }, ...chips);
}

function measured(task, value) {
  if (value === null || value === undefined) return "\u2013";
  return task.measure === "success" ? Math.round(100 * value) + " %" : number(value);
}

function cardHeadline(task, row, methods) {
  const what = task.measure === "success" ? `${measured(task, row.final.mean)} success` : `a return of ${measured(task, row.final.mean)}`;
  return `${methods[row.slot].label} reaches ${what}` + (row.kept ? ` with ${counted(row.kept)} of ${task.variables.length} variables` : "");
}

function cardSentence(task, row, methods) {
  const parts = [];
  if (row.exact) {
    parts.push(row.exact.of === 1 ? (row.exact.yes ? "These are exactly the variables the task needs." : "These are not exactly the ones the task needs.")
      : `Exactly the variables the task needs in ${row.exact.yes} of ${row.exact.of} seeds.`);
  }
  const oracle = task.rows.find((one) => methods[one.slot].colour === "oracle" && one.final);
  const full = task.rows.find((one) => methods[one.slot].colour === "full" && one.final);
  if (row.relative && row !== oracle) parts.push(`Area under the curve: ${row.relative.mean.toFixed(2)} of Oracle's.`);
  if (full && full !== row) parts.push(`Full, which sees everything, ends at ${measured(task, full.final.mean)}.`);
  return parts.join(" ");
}

function stoppedSentence(runs) {
  const stopped = runs.filter((run) => !run.finished);
  if (!stopped.length) return null;
  return el("p", { class: "notice", text: `${stopped.length} of ${plural(runs.length, "run")} ${stopped.length === 1 ? "is" : "are"} not finished: ` +
    stopped.slice(0, 6).map((run) => `${run.name} (${reached(run)})`).join(", ") + (stopped.length > 6 ? " and others" : "") +
    ". Means are over finished runs wherever there are any; unfinished ones are dotted." });
}

function reached(run) {
  if (run.last_step === null) return "no evaluation yet";
  return `at ${tickText(run.last_step)}${run.steps ? ` of ${tickText(run.steps)}` : ""} steps`;
}

// A count that is the same for all seeds, or its range.
function counted(entry) {
  if (!entry) return "\u2013";
  return entry.low === entry.high ? number(entry.low) : `${number(entry.low)}\u2013${number(entry.high)}`;
}

// ---- 2. methods to show -------------------------------------------------------------------------------------

function methodBar(methods, runs, state) {
  const redraw = () => state.redraw.forEach((draw) => draw());
  const keys = methods.map((method, slot) => {
    const box = el("input", { type: "checkbox" });
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked) state.hidden.delete(slot); else state.hidden.add(slot);
      redraw();
    });
    return el("label", { class: "method-key" }, box, methodKey(method), el("span", { text: method.label }));
  });
  const seeds = el("input", { type: "checkbox" });
  seeds.addEventListener("change", () => { state.seeds = seeds.checked; redraw(); });
  const each = runs.length > methods.length ? el("label", { class: "method-key apart" }, seeds, el("span", { text: "Show each seed" })) : null;
  return el("div", { class: "selector" }, ...keys, each);
}

// ---- 3. one task --------------------------------------------------------------------------------------------

function taskSection(task, k, methods, runs, state) {
  const begun = task.rows.some((row) => row.final);
  const charts = begun ? taskCharts(task, methods, state) : [];
  const beside = charts.length === 1; // no success: the size of the state has room next to the return
  const seen = begun ? keptChart(task, methods, state, beside ? CURVE : WIDE_CURVE) : null;
  state.redraw.push(...[...charts, seen].filter(Boolean).map((chart) => chart.draw));
  return el("section", { class: "task", id: "task-" + k }, el("h2", { text: task.title }),
    el("p", { class: "soft", text: taskSentence(task) }),
    el("div", { class: "charts wide" }, ...charts.map((chart) => chart.node), beside ? seen.node : null),
    ...(begun ? taskTable(task, methods) : []), ...(oneRun(task) ? [] : keptSection(task, methods)), ...(seen && !beside ? [seen.node] : []), ...stripSection(task, methods, runs),
    ...outcomeSection(task, methods), ...predictionErrorSection(task, methods));
}

// The strips of a single run already say what it kept.
function oneRun(task) {
  return task.kept.length === 1 && task.kept[0].of === 1 && task.strips.length === 1;
}

function taskSentence(task) {
  const needed = task.oracle ? ` The task needs ${task.oracle.length} of them.` : "";
  const seeds = Math.max(...task.rows.map((row) => row.seeds.length));
  const lines = seeds > 1 ? " Lines are means over seeds; bands are 95 % bootstrap intervals over seeds" +
    (seeds < 4 ? ", which with two or three seeds reach from the lowest to the highest." : ".") : "";
  return `${task.variables.length} variables${task.options ? `; ${task.options}` : ""}.${needed}${lines}`;
}

function taskCharts(task, methods, state) {
  const shared = { methods, state };
  const charts = [];
  if (task.curves.success) {
    charts.push(curveChart({ ...shared, title: "Success", yLabel: "share of episodes", lines: task.curves.success, range: [0, 1.02], format: percent }));
  }
  charts.push(curveChart({ ...shared, title: "Return", yLabel: "return of an episode", lines: task.curves.return, format: number }));
  return charts;
}

function keptChart(task, methods, state, size) {
  return curveChart({ methods, state, title: "How many variables the policy sees", yLabel: "variables", lines: task.curves.kept,
    note: task.oracle ? `Dashed: the ${task.oracle.length} that the task needs.` : "", fromZero: true, format: (value) => number(value),
    reference: task.oracle ? task.oracle.length : undefined, size });
}

function taskTable(task, methods) {
  const several = task.rows.some((row) => row.seeds.length > 1), oracle = task.rows.some((row) => row.relative);
  const body = el("tbody");
  const steps = [...new Set(task.curves[task.measure].flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const choice = el("select", { "aria-label": "Step" }, ...steps.map((step) => el("option", { value: step, text: step.toLocaleString("en") })));
  if (task.at !== null) choice.value = String(task.at);
  const what = task.measure === "success" ? "success" : "return";
  const at = el("th", { scope: "col" });
  const draw = () => {
    const step = Number(choice.value);
    at.textContent = `At ${tickText(step)}`;
    body.replaceChildren(...task.rows.map((row) => tableRow(task, methods[row.slot], row, step, several, oracle)));
  };
  choice.addEventListener("change", draw);
  draw();
  const headers = ["Method", "Seeds", `Final ${what}`, several ? "IQM" : null, at, task.measure === "success" ? "Steps to 50 %" : null,
    task.until ? `Area to ${tickText(task.until)}` : "Area", oracle ? "of Oracle\u2019s" : null, "Kept", "Exact", "Minutes", "Demos"];
  const head = el("tr", {}, ...headers.map((text) => (typeof text === "string" ? el("th", { text, scope: "col" }) : text)));
  const tools = steps.length > 1 ? el("div", { class: "tools" }, el("label", {}, el("span", { text: `Compare ${what} at step` }), choice)) : null;
  return [el("h3", { text: "In numbers" }), tools,
    el("div", { class: "scroll" }, el("table", { class: "numbers results" }, el("thead", {}, head), body)),
    el("p", { class: "soft small", text: tableSentence(task) })];
}

function tableSentence(task) {
  const seeds = Math.max(...task.rows.map((row) => row.seeds.length));
  return (seeds > 1 ? "Numbers are means over seeds, with 95 % bootstrap intervals over seeds below them; IQM is the mean of the middle half of the seeds. " : "") +
    `Area: mean height of the curve${task.until ? ` up to step ${task.until.toLocaleString("en")}` : ""}. ` +
    (task.measure === "success" ? "Steps to 50 %: where the curve, straight between evaluations, first gets there. " : "") +
    "Kept: variables the policy sees in the end; exact: these are the ones the task needs. Demos: scripted episodes in the buffer at the start.";
}

function tableRow(task, method, row, step, several, oracle) {
  const line = task.curves[task.measure].find((one) => one.slot === row.slot);
  const point = line && line.points.find((one) => one[0] === step);
  const value = (entry, words) => {
    if (!entry) return el("td", { class: "number", text: "\u2013" });
    const interval = entry.low === null || entry.low === undefined ? null : el("div", { class: "interval", text: `${words(entry.low)} ${entry.low < 0 ? "to" : "\u2013"} ${words(entry.high)}` });
    return el("td", { class: "number" }, el("div", { text: words(entry.mean) }), interval);
  };
  const plain = (text) => el("td", { class: "number", text });
  const inTask = (number) => measured(task, number);
  const area = task.measure === "success" ? (v) => v.toFixed(3) : (v) => number(v);
  return el("tr", {}, el("td", { class: "method-name" }, methodKey(method), el("span", { text: method.label })),
    el("td", { class: "number" }, ...seedWords(row)), value(row.final, inTask), several ? plain(row.final ? inTask(row.final.iqm) : "\u2013") : null,
    value(point && { mean: point[1], low: point[2], high: point[3] }, inTask),
    task.measure === "success" ? el("td", { class: "number" }, ...halfWords(row.half)) : null,
    value(row.area, area), oracle ? value(row.relative, (v) => v.toFixed(2)) : null, plain(counted(row.kept)),
    plain(row.exact ? (row.exact.of === 1 ? (row.exact.yes ? "yes" : "no") : `${row.exact.yes} of ${row.exact.of}`) : "\u2013"),
    el("td", { class: "number" }, el("div", { text: row.minutes ? number(row.minutes.mean, 2) : "\u2013" }),
      row.tasks > 1 ? el("div", { class: "interval", text: `${row.tasks} tasks in one run` }) : null),
    plain(counted(row.demonstrations)));
}

function seedWords(row) {
  const parts = [el("div", { text: row.finished ? String(row.seeds.length) : row.seeds.length ? `${row.seeds.length}, not finished` : "none yet" })];
  if (row.unfinished.length && row.finished) parts.push(el("div", { class: "interval", text: `+ ${row.unfinished.length} not finished` }));
  return parts;
}

function halfWords(half) {
  if (!half.of) return [el("div", { text: "\u2013" })];
  if (!half.reached) return [el("div", { text: "not reached" })];
  return [el("div", { text: Math.round(half.mean).toLocaleString("en") }),
    half.reached < half.of ? el("div", { class: "interval", text: `${half.reached} of ${half.of} seeds` }) : null];
}

// An option and its value stay on one line.
function commandText(text) {
  const parts = text.split(/ (?=--)/);
  return el("code", {}, ...parts.flatMap((part) => [el("span", { class: "option", text: part }), " "]));
}

// ---- 4. runs --------------------------------------------------------------------------------------------------

function runSection(runs) {
  const rows = runs.map((run) => el("tr", {}, el("td", { class: "name", text: run.name, title: run.name }),
    el("td", { class: "state", text: run.finished ? "finished" : reached(run) }),
    el("td", { class: "number", text: duration(run.seconds) }), el("td", {}, commandText(run.command))));
  const files = runs.map((run) => el("details", {}, el("summary", { text: run.name }),
    el("pre", { text: JSON.stringify(run.config, null, 2) }), run.result ? el("pre", { text: JSON.stringify(run.result, null, 2) }) : null));
  return [el("h2", { text: runs.length === 1 ? "The run" : "The runs" }),
    el("p", { class: "soft", text: "Commands are put together from the settings of each run." }),
    el("div", { class: "scroll" }, table(["Run", "State", "Time", "Command"], rows, "commands")),
    el("details", {}, el("summary", { text: `Settings and results (${runs.length})` }), ...files)];
}
