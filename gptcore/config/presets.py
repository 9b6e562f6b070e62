"""The presets: a whole pipeline's settings under one name, and what a user's settings change in them.

`presets.toml` has what each is for and what it says; the defaults are the paper's, and `paper()` is the defaults.
`small()` fits two CPU cores and real books, `long()` does so with several times as much of both, and `best()` departs
from the paper where that brought more from the same text, and reads twice as much; `demo()` fits two CPU cores, a
generated world and a few minutes. `imported()` only fine-tunes what was pre-trained elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from gptcore.base.errors import InputError, nearest
from gptcore.base.settings import checked, recorded, replace_settings
from gptcore.config.distillation import DistilConfig
from gptcore.config.network import LSTMConfig, ModelConfig, NetworkConfig
from gptcore.config.text import CorpusConfig, ShardConfig, TokenizerConfig
from gptcore.config.training import FinetuneConfig, PretrainConfig
from gptcore.families import DEFAULT, FAMILIES, Family, family_settings, shape_settings


@cache
def preset_tables() -> Mapping[str, Any]:
    """What `presets.toml` holds."""
    from gptcore.base.tables import read_table  # brings the parser, which a job, as it has its settings, needs not

    return read_table(__file__, "presets.toml")


@dataclass(frozen=True)
class Preset:
    """A whole pipeline's settings under one name."""

    name: str
    family: str = DEFAULT
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    shards: ShardConfig = field(default_factory=ShardConfig)
    model: NetworkConfig = field(default_factory=ModelConfig)
    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    """The network of Table 5's last row; pre-trained by its analyses alone."""
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    distil: DistilConfig = field(default_factory=DistilConfig)
    """What a student learns from its teacher, where there is one."""
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per task, fine-tuning settings that differ from `finetune`."""
    scratch: bool = True
    """Whether the network is also fine-tuned from random weights, as a row of the leaderboard."""
    seeds: int | None = None
    """Fine-tunes of each task; None: as many as the task's registry entry says."""
    asks_ngrams: bool = False
    """Whether a user's own settings have `ngrams`: else none are counted beside networks that are compared."""

    def __post_init__(self) -> None:
        family = FAMILIES[self.family]
        object.__setattr__(self, "corpus", dataclasses.replace(self.corpus, raw=family.raw_text))
        object.__setattr__(self, "tokenizer", dataclasses.replace(self.tokenizer, family=family.name))
        shards = dataclasses.replace(self.shards, sentences=family.sentences, weights=self.corpus.weights)
        object.__setattr__(self, "shards", shards)
        object.__setattr__(self, "model", _of_family(self.model, family))

    @property
    def small(self) -> bool:
        """Whether its models are small ones, pre-trained in minutes or hours, which learn more from many epochs, from
        the mean of all states and from n-grams."""
        return self.name not in ("paper", "imported")

    def finetune_for(self, task: str) -> FinetuneConfig:
        """Settings for one task: the preset's, with that task's own differences."""
        return dataclasses.replace(
            self.finetune, **{**preset_tables()["tasks"].get(task, {}), **self.tasks.get(task, {})}
        )


@cache
def _read(name: str) -> Preset:
    """A preset as its tables say it."""
    tables = dict(preset_tables()["presets"][name])
    preset = dataclasses.replace(_read(tables.pop("like")), name=name) if "like" in tables else Preset(name)
    for section, table in tables.items():
        if isinstance(table, Mapping) and "anew" in table:
            tables[section] = {field: value for field, value in table.items() if field != "anew"}
            preset = dataclasses.replace(preset, **{section: type(getattr(preset, section))()})
    own = tables.get("tasks", {})
    tables["tasks"] = {task: {f: None if v == "none" else v for f, v in own[task].items()} for task in own}
    return _changed(preset, tables, f"preset {name}")


demo, small, long, best, paper, imported = (
    partial(_read, name) for name in ("demo", "small", "long", "best", "paper", "imported")
)
PRESETS: dict[str, Callable[[], Preset]] = {"demo": demo, "small": small, "long": long, "best": best, "paper": paper}
FINE_TUNING: dict[str, Callable[[], Preset]] = {**PRESETS, "imported": imported}
"""What a model is fine-tuned by, which also may be of a preset that pre-trains none."""


def preset_named(name: str, overrides: Mapping[str, Any] | None = None, source: str = "overrides") -> Preset:
    """The preset ``name`` with ``overrides`` applied.

    :param overrides: ``{section: {field: value}}``; the section ``tasks`` holds ``{task: {field: value}}`` and merges
        with the preset's own. Plain values: ``scratch``; ``seeds``, where 0 is as many as each task's registry entry
        says; ``family`` and ``shape`` (:mod:`gptcore.families`), which the other settings come on top of.
    :param source: where the overrides were read, for the error message.
    :raises InputError: an unknown preset, section or field, or a value of the wrong type.
    """
    if name not in FINE_TUNING:
        raise InputError(f"preset {name!r} is not known; {nearest(name, FINE_TUNING)}")
    given = dict(overrides or {})
    preset = FINE_TUNING[name]()
    if "family" in given:
        family = given.pop("family")
        settings = family_settings(family, name, source)
        preset = _changed(dataclasses.replace(preset, family=family), settings, source)
    chosen = FAMILIES[preset.family]
    if "shape" in given:
        shape = given.pop("shape")
        preset = _changed(preset, shape_settings(shape, source), source)
        preset = _changed(preset, chosen.columns.get(shape, {}) if name in ("paper", "imported") else {}, source)
    preset = _changed(preset, {section: _released(chosen, section, own) for section, own in given.items()}, source)
    FINE_TUNING[name]().pretrain.require_family(preset.family, f"preset {name}: pretrain")
    preset.pretrain.require_family(preset.family, f"{source}: pretrain")
    preset.finetune.require_family(preset.family, f"{source}: finetune")
    for task in preset.tasks:
        preset.finetune_for(task).require_family(preset.family, f"{source}: tasks.{task}")
    sections = (given.get("finetune", {}), *given.get("tasks", {}).values())
    return dataclasses.replace(preset, asks_ngrams=any(section.get("ngrams") for section in sections))


def _released(family: Family, section: str, values: Any) -> Any:
    """A section of a user's settings, with what its ``original = true`` stands for in the family."""
    if section == "tasks" and isinstance(values, Mapping):
        return {task: _released(family, "finetune", own) for task, own in values.items()}
    if not isinstance(values, Mapping) or values.get("original") is not True or section not in family.original:
        return values
    return {**family.original[section], **{name: value for name, value in values.items() if name != "original"}}


def nearest_preset(model: NetworkConfig, pretrain: Mapping[str, Any] | None = None) -> str:
    """The name of the preset of a network's family that suits a network of which nobody recorded one.

    :param pretrain: the recorded settings of its pre-training: it is the preset that differs from these and from the
        network in the fewest settings, whatever a user changed. None: it was trained elsewhere, and it is `paper` for a
        size with a column of its own in the family's paper, else the preset whose network is nearest in size, by the
        ratio of the blocks' operations a token. Of equal ones the first.
    """
    if pretrain is None and FAMILIES[model.family].size_of(recorded(model)) in FAMILIES[model.family].columns:
        return "paper"

    def distance(preset: Preset) -> tuple[int, float]:
        shape = preset.lstm if FAMILIES[model.family].ablation else preset.model
        ratio = abs(math.log(model.flops_per_token(0, told=0) / shape.flops_per_token(0, told=0)))
        if pretrain is None:
            return 0, ratio
        own, theirs = {**recorded(model), **pretrain}, {**recorded(shape), **recorded(preset.pretrain)}
        return sum(own.get(name) != theirs.get(name) for name in {*own, *theirs}), ratio

    known = {}
    for name in PRESETS:
        with suppress(InputError):  # not every preset is one of every family
            known[name] = preset_named(name, {} if FAMILIES[model.family].ablation else {"family": model.family})
    return min(known, key=lambda name: distance(known[name]))


def _of_family(model: NetworkConfig, family: Family) -> NetworkConfig:
    """A network's settings as those of a family: the fields that its own settings have, too."""
    if model.family == family.name:
        return model
    kind = family.part("config")
    shared = {f.name: getattr(model, f.name) for f in dataclasses.fields(kind) if hasattr(model, f.name)}
    changed: NetworkConfig = kind(**{**shared, "family": family.name})
    return changed


def _changed(preset: Preset, overrides: Mapping[str, Any], source: str) -> Preset:
    for section, values in sorted(overrides.items(), key=lambda item: item[0] == "tasks"):  # which come on top
        if section == "scratch":
            preset = dataclasses.replace(preset, scratch=checked(values, "bool", f"{source}: scratch"))
        elif section == "seeds":
            seeds = checked(values, "int", f"{source}: seeds")
            if seeds < 0:
                raise InputError(f"{source}: seeds = {seeds}; expected 0 or more")
            preset = dataclasses.replace(preset, seeds=seeds or None)
        elif section == "tasks" and isinstance(values, Mapping):
            merged = {task: dict(fields) for task, fields in preset.tasks.items()}
            for task, fields in values.items():
                replace_settings(preset.finetune, fields, f"{source}: tasks.{task}")
                merged[task] = {**merged.get(task, {}), **fields}
            preset = dataclasses.replace(preset, tasks=merged)
        elif section in _SECTIONS:
            changed = replace_settings(getattr(preset, section), values, f"{source}: {section}")
            preset = dataclasses.replace(preset, **{section: changed})
        else:
            known = [*_SECTIONS, "tasks", "family", "shape", "scratch", "seeds"]
            raise InputError(f"{source}: {section} is not a section of settings; {nearest(section, known)}")
    return preset


_SECTIONS = ("corpus", "tokenizer", "shards", "model", "lstm", "pretrain", "distil", "finetune")
