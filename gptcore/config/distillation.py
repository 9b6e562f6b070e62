"""What a student learns from a teacher, beside the text or in its place; the defaults are DistilBERT's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from gptcore.base.errors import InputError, require
from gptcore.base.settings import Checked, setting
from gptcore.config.network import NetworkConfig, TransformerConfig
from gptcore.families import FAMILIES

STARTS = ("teacher", "random")
_weight = partial(setting, least=0, most=1e6, weight=True)


@dataclass(frozen=True)
class DistilConfig(Checked):
    """The loss of a student is the weighted sum of these six, each a mean; 0 switches one off.

    The first three are DistilBERT's ("DistilBERT, a distilled version of BERT", Sanh et al. 2019, section 3; weights
    and temperature from its original code), the others TinyBERT's ("TinyBERT: Distilling BERT for Natural Language
    Understanding", Jiao et al. 2020, section 3).
    """

    section = "distil"
    temperature: float = setting(2.0, least=1e-3, most=1e6)
    """The temperature of both softmaxes of the soft targets."""
    soft_weight: float = _weight(5.0)
    """How much the cross-entropy with the teacher's softmax weighs, at every position that is a word or a mark."""
    word_weight: float = _weight(2.0)
    """How much the objective of the family weighs: masked words, or the next token."""
    cosine_weight: float = _weight(1.0)
    """How much one less the cosine of both last states weighs."""
    embedding_weight: float = _weight(0.0)
    """How much the squared difference of the embeddings weighs, the student's brought to the teacher's width by a
    linear layer."""
    hidden_weight: float = _weight(0.0)
    """How much the same of the states weighs, after each layer of the student's and the layer of the teacher's that it
    stands for."""
    attention_weight: float = _weight(0.0)
    """How much the squared difference of the scores of these layers' attention, before the softmax, weighs."""
    start: str = setting("teacher", among=STARTS)
    """Where the student's weights come from: teacher (embeddings, heads, and the layers of ``layers``) or random."""
    layers: str | None = None
    """Which of the teacher's layers, counted from 1, the student's stand for, from its first to its last: "1,3,5".
    None: the last of each of as many equal parts where single layers are told (TinyBERT, section 4.1), else layers
    spread evenly from the first to the last (DistilBERT, original code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = [field.name for field in dataclasses.fields(self) if field.metadata.get("weight")]
        if not any(getattr(self, name) for name in weights):
            raise InputError(f"distil: every weight is 0, expected more of one of {', '.join(weights)}")
        self.chosen_layers()

    def chosen_layers(self) -> tuple[int, ...] | None:
        """``layers`` as numbers; None where they follow from the depths.

        :raises InputError: something else than ascending numbers.
        """
        if self.layers is None:
            return None
        parts = [part.strip() for part in self.layers.split(",")]
        numbers = [int(part) for part in parts if part.isdecimal() and len(part) < 9]
        if len(numbers) != len(parts) or numbers != sorted(set(numbers)) or numbers[0] < 1:
            raise InputError(f"distil.layers = {self.layers!r:.60}: expected ascending layers counted from 1, as 1,3,5")
        return tuple(numbers)

    def layer_map(self, n_student: int, n_teacher: int) -> tuple[int, ...]:
        """For each layer of the student the teacher's that it stands for, both counted from 1.

        :raises InputError: a student deeper than its teacher, or a map of other layers than the two have.
        """
        if n_student > n_teacher:
            raise InputError(f"model.n_layer = {n_student}: a student has no more layers than its teacher, {n_teacher}")
        chosen = self.chosen_layers()
        if chosen is not None:
            if len(chosen) != n_student:
                raise InputError(f"distil.layers = {self.layers!r:.60}: expected {n_student} layers, one a student's")
            require(chosen[-1] <= n_teacher, f"distil.layers = {self.layers!r:.60}: the teacher has {n_teacher} layers")
            return chosen
        if self.tells_layers:
            if n_student and n_teacher % n_student:
                raise InputError(
                    f"model.n_layer = {n_student}: the teacher's {n_teacher} layers make no {n_student} equal parts, "
                    "expected distil.layers"
                )
            return tuple((i + 1) * n_teacher // n_student for i in range(n_student))
        gap = (n_teacher - 1) / max(1, n_student - 1)
        return tuple(1 + round(i * gap) for i in range(n_student))

    @property
    def tells_layers(self) -> bool:
        """Whether anything is told of single layers."""
        return bool(self.embedding_weight or self.hidden_weight or self.attention_weight)

    @property
    def tells_words(self) -> bool:
        """Whether a prediction of words is compared with the text's or the teacher's."""
        return bool(self.soft_weight or self.word_weight)


def check_teacher(config: DistilConfig, student: NetworkConfig, teacher: NetworkConfig, where: str) -> None:
    """Refuse a teacher that a student cannot learn from, by the settings of both alone.

    :param where: what holds the teacher, for the error message.
    :raises InputError: the first thing that does not fit.
    """
    ours, theirs = FAMILIES[student.family], FAMILIES[teacher.family]
    if not ours.distillation:
        learners = ", ".join(name for name, family in FAMILIES.items() if family.distillation)
        raise InputError(f"{where}: {ours.title} learns from no teacher; expected one of {learners}")
    differ = ours.generates != theirs.generates
    if not isinstance(student, TransformerConfig) or not isinstance(teacher, TransformerConfig) or differ:
        kind = "a decoder" if ours.generates else "an encoder"
        raise InputError(f"{where}: found {theirs.title}, expected {kind} as the teacher of {ours.title}")
    if teacher.n_vocab != student.n_vocab:
        raise InputError(f"{where}: its n_vocab is {teacher.n_vocab}, the student's {student.n_vocab}; expected equal")
    if teacher.n_ctx < student.n_ctx:
        raise InputError(f"{where}: its n_ctx is {teacher.n_ctx}, expected the student's {student.n_ctx} or more")
    if config.tells_layers and not student.n_layer:
        raise InputError("model.n_layer = 0: expected 1 or more, where single layers are told")
    if config.tells_words and not student.words:
        raise InputError(
            f"model.words = False: {ours.title} learns words; expected True, or 0 as distil.soft_weight and word_weight"
        )
    config.layer_map(student.n_layer, teacher.n_layer)
    if config.start == "teacher":
        if theirs.knowledge:
            raise InputError(f"{where}: {theirs.title} has layers of two inputs; expected distil.start = random")
        for name in ("n_special", "n_segments"):
            mine, its = (getattr(network, name, 0) for network in (student, teacher))
            if mine > its > 0:
                raise InputError(f"{where}: its {name} is {its}, the student's {mine}; expected as many or fewer")
    alike: dict[str, str] = {}
    if config.cosine_weight:
        alike["n_embd"] = "distil.cosine_weight = 0"
    if config.attention_weight:
        alike["n_head"] = "distil.attention_weight = 0"
    if config.start == "teacher":
        alike |= dict.fromkeys(_TAKEN, "distil.start = random")
    for name, otherwise in alike.items():
        mine, its = (getattr(network, name, None) for network in (student, teacher))
        if mine != its:
            raise InputError(f"{where}: its {name} is {its}, the student's {mine}; expected equal, or {otherwise}")
    if config.soft_weight and not teacher.words:
        raise InputError(f"{where}: {theirs.title} has no head that tells words; expected distil.soft_weight = 0")


_TAKEN = (
    "n_embd",
    "n_embd_words",
    "n_inner",
    "n_head",
    "activation",
    "sinusoidal",
    "norm_first",
    "smeared_keys",
    "rotary",
    "original",
)
"""Settings that have to be the same where weights are taken over."""


def student_of(teacher: NetworkConfig, student: NetworkConfig, n_layer: int) -> NetworkConfig:
    """A student's settings in its teacher's shape.

    :param student: the family's, for what is its own: heads, segments, what layers share.
    """
    names = (*_TAKEN, "n_vocab", "n_ctx", "init_std", "embd_pdrop", "attn_pdrop", "resid_pdrop")
    shared = {name: getattr(teacher, name) for name in names if hasattr(student, name)}
    return dataclasses.replace(student, **{**shared, "n_layer": n_layer})
