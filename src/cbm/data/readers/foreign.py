"""Files that people have beside their logs and that no reader reads: what they are, and what to do."""

from __future__ import annotations

from pathlib import Path

COMPRESSED = "is compressed: unpack it first"
SHEET = "is a spreadsheet: save it as CSV"
MAGIC = {
    b"\x1f\x8b": COMPRESSED,
    b"BZh": COMPRESSED,
    b"\xfd7zXZ\x00": COMPRESSED,
    b"\x28\xb5\x2f\xfd": COMPRESSED,
    b"7z\xbc\xaf": COMPRESSED,
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": SHEET,
    b"\xff\xfe": "is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text: save it as UTF-8",
    b"#ROSBAG V": "is a ROS 1 bag: convert it with rosbags-convert to a ROS 2 bag",
    b"MATLAB 5.0": "is a MATLAB file: save the log as CSV, or with h5py or NumPy",
}
"""By the first bytes."""
SUFFIXES = dict.fromkeys((".xlsx", ".xls", ".ods"), SHEET) | dict.fromkeys(
    (".json", ".jsonl", ".ndjson"), "JSON is not read: save the log as CSV or Parquet"
)
TABLES = (".txt", ".dat", ".log", ".asc", "")
"""Names that tables of text often have."""


def advice(path: Path) -> str | None:
    """One line about a file that can be told; None: it may be a log."""
    with open(path, "rb") as file:
        start = file.read(4096)
    if start.startswith(b"PK\x03\x04") and (b"[Content_Types].xml" in start or b"opendocument" in start):
        return SHEET
    known = next((words for magic, words in MAGIC.items() if start.startswith(magic)), None)
    return known or SUFFIXES.get(path.suffix.lower())
