"""Every setting of the pipeline, as frozen dataclasses, and the five presets."""

from __future__ import annotations

from gptcore.config.distillation import DistilConfig
from gptcore.config.network import (
    LAYER_NORM_EPSILON,
    EncoderConfig,
    KnowledgeEncoderConfig,
    LSTMConfig,
    ModelConfig,
    NetworkConfig,
    check_same_shape,
    network_config,
    start_config,
)
from gptcore.config.presets import PRESETS, Preset, best, demo, long, paper, preset_named, small
from gptcore.config.text import CorpusConfig, ShardConfig, TokenizerConfig
from gptcore.config.training import FinetuneConfig, PretrainConfig, TrainingConfig

__all__ = [
    "LAYER_NORM_EPSILON",
    "PRESETS",
    "CorpusConfig",
    "DistilConfig",
    "EncoderConfig",
    "FinetuneConfig",
    "KnowledgeEncoderConfig",
    "LSTMConfig",
    "ModelConfig",
    "NetworkConfig",
    "Preset",
    "PretrainConfig",
    "ShardConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "best",
    "check_same_shape",
    "demo",
    "long",
    "network_config",
    "paper",
    "preset_named",
    "small",
    "start_config",
]
