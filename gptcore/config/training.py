"""Settings of trainings; the defaults are the paper's (section 4.1 unless another place is named)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.config.limits import require_objective, require_training
from gptcore.families import FAMILIES, offered

OF_OBJECTIVES = (
    *("repeating_steps", "repeating_share"),
    *("short_length", "short_share", "pairs", "mask_share", "mask_words", "mask_ngrams", "mask_copies"),
    *("replaced_weight", "replaced_objective", "hidden_share", "entity_weight"),
)
"""Settings of pre-training that only some objectives read; each family names its own."""


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
    optimizer: str | None = None
    """How the matrices inside the network are changed: adam, or muon (:func:`gptcore.training.optim.adam_and_muon`).
    None: adam."""
    repeating_steps: int | None = None
    """Updates, the first ones, of whose sequences half repeat their beginning over and over, so that the network learns
    early to look up what followed before; for families that predict next tokens. None, which 0 becomes: none."""
    repeating_share: float | None = None
    """Share of the sequences of all later updates that do so too: what is no longer needed is unlearnt. None, which 0
    becomes: none."""
    decay: str | None = None
    """How the rate falls to 0 after the warm-up: cosine, or linear (BERT, section A.2). None: cosine."""
    short_length: int | None = None
    """Tokens of the sequences of the first updates, for families that are pre-trained on sentences (BERT, section A.2:
    128). None: n_ctx all along."""
    short_share: float | None = None
    """Share of the updates with such short sequences; None: nine tenths (BERT, section A.2)."""
    pairs: str | None = None
    """What the second of two segments is: none (it goes on with the first), nsp (next sentence or a random one), sop
    (next sentence or the two swapped). None: the family's own. This and what follows: families with hidden words."""
    mask_share: float | None = None
    """Share of the tokens that are to be told. None: 0.15 (BERT, section 3.1)."""
    mask_words: bool | None = None
    """Whether all pieces of a word are hidden together. None: as the family does."""
    mask_ngrams: int | None = None
    """Words in a row that are hidden together at most. None: as the family does."""
    mask_copies: int | None = None
    """Draw masks once for so many copies of each sequence, which then come back (`dupe_factor`, original code). None:
    anew for every sequence."""
    replaced_weight: float | None = None
    """Of the main network's loss, beside that of the generator. None: 50 (ELECTRA, section 3.2) where it tells
    replaced tokens, 1 where it tells words."""
    replaced_objective: str | None = None
    """What the network learns of a text whose hidden words a generator has filled in (ELECTRA, section 3.4): electra,
    whether each token was replaced; electra-15, only at the places of hidden words; replace-mlm, the hidden words;
    all-tokens-mlm, every word, with a probability of copying the one that stands there. None: electra."""
    hidden_share: float | None = None
    """Share of the sequences that are read as a whole, with hidden words, where others are read word by word, and the
    weight of their loss (GPT-BERT, section 3.2). None: all are read in the family's one way."""
    entity_weight: float | None = None
    """Of the loss of entities, beside those of words and of pairs; 0: they are not told. None: 1 (ERNIE, section 3.4)
    where there are entities."""

    def __post_init__(self) -> None:
        for name, nothing in (("optimizer", "adam"), ("repeating_steps", 0), ("repeating_share", 0)):
            if getattr(self, name) == nothing:  # as a settings file says it, which has no None
                object.__setattr__(self, name, None)
        require_training(self, "pretrain")
        if self.original and self.optimizer is not None:
            raise InputError(
                f"pretrain.original = True with optimizer = {self.optimizer!r}: expected adam, as released"
            )
        require_objective(self)

    def require_family(self, name: str, where: str) -> None:
        """See that a family's objective reads all settings that are there.

        :param where: "file: section", which messages begin with.
        :raises InputError: naming the first that it does not.
        """
        for setting in OF_OBJECTIVES:
            value = getattr(self, setting)
            if value is not None and setting not in FAMILIES[name].objective_settings:
                those = [known for known in offered() if setting in FAMILIES[known].objective_settings]
                raise InputError(
                    f"{where}.{setting} = {value!r}: {FAMILIES[name].title} does not learn so, "
                    f"expected a family that does ({', '.join(those)})"
                )

    def mean_length(self, n_ctx: int) -> float:
        """Tokens of a sequence, over the whole run."""
        if self.short_length is None:
            return n_ctx
        return self.share_of_short * min(self.short_length, n_ctx) + (1 - self.share_of_short) * n_ctx

    @property
    def repeating(self) -> tuple[int, float]:
        """Sequences, the first ones, of which half repeat their beginning; share of the later ones that do."""
        return (self.repeating_steps or 0) * self.batch_size, self.repeating_share or 0.0

    @property
    def share_of_short(self) -> float:
        """Share of the updates with short sequences, where there are any."""
        return 0.9 if self.short_share is None else self.short_share

    def total_steps(self, n_ctx: int, n_tokens: int) -> int:
        """Updates of the whole run: `steps`, or `epochs` of a corpus of ``n_tokens``."""
        if self.steps is not None:
            return self.steps
        return max(1, math.ceil(self.epochs * n_tokens / (self.batch_size * self.mean_length(n_ctx))))


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
    """Use only the first rows of each evaluated split, after a seeded shuffle; None: all."""
    n_transfer: int | None = None
    """Blocks taken from the checkpoint besides the embeddings; 0: embeddings only; -1: nothing at all (original code);
    None: all (Figure 2, left)."""
    snapshot: int | None = None
    """Which of the models that a pre-training kept on its way, by its updates; None: the final one."""
    pretrained: bool = True
    """False: same shape, random weights (Table 5, "w/o pre-training")."""
    from_task: str | None = None
    """The task on which the checkpoint is fine-tuned first, with that task's settings and seed 0; what it learns, but
    for its linear layer, is what every seed of this task starts from (ALBERT, section 4.5: MNLI, for RTE, STS-B and
    MRPC). None, which "" becomes: the checkpoint itself."""
    layer_decay: float | None = None
    """Factor of the learning rate from a layer to the one below it, the linear layer's being ``lr`` (ELECTRA, appendix
    A: 0.8 for the small and the base model). None, which 1 becomes, too: one rate for all."""
    layer_decay_original: bool = False
    """A pooler's depth is counted whether there is one or not, as ELECTRA's released code does (original code): without
    one, every rate but the linear layer's is lower by one more factor."""
    taught: bool = False
    """Whether the teacher's predictions are learnt in the labels' place, of the teacher that was fine-tuned on the task
    with seed 0 (TinyBERT, section 3.2)."""
    layer_epochs: int | None = None
    """Epochs before, in which its layers are; None: none."""
    augmentation: int | None = None
    """Copies of each training row in which the pre-trained teacher has replaced words (TinyBERT, section 3.2 and
    Algorithm 1; 10 to 30 in the released code). None: none."""
    unlinked: bool = False
    """Whether a network that has entities beside words looks up none in its texts (ERNIE's ablation "w/o entities")."""
    precision: str = "auto"
    seed: int = 0
    original: bool = False
    """The released recipe (original code): its Adam, its truncation, its choice of the best parameters, a softmax over
    position rows too, n_ctx shrunk to the longest example."""

    def __post_init__(self) -> None:
        for name, nothing in (("layer_decay", 1), ("from_task", "")):
            if getattr(self, name) == nothing:  # as a settings file says it, which has no None
                object.__setattr__(self, name, None)
        require_training(self, "finetune")
        if self.layer_decay is not None and not 0 < self.layer_decay < 1:
            raise InputError(f"finetune.layer_decay = {self.layer_decay}: expected more than 0, and 1 or less")
        for name, off in (("pretrained", True), ("n_transfer", None), ("original", False)):
            if self.from_task is not None and (value := getattr(self, name)) != off:
                raise InputError(f"finetune.from_task = {self.from_task!r} with {name} = {value}: expected {off}")
        untaught = {"pretrained": True, "original": False, "from_task": None, "lm_coef": 0.0, "layer_decay": None}
        for name, wanted in untaught.items():
            if self.taught and (found := getattr(self, name)) != wanted:
                raise InputError(f"finetune.taught = True with {name} = {found}: expected {wanted}")
        if self.layer_epochs is not None and not self.taught:
            raise InputError(f"finetune.layer_epochs = {self.layer_epochs} without finetune.taught, expected both")
        if self.augmentation is not None and not self.taught:
            raise InputError(f"finetune.augmentation = {self.augmentation} without finetune.taught, expected both")
        if self.layer_decay_original and self.layer_decay is None:
            raise InputError("finetune.layer_decay_original = True without finetune.layer_decay, expected both")

    def require_family(self, name: str, where: str) -> None:
        """See that a family's networks can be fine-tuned so.

        :param where: "file: section", which messages begin with.
        :raises InputError: GPT-1's auxiliary objective or released recipe, and a family that predicts no next token;
            a teacher of tasks, and a family that has none.
        """
        family = FAMILIES[name]
        if self.unlinked and not family.knowledge:
            raise InputError(f"{where}.unlinked = True: {family.title} has no entities beside words; expected False")
        if self.taught and family.generates:
            raise InputError(f"{where}.taught = True: {family.title} has no teacher of tasks; expected False")
        if family.auxiliary_loss:
            return
        for setting, off in (("lm_coef", 0.0), ("original", False)):
            if (value := getattr(self, setting)) != off:
                raise InputError(f"{where}.{setting} = {value}: {family.title} predicts no next token; expected {off}")
