"""Every setting of the pipeline, as frozen dataclasses, and the four presets.

Defaults are the paper's ("Improving Language Understanding by Generative Pre-Training", section 4.1 unless
another place is named). `paper()` is the defaults; `small()` fits two CPU cores and real books, `long()` does so with
several times as much of both; `demo()` fits two CPU cores, a generated world and a few minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from gptcore.errors import InputError
from gptcore.families import (
    DEFAULT,
    FAMILIES,
    Family,
    family_settings,
    recorded_family,
    shape_settings,
    with_family,
)
from gptcore.limits import require_sizes, require_training
from gptcore.settings import checked, derived, replace_settings

LAYER_NORM_EPSILON = 1e-5  # original code


@dataclass(frozen=True)
class CorpusConfig:
    """How raw documents are read and cleaned."""

    text_field: str = "text"
    """Field of .jsonl rows, column of .parquet files, that holds the text."""
    strip_gutenberg: bool = True
    """Cut Project Gutenberg headers and licences from documents that carry them."""
    min_characters: int = 200
    """Documents with fewer characters (after stripping) are dropped and counted."""
    drop_duplicates: bool = True
    """Of documents with equal content only the first, in sorted order of the sources, is kept."""
    near_duplicates: float = 0.8
    """A document that has at least this share of its runs of 13 words in common with an earlier one (estimated; of all
    runs of either) is dropped like an equal one; 1: equal ones alone."""
    validation_fraction: float = 0.05
    """Expected share of documents held out; which ones follows from each document's own hash."""
    strict: bool = False
    """Undecodable bytes: an error that names file and byte offset, instead of replaced and counted."""
    raw: bool = derived(False)
    """For a family whose tokenizer takes any text as it is: no ftfy, no spaCy, no lower case. Line ends are unified and
    licences cut as ever."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Byte pair encoding: GPT-1's, over words that end in </w>, or GPT-2's, over the bytes of any text."""

    n_merges: int = 40_000
    family: str = derived(DEFAULT)
    """Whose kind of tokenizer it is."""

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """The kind of tokenizer, not the family: two families that share a kind share their tokenizers."""
        family = FAMILIES[values.pop("family")]
        kind = {"kind": family.tokenizer} if family.tokenizer_recorded is None else family.tokenizer_recorded
        return {**values, **kind}


@dataclass(frozen=True)
class ShardConfig:
    """Arrow IPC files of token ids."""

    max_tokens: int = 16_000_000
    """Upper bound of one file, in tokens (32 MB of uint16)."""


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer decoder of section 4.1."""

    n_vocab: int = 40_478
    """Words and pieces; the released vocabulary has 40 478 (original code)."""
    n_special: int = 0
    """Rows appended: 0 while pre-training, 3 when fine-tuning (start, delimiter, classify), 2 for titles of papers."""
    n_ctx: int = 512
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_inner: int = 3072
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    init_std: float = 0.02
    """Weights start as N(0, 0.02); biases 0, gains 1."""
    original: bool = False
    """Embeddings as released (original code): one table of words, specials and positions, dropped as a whole once a
    forward pass, for the lookup and the tied softmax alike."""
    norm_first: bool = False
    """GPT-2's decoder: norms before the sub-layers and after the last block, output weights of sub-layers scaled."""
    family: str = derived("")
    """Empty: the one that has such norms."""

    def __post_init__(self) -> None:
        if not self.family:
            object.__setattr__(self, "family", recorded_family({"norm_first": self.norm_first}).name)
        require_sizes(self, ("n_vocab", "n_ctx", "n_head", "n_embd", "n_inner"), ("n_special", "n_layer"))
        if self.n_embd % self.n_head:
            raise InputError(f"model.n_embd = {self.n_embd} is not a multiple of model.n_head = {self.n_head}")

    @property
    def layers(self) -> int:
        """Blocks that a fine-tune can take over."""
        return self.n_layer

    @property
    def shape(self) -> str:
        """The size in short, for tables."""
        return f"{self.n_layer} x {self.n_embd}"

    @property
    def shape_in_words(self) -> str:
        """The size in words, for lists of models."""
        return f"{self.n_layer} layers x {self.n_embd}"

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """See :func:`gptcore.families.with_family`."""
        return with_family(values.pop("family"), values)


@dataclass(frozen=True)
class LSTMConfig:
    """The recurrent network of Table 5: a single layer of 2048 units in the same framework (section 5)."""

    n_vocab: int = 40_478
    n_special: int = 0
    n_ctx: int = 512
    """Length of the windows it is trained on; the network itself has no bound."""
    n_units: int = 2048
    n_embd: int = 768
    """Width of the embeddings; the units are projected back to it, so that input and output are tied as in the
    Transformer (the paper does not say)."""
    embd_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    """Dropout after the projection."""
    init_std: float = 0.02
    family: str = derived("lstm")

    def __post_init__(self) -> None:
        require_sizes(self, ("n_vocab", "n_ctx", "n_units", "n_embd"), ("n_special",))

    @property
    def layers(self) -> int:
        """Blocks that a fine-tune can take over: the one."""
        return 1

    @property
    def shape(self) -> str:
        """The size in short, for tables."""
        return f"{self.n_units}"

    @property
    def shape_in_words(self) -> str:
        """The size in words, for lists of models."""
        return f"LSTM of {self.n_units}"

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """See :func:`gptcore.families.with_family`."""
        return with_family(values.pop("family"), values)


class NetworkConfig(Protocol):
    """What the settings of any family's network have in common: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def family(self) -> str:
        """Its family's name."""
        ...

    @property
    def n_vocab(self) -> int:
        """Words and pieces."""
        ...

    @property
    def n_special(self) -> int:
        """Rows appended to them."""
        ...

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        ...

    @property
    def n_embd(self) -> int:
        """Width of the states that a head reads."""
        ...

    @property
    def init_std(self) -> float:
        """Standard deviation of the weights drawn."""
        ...

    @property
    def layers(self) -> int:
        """Blocks that a fine-tune can take over."""
        ...

    @property
    def shape(self) -> str:
        """The size in short, for tables."""
        ...

    @property
    def shape_in_words(self) -> str:
        """The size in words, for lists of models."""
        ...


def network_config(settings: Any, where: str = "model") -> NetworkConfig:
    """The network that recorded settings describe, by their family.

    :raises InputError: an unknown family or field, or a value of no use; names ``where`` they stand.
    """
    family = recorded_family(settings, where)
    known = {k: v for k, v in settings.items() if k != "family"} if isinstance(settings, Mapping) else settings
    config: NetworkConfig = replace_settings(family.part("config")(family=family.name), known, where)
    return config


def check_same_shape(found: NetworkConfig, wanted: NetworkConfig, where: str) -> None:
    """Whether weights of the one network fit the other; dropout and how weights are drawn may differ.

    :param where: what has the shape ``found``, for the error message.
    :raises InputError: naming the first setting of the shape that differs.
    """
    ours, theirs = ({"network": type(c).__name__, **dataclasses.asdict(c)} for c in (wanted, found))
    for name, value in ours.items():
        if name != "init_std" and not name.endswith("_pdrop") and theirs.get(name) != value:
            raise InputError(f"{where}: its {name} is {theirs.get(name)}, expected {value} as in the settings")


@dataclass(frozen=True)
class PretrainConfig:
    """Unsupervised pre-training, L1 (section 3.1)."""

    batch_size: int = 64
    """Sequences of n_ctx tokens an update, over all processes and accumulation steps."""
    micro_batch_size: int | None = None
    """Sequences that one process holds at once: smaller means gradient accumulation. None: the whole of its share on a
    GPU, 4096 tokens on a CPU."""
    epochs: float = 100.0
    """One epoch = as many sampled tokens as the training corpus has."""
    steps: int | None = None
    """Updates; overrides epochs."""
    lr: float = 2.5e-4
    warmup_steps: int = 2000
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    """Modified L2 (decoupled, after Loshchilov and Hutter) on all non bias or gain weights."""
    clip_norm: float = 1.0
    """Global gradient norm (original code; the paper is silent)."""
    eval_every: int = 1000
    """Updates between validations on the held-out documents."""
    eval_tokens: int = 262_144
    """Held-out tokens read by a validation during training; the last one reads them all."""
    checkpoint_every: int = 1000
    keep_checkpoints: int = 3
    precision: str = "auto"
    """auto, float32 or bfloat16 (autocast)."""
    seed: int = 42
    original: bool = False
    """Adam as released (original code): see gptcore.training.optim."""

    def __post_init__(self) -> None:
        require_training(self, "pretrain")


@dataclass(frozen=True)
class FinetuneConfig:
    """Supervised fine-tuning, L3 = L2 + lm_coef * L1 (section 3.2)."""

    lr: float = 6.25e-5
    batch_size: int = 32
    epochs: int = 3
    warmup: float = 0.002
    """Share of all updates over which the rate rises linearly; then it falls linearly to 0."""
    lm_coef: float = 0.5
    """lambda of equation 5; 0 switches the auxiliary objective off."""
    clf_pdrop: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    max_train_rows: int | None = None
    """Use only the first rows, after a seeded shuffle; None: all."""
    max_eval_rows: int | None = None
    """The same for each evaluated split."""
    n_transfer: int | None = None
    """Blocks taken from the checkpoint besides the embeddings; 0: embeddings only; -1: nothing at all (original code);
    None: all (Figure 2, left)."""
    snapshot: int | None = None
    """Which of the models that a pre-training kept on its way, by its updates; None: the final one."""
    pretrained: bool = True
    """False: same shape, random weights (Table 5, "w/o pre-training")."""
    precision: str = "auto"
    seed: int = 0
    original: bool = False
    """The released recipe (original code): its Adam, its truncation, its choice of the best parameters, a softmax over
    position rows too, n_ctx shrunk to the longest example."""

    def __post_init__(self) -> None:
        require_training(self, "finetune")


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
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per task, fine-tuning settings that differ from `finetune`."""
    scratch: bool = True
    """Also fine-tune the same network from random weights, as a row of the leaderboard."""
    seeds: int | None = None
    """Fine-tunes of each task; None: as many as the task's registry entry says."""

    def __post_init__(self) -> None:
        family = FAMILIES[self.family]
        object.__setattr__(self, "corpus", dataclasses.replace(self.corpus, raw=family.raw_text))
        object.__setattr__(self, "tokenizer", dataclasses.replace(self.tokenizer, family=family.name))
        object.__setattr__(self, "model", _of_family(self.model, family))

    def finetune_for(self, task: str) -> FinetuneConfig:
        """Settings for one task: the preset's, with that task's own differences."""
        return dataclasses.replace(self.finetune, **self.tasks.get(task, {}))


def paper() -> Preset:
    """The paper's text: 117M parameters, batch 64 x 512 tokens, 100 epochs."""
    return Preset("paper")


def small() -> Preset:
    """Real books and real rows on two CPU cores in under 90 minutes."""
    return Preset(
        "small",
        tokenizer=TokenizerConfig(n_merges=4000),
        # No dropout: less than one epoch is seen. N(0, 0.02) suits a width of 768; narrower needs larger draws, or a
        # post-norm network stays at the unigram entropy for hundreds of updates.
        model=ModelConfig(
            n_ctx=128,
            n_layer=4,
            n_head=4,
            n_embd=256,
            n_inner=1024,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            init_std=0.05,
        ),
        # as many units for its width as the paper's 2048 for 768
        lstm=LSTMConfig(n_ctx=128, n_units=672, n_embd=256, embd_pdrop=0.0, resid_pdrop=0.0, init_std=0.05),
        pretrain=PretrainConfig(
            batch_size=16,
            steps=3200,
            lr=1.5e-3,
            warmup_steps=200,
            beta2=0.98,
            eval_every=400,
            eval_tokens=65_536,
            checkpoint_every=200,
        ),
        finetune=FinetuneConfig(lr=4e-4, epochs=1, warmup=0.05, max_train_rows=5000),
        tasks={
            **{task: {"epochs": 2} for task in ("rte", "storycloze", "cola")},  # few and short rows
            "sst2": {"max_train_rows": None},
            "race": {"max_train_rows": 1000},  # four sequences of n_ctx a question
        },
        seeds=1,
        scratch=False,
    )


def long() -> Preset:
    """As `small`, for some hours: two epochs of 73 books, twice the context, more epochs of more rows."""
    brief = small()
    return dataclasses.replace(
        brief,
        name="long",
        model=dataclasses.replace(brief.model, n_ctx=256),
        lstm=dataclasses.replace(brief.lstm, n_ctx=256),
        pretrain=dataclasses.replace(
            brief.pretrain, batch_size=8, steps=13_400, warmup_steps=300, eval_every=670, checkpoint_every=335
        ),
        # Rate and epochs by dev rows (infra/sweep-finetune.toml): less leaves CoLA and SciTail near chance;
        # STS-B was still rising in its last epoch.
        # No auxiliary objective: it costs a fifth of the time, and in Table 5 at this size it won no point on average.
        finetune=FinetuneConfig(lr=6e-4, epochs=3, warmup=0.05, lm_coef=0.0),
        tasks={
            **{task: {"epochs": 2} for task in ("mnli", "snli", "qnli", "rte")},
            **{task: {"epochs": 4} for task in ("scitail", "cola")},
            "stsb": {"epochs": 6},
            "sst2": {"epochs": 1},
            "race": {"epochs": 1, "max_train_rows": 1000},  # four sequences of n_ctx a question
        },
        seeds=None,
    )


def demo() -> Preset:
    """The generated world on two CPU cores in a few minutes."""
    return Preset(
        "demo",
        corpus=CorpusConfig(validation_fraction=0.1),
        tokenizer=TokenizerConfig(n_merges=2000),
        model=ModelConfig(
            n_ctx=96,
            n_layer=4,
            n_head=4,
            n_embd=128,
            n_inner=512,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            init_std=0.07,
        ),
        lstm=LSTMConfig(n_ctx=96, n_units=336, n_embd=128, embd_pdrop=0.0, resid_pdrop=0.0, init_std=0.07),
        pretrain=PretrainConfig(
            batch_size=24,
            steps=1400,
            lr=2e-3,
            warmup_steps=100,
            beta2=0.98,
            eval_every=350,
            eval_tokens=32_768,
            checkpoint_every=350,
        ),
        finetune=FinetuneConfig(lr=5e-4, batch_size=16, epochs=3, warmup=0.1),
        seeds=1,
    )


PRESETS = {"demo": demo, "small": small, "long": long, "paper": paper}


def preset_named(name: str, overrides: Mapping[str, Any] | None = None, source: str = "overrides") -> Preset:
    """The preset ``name`` with ``overrides`` applied.

    :param overrides: ``{section: {field: value}}``; the section ``tasks`` holds ``{task: {field: value}}`` and merges
        with the preset's own. Plain values: ``scratch``; ``seeds``, where 0 is as many as each task's registry entry
        says; ``family`` and ``shape`` (:mod:`gptcore.families`), which the other settings come on top of.
    :param source: where the overrides were read, for the error message.
    :raises InputError: an unknown preset, section or field, or a value of the wrong type.
    """
    if name not in PRESETS:
        raise InputError(f"preset {name!r} is not known; expected one of {', '.join(PRESETS)}")
    given = dict(overrides or {})
    preset = PRESETS[name]()
    if "family" in given:
        family = given.pop("family")
        settings = family_settings(family, name, source)
        preset = _changed(dataclasses.replace(preset, family=family), settings, source)
    if "shape" in given:
        preset = _changed(preset, shape_settings(given.pop("shape"), source), source)
    return _changed(preset, given, source)


def _of_family(model: NetworkConfig, family: Family) -> NetworkConfig:
    """A network's settings as those of a family: the fields that its own settings have, too."""
    if model.family == family.name:
        return model
    kind = family.part("config")
    shared = {f.name: getattr(model, f.name) for f in dataclasses.fields(kind) if hasattr(model, f.name)}
    changed: NetworkConfig = kind(**{**shared, "family": family.name})
    return changed


def _changed(preset: Preset, overrides: Mapping[str, Any], source: str) -> Preset:
    for section, values in overrides.items():
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
                replace_settings(FinetuneConfig(), fields, f"{source}: tasks.{task}")
                merged[task] = {**merged.get(task, {}), **fields}
            preset = dataclasses.replace(preset, tasks=merged)
        elif section in _SECTIONS:
            changed = replace_settings(getattr(preset, section), values, f"{source}: {section}")
            preset = dataclasses.replace(preset, **{section: changed})
        else:
            known = ", ".join([*_SECTIONS, "tasks", "family", "shape", "scratch", "seeds"])
            raise InputError(f"{source}: {section} = {values!r} is not a section of settings; expected one of {known}")
    return preset


_SECTIONS = ("corpus", "tokenizer", "shards", "model", "lstm", "pretrain", "finetune")
