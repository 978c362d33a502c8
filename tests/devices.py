"""A pretended device: tensors that say they are not in the processor's memory, and yet compute.

torch's own fake tensors refuse to mix devices too, but hold no numbers, so code that looks at its
results (which rows are close?) cannot run on them. Here it can, and any operation on tensors of two
devices is an error, as is an index from another device, which real ones would move in silence. A
number without a dimension may meet anything, as in torch. The device is called `meta`, since a
build without CUDA asks for its library as soon as a number of a `cuda` tensor is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("meta")
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Elsewhere(Tensor):
    """A tensor of the pretended device; `held` are its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.shape, dtype=held.dtype, device=DEVICE, strides=held.stride()
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    assert all(x.device != DEVICE or isinstance(x, Elsewhere) for x in tensors), "made unseen"
    devices = {x.device for x in tensors if x.ndim}
    if len(devices) > 1 and function not in MOVES:
        raise RuntimeError(f"{function} meets tensors of two devices: {devices}")
    asked = kwargs.get("device")
    device = torch.device(asked) if asked is not None else None
    if device is None and tensors:
        device = max((x.device for x in tensors), key=lambda d: d == DEVICE)
        device = tensors[0].device if function in MOVES else device
    if asked is not None:
        kwargs = {**kwargs, "device": "cpu"}
    known = {id(x.held): x for x in tensors if isinstance(x, Elsewhere)}
    args, kwargs = tree_map_only(Elsewhere, lambda x: x.held, (args, kwargs))
    found = function(*args, **kwargs)
    if device != DEVICE:
        return found
    if function is torch.ops.aten._to_copy.default and found is args[0]:
        found = found.clone()
    return tree_map_only(Tensor, lambda x: known[id(x)] if id(x) in known else Elsewhere(x), found)


class Pretended(TorchDispatchMode):
    """Inside it, `device=DEVICE` and `.to(DEVICE)` give tensors of the pretended device."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})
