"""The page about learning runs in a real browser: complete, silent, offline, and answering to mouse and keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbm.report import write_report
from learning_runs import METHODS, grid, names_of, oracle_of, write_run  # type: ignore[import-not-found]
from test_report import make_graph  # type: ignore[import-not-found]
from test_report_browser import (  # type: ignore[import-not-found]
    EVIL,
    browser,  # noqa: F401  (a fixture)
    complaints,
    full_run,
    open_page,
    pytestmark,  # noqa: F401  (skips without a browser)
    requests,
    tooltip,
)


def texts(driver: Any, selector: str) -> list[str]:
    """What is read there; for words in a picture without the hint that comes with them."""
    words = "node => node.innerText ?? node.firstChild.textContent"
    return driver.execute_script(f"return [...document.querySelectorAll(arguments[0])].map({words})", selector)


def count(driver: Any, selector: str) -> int:
    return driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def choose(driver: Any, selector: str, value: Any) -> None:
    driver.execute_script(
        "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))",
        selector,
        str(value),
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven methods, two tasks, three seeds, one of them not finished."""
    root = tmp_path_factory.mktemp("grid")
    runs = grid(root / "runs", evaluation=True)
    runs.append(write_run(root / "runs" / "late", "cbm", ("pick",), 3, finished=False, until=60_000))
    return write_report(runs, root / "report.html")


def test_seven_methods_two_tasks(browser: Any, compared: Path) -> None:  # noqa: F811
    open_page(browser, compared)
    assert texts(browser, "h1") == ["Learning compared: 43 runs"]
    assert texts(browser, "h2") == ["contact \u00b7 pick", "contact \u00b7 stack", "The runs"]
    assert count(browser, "figure.chart") == 2 * 5, "success, return, size of the state, two of prediction"
    assert count(browser, "#task-0 .results tbody tr") == 7
    first = texts(browser, "#task-0 .results tbody tr")
    assert first[0].startswith("Oracle") and "3 of 3" in first[0]
    assert first[1].startswith("CBM") and "not finished" in first[1]
    assert "late (at 60 k of 160 k steps)" in texts(browser, ".notice")[0]
    assert all(count(browser, f"#task-1 .plot .mean.m-{method}") == 3 for method in METHODS)
    assert complaints(browser) == []
    assert requests(browser, compared) == [compared.as_uri()]
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_methods_and_seeds_can_be_shown_and_hidden(browser: Any, compared: Path) -> None:  # noqa: F811
    open_page(browser, compared)
    boxes = browser.find_elements("css selector", ".selector input")
    assert texts(browser, ".method-key")[:2] == ["Oracle", "CBM"] and len(boxes) == 8
    assert count(browser, ".plot .seed") == 3, "only the unfinished run, in the three charts of its task"
    boxes[-1].send_keys(" ")
    assert count(browser, ".plot .seed") == (2 * 21 + 1) * 3
    boxes[6].send_keys(" ")  # Full
    assert count(browser, ".plot .m-full") == 0 and count(browser, ".plot .m-cbm") > 0
    boxes[6].send_keys(" ")
    assert count(browser, ".plot .m-full") > 0
    assert complaints(browser) == []


def test_values_on_the_curves(browser: Any, compared: Path) -> None:  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    open_page(browser, compared)
    payload = browser.execute_script("return cbmReport.payload.learning.tasks[0].curves.success")
    plot = browser.find_element("css selector", "#task-0 .plot")
    plot.send_keys(Keys.ARROW_RIGHT)
    for _ in range(7):
        plot.send_keys(Keys.ARROW_RIGHT)
    lines = tooltip(browser).split("\n")
    assert lines[0] == "step 80,000" and len(lines) == 8
    mean, low, high = payload[1]["points"][7][1:4]
    assert f"CBM: {100 * mean:.1f} % ({100 * low:.1f} % to {100 * high:.1f} %)" in lines
    plot.send_keys(Keys.ESCAPE)
    assert tooltip(browser) == ""
    box = browser.execute_script("return document.querySelector('#task-0 .plot').getBoundingClientRect().toJSON()")
    mouse = {"type": "mouseMoved", "x": box["x"] + box["width"] - 16, "y": box["y"] + 40}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    assert tooltip(browser).startswith("step 160,000\n")
    assert complaints(browser) == []


def test_another_step_in_the_table(browser: Any, compared: Path) -> None:  # noqa: F811
    open_page(browser, compared)
    line = browser.execute_script("return cbmReport.payload.learning.tasks[0].curves.success[1].points")
    cell = "#task-0 .results tbody tr:nth-child(2) td:nth-child(5)"
    assert texts(browser, "#task-0 .results th")[4] == "At 80 k"
    assert texts(browser, cell)[0].startswith(f"{round(100 * line[7][1])} %")
    choose(browser, "#task-0 .tools select", 60000)
    assert texts(browser, "#task-0 .results th")[4] == "At 60 k"
    assert texts(browser, cell)[0].startswith(f"{round(100 * line[5][1])} %")


def test_strips_of_another_run(browser: Any, compared: Path) -> None:  # noqa: F811
    open_page(browser, compared)
    task = browser.execute_script("return cbmReport.payload.learning.tasks[0]")
    labels = "#task-0 .strip text.label"
    assert count(browser, labels + ".needed") == 7 and count(browser, "#task-0 .strip g.reset line") > 0
    assert any("others never kept" in text for text in texts(browser, labels))
    full = next(k for k, strip in enumerate(task["strips"]) if strip["slot"] == 6)
    choose(browser, "#task-0 .strip-tools select", full)
    assert "29 others kept throughout" in texts(browser, labels)
    browser.find_element("css selector", "#task-0 .strip-tools input").send_keys(" ")
    assert count(browser, labels) == 36
    assert complaints(browser) == []


@pytest.mark.parametrize("dark", [False, True])
def test_both_colour_schemes(browser: Any, compared: Path, dark: bool) -> None:  # noqa: F811
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_page(browser, compared)
    colour = browser.execute_script("return getComputedStyle(document.querySelector('.plot .mean.m-cbm')).stroke")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colour == ("rgb(74, 118, 245)" if dark else "rgb(31, 74, 148)")


def test_one_run(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    path = write_run(tmp_path / "run", evaluation=True)
    make_graph(("a", "b", "c", "d")).save(path)
    open_page(browser, write_report([path], tmp_path / "report.html"))
    assert texts(browser, "h1")[0] == "How CBM learned contact \u00b7 pick"
    assert texts(browser, "#learning .chips li") == oracle_of(names_of(36), "pick")
    assert count(browser, ".selector .method-key") == 0 and count(browser, ".band") == 0
    assert "IQM" not in texts(browser, ".results th")
    assert count(browser, "section.run canvas[tabindex]") == 1, "the graph it was derived from"
    assert complaints(browser) == []


def test_many_variables_with_long_names(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    names = tuple(f"{name}_{'long_' * 12}{k}" for k, name in enumerate(names_of(87)))
    runs = grid(tmp_path / "runs", tasks=("pick",), seeds=2, names=names)
    open_page(browser, write_report(runs, tmp_path / "report.html"))
    assert "with 7 of 87 variables" in texts(browser, ".card .big")[0]
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert count(browser, ".drawing text.method") == 7
    assert complaints(browser) == []


def test_return_only_and_a_run_that_has_only_begun(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    runs = grid(tmp_path, methods=("cbm", "full"), tasks=("walk",), seeds=2, success=False, evaluation=True)
    runs.append(write_run(tmp_path / "new", "icp", ("pick",), finished=False, until=1))
    (runs[-1] / "eval.csv").unlink()
    open_page(browser, write_report(runs, tmp_path / "report.html"))
    assert texts(browser, "#task-0 .results th")[2] == "Final return"
    assert "No evaluation yet" in texts(browser, ".card .big")
    assert count(browser, "#task-1 .plot") == 0
    assert complaints(browser) == []


def test_hostile_names(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    evil = {"world": EVIL[0], "options": {EVIL[1]: EVIL[2]}, "note": EVIL}
    runs = [
        write_run(tmp_path / f"x{seed}", "tia", (EVIL[1],), seed, names=(*EVIL, "plain"), evaluation=True, config=evil)
        for seed in range(2)
    ]
    page = write_report([*runs, full_run(tmp_path)], tmp_path / "report.html")
    open_page(browser, page)  # an alert would make the next command fail
    assert count(browser, "main script, img, [onload], [onerror]") == 0
    text = browser.execute_script("return document.querySelector('main').textContent")
    assert all(name in text for name in EVIL)
    assert count(browser, "section.run") == 1, "the discovery run is there too"
    assert complaints(browser) == []
    assert requests(browser, page) == [page.as_uri()]
    assert texts(browser, "h1")[1] == "What matters, and why"
