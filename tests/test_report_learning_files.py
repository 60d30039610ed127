"""Learning runs with odd files are refused in one line; what a killed run leaves behind is not odd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbm.errors import DataError
from cbm.report import write_report
from cbm.report.learning import read_learning_run
from learning_runs import edit, write_run  # type: ignore[import-not-found]

EVALUATIONS = [
    (("step,seconds", "steps,seconds"), "the first line must be step,seconds,return"),
    ((None, "170000,1,nan,0.5,100,7,0,cbm,pick"), "line 18: return: 'nan' is not a finite number"),
    ((None, "170000,1,inf,0.5,100,7,0,cbm,pick"), "line 18: return: 'inf'"),
    ((None, "170000,1,2,x,100,7,0,cbm,pick"), "line 18: success: 'x' is not a number"),
    ((None, "170000,1,2,1.5,100,7,0,cbm,pick"), r"line 18: success: 1.5 is not in 0\.\.1"),
    ((None, "170000,1,2,0.5,100,37,0,cbm,pick"), r"line 18: kept: 37 is not in 0\.\.36"),
    ((None, "170000,1,2,,100,7,0,cbm,pick"), "task 'pick': success is missing at step 170000"),
    ((None, "170000,1,2,0.5,100,7,1,cbm,pick"), "line 18: seed: '1', but config.json says '0'"),
    ((None, "170000,1,2,0.5,100,7,0,cdl,pick"), "line 18: method: 'cdl', but config.json says 'cbm'"),
    ((None, "170000,1,2,0.5,100,7,0,cbm,pik"), "line 18: unknown task 'pik'; did you mean 'pick'"),
    ((None, "170000,1,2,0.5"), "line 18: 4 values, expected 9"),
    ((None, "160000,1,2,0.5,100,7,0,cbm,pick"), "step 160000 comes after 160000"),
]


@pytest.mark.parametrize(("change", "words"), EVALUATIONS)
def test_wrong_evaluations(tmp_path: Path, change: tuple[str | None, str], words: str) -> None:
    path = write_run(tmp_path / "run")
    text = (path / "eval.csv").read_text()
    old, new = change
    (path / "eval.csv").write_text(text.replace(old, new) if old else f"{text}{new}\n")
    with pytest.raises(DataError, match=rf"eval\.csv: .*{words}") as caught:
        read_learning_run(path)
    assert "\n" not in str(caught.value)


FILES: list[tuple[str, Any, str | None]] = [
    ("config.json", None, "no config.json"),
    ("config.json", "{", "config.json: not a JSON file"),
    ("config.json", "[]", "config.json: expected a JSON object"),
    ("config.json", {"method": None}, "config.json: method: missing"),
    ("config.json", {"world": 3}, "config.json: world: 3 is not a name"),
    ("config.json", {"seed": "0"}, "config.json: seed: '0' is not a whole number"),
    ("config.json", {"tasks": []}, "config.json: tasks: there are none"),
    ("config.json", {"tasks": ["pick", "pick"]}, "config.json: tasks: 'pick' appears twice"),
    ("config.json", {"factors": None}, "config.json: factors: expected a JSON object"),
    ("config.json", {"factors": {}}, "config.json: factors: factors have no key 'variables'"),
    ("config.json", {"oracle": {"pick": ["hand"]}}, r"config.json: oracle.pick: unknown variable 'hand'; did you mean"),
    ("abstraction.jsonl", "{]\n", "abstraction.jsonl: line 1: not a JSON object"),
    ("abstraction.jsonl", '{"step": 1, "task": "pik"}\n', "line 1: unknown task 'pik'"),
    ("abstraction.jsonl", '{"step": 1, "task": "pick", "kept": ["no"]}\n', "line 1: kept: unknown variable 'no'"),
    ("abstraction.jsonl", '{"step": NaN, "task": "pick", "kept": []}\n', "line 1: step: nan is not a finite number"),
    ("result.json", {"tasks": {"pick": {"kept": ["no"]}}}, "result.json: tasks.pick.kept: unknown variable 'no'"),
    ("result.json", {"tasks": []}, None),
    ("eval.csv", None, "eval.csv: a finished run without an evaluation of task 'pick'"),
    ("eval.csv", b"\xff\xfe", "eval.csv: not a text file"),
    ("evaluation.json", {"tasks": {"lift": {}}}, "evaluation.json: unknown task 'lift'"),
    ("evaluation.json", {"tasks": {"pick": {"in": {"success": "x"}}}}, "tasks.pick.in.success: 'x' is not a finite"),
    ("evaluation.json", {"prediction": 3}, "evaluation.json: prediction: expected a list"),
    ("evaluation.json", {"prediction": [{"steps": None}]}, r"prediction\[0\].steps: None is not a finite number"),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES)
def test_odd_files(tmp_path: Path, name: str, content: Any, words: str | None) -> None:
    path = write_run(tmp_path / "run", evaluation=True)
    if content is None:
        (path / name).unlink()
    elif isinstance(content, dict):
        edit(path / name, **content)
    else:
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if words is None:
        write_report([path], tmp_path / "report.html")
        return
    with pytest.raises(DataError, match=words) as caught:
        write_report([path], tmp_path / "report.html")
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert not (tmp_path / "report.html").exists()
