"""A device that is not there: tensors on it hold numbers of the CPU and refuse to meet the CPU's.

torch's fake tensors refuse the same but know no numbers, so nothing that looks at a winner or a
size found on the way could run on them. Here everything runs, and is compared with the CPU's own.
As on a GPU, a number without an axis may meet anything, and an index may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
aten = torch.ops.aten
CROSSING = (aten._to_copy.default, aten.copy_.default)
# On import, so before any test: the backward pass makes its threads once, for the devices known.
_setup_privateuseone_for_python_backend(NAME)
INDEXING = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)


class FarTensor(Tensor):
    """A tensor on the pretended device."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> FarTensor:
        far: FarTensor = Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            here.stride(),
            here.storage_offset(),
            dtype=here.dtype,
            device=f"{NAME}:0",
        )
        far.here = here
        return far

    def __repr__(self, **_: Any) -> str:
        return f"FarTensor({self.here})"

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    far = [x for x in leaves if isinstance(x, FarTensor)]
    if far and func not in CROSSING:
        near = [x for x in leaves if not isinstance(x, FarTensor) and x.ndim]
        if near and not (func in INDEXING and isinstance(args[0], FarTensor)):
            raise RuntimeError(f"{func} was given tensors on {NAME} and on the CPU.")
    known = {id(x.here): x for x in far}
    device = kwargs.get("device")
    is_far = bool(far) if device is None else torch.device(device).type == NAME
    if device is not None:
        kwargs = kwargs | {"device": "cpu"}
    plain_args, plain = tree_map(
        lambda x: x.here if isinstance(x, FarTensor) else x, (args, kwargs)
    )
    out = func(*plain_args, **plain)
    if func is aten.copy_.default:
        return args[0]
    if func is aten._to_copy.default and out is plain_args[0]:
        out = out.clone()
    if not is_far:
        return out

    def moved(x: Any) -> Any:
        return (known[id(x)] if id(x) in known else FarTensor(x)) if isinstance(x, Tensor) else x

    return tree_map(moved, out)


class Dispatch(TorchDispatchMode):
    """For what is made on the device without any tensor that is there already."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


class Numbers(TorchFunctionMode):
    """`torch.tensor` asks no dispatch mode: its numbers are brought to the device afterwards."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None:
            return func(*args, **(kwargs | {"device": "cpu"})).to(device)
        return func(*args, **kwargs)


@contextmanager
def pretended_device() -> Iterator[str]:
    """The device's name, while it is there."""
    with Dispatch(), Numbers():
        yield NAME
