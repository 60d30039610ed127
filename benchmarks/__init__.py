"""Measurements on systems with known answers, run by `cbm bench`: each module has `Options` and `main(options)`.

They are not part of the package: users of the package do not need these comparisons and timings.
"""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
"""Where processes must be started that import this."""
