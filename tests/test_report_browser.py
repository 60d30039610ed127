"""The report page in a real browser: nothing loaded or injected, cells that answer, rewards that switch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.graph.explain import plus_minus
from cbm.report import write_report
from test_report import NAMES, make_doubtful_graph, make_graph, save_run  # type: ignore[import-not-found]

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="no chromium with chromedriver found (Debian: apt-get install chromium chromium-driver)",
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1360,1000",
)
EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "__proto__",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def prediction(names: tuple[str, ...]) -> dict[str, Any]:
    rollout = [{"steps": k, "error": 0.1 * k, "baseline": 0.3 * k} for k in (1, 2, 5)]
    d = len(names)
    return {"variables": names, "error": [0.2] * d, "baseline": [0.7] * d, "rollout": rollout}


def open_page(browser: Any, page: Path) -> None:
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # forget what earlier pages said
    browser.get(page.as_uri())


def requests(browser: Any, page: Path) -> list[str]:
    """What was asked for from this page on; the browser's own start page comes before it, or is late."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in urls[urls.index(page.as_uri()) :] if not url.startswith("chrome")]


def complaints(browser: Any) -> list[str]:
    log = browser.get_log("browser")
    return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]


def hover(browser: Any, row: int, column: int) -> str:
    """Move the mouse onto a cell and read the tooltip."""
    place = browser.execute_script("return cbmReport.cellCenter(arguments[0], arguments[1])", row, column)
    mouse = {"type": "mouseMoved", "x": place["x"], "y": place["y"]}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    return tooltip(browser)


def tooltip(browser: Any) -> str:
    script = "const box = document.getElementById('tooltip'); return box.hidden ? '' : box.innerText"
    return browser.execute_script(script)


def kept_nodes(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.node.kept')].map(node => node.dataset.name)"
    return sorted(browser.execute_script(script))


def full_run(tmp_path: Path, names: tuple[str, ...] = NAMES) -> Path:
    graph = make_graph(names)
    truth = graph.adjacency.copy()
    truth[0, 2], truth[1, 0] = True, False
    content = {"variables": names, "adjacency": truth.astype(int).tolist(), "rewards": {"near": [names[1]]}}
    others = {"prediction": prediction(names), "config": {"note": EVIL}}
    run_dir = save_run(tmp_path / "run", graph, truth=content, **others)
    steps = [{"phase": EVIL[0], "step": k, "loss_full": 1 / (k + 1), "loss_x": 0.1} for k in range(9)]
    (run_dir / "metrics.jsonl").write_text("\n".join(map(json.dumps, steps)), encoding="utf-8")
    return run_dir


def test_page_is_complete_silent_and_offline(browser: Any, tmp_path: Path) -> None:
    page = write_report([full_run(tmp_path)], tmp_path / "report.html")
    open_page(browser, page)
    headings = browser.execute_script("return [...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert [text.split()[0] for text in headings] == ["Which", "How", "The", "How", "Training", "What"]
    assert "2 of 5 variables matter" in browser.page_source
    assert complaints(browser) == []
    assert requests(browser, page) == [page.as_uri()]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_hovering_a_cell_shows_its_cmi(browser: Any, tmp_path: Path) -> None:
    graph = make_graph(NAMES)
    open_page(browser, write_report([full_run(tmp_path)], tmp_path / "report.html"))
    for row, column in ((2, 1), (0, 5), (4, 0)):
        text = hover(browser, row, column)
        cause = (*NAMES, "action")[column]
        assert text.startswith(f"{cause} \u2192 {NAMES[row]}\n")
        assert f"CMI {plus_minus(graph.cmi[row, column], graph.stderr[row, column])} nats" in text
        assert "threshold 0.02 nats" in text
        assert f"verdict: {'edge' if graph.adjacency[row, column] else 'no edge'}" in text
    assert "verdict: undecided" in hover(browser, 0, 1)
    assert "missed" in hover(browser, 0, 2)
    assert "spurious" in hover(browser, 1, 0)
    assert "hand_y \u2192 reward near" in hover(browser, 5, 1)
    assert "not measured" in hover(browser, 5, 5)


def test_keyboard_walks_over_the_cells(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    open_page(browser, write_report([full_run(tmp_path)], tmp_path / "report.html"))
    canvas = browser.find_element("css selector", "canvas[tabindex]")
    canvas.send_keys(Keys.ARROW_DOWN)  # the first key lands on the first cell, or moves on from it
    canvas.send_keys(Keys.ARROW_RIGHT)
    before = tooltip(browser)
    canvas.send_keys(Keys.ARROW_DOWN)
    assert "CMI" in before and tooltip(browser) not in ("", before)
    canvas.send_keys(Keys.ESCAPE)
    assert tooltip(browser) == ""


def test_switching_the_reward_changes_what_is_highlighted(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    graph = make_graph(NAMES)
    open_page(browser, write_report([full_run(tmp_path)], tmp_path / "report.html"))
    picture = "return document.querySelector('canvas[tabindex]').toDataURL()"
    rows = "return [...document.querySelectorAll('.kept-table td.name')].map(n => n.textContent)"
    assert kept_nodes(browser) == sorted(graph.abstraction("near"))
    assert browser.execute_script(rows) == list(graph.abstraction("near"))
    before = browser.execute_script(picture)
    browser.find_element("css selector", "input[type=radio]").send_keys(Keys.ARROW_RIGHT)
    assert kept_nodes(browser) == sorted(graph.abstraction("far"))
    assert browser.execute_script(rows) == list(graph.abstraction("far"))
    assert browser.execute_script(picture) != before
    assert complaints(browser) == []


def test_hostile_names_are_only_text(browser: Any, tmp_path: Path) -> None:
    page = write_report([full_run(tmp_path, (*EVIL, "plain"))], tmp_path / "report.html")
    open_page(browser, page)  # an alert would make the next command fail
    foreign = "return document.querySelectorAll('main script, img, [onload], [onerror]').length"
    assert browser.execute_script(foreign) == 0
    text = browser.execute_script("return document.querySelector('main').innerText")
    assert all(name in text for name in EVIL)
    assert hover(browser, 1, 0).startswith(f"{EVIL[0]} \u2192 {EVIL[1]}\n")
    assert complaints(browser) == []
    assert requests(browser, page) == [page.as_uri()]


def test_the_policy_really_stops_injected_code(browser: Any, tmp_path: Path) -> None:
    open_page(browser, write_report([full_run(tmp_path)], tmp_path / "report.html"))
    browser.execute_script(
        "const b = document.createElement('b'); b.innerHTML = '<i onclick=\"window.hit = 1\"></i>';"
        "document.body.append(b); b.firstChild.click();"
    )
    assert browser.execute_script("return window.hit") is None


@pytest.mark.parametrize("count", [100, 320])
def test_many_variables(browser: Any, tmp_path: Path, count: int) -> None:
    graph = make_graph(tuple(f"part{k // 10}_{k % 10}" for k in range(count)))
    open_page(browser, write_report([save_run(tmp_path / "run", graph)], tmp_path / "report.html"))
    assert browser.execute_script("return document.querySelectorAll('*').length") < 40 * count
    last = count - 1
    value = plus_minus(graph.cmi[last, last - 1], graph.stderr[last, last - 1])
    assert f"CMI {value} nats" in hover(browser, last, last - 1)
    assert kept_nodes(browser) == sorted(graph.abstraction("near")), "by default only what matters is drawn"
    browser.find_element("css selector", ".tools input").send_keys(" ")  # kept variables first
    assert f"CMI {value} nats" in hover(browser, last, last - 1)
    assert complaints(browser) == []


def test_several_runs_and_a_graph_without_rewards(browser: Any, tmp_path: Path) -> None:
    bare = make_graph(NAMES)
    object.__setattr__(bare, "rewards", {})
    dirs = [full_run(tmp_path), save_run(tmp_path / "bare", bare)]
    open_page(browser, write_report(dirs, tmp_path / "report.html"))
    lines = "return [...document.querySelectorAll('#comparison tbody tr')].map(row => row.innerText)"
    rows = browser.execute_script(lines)
    f1 = np.round(bare.compare(json.loads((dirs[0] / "truth.json").read_text())["adjacency"]).f1, 3)
    assert len(rows) == 2 and f"{f1:g}" in rows[0] and "2 of 5" in rows[0] and "no truth" in rows[1]
    assert browser.execute_script("return document.querySelectorAll('section.run').length") == 2
    assert complaints(browser) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"rule": "threshold"}, "At or above it"),
        ({"settings": {"rule": "calibrated"}}, "time-shifted copies"),
        ({"rule": 7}, "Clearly above it"),
        (None, "Clearly above it"),
    ],
)
def test_the_decision_rule_is_told_as_it_was(browser: Any, tmp_path: Path, config: Any, words: str) -> None:
    run_dir = save_run(tmp_path / "run", make_graph(NAMES), config=config)
    open_page(browser, write_report([run_dir], tmp_path / "report.html"))
    assert words in browser.execute_script("return document.querySelector('main').innerText")
    assert complaints(browser) == []


def test_doubt_is_shown(browser: Any, tmp_path: Path) -> None:
    """Near has certain and possible variables; nothing is known about far."""
    run_dir = save_run(tmp_path / "run", make_doubtful_graph(NAMES))
    open_page(browser, write_report([run_dir], tmp_path / "report.html"))
    texts = "return [...document.querySelectorAll(arguments[0])].map(node => node.innerText)"
    near, far = browser.execute_script(texts, ".card")
    assert "2 of 5 variables certainly matter" in near and "3 more cannot be ruled out" in near
    assert "Whether it depends on the action itself is undecided: near the threshold." in near
    assert browser.execute_script(texts, ".card .chips li.possible") == ["block_x", "block_y", "sun"]
    assert "Undecided" in far and "not settled before the ceiling" in far and "variables" not in far
    assert browser.execute_script(texts, ".kept-table:not(.possible-table) td.name") == ["hand_x", "hand_y"]
    assert browser.execute_script(texts, ".possible-table td.name") == ["block_x", "block_y", "sun"]
    words = " ".join(browser.execute_script(texts, ".possible-table")[0].split())
    assert "sun -?-> hand_x -> hand_y -> reward near" in words
    assert "undecided: sun -?-> hand_x: hardly varies by itself: goes with x" in words
    assert kept_nodes(browser) == sorted(NAMES)
    dashed = "return [...document.querySelectorAll('.node.possible')].map(node => node.dataset.name)"
    assert sorted(browser.execute_script(dashed)) == ["block_x", "block_y", "sun"]
    assert browser.execute_script("return document.querySelectorAll('.drawing .edge.undecided').length") == 2
    (notice,) = browser.execute_script(texts, ".notice")
    assert notice.startswith("6 of 40 cells had not settled")
    assert any("sun moves independently of x" in line for line in browser.execute_script(texts, ".advice li"))
    cell = hover(browser, 0, 4)
    assert "why: hardly varies by itself: goes with x" in cell and "limit of detection 0.003 nats" in cell
    assert "best guess: no edge" in cell
    assert "verdict: no edge above 0.003 nats" in hover(browser, 0, 2)
    assert "had not settled" in hover(browser, 4, 4)
    action = hover(browser, 5, 5)
    assert "action \u2192 reward near" in action and "why: near the threshold" in action
    assert "not measured" in hover(browser, 6, 5)
    assert complaints(browser) == []


def test_a_small_matrix_is_shown_whole(browser: Any, tmp_path: Path) -> None:
    """A canvas is 300 pixels wide before it gets its size, which once left scroll bars' room in small frames."""
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><body>{make_graph(('a', 'b', 'c'))._repr_html_()}", encoding="utf-8")
    open_page(browser, page)
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    script = """const frame = document.querySelector('.viewport'), canvas = frame.querySelector('canvas');
        return [canvas.clientWidth, canvas.clientHeight, frame.clientWidth, frame.clientHeight]"""
    width, height, *room = browser.execute_script(script)
    browser.switch_to.default_content()
    assert [width, height] == room


def test_a_frame_that_gets_its_width_late_is_drawn_again(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "notebook.html"
    frame = make_graph(("a", "b", "c"))._repr_html_()
    page.write_text(f"<!doctype html><body><div style='width:0'>{frame}</div>", encoding="utf-8")
    open_page(browser, page)
    width = "return document.querySelector('.viewport').clientWidth"
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    assert browser.execute_script(width) < 50
    browser.switch_to.default_content()
    browser.execute_script("document.querySelector('div').style.width = '800px'")
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    WebDriverWait(browser, 20).until(lambda _: browser.execute_script(width) > 150)
    browser.switch_to.default_content()


def test_only_what_certainly_acts_by_itself_is_called_direct(browser: Any, tmp_path: Path) -> None:
    """The first variable is needed by way of the second; whether it also acts by itself is undecided."""
    graph = make_graph(NAMES)
    verdict = graph.rewards["near"].verdict.astype("<U9")
    verdict[0] = "undecided"
    near = replace(graph.rewards["near"], verdict=verdict)
    run = save_run(tmp_path / "run", replace(graph, rewards={"near": near}))
    open_page(browser, write_report([run], tmp_path / "report.html"))
    script = "return [...document.querySelectorAll('.kept-table tr.kept')].map(row => row.lastChild.innerText)"
    first, second = browser.execute_script(script)
    assert first.startswith(f"{NAMES[0]} -> {NAMES[1]} -> reward near (CMI") and "direct" not in first
    assert second.startswith(f"{NAMES[1]} -> reward near (CMI") and second.endswith("direct")


def test_a_tall_matrix_leaves_no_room_in_a_tall_window(browser: Any, tmp_path: Path) -> None:
    run = save_run(tmp_path / "run", make_graph(tuple(f"v{i}" for i in range(140))))
    page = write_report([run], tmp_path / "report.html")
    browser.set_window_size(1360, 4000)
    open_page(browser, page)
    script = """const frame = document.querySelector('.viewport');
        return [frame.clientHeight, frame.querySelector('.extent').offsetHeight]"""
    shown, whole = browser.execute_script(script)
    browser.set_window_size(1360, 1000)
    assert shown <= whole + 16
