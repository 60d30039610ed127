"""Where networks compute: the CPU, which is the reference, or a GPU.

Random numbers are drawn on the CPU and checkpoints are kept there, so that a run can go on with another device. Sums
on a GPU round differently: the same seed gives the same numbers only on the same device.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cbm.errors import DataError

if TYPE_CHECKING:
    import torch

CPU, AUTO = "cpu", "auto"


def check_device(name: str) -> None:
    """Refuse what is no name of a device; whether there is such a device shows later."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name):
        raise DataError(f"device {name!r}: must be auto, cpu, cuda or cuda:N")


def find_device(name: str = CPU) -> torch.device:
    """`auto` takes a GPU where there is one; `cuda` without one is an error, never silently the CPU."""
    import torch

    check_device(name)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == AUTO:
        name = "cuda" if count else CPU
    if name == CPU:
        return torch.device(CPU)
    device = torch.device(name if ":" in name else "cuda:0")
    if not count:
        raise DataError(f"device {name!r}: torch finds no GPU here; --device cpu or auto does without")
    if (device.index or 0) >= count:
        raise DataError(f"device {name!r}: there are only {count} (numbered from 0)")
    return device
