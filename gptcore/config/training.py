"""Settings of trainings; the defaults are the paper's (section 4.1 unless another place is named)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial

from gptcore.base.errors import InputError
from gptcore.base.settings import LARGEST_SIZE, Checked, setting, share
from gptcore.families import FAMILIES, offered

PAIRS = ("none", "nsp", "sop")
"""What the second of two segments is: it goes on with the first; with p 1/2 a random one (next-sentence prediction);
with p 1/2 swapped with the first (sentence-order prediction)."""
DECAYS = ("cosine", "linear", "linear-product", "constant")
OPTIMIZERS = ("adam", "muon")
REPLACED_OBJECTIVES = ("electra", "electra-15", "replace-mlm", "all-tokens-mlm")
"""ELECTRA and the controls that explain what it gains (section 3.4)."""
SHORTEST = 8  # tokens of a sequence of two segments: below, there is no room for both and a word to hide
LONGEST_NGRAM = 16
PRECISIONS = ("auto", "float32", "bfloat16")
POOLINGS = ("last", "mean")
CLASS_WEIGHTS = ("balanced",)
NGRAM_PIECES = 5
"""The longest n-grams that a task's model may have beside its network."""
SELECTIONS = {
    "held-out": "held-out training rows",
    "refit": "held-out training rows, then all training rows learnt from",
    "dev": "the dev rows themselves, whose best score is shown",
}
"""What a fine-tune's epoch is chosen on (``select``), in words."""

_count = partial(setting, least=1)
_more_than_0 = partial(setting, above=0)
_weight = partial(setting, least=0, below=math.inf)
_told = partial(setting, None, objective=True)
"""A setting that only some objectives read; each family names its own."""
_share_told = partial(_told, above=0, below=1)


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """What every training says of its batches, its optimiser and its process; the names of Adam's are the paper's."""

    lr: float = _more_than_0(2.5e-4, below=math.inf)
    """The learning rate at its highest."""
    batch_size: int = _count(32)
    """How many sequences, or examples, an update takes together."""
    beta1: float = share(0.9)
    """Adam's decay of its mean of gradients."""
    beta2: float = share(0.999)
    """Adam's decay of its mean of squared gradients."""
    epsilon: float = _weight(1e-8)
    """What Adam adds to the root that it divides by."""
    weight_decay: float = _weight(0.01)
    """Modified L2 (decoupled, after Loshchilov and Hutter) on all non bias or gain weights."""
    clip_norm: float = _more_than_0(1.0)
    """The global norm that a gradient is scaled down to (original code; the paper is silent)."""
    precision: str = setting("auto", among=PRECISIONS)
    """What matrices are multiplied in: float32, bfloat16 (autocast), or auto, the faster one of the machine."""
    seed: int = 0
    """What all draws of the training derive from."""
    uncorrected: bool = False
    """Whether Adam leaves the bias of its means uncorrected (BERT, ALBERT, ELECTRA: original code), so that its first
    steps are larger; ``original = true`` of these families says so."""

    @property
    def original(self) -> bool:
        """Whether Adam is that of GPT-1's release (:mod:`gptcore.training.optim`); some trainings have a setting so."""
        return False


@dataclass(frozen=True)
class SteppedConfig(TrainingConfig):
    """What trainings say whose warm-up and checkpoints are counted in updates."""

    epochs: float = _more_than_0(1.0)
    """How often what is learnt from is read."""
    warmup_steps: int = setting(0, least=0)
    """How many updates the rate rises for, linearly from 0."""
    checkpoint_every: int = _count(1000)
    """How many updates lie between two checkpoints."""
    original: bool = False
    """Whether Adam is the released one (original code): see gptcore.training.optim."""


@dataclass(frozen=True)
class PretrainConfig(SteppedConfig):
    """Unsupervised pre-training, L1 (section 3.1)."""

    section = "pretrain"
    batch_size: int = 64
    """How many sequences of n_ctx tokens an update takes, over all processes and accumulation steps."""
    micro_batch_size: int | None = _count(None)
    """How many sequences one process holds at once: with fewer than its share, gradients accumulate. None: 65,536
    tokens on a GPU, fewer of a network larger than the paper's, 4096 on a CPU."""
    epochs: float = 100.0
    """How often the text is read: one epoch samples as many tokens as the training corpus has. Samples are drawn with
    replacement, so that one epoch meets 63 % of the text, two 86 %."""
    steps: int | None = _count(None)
    """How many updates there are, whatever ``epochs`` says. None: as many as the epochs take."""
    warmup_steps: int = 2000
    eval_every: int = _count(1000)
    """How many updates lie between two validations on the held-out documents."""
    eval_tokens: int = _count(262_144)
    """How many held-out tokens a validation reads during training; the last one reads them all."""
    keep_checkpoints: int = _count(3)
    """How many of the newest checkpoints stay on the disk."""
    seed: int = 42
    optimizer: str | None = setting(None, among=OPTIMIZERS, off="adam")
    """What changes the matrices inside the network: adam, or muon (:func:`gptcore.training.optim.adam_and_muon`).
    None: adam."""
    repeating_steps: int | None = _told(least=1, off=0)
    """How many updates, the first ones, have sequences of which half repeat their beginning over and over, so that the
    network learns early to look up what followed before; for families that predict next tokens. None or 0: none."""
    repeating_share: float | None = _share_told(off=0)
    """Which share of the sequences of all later updates does so too: what is no longer needed is unlearnt. None or 0:
    none does."""
    decay: str | None = setting(None, among=DECAYS)
    """How the rate falls to 0 after the warm-up: cosine; linear (BERT, section A.2), a line from the first update on,
    in whose place the warm-up stands while it lasts; linear-product, that line times the warm-up's (ELECTRA, original
    code); constant, not at all (ERNIE, original code). None: cosine."""
    short_length: int | None = _told(least=SHORTEST, most=LARGEST_SIZE)
    """How many tokens the sequences of the first updates have, in families that are pre-trained on sentences (BERT,
    section A.2: 128). None: n_ctx, as those of all updates."""
    short_share: float | None = _share_told()
    """Which share of the updates has such short sequences. None: nine tenths (BERT, section A.2)."""
    pairs: str | None = _told(among=PAIRS)
    """What the second of two segments is: none (it goes on with the first), nsp (the next sentence or a random one),
    sop (the next sentence or the two swapped). None: what the family says. This and all that follows is for families
    with hidden words."""
    mask_share: float | None = _share_told()
    """Which share of the tokens is hidden and has to be told. None: 0.15 (BERT, section 3.1)."""
    mask_words: bool | None = _told()
    """Whether all pieces of a word are hidden together. None: as the family does."""
    mask_ngrams: int | None = _told(least=1, most=LONGEST_NGRAM)
    """How many words in a row are hidden together at most. None: as many as the family says."""
    mask_copies: int | None = _told(least=1, most=LARGEST_SIZE)
    """How many copies of each sequence have masks drawn once, after which the same come back (`dupe_factor`, original
    code). None: masks are drawn anew for every sequence."""
    replaced_weight: float | None = _told(least=0, most=1e6)
    """How much the main network's loss weighs beside that of the generator. None: 50 (ELECTRA, section 3.2) where it
    tells replaced tokens, 1 where it tells words."""
    generator_share: float | None = _told(above=0, most=1, off=0.25)
    """The generator's width, heads and inner width as a share of the main network's. None or 0.25: a quarter (ELECTRA,
    Table 6: the small and the large model's; a third for the base one)."""
    replaced_objective: str | None = _told(among=REPLACED_OBJECTIVES)
    """What the network learns of a text whose hidden words a generator has filled in (ELECTRA, section 3.4): electra,
    whether each token was replaced; electra-15, the same at the places of hidden words alone; replace-mlm, the hidden
    words; all-tokens-mlm, every word, with a probability of copying the one that stands there. None: electra."""
    hidden_share: float | None = _share_told()
    """Which share of the sequences is read as a whole, with hidden words, where others are read word by word; it is the
    weight of their loss, too (GPT-BERT, section 3.2). None: all are read in the family's one way."""
    entity_weight: float | None = _told(least=0, most=1e6)
    """How much the loss of entities weighs beside those of words and of pairs; 0: they are not told. None: 1 (ERNIE,
    section 3.4) where there are entities."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.original and self.optimizer is not None:
            raise InputError(
                f"pretrain.original = True with optimizer = {self.optimizer!r}: expected adam, as released"
            )
        if self.short_share is not None and self.short_length is None:
            raise InputError(f"pretrain.short_share = {self.short_share} without pretrain.short_length, expected both")

    def require_family(self, name: str, where: str) -> None:
        """Refuse settings that a family's objective does not read.

        :param where: "file: section", which messages begin with.
        :raises InputError: naming the first that it does not; an encoder with GPT-1's released Adam.
        """
        if not FAMILIES[name].generates:
            _check_release(self, name, where)
        for told in OF_OBJECTIVES:
            if (value := getattr(self, told)) is not None:
                require_learnt(told, name, f"{where}.{told} = {value!r}")

    def mean_length(self, n_ctx: int) -> float:
        """Tokens of a sequence, over the whole run."""
        if self.short_length is None:
            return n_ctx
        return self.share_of_short * min(self.short_length, n_ctx) + (1 - self.share_of_short) * n_ctx

    @property
    def share_of_masked(self) -> float:
        """Share of the tokens that are hidden, where any are (BERT, section 3.1)."""
        return 0.15 if self.mask_share is None else self.mask_share

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


OF_OBJECTIVES = tuple(field.name for field in dataclasses.fields(PretrainConfig) if field.metadata.get("objective"))
"""The settings of pre-training that only some objectives read; each family names its own."""


def require_learnt(name: str, family: str, place: str) -> None:
    """Refuse a setting of pre-training that a family's objective does not read.

    :raises InputError: it is one of other objectives; names the families that have these.
    """
    if name in OF_OBJECTIVES and name not in FAMILIES[family].objective_settings:
        those = ", ".join(known for known in offered() if name in FAMILIES[known].objective_settings)
        raise InputError(f"{place}: {FAMILIES[family].title} does not learn so, expected a family that does ({those})")


@dataclass(frozen=True)
class FinetuneConfig(TrainingConfig):
    """Supervised fine-tuning, L3 = L2 + lm_coef * L1 (section 3.2)."""

    section = "finetune"
    lr: float = 6.25e-5
    epochs: int = _more_than_0(3)
    """How often the training rows are read."""
    warmup: float = share(0.002)
    """Which share of all updates the rate rises for, linearly from 0."""
    decay: str | None = setting(None, among=DECAYS[1:], off="linear-product")
    """How the rate falls to 0, see `pretrain.decay`: linear (BERT), linear-product (GPT-1 and ELECTRA), or constant
    (ERNIE). None: linear-product."""
    lm_coef: float = _weight(0.5)
    """lambda of equation 5, the weight of the auxiliary objective; 0 switches that off."""
    clf_pdrop: float = share(0.1)
    """Dropout before the linear layer, but for spans."""
    span_pdrop: float | None = setting(None, least=0, below=1, off=0)
    """Dropout before the linear layer that tells spans (DistilBERT: 0.1; original code). None or 0: none (BERT's)."""
    pooling: str | None = setting(None, among=POOLINGS, off="last")
    """What tells the linear layer of a sequence. last, or None: the state of its last token (section 3.2), an encoder's
    summary. mean: the mean of all its states beside that, for what lies in its words more than in their order. Answers
    that are places of a text have neither."""
    ngrams: int | None = setting(None, least=0, most=NGRAM_PIECES, off=0)
    """Up to how many pieces the n-grams have that a linear layer counts beside whole words. It is fitted on the
    training rows once the network is trained. Of two texts it is told what either has alone, and how much of the
    other's. Its logits are added to the network's with the weight, 0 among them, that the rows of ``select`` choose.
    Answers that are places of a text have none. None or 0: none."""
    words: bool = False
    """Whether an encoder tells places of a text by what its words look like and by the words around them, too, not by
    BERT's linear layer alone: the tags of a text all together (:class:`gptcore.models.tagger.WordTagger`), an answer
    by where the question's words are met again (:class:`gptcore.models.span_reader.SpanReader`)."""
    select: str | None = setting("held-out", among=tuple(SELECTIONS), off="dev")
    """What the epoch that is kept is chosen on. held-out: a tenth of the training rows, which are not trained on
    (:func:`gptcore.nlu.held_out.held_out_rows`); refit: the same rows say how many epochs, for which all training rows
    are then learnt from anew; the dev rows are scored once, by the chosen epoch. dev, or None: the dev rows themselves,
    so that their score is the highest of all epochs' (original code), and all training rows are learnt from."""
    max_train_rows: int | None = _count(None)
    """How many training rows are read, held-out ones too, the first after a seeded shuffle. None: all."""
    max_eval_rows: int | None = _count(None)
    """How many rows of each evaluated split are read, the first after a seeded shuffle. None: all."""
    n_transfer: int | None = setting(None, least=-1)
    """How many blocks are taken from the checkpoint, besides the embeddings; 0: embeddings alone; -1: nothing at all
    (original code). None: all (Figure 2, left)."""
    snapshot: int | None = _count(None)
    """After how many updates a model was kept that the fine-tuning starts from, of those that a pre-training kept on
    its way. None: the final one."""
    pretrained: bool = True
    """Whether the checkpoint's weights are taken; False: same shape, random weights (Table 5, "w/o pre-training")."""
    from_task: str | None = setting(None, off="")
    """The task on which the checkpoint is fine-tuned first, with that task's settings and seed 0; what it learns, but
    for its linear layer, is what every seed of this task starts from (ALBERT, section 4.5: MNLI, for RTE, STS-B and
    MRPC). None or "": the checkpoint itself."""
    layer_decay: float | None = setting(None, above=0, most=1, off=1)
    """The factor of the learning rate from a layer to the one below it, the linear layer's being ``lr`` (ELECTRA,
    appendix A: 0.8 for the small and the base model). None or 1: one rate for all."""
    layer_decay_original: bool = False
    """Whether a pooler's depth is counted though there is none, as ELECTRA's released code does (original code):
    without one, every rate but the linear layer's is then lower by one more factor."""
    lora_rank: int | None = setting(None, least=0, off=0)
    """The rank of the products that are learnt beside the network's matrices, which then stay as they are, as all of it
    does but for the linear layer (Hu et al. 2022): for networks that are too large to train whole. None or 0: the
    network itself is trained."""
    class_weights: str | None = setting(None, among=CLASS_WEIGHTS, off="")
    """What a training row counts in the network's loss, of tasks whose rows have one of several labels. balanced: the
    rarer its label is, the more, so that each label's rows count as much together as any other's. N-grams are fitted
    without weights. None or "": every row counts 1."""
    taught: bool = False
    """Whether the teacher's predictions are learnt in the labels' place, of the teacher that was fine-tuned on the task
    with seed 0 (TinyBERT, section 3.2)."""
    layer_epochs: int | None = _count(None)
    """How many epochs, before those of its predictions, the teacher's layers are learnt for. None: none."""
    layer_lr: float | None = setting(None, above=0, below=math.inf)
    """The rate of these epochs, constant from the first update on (TinyBERT, section 4.2: 5e-5; its constancy: original
    code). None: ``lr``, after a warm-up."""
    augmentation: int | None = _count(None)
    """How many copies of each training row, in which the pre-trained teacher has replaced words, are read beside it
    (TinyBERT, section 3.2 and Algorithm 1; 10 to 30 in the released code). None: none."""
    unlinked: bool = False
    """Whether a network that has entities beside words looks up none in its texts (ERNIE's ablation "w/o entities")."""
    original: bool = False
    """Whether the recipe is the released one (original code): its Adam, its truncation, its choice of the best
    parameters, on dev rows whatever ``select`` is by default, a softmax over position rows too, n_ctx shrunk to the
    longest example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.original and self.select == "refit":
            raise InputError("finetune.original = True with select = 'refit': expected 'dev', as released")
        if self.original:
            object.__setattr__(self, "select", None)
        apart: dict[str, dict[str, object]] = {
            "from_task": {"pretrained": True, "n_transfer": None, "original": False},
            "ngrams": {"original": False},
            "class_weights": {"taught": False},
            "taught": {"pretrained": True, "original": False, "from_task": None, "lm_coef": 0.0, "layer_decay": None},
        }
        for name, others in apart.items():
            for other, wanted in others.items() if (value := getattr(self, name)) else ():
                if (found := getattr(self, other)) != wanted:
                    raise InputError(f"finetune.{name} = {value!r} with {other} = {found}: expected {wanted}")
        needs = {"layer_lr": "layer_epochs", "layer_epochs": "taught", "augmentation": "taught"}
        for name, needed in {**needs, "layer_decay_original": "layer_decay"}.items():
            if (value := getattr(self, name)) and not getattr(self, needed):
                raise InputError(f"finetune.{name} = {value} without finetune.{needed}, expected both")

    def require_family(self, name: str, where: str) -> None:
        """Refuse what a family's networks cannot be fine-tuned with.

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
        if self.lm_coef:
            raise InputError(f"{where}.lm_coef = {self.lm_coef}: {family.title} predicts no next token; expected 0.0")
        _check_release(self, name, where)


def _check_release(config: TrainingConfig, name: str, where: str) -> None:
    """:raises InputError: ``original``, which stands for other settings of the family, or for nothing known here."""
    if config.original:
        title, own = FAMILIES[name].title, FAMILIES[name].original.get(config.section)
        wanted = f"expected what it stands for ({', '.join(own)})" if own else "its release is not here, expected False"
        raise InputError(f"{where}.original = True, of {title}: {wanted}")
