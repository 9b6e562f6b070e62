"""Settings of a language model's fine-tuning on documents of a domain. The defaults are the paper's for 82M and 117M.

(Table 2, section 4.2; what these leave out are its library's defaults of that time.) What the paper's tables print, as
printed, and the titles of its appendix are those of ``published.toml``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gptcore.base.settings import setting
from gptcore.base.tables import read_table
from gptcore.config.training import TrainingConfig
from gptcore.evaluation.sampling import check_sampling
from gptcore.families import FAMILIES

Losses = tuple[float, float, float, float]
"""Loss on train and valid, then the perplexities."""

_tables = read_table(__file__, "published.toml")

SPLIT: Mapping[str, tuple[int, float, int]] = _tables["split"]
"""Table 1: split -> papers, percentage, tokens."""
RATES: Mapping[str, float] = _tables["rates"]
"""Table 2: size -> learning rate."""
EVALUATION: Mapping[str, tuple[float, float, float, float, float, float]] = _tables["evaluation"]
"""Table 8: size -> loss on train, valid and test, then the perplexities."""
TITLES: tuple[str, ...] = _tables["appendix"]["titles"]
"""The titles under which the paper's appendix A shows a generated abstract."""


@dataclass(frozen=True)
class SweepTable:
    """One of Tables 3 to 7: a setting of 82M* changed, all others as they are."""

    number: int
    setting: str
    """A field of :class:`AdaptConfig`."""
    title: str
    rows: Mapping[float, Losses]
    """Value of the setting -> what the paper prints."""
    note: str = ""
    """What a reader of the printed rows must know."""
    scaled: bool = False
    """Whether another preset has the same multiples of its own value instead."""

    @property
    def name(self) -> str:
        """The name by which the table is asked for."""
        return f"table{self.number}"


STAR_BATCH = 8
"""Blocks an update in Tables 3 to 7. Section 4.2 says that 82M* has a batch of 1, Table 7 that it has 8: its row there
has the losses that 82M* has in all the other tables, and its row for 1 those of Table 8. So 8 here, 1 for Table 8."""

SWEEPS = tuple(
    SweepTable(**{**table, "rows": {row[0]: row[1:] for row in table["rows"]}}) for table in _tables["sweeps"]
)

BY_SIZE = "sizes"
TABLES = (*(table.name for table in SWEEPS), BY_SIZE)
"""Names of what can be made: Tables 3 to 7, and what stands for Table 8's sizes where a language model is trained."""


@dataclass(frozen=True)
class AdaptConfig(TrainingConfig):
    """Blocks of a stream of documents, Adam, a rate that falls linearly from the first update to the last."""

    section = "adapt"
    block_size: int = setting(512, least=2)
    """How many tokens a block has."""
    batch_size: int = 1
    """How many blocks go through the network together."""
    accumulation: int = setting(1, least=1)
    """How many batches make an update, for which their gradients are averaged."""
    lr: float = 5e-5
    epochs: float = setting(5.0, above=0)
    """How often the documents are read."""
    weight_decay: float = 0.0
    evaluations: int = setting(10, least=1)
    """How often, at most, validation documents are scored in the course of training; checkpoints are as many."""
    eval_blocks: int = setting(256, least=1)
    """How many blocks of these documents are read each time, and of the training documents at the end; then the
    validation and test documents are all read."""
    seed: int = 42
    pretrained: bool = True
    """Whether the checkpoint's weights are taken; False: the same network from random weights."""


def at_size(config: AdaptConfig, model: Mapping[str, Any]) -> AdaptConfig:
    """The settings with Table 2's rate for the size of a model; as they are for a size that it does not have.

    :param model: settings of its shape, as recorded.
    """
    shapes = FAMILIES["gpt2"].shapes
    name = next((name for name, shape in shapes.items() if shape.items() <= model.items()), "")
    return dataclasses.replace(config, lr=RATES.get(name, config.lr))


@dataclass(frozen=True)
class SamplingConfig:
    """How abstracts are drawn (section 3.3); the paper names nucleus sampling and a penalty, but none of its values."""

    max_tokens: int = 400
    """How many tokens an abstract has at most; nine real abstracts of ten have fewer."""
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.9
    """The nucleus' mass (equation 1), as the authors of nucleus sampling recommend."""
    repetition_penalty: float = 1.2
    """Keskar et al. 2019, section 4.1."""
    seed: int = 42

    def __post_init__(self) -> None:
        check_sampling(self.max_tokens, self.temperature, self.top_k, self.top_p, self.repetition_penalty)


@dataclass(frozen=True)
class AbstractsPreset:
    """Settings of the whole under one name; what the language model is pre-trained with is the preset of that name."""

    name: str
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    star: AdaptConfig = field(default_factory=lambda: AdaptConfig(batch_size=STAR_BATCH))
    """82M* of Tables 3 to 7: what each of them changes one setting of."""
    titles: int = 20
    """Held-out papers whose abstracts are written, beside the titles of the paper's appendix."""


def _preset(name: str, tables: Mapping[str, Mapping[str, Any]]) -> AbstractsPreset:
    paper = AbstractsPreset(name)
    changed = {section: dataclasses.replace(getattr(paper, section), **table) for section, table in tables.items()}
    return dataclasses.replace(paper, **changed)


PRESETS = {name: _preset(name, tables) for name, tables in read_table(__file__, "presets.toml").items()}
