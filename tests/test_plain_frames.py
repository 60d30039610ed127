"""Data frames as people have them: dates as index, durations, groups, columns of objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cbm.data.log import Log, read_log
from cbm.data.roles import Roles
from cbm.errors import DataError
from every_format import recording  # type: ignore[import-not-found]

pandas = pytest.importorskip("pandas")


@pytest.fixture(params=["arrow", "columns"])
def frame(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table of four runs, through Arrow and as without pyarrow."""
    if request.param == "columns":
        monkeypatch.setattr("cbm.data.readers.frames.find_spec", lambda name: None)
    return pandas.DataFrame(recording(rows=30))


def understood(source: Any) -> Log:
    return read_log(source, Roles.of(action="cmd"))


def test_an_index_of_dates_is_the_clock(frame: Any) -> None:
    dates = pandas.date_range("2024-03-01", periods=len(frame), freq="50ms", name="when")
    log = understood(frame.drop(columns="t").set_index(dates).drop(dates[[7, 40]]))
    assert log.understood.time == "when" and log.understood.step == pytest.approx(0.05)
    assert log.understood.gaps == [6, 38]
    assert "guessed time: when, the only column of dates" in log.understood.sentences()


def test_durations_are_seconds(frame: Any) -> None:
    frame["t"] = pandas.timedelta_range(0, periods=len(frame), freq="50ms")
    assert understood(frame).understood.step == pytest.approx(0.05)


def test_groups_of_a_table_keep_no_episode_as_a_variable(frame: Any) -> None:
    parts = dict(list(frame.groupby("run")))
    log, whole = understood(parts), understood(frame)
    assert log.data.factors.names == whole.data.factors.names
    np.testing.assert_array_equal(log.data.obs, whole.data.obs)
    assert log.understood.ignored["run"] == "each table is an episode"


def test_columns_that_arrow_does_not_take(frame: Any) -> None:
    frame["rare"] = pandas.arrays.SparseArray((frame["cos"] > 0.5).astype(float))
    assert "rare" in understood(frame).data.factors.names
    frame["vel"] = [*frame["vel"][:-1], "broken"]
    with pytest.raises(DataError, match=f"column 'vel' is not numeric: row {len(frame) - 1} is 'broken'"):
        understood(frame)


def test_a_column_of_nothing_is_empty() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    columns = recording(rows=30)
    table = pyarrow.table(columns).append_column("spare", pyarrow.nulls(len(columns["t"])))
    assert understood(table).understood.ignored == {"spare": "empty"}


def test_tables_that_are_none(frame: Any) -> None:
    for table, message in (
        (frame.set_axis(["x", *list(frame)[1:-1], "x"], axis=1), "column 'x' occurs more than once"),
        (frame.astype(str), "no column holds numbers; 't' holds text"),
        (pandas.DataFrame(), "the table has no columns"),
        ({"observations": np.zeros((9, 2)), "actions": np.zeros(9)}, "found 'observations': did you mean 'obs'"),
    ):
        with pytest.raises(DataError, match=message):
            understood(table)
