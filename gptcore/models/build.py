"""Networks from configurations and from model folders, whichever of them it is: the Transformer or the LSTM."""

from __future__ import annotations

import torch

from gptcore.config import LSTMConfig, NetworkConfig
from gptcore.models.files.read import read_model
from gptcore.models.language_model import LanguageModel
from gptcore.models.lstm import LSTM
from gptcore.models.shapes import shapes_only
from gptcore.models.transformer import GPT


def build_model(config: NetworkConfig, generator: torch.Generator | None = None) -> LanguageModel:
    """The network of a configuration, with weights drawn from ``generator``."""
    return LSTM(config, generator) if isinstance(config, LSTMConfig) else GPT(config, generator)


def load_model(url: str) -> LanguageModel:
    """Read a model of any family, in eval mode on the CPU, from any of the kinds of folder that :meth:`GPT.load` names.

    :raises InputError: naming the file, and what was expected of it.
    """
    config, tensors = read_model(url)
    with shapes_only():
        build_model(config).require(tensors, url)
    return build_model(config).fill(tensors, url)
