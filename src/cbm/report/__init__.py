"""One self-contained HTML page about one or several runs; `write_report` is the whole interface."""

from cbm.report.page import write_report

__all__ = ["write_report"]
