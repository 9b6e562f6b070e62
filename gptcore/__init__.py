"""The science of gptmill: text, BPE, shards, models, losses, training, the twelve datasets, metrics.

Never imports Prefect or MLflow. The names below load on first use, so that a worker that only reads text does not
pay for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gptcore.config import ModelConfig as ModelConfig
    from gptcore.models.network import load_model as load_model
    from gptcore.models.transformer import GPT as GPT
    from gptcore.text.tokenizer import Tokenizer as Tokenizer

__all__ = ["GPT", "ModelConfig", "Tokenizer", "load_model"]
__version__ = "0.2.0"

_HOMES = {
    "GPT": "gptcore.models.transformer",
    "ModelConfig": "gptcore.config",
    "Tokenizer": "gptcore.text.tokenizer",
    "load_model": "gptcore.models.network",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gptcore' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
