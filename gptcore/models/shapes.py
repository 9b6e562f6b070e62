"""A network's shapes without its weights: what a file's sizes mean before memory is spent on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Inside the ``with`` block new tensors have a shape and no memory, and initial weights are not drawn."""
    with torch.device("meta"), _NoDraws():
        yield


class _NoDraws(TorchFunctionMode):
    """Leave tensors as they are where random numbers would be drawn into them.

    Without memory there is nothing to draw into; torch would import its compiler, a second's work, to do nothing.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
