"""Every setting of the pipeline, as frozen dataclasses, and the five presets."""

from __future__ import annotations

from gptcore.config.distillation import DistilConfig as DistilConfig
from gptcore.config.network import ACTIVATIONS as ACTIVATIONS
from gptcore.config.network import ENCODER_EPSILON as ENCODER_EPSILON
from gptcore.config.network import LAYER_NORM_EPSILON as LAYER_NORM_EPSILON
from gptcore.config.network import EncoderConfig as EncoderConfig
from gptcore.config.network import LSTMConfig as LSTMConfig
from gptcore.config.network import ModelConfig as ModelConfig
from gptcore.config.network import NetworkConfig as NetworkConfig
from gptcore.config.network import check_same_shape as check_same_shape
from gptcore.config.network import network_config as network_config
from gptcore.config.presets import FINE_TUNING as FINE_TUNING
from gptcore.config.presets import PRESETS as PRESETS
from gptcore.config.presets import Preset as Preset
from gptcore.config.presets import best as best
from gptcore.config.presets import demo as demo
from gptcore.config.presets import long as long
from gptcore.config.presets import nearest_preset as nearest_preset
from gptcore.config.presets import paper as paper
from gptcore.config.presets import preset_named as preset_named
from gptcore.config.presets import small as small
from gptcore.config.text import CorpusConfig as CorpusConfig
from gptcore.config.text import ShardConfig as ShardConfig
from gptcore.config.text import TokenizerConfig as TokenizerConfig
from gptcore.config.training import FinetuneConfig as FinetuneConfig
from gptcore.config.training import PretrainConfig as PretrainConfig
from gptcore.config.training import TrainingConfig as TrainingConfig
