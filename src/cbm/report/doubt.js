// What is certain and what is not: the card of each reward, undecided links and cells, and what would settle them.

// ---- the card of a reward -------------------------------------------------------------------------------

function rewardCard(run, reward) {
  const unsure = new Set(reward.possible);
  const certain = reward.kept.filter(([index]) => !unsure.has(index)), possible = reward.kept.filter(([index]) => unsure.has(index));
  return el("article", { class: "card" },
    el("div", { class: "reward", text: reward.name }),
    el("div", { class: "big", text: cardTitle(run, reward, certain.length, possible.length) }),
    chipList(run, certain, "", reward, "certain"), possible.length && reward.decided ? el("p", { text: `${possible.length}${certain.length ? " more" : ""} cannot be ruled out:` }) : null,
    reward.decided ? chipList(run, possible, "possible", reward, "kept") : null,
    el("p", { text: stateSentence(run, reward, certain) + actionSentence(run, reward) + truthSentence(run, reward) }),
    reward.coarse && reward.decided ? el("p", { class: "doubt small", text: reward.coarse[0].toUpperCase() + reward.coarse.slice(1) + "." }) : null,
    run.bootstrap && reward.bootstrap ? el("p", { text: bootstrapSentence(run, reward, certain, possible) }) : null);
}

// What the numbers on the chips mean, and what came out of resampled logs but not here.
function bootstrapSentence(run, reward, certain, possible) {
  const total = run.bootstrap.replicates, times = reward.bootstrap, kept = new Set(reward.kept.map(([index]) => index));
  const others = times.kept.map((count, index) => [count, index]).filter(([count, index]) => count && !kept.has(index)).sort((a, b) => b[0] - a[0]);
  const named = others.slice(0, 4).map(([count, index]) => `${run.variables[index]} ${count}/${total}`).join(", ");
  const meant = [certain.length ? "certainly needed" : "", possible.length ? "not ruled out (dashed)" : ""].filter(Boolean).join(" or ");
  return (meant ? `The numbers say in how many of ${total} logs with resampled episodes a variable was ${meant}; where there is none, in all. `
    : `${total} logs with resampled episodes were searched too. `) +
    (others.length ? `Not kept here, but not ruled out in some of them: ${named}${others.length > 4 ? ` and ${others.length - 4} more` : ""}.`
      : "No log needed anything else.");
}

function cardTitle(run, reward, certain, possible) {
  if (!reward.decided) return "Undecided";
  return `${certain} of ${run.variables.length} variables ${possible ? "certainly " : ""}matter`;
}

// With resampled logs, a variable that did not come out of all of them as it did here says of how many it did.
function chipList(run, entries, className, reward, kind) {
  const shown = entries.slice(0, 18), times = reward.bootstrap && reward.bootstrap[kind];
  const chips = shown.map(([index]) => el("li", {
    class: className, text: run.variables[index] + (times && times[index] < run.bootstrap.replicates ? ` ${times[index]}/${run.bootstrap.replicates}` : ""),
  }));
  if (entries.length > shown.length) chips.push(el("li", { class: "more", text: `and ${entries.length - shown.length} more` }));
  return chips.length ? el("ul", { class: "chips" }, ...chips) : null;
}

function stateSentence(run, reward, certain) {
  if (!reward.decided) {
    const reasons = commonest(run.reason.filter(([row]) => row === run.variables.length + run.rewards.indexOf(reward)).map((cell) => run.reasons[cell[2]]));
    return "No variable could be tied to this reward or ruled out" + (reasons.length ? `: ${reasons.slice(0, 3).join("; ")}.` : ".");
  }
  const direct = certain.filter(([index]) => reward.verdict[index] === "e").length, others = certain.length - direct;
  if (direct === 0) return "No variable was found that certainly determines this reward.";
  return `${direct} ${direct === 1 ? "determines" : "determine"} the reward directly` +
    (others ? `, ${others} more ${others === 1 ? "influences" : "influence"} those.` : "; nothing else certainly influences those.");
}

function actionSentence(run, reward) {
  if (!reward.action) return "";
  if (reward.action.verdict === "e") return " It depends on the action itself too.";
  if (reward.action.verdict === "n") return " It does not depend on the action itself.";
  const why = cellReason(run, run.variables.length + run.rewards.indexOf(reward), run.variables.length);
  return " Whether it depends on the action itself is undecided" + (why ? `: ${why}.` : ".");
}

function truthSentence(run, reward) {
  if (!reward.true_abstraction || !reward.decided) return "";
  const kept = new Set(reward.kept.map(([index]) => index)), needed = new Set(reward.true_abstraction), unsure = new Set(reward.possible);
  const missing = [...needed].filter((index) => !kept.has(index)), extra = [...kept].filter((index) => !needed.has(index));
  if (!missing.length && !extra.length) return " This is exactly the set that the known graph gives.";
  const names = (indices) => indices.map((index) => run.variables[index]).join(", ");
  const parts = [["missing", missing], ["too many", extra.filter((index) => !unsure.has(index))],
    ["not ruled out, though not needed", extra.filter((index) => unsure.has(index))]];
  return " Against the known graph, " + parts.filter(([, list]) => list.length).map(([title, list]) => `${title}: ${names(list)}`).join("; ") + ".";
}

function neededCount(run, reward) {
  const unsure = reward.kept.filter(([index]) => reward.possible.includes(index)).length;
  return `${reward.kept.length - unsure}${unsure ? ` (+${unsure})` : ""} of ${run.variables.length}`;
}

// Each text once, the most frequent first.
function commonest(texts) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) || 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
}

// The links that leave a variable in doubt, with the reason of each, under its path.
function undecidedLinks(reward, index) {
  const place = reward.possible.indexOf(index);
  return place < 0 ? [] : reward.undecided_links[place].map((link) => el("span", { class: "doubt small", text: "undecided: " + link }));
}

function unsettledSentence(counts) {
  return `${counts.unsettled.toLocaleString("en")} of ${plural(counts.cells, "cell")} had not settled when the time was up. ` +
    "A longer run, or one without a ceiling, may decide them.";
}

// ---- 6. decisions -----------------------------------------------------------------------------------------

function decisionSection(run) {
  const undecided = undecidedCells(run);
  const nodes = [el("h2", { text: "What was decided, and why" }),
    el("p", { text: decisionRule(run) + limitSentence(run) + rateSentence(run) }), el("p", { text: undecidedSentence(run, undecided) })];
  if (run.advice.length) {
    nodes.push(el("p", { text: "What would settle them:" }), el("ul", { class: "advice" }, ...run.advice.map((text) => el("li", { text }))));
  }
  if (undecided.length) {
    nodes.push(el("details", {}, el("summary", { text: plural(undecided.length, "undecided cell") }),
      el("div", { class: "scroll" }, table(["Cause \u2192 effect", "CMI (nats)", "Threshold (nats)", "Why it is undecided", "Best guess"],
        undecided.map((facts) => undecidedRow(facts))))));
  }
  const file = (title, content) => (content === null ? null : el("details", {}, el("summary", { text: title }),
    el("pre", { text: JSON.stringify(content, null, 2) })));
  return [...nodes, file("Settings (config.json)", run.config), file("Result (result.json)", run.result)].filter(Boolean);
}

function undecidedRow(facts) {
  const row = cellRow(facts, facts.reason || "no reason is recorded");
  row.append(el("td", { text: facts.edge ? "edge" : "no edge" }));
  return row;
}

function undecidedCells(run) {
  const d = run.variables.length, found = [];
  const scan = (row, verdicts) => {
    [...verdicts].forEach((verdict, column) => { if (verdict === "u") found.push(cellFacts(run, row, column)); });
  };
  run.verdict.forEach((verdicts, row) => scan(row, verdicts));
  run.rewards.forEach((reward, k) => scan(d + k, reward.verdict + (reward.action ? reward.action.verdict : "")));
  return found;
}

function decisionRule(run) {
  const { low, median, high } = run.threshold_range;
  const thresholds = low === high ? `The threshold is ${number(low)} nats for every cell.`
    : `Each cell has its own threshold, because noise differs from variable to variable: from ${number(low)} to ${number(high)} ` +
      `nats, ${number(median)} in the middle.`;
  return "A measured CMI is never exactly zero, so it is compared with a threshold. " + ruleWords(run.config) + " " + thresholds;
}

// The rule is named in the settings; without them only what holds for every rule is said.
function ruleWords(config) {
  const rule = config && (config.rule || (config.settings && config.settings.rule));
  if (rule === "threshold") return "At or above it, the cell is an edge; below it, there is none (the rule of the paper).";
  const zones = "Clearly above it, the cell is an edge; clearly below it, there is none; where the measurement error leaves both " +
    "possible, the cell is undecided.";
  if (rule !== "calibrated") return zones;
  return zones + " The threshold comes from the data: time-shifted copies of real variables, which cannot matter, were measured " +
    "in the same way, and show how large a CMI becomes by chance.";
}

// "No edge" has a meaning only together with the weakest effect that would have been seen.
function limitSentence(run) {
  if (!run.limit_range) return "";
  const { low, median, high } = run.limit_range;
  const size = low === high ? `${number(low)} nats` : `${number(low)} to ${number(high)} nats, depending on the effect, ${number(median)} in the middle`;
  return ` \u201cNo edge\u201d means: no effect above the limit of detection, ${size}.`;
}

function rateSentence(run) {
  const { false: wrong, missed } = run.rates;
  const parts = [wrong === null ? null : `at most ${percent(wrong)} of the edges are expected to be wrong`,
    missed === null ? null : `at most ${percent(missed)} of the effects above that limit to be missed`].filter(Boolean);
  return parts.length ? ` Verdicts are controlled: ${parts.join(", and ")}.` : "";
}

function undecidedSentence(run, undecided) {
  if (!undecided.length) return "No cell was left undecided.";
  const use = run.as_guessed ? "The policies of this run went by the best guess. "
    : "Such a link cannot be ruled out, so a minimal state keeps what it may let in, and says so. ";
  return `${plural(undecided.length, "cell")} could not be decided from this data. ${use}` +
    "Frames in the matrix, and scores against a known graph, go by the best guess.";
}
