"""Networks from configurations and from model folders, of whichever family they are; or their shapes alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gptcore.base.errors import InputError
from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.files.read import read_model
from gptcore.models.network import LanguageModel, Network


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Inside the ``with`` block new tensors have a shape and no memory, and initial weights are not drawn.

    So a file's sizes are checked before memory is spent on them.
    """
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


def build_model(config: NetworkConfig, generator: torch.Generator | None = None) -> Network:
    """The network of a configuration, with weights drawn from ``generator``."""
    model: Network = FAMILIES[config.family].part("network")(config, generator)
    return model


def load_language_model(url: str) -> LanguageModel:
    """:func:`load_model` where a network is asked for that predicts the next token.

    :raises InputError: an encoder, which does not; or as :func:`load_model`.
    """
    return next_token_network(load_model(url), url)


def next_token_network(network: Network, where: str) -> LanguageModel:
    """The same network, as one that predicts the next token.

    :param where: what holds it, for the error message.
    :raises InputError: an encoder.
    """
    if not isinstance(network, LanguageModel):
        title = FAMILIES[network.config.family].title
        raise InputError(f"{where}: found {title}, an encoder; expected a model that predicts the next token")
    return network


def load_model(url: str) -> Network:
    """Read a model of any family, in eval mode on the CPU, from any of the kinds of folder that
    :meth:`gptcore.GPT.load` names.

    :raises InputError: naming the file, and what was expected of it.
    """
    config, tensors = read_model(url)
    with shapes_only():
        build_model(config).require(tensors, url)
    return build_model(config).fill(tensors, url)
