"""Facts stand in one place: the table of methods, the grammar of KEY=VALUE, the check of settings; and docs agree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import cbm
from cbm.abstraction.table import METHODS, help_text, in_tables, method_options
from cbm.agents.settings import AGENTS
from cbm.checks import above, at_least, check_record
from cbm.cli.pairs import read_pairs, read_value
from cbm.errors import DataError
from cbm.report.palette import DARK, LIGHT, MARKS
from cbm.report.variants import METHOD_NAMES

ROOT = Path(__file__).parent.parent


def docs() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))


def test_every_method_has_a_module_and_a_row_in_the_docs() -> None:
    text = docs()
    for name, row in METHODS.items():
        assert (Path(cbm.__file__).parent / "abstraction" / f"{name}.py").is_file()
        line = f"| `{name}` | {row.label} | {row.summary} | {row.needs} |"
        assert line in text, f"this row is missing in docs/: {line}"
        assert f"{name}: {row.summary}." in help_text()
    for name, agent in AGENTS.items():
        line = f"| `{name}` | {agent.label} | {agent.summary} |"
        assert line in text, f"this row is missing in docs/: {line}"


def test_the_report_reads_the_table() -> None:
    assert tuple(METHOD_NAMES) == in_tables() and in_tables()[0] == "oracle"
    for name, row in METHODS.items():
        assert (METHOD_NAMES[name], LIGHT[name], DARK[name], MARKS[name]) == (row.label, row.light, row.dark, row.mark)
    assert len(set(MARKS.values())) == len(METHODS)


def test_no_other_file_lists_the_methods() -> None:
    listing = re.compile(r'"tia",\s*"denoised"|"denoised",\s*"icp"')
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert not [path for path in files if listing.search(path.read_text(encoding="utf-8"))]


def test_options() -> None:
    assert method_options("full", {}) is None
    denoised: Any = method_options("denoised", {"batch": 32})
    assert (denoised.size_penalty, denoised.batch) == (0.05, 32)
    with pytest.raises(DataError, match="unknown method 'tai'; did you mean 'tia'"):
        method_options("tai", {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-0.5", -0.5), (".5", 0.5), ("1e-3", 1e-3), ("true", True), ("False", False), ("null", None),
        ("[64, 64]", [64, 64]), ('"3"', "3"), ("own", "own"), ("", ""), ("a=b", "a=b"), ("1_000", 1000),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    assert read_value(text) == value and type(read_value(text)) is type(value)


def test_pairs() -> None:
    assert read_pairs("--set", ("sac.gamma = 0.9", "world-seed=1"), "sac.") == {"sac.gamma": 0.9, "world_seed": 1}
    for texts, message in (
        (("gamma",), "--set 'gamma': must be KEY=VALUE"),
        (("=3",), "must be KEY=VALUE"),
        (("a b=3",), "must be KEY=VALUE"),
        (("sac.gamma=1", "gamma=2"), "--set gamma: given twice"),
    ):
        with pytest.raises(DataError, match=message):
            read_pairs("--set", texts, "sac.")


@dataclass(frozen=True)
class Record:
    count: int = 1
    rate: float = 0.5
    most: float | None = None
    kind: Literal["a", "b"] = "a"
    flag: bool = False
    sizes: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        check_record(self, count=at_least(1, 9), rate=above(0, 1), most=at_least(0))


def test_good_records() -> None:
    assert Record(sizes=[3, 4]).sizes == (3, 4)  # type: ignore[arg-type]
    assert Record(rate=1, most=None).rate == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "setting count must be a whole number of at least 1 and at most 9, got 0"),
        ({"count": True}, "count"),
        ({"count": 1.0}, "count"),
        ({"rate": 0}, "setting rate must be a number above 0 and at most 1, got 0"),
        ({"rate": float("nan")}, "got nan"),
        ({"rate": 10**400}, "rate must be a number"),
        ({"rate": 10**5000}, "a huge number"),
        ({"most": -1}, "setting most must be a number at least 0, got -1"),
        ({"most": "x"}, "most"),
        ({"kind": "c"}, "setting kind must be one of a, b, got 'c'"),
        ({"kind": ["a"]}, "kind"),
        ({"flag": 1}, "setting flag must be true or false, got 1"),
        ({"sizes": []}, "setting sizes must be a list of positive whole numbers"),
        ({"sizes": [0]}, "sizes"),
        ({"sizes": 3}, "sizes"),
    ],
)
def test_bad_records(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Record(**values)
