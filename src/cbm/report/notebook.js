// A graph in a notebook: the cards of the rewards and the heat map, nothing else.

function start() {
  const run = JSON.parse(document.getElementById("payload").textContent).run;
  const page = document.getElementById("report");
  page.classList.add("frame");
  const state = { reward: 0 };
  const heat = buildHeatMap(run, state);
  const cards = run.rewards.map((reward, index) => {
    const card = rewardCard(run, reward);
    if (run.rewards.length > 1) card.addEventListener("click", () => { state.reward = index; heat.redraw(); });
    return card;
  });
  page.replaceChildren(el("div", { class: "run" }, cards.length ? el("div", { class: "cards" }, ...cards) : null,
    heat.legend, el("div", {}, heat.frame)));
  // A frame may have no width yet when its script runs, and gets it without an event of the window.
  let width = -1;
  const fit = () => {
    if (page.clientWidth === width) return;
    width = page.clientWidth;
    heat.redraw();
  };
  fit();
  new ResizeObserver(fit).observe(page);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", heat.redraw);
}

start();
