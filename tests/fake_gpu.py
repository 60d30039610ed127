"""A GPU that is not there: tensors that claim to be on `cuda`, have shapes and no numbers.

torch's fake tensors refuse to mix devices, so a bare constructor (`torch.zeros(n)`) that meets one of these fails, and
so does `.numpy()` without `.cpu()`. Some things they cannot do are done here: indexing and copies, which want a real
device; single numbers (`.item()`, `bool`); and gradients, which are replaced by zeros of the right shape and device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda:0")
NUMBERS = {Tensor.__float__: 1.0, Tensor.__int__: 1, Tensor.__bool__: True}


class _Rest(TorchFunctionMode):
    """What fake tensors on a device that is not there cannot do by themselves."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first: Any = args[0] if args else None
        if func in NUMBERS:
            return NUMBERS[func]
        if func is Tensor.item:
            return 1.0 if first.is_floating_point() else 0
        if func is Tensor.numpy:
            if first.device.type != "cpu":
                raise TypeError(f"can't convert {first.device} tensor to numpy; use .cpu() first")
            return np.zeros(first.shape, dtype=str(first.dtype).removeprefix("torch."))
        if func is Tensor.nonzero:
            return torch.zeros(1, first.dim(), dtype=torch.long, device=first.device)
        if func is Tensor.__getitem__:
            return _indexed(first, args[1])
        if func is Tensor.__setitem__:
            _fits(args[2], _indexed(first, args[1]))
            return None
        if func is Tensor.contiguous:
            return torch.clone(first, memory_format=torch.contiguous_format)
        if func is Tensor.copy_:  # from any device to any other
            _fits(args[1], first)
            return first
        return func(*args, **(kwargs or {}))


def _fits(value: Any, place: Tensor) -> None:
    shape = value.shape if isinstance(value, Tensor) else ()
    assert torch.broadcast_shapes(shape, place.shape) == place.shape


def _indexed(tensor: Tensor, index: Any) -> Tensor:
    """`tensor[index]` by the operators below it."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis in [part for part in parts if not isinstance(part, Tensor | np.ndarray | list)]:
        at = next(k for k, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (tensor.dim() - used)
    axis, gathered = 0, list[Tensor | None]()
    for part in parts:
        if part is None:
            tensor, axis = torch.ops.aten.unsqueeze(tensor, axis), axis + 1
            gathered.append(None)
        elif isinstance(part, int):
            tensor = torch.ops.aten.select(tensor, axis, part)
        elif isinstance(part, slice):
            tensor = torch.ops.aten.slice(tensor, axis, part.start, part.stop, part.step or 1)
            axis += 1
            gathered.append(None)
        else:
            gathered.append(torch.as_tensor(part))
            axis += 1
    return torch.ops.aten.index(tensor, gathered) if any(part is not None for part in gathered) else tensor


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, `.to(GPU)` works; what was made outside is on the CPU."""

    def grad(loss: Tensor, parameters: Any) -> list[Tensor]:
        assert loss.shape == () and loss.device == GPU
        return [torch.zeros_like(parameter) for parameter in parameters]

    def backward(loss: Tensor) -> None:
        assert loss.shape == () and loss.device == GPU

    monkeypatch.setattr(torch.autograd, "grad", grad)
    monkeypatch.setattr(Tensor, "backward", backward)
    monkeypatch.setattr(torch, "from_numpy", torch.tensor)  # a fake tensor cannot share memory
    with FakeTensorMode(allow_non_fake_inputs=True), _Rest(), torch.no_grad():
        yield
