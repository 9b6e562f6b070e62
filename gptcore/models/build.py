"""Networks from configurations and from model folders, of whichever family they are."""

from __future__ import annotations

import torch

from gptcore.base.errors import InputError
from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.files.read import read_model
from gptcore.models.language_model import LanguageModel
from gptcore.models.network import Network
from gptcore.models.shapes import shapes_only


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
    """Read a model of any family, in eval mode on the CPU, from any of the kinds of folder that :meth:`GPT.load` names.

    :raises InputError: naming the file, and what was expected of it.
    """
    config, tensors = read_model(url)
    with shapes_only():
        build_model(config).require(tensors, url)
    return build_model(config).fill(tensors, url)
