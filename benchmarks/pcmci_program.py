"""A separate program, run by an interpreter that has tigramite: reads one log, writes PCMCI's tests.

    python pcmci_program.py               exit code 0 if tigramite can be used, otherwise 1 and the reason
    python pcmci_program.py IN OUT        both .npz; IN: `values` (N, C) and `series` (N,); OUT: `p`, `value` (C, C)

`p[i, j]` and `value[i, j]` are for column j one step before column i. NaN in `values` means missing. tigramite is under
the GPL: nothing in this package imports this file, and this file imports nothing from the package.
"""

from __future__ import annotations

import os
import sys
from typing import Any

PC_ALPHA = 0.2
"""Level for the selection of conditions: the default of `run_pcmci`."""
MISSING = 1e300


def main(source: str, target: str) -> None:
    """PC1 and MCI with partial correlation, lag 1 only; p-values corrected by Benjamini and Hochberg."""
    import numpy as np

    pcmci, tests, data_frame = load()
    with np.load(source, allow_pickle=False) as arrays:
        values, series = np.nan_to_num(arrays["values"], nan=MISSING), arrays["series"]
    episodes = {k: values[series == name] for k, name in enumerate(np.unique(series))}
    frame = data_frame(episodes, analysis_mode="multiple", missing_flag=MISSING)
    run = pcmci(frame, tests(), verbosity=0)
    result = run.run_pcmci(tau_min=1, tau_max=1, pc_alpha=PC_ALPHA, fdr_method="fdr_bh")
    with open(f"{target}.part", "wb") as file:
        np.savez(file, p=result["p_matrix"][:, :, 1].T, value=result["val_matrix"][:, :, 1].T)
    os.replace(f"{target}.part", target)


def load() -> tuple[Any, Any, Any]:
    """PCMCI, its partial correlation, and its container of data."""
    from tigramite.data_processing import DataFrame
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    return PCMCI, ParCorr, DataFrame


if __name__ == "__main__":
    try:
        load()
    except ImportError as error:
        sys.exit(str(error))
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
