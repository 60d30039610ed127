"""Measurements on systems with known answers, run by `cbm bench`: each module has `Options` and `main(options)`.

They are not part of the package: comparisons and timings that nobody needs who only uses it.
"""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
"""Where processes must be started that import this."""
