"""Tables of text as other programs write them: read as they are, or refused in one line that says what to do."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cbm.data.log import Limit, Log, read_log
from cbm.data.roles import Roles
from cbm.data.summary import clocks
from cbm.errors import DataError

NAMES = ["t", "x", "y", "cmd"]
ROLES = Roles.of(action="cmd")


def cells(rows: int = 12) -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [[f"{0.1 * row:.1f}", *(f"{value:.3f}" for value in rng.normal(size=3))] for row in range(rows)]


def text(rows: list[list[str]] | None = None, names: list[str] | None = None, separator: str = ",") -> str:
    lines = [NAMES if names is None else names, *(cells() if rows is None else rows)]
    return "".join(separator.join(line) + "\n" for line in lines)


def both_ways(path: Path, roles: Roles = ROLES) -> Log:
    """Read into memory, and in blocks: the log must be the same."""
    log, blocks = read_log(path, roles), read_log(path, roles, limit=Limit(memory=1))
    assert blocks.understood.guesses == log.understood.guesses
    assert blocks.understood.ignored == log.understood.ignored
    np.testing.assert_array_equal(np.asarray(blocks.data.obs), np.asarray(log.data.obs))
    return log


def assert_as_plain(path: Path, content: str | bytes, suffix: str = ".csv") -> Log:
    """The same log as the plain table."""
    (path / "plain.csv").write_text(text())
    file = path / f"log{suffix}"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    plain, log = both_ways(path / "plain.csv"), both_ways(file)
    np.testing.assert_array_equal(log.data.obs, plain.data.obs)
    np.testing.assert_array_equal(log.data.action, plain.data.action)
    assert log.data.factors.names == ("x", "y")
    return log


@pytest.mark.parametrize(
    "content",
    [
        text(separator=";"),
        text().replace("\n", "\r\n"),
        "\ufeff" + text(),
        "# made by a logger, version 2\n# x in m, y in m\n\n" + text(),
        "# " + text(),  # numpy.savetxt
        "sep=;\n" + text(separator=";"),
        text() + "   \n\n",
        text([[f'"{cell}"' for cell in row] for row in cells()]),
    ],
    ids=["semicolons", "windows", "mark", "notes", "savetxt", "excel", "blank end", "quotes"],
)
def test_other_ways_to_write_the_same_table(tmp_path: Path, content: str) -> None:
    assert_as_plain(tmp_path, content)


@pytest.mark.parametrize(("separator", "suffix"), [(";", ".csv"), ("\t", ".tsv")])
def test_decimal_commas(tmp_path: Path, separator: str, suffix: str) -> None:
    log = assert_as_plain(tmp_path, text(separator=separator).replace(".", ","), suffix)
    (said,) = [sentence for sentence in log.understood.sentences() if "comma" in sentence]
    assert said == f"guessed decimal commas: {cells()[0][1].replace('.', ',')!r} in column 'x' is {cells()[0][1]}"


def test_quoted_separators_in_names(tmp_path: Path) -> None:
    names = ["t", '"pos, x"', '"pos, y"', "cmd"]
    for separator in (",", ";"):
        (tmp_path / "log.csv").write_text(text(names=names, separator=separator))
        assert both_ways(tmp_path / "log.csv").data.factors.names == ("pos, x", "pos, y")


def test_cells_without_a_value_as_programs_write_them(tmp_path: Path) -> None:
    rows = cells(40)
    for row, word in enumerate(["NaN", "#N/A", "<NA>", "NaT", "1.#QNAN", "-nan(ind)", "NULL", "N/A", "-NaN"], start=4):
        rows[row][1] = word
    (tmp_path / "log.csv").write_text(text(rows))
    log = both_ways(tmp_path / "log.csv")
    assert log.understood.missing == {"x": 9} and len(log.data) == 39 - 10


def test_one_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    rows = cells()
    rows[7][1] = "n.a. (sensor)"
    rows = [[*row, f"remark {i}"] for i, row in enumerate(rows)]
    (tmp_path / "log.csv").write_text(text(rows, [*NAMES, "note"]))
    log = both_ways(tmp_path / "log.csv")
    assert log.understood.ignored == {"x": "'n.a. (sensor)' in row 7 is no number", "note": "text"}


@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1", ""])
def test_row_numbers_of_pandas_are_no_state(tmp_path: Path, name: str) -> None:
    rows = [[str(i), *row] for i, row in enumerate(cells())]
    (tmp_path / "log.csv").write_text(text(rows, [name, *NAMES]))
    log = both_ways(tmp_path / "log.csv")
    assert log.understood.ignored == {name: "row numbers"} and log.data.factors.names == ("x", "y")


@pytest.mark.parametrize("name", ["Time (s)", "time [ms]", "Time Stamp", "t[s]"])
def test_a_clock_with_its_unit(tmp_path: Path, name: str) -> None:
    (tmp_path / "log.csv").write_text(text(names=[name, *NAMES[1:]]))
    assert both_ways(tmp_path / "log.csv").understood.time == name


def test_dates_in_another_style_are_said_to_be_none(tmp_path: Path) -> None:
    rows = [["03/10/2024 01:30:00", *row[1:]] for row in cells()]
    (tmp_path / "log.csv").write_text(text(rows))
    why = both_ways(tmp_path / "log.csv").understood.ignored["t"]
    assert why == "row 0: '03/10/2024 01:30:00' is neither a number nor a date (ISO 8601)"


REFUSED: list[tuple[str, str | bytes, str]] = [
    (".csv", text().split("\n", 1)[1], "the first line holds numbers"),
    (".csv", text(separator="  "), "the header is one column, 't  x  y  cmd': separate the columns"),
    (".csv", text(names=["t", "x", "y", "ψ"]).replace("ψ", "é").encode("latin-1"), "byte 0xe9 is not UTF-8; save it"),
    (".csv", text().encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
    (".csv", text([["s", "m", "m", "Nm"], *cells()]), "'s' is not a number; a second line of names or units"),
    (".csv", gzip.compress(text().encode()), "is compressed: unpack it first"),
    (".csv.gz", gzip.compress(text().encode()), "is compressed: unpack it first"),
    (".xlsx", b"PK\x03\x04", "is a spreadsheet: save it as CSV"),
    (".json", "{}", "JSON is not read: save the log as CSV or Parquet"),
    (".bag", b"#ROSBAG V2.0\n", "is a ROS 1 bag"),
    (".mat", b"MATLAB 5.0 MAT-file", "is a MATLAB file"),
    (".txt", text(), "unknown kind of file '.txt' (if it is a table of text: --reader csv; else"),
    (".csv", text(cells(1)), "a time series of one row has no row to pair it with"),
]


@pytest.mark.parametrize(("suffix", "content", "message"), REFUSED)
def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, suffix: str, content: str | bytes, message: str) -> None:
    file = tmp_path / f"log{suffix}"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as found:
        read_log(file, ROLES)
    assert message in str(found.value)


def test_a_spreadsheet_under_the_name_of_a_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.csv", "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
    with pytest.raises(DataError, match="is a spreadsheet: save it as CSV"):
        read_log(tmp_path / "log.csv", ROLES)


def test_columns_without_names_of_their_own(tmp_path: Path) -> None:
    """As pandas writes an array: its columns are called 0, 1, 2, ...."""
    (tmp_path / "log.csv").write_text(text(names=["0", "1", "2", "3"]))
    log = both_ways(tmp_path / "log.csv", Roles.of(obs=["1", "2"], action="3", time="0"))
    assert log.data.factors.names == ("1", "2")


def test_a_directory_of_tables_of_text(tmp_path: Path) -> None:
    (tmp_path / "run0.csv").write_text(text())
    with pytest.raises(DataError, match="is a directory of CSV files: join them into one, with a column that names"):
        read_log(tmp_path, ROLES)


def test_a_clock_under_another_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text(names=["Zeit", *NAMES[1:]]))
    assert clocks(both_ways(tmp_path / "log.csv").data) == ["Zeit"]
