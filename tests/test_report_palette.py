"""Colours of the methods: everyone can tell them apart."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.report.palette import DARK, LIGHT, MARKS, style_sheet, styles

# What people with the common kinds of colour blindness see (Machado et al. 2009), as matrices on linear RGB.
SEEN = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
CONES = [
    [0.41222147, 0.53633254, 0.05144599],
    [0.21190350, 0.68069955, 0.10739696],
    [0.08830246, 0.28171884, 0.62997870],
]
OKLAB = [
    [0.21045426, 0.79361779, -0.00407205],
    [1.97799850, -2.42859221, 0.45059371],
    [0.02590404, 0.78277177, -0.80867577],
]


@pytest.mark.parametrize("vision", list(SEEN))
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_of_the_methods_stay_apart(colours: dict[str, str], vision: str) -> None:
    codes = [colours[method] for method in MARKS]
    srgb = np.array([[int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)] for code in codes])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.asarray(SEEN[vision]).T, 0, 1)
    lab = 100 * np.cbrt(seen @ np.array(CONES).T) @ np.array(OKLAB).T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1)[np.triu_indices(len(lab), 1)]
    assert distances.min() > (15 if vision == "all" else 10)


def test_looks() -> None:
    looks = styles(["oracle", "cbm", "cbm", "mine"])
    assert [look["colour"] for look in looks] == ["oracle", "cbm", "other-1", "other-2"]
    assert [look["dashed"] for look in looks] == [False, False, True, True]
    assert all(f".m-{name} " in style_sheet() for name in LIGHT) and set(LIGHT) == set(DARK)
