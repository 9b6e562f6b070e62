"""The families of models, a file each, found by their names; nothing outside this room asks which one it serves.

A family is a file ``NAME.toml``: fields of :class:`Family`, among them the names of its parts. The files are in this
folder, or, of a family that one paper alone needs, in the folder ``families`` of that paper's room in
:mod:`gptcore.papers`. A family of another package is an entry point of the group ``gptmill.families`` that leads to its
:class:`Family`. Listing the families costs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError, nearest
from gptcore.base.named import Named, named_part
from gptcore.base.tables import read_table

DEFAULT = "gpt"
ENTRY_POINTS = "gptmill.families"

SettingsBySection = Mapping[str, Mapping[str, Any]]
"""{section: {field: value}}, over a preset's."""


@dataclass(frozen=True)
class Family:
    """A kind of network with its kind of text, its objectives and the way in which it reads a task's rows.

    The defaults are the decoder's, so that a family says only what sets it apart from GPT-1.
    """

    name: str
    """What is recorded, and what ``--family`` takes."""
    title: str
    """What tables and model cards call it: "GPT-1"."""
    reads: str
    """The texts that it knows, in words: "lower-case English"."""

    raw_text: bool = False
    """Whether its tokenizer reads documents as they are; else ftfy, spaCy and lower case clean the corpus first."""
    sentences: bool = False
    """Whether it is pre-trained on sentences, so that its shards keep their borders."""
    tokenizer: str = "gptcore.text.bpe:WordTokenizer"
    """A subclass of :class:`gptcore.text.tokenizer.Tokenizer`."""
    config: str = "gptcore.config:ModelConfig"
    """The dataclass of the network's settings."""
    network: str = "gptcore.models.transformer:GPT"
    """A subclass of :class:`gptcore.models.network.Network`."""
    network_title: str = "Transformer"
    reader: str = "gptcore.models.incremental:TransformerReader"
    """What reads a text token by token, to generate; empty: the family cannot."""
    objective: str = "gptcore.objectives.next_token:NEXT_TOKEN"
    """What pre-training learns, a :class:`gptcore.objectives.objective.PretrainingObjective`; empty: its
    folders are read, and none is made here."""
    learns: str = "the next token"
    """What that objective learns, in words."""
    objective_settings: tuple[str, ...] = ("repeating_steps", "repeating_share")
    """The settings among `OF_OBJECTIVES` (:mod:`gptcore.config.training`) that this objective reads."""
    inputs: str = "gptcore.nlu.inputs:DecoderReader"
    """How a row of a task becomes sequences, a :class:`gptcore.nlu.inputs.RowReader`: specials, order, truncation."""
    head: str = "gptcore.models.classifier:ClassificationModel"
    """The network that is fine-tuned: this one and its linear layer."""
    places: bool = False
    """Whether it can be fine-tuned on tasks whose answers are places of a text."""
    auxiliary_loss: bool = True
    """Whether fine-tuning can learn the next token beside the task (GPT-1, section 3.2), and as released."""
    likelihood: str = "gptcore.evaluation.likelihood:network_likelihood"
    """What tells how likely a sentence is, from a model's folder and the ids of its vocabulary's special pieces."""
    layout: str = ""
    """The family's folders of Hugging Face's kind; empty: transformers has no such network."""
    custom_code: str = ""
    """The kind of network in :mod:`gptcore.models.modeling_gptmill` that is the family's; empty: it has none there."""

    settings: SettingsBySection = field(default_factory=dict)
    """What makes a preset one of this family."""
    presets: Mapping[str, SettingsBySection] = field(default_factory=dict)
    """Preset -> sizes and rates that are the family's own."""
    shapes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Published size -> settings of the network."""
    columns: Mapping[str, SettingsBySection] = field(default_factory=dict)
    """Published size -> what it has otherwise than the preset `paper`: its column in the paper's tables."""
    original: SettingsBySection = field(default_factory=dict)
    """Section -> settings of the family's release, for which ``original = true`` stands; none: GPT-1's, or refused."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Another name of a published size -> its name in ``shapes``."""

    knowledge: bool = False
    """Whether it has entities of a knowledge graph beside words, without which none is trained."""

    teacher: bool = False
    """Whether it learns from a teacher, without which none is trained."""
    distillation: str = ""
    """How its networks learn from a teacher, a :class:`gptcore.objectives.distillation.Distillation`; empty: none of
    them learns from another."""

    ablation: bool = False
    """A network that only stands beside others in a table of the paper: it is not offered, and never the latest."""
    tokenizer_recorded: Mapping[str, Any] | None = None
    """What the digest of a tokenizer says of its kind; None: the name in ``tokenizer``."""

    @property
    def taught(self) -> bool:
        """Whether it learns its tasks from its teacher's models of them, unless settings say otherwise."""
        return bool(self.settings.get("finetune", {}).get("taught", False))

    def size_of(self, model: Mapping[str, Any]) -> str:
        """The published size that a network has by its recorded settings; empty: none of them."""
        return next((size for size, shape in self.shapes.items() if shape.items() <= model.items()), "")

    def part(self, name: str) -> Any:
        """The part that a field names: ``family.part("network")`` is the class.

        :raises InputError: the family has no such part.
        """
        if not (path := getattr(self, name)):
            raise InputError(f"{self.title}: this family has no {name}; expected another one")
        return named_part(path)

    @property
    def generates(self) -> bool:
        """Whether it predicts the next token of a text, so that it can go on with one."""
        return bool(self.reader)

    def require_form(self, task: str, places: bool) -> None:
        """Check that the family can be fine-tuned on a task.

        :param places: whether the task's answers are places of a text.
        :raises InputError: it cannot.
        """
        if places and not self.places:
            those = ", ".join(name for name in offered() if FAMILIES[name].places)
            raise InputError(
                f"{task}: found {self.title}, which answers for a text as a whole; expected an encoder ({those}), as "
                "the answers are places of a text"
            )

    def titled(self, text: str) -> str:
        """``text`` behind the family's title, which GPT-1's goes without: "pre-trained", "GPT-2 pre-trained"."""
        return text if self.name == "gpt" or self.ablation else f"{self.title} {text}"


_SIZES = ("shapes", "columns", "aliases")
"""What a family does not take over from the one that it is like."""


def _files() -> dict[str, Path]:
    """The file of each family, by its name: those of this folder, and those of the papers' rooms beside the core."""
    here = Path(__file__).parent
    files = [*here.glob("*.toml"), *here.parent.glob("papers/*/families/*.toml")]
    return {file.stem: file for file in sorted(files, key=lambda file: (file.stem != DEFAULT, file.stem))}


def _table(files: Mapping[str, Path], name: str) -> dict[str, Any]:
    """What a family's file says; one that is ``like`` another has that one's parts, settings field by field, and
    presets where it says nothing else, but for what it is fine-tuned by where it is imported.
    """
    own = read_table(str(files[name]), f"{name}.toml")
    if "like" not in own:
        return own
    other = {part: value for part, value in _table(files, own.pop("like")).items() if part not in _SIZES}
    settings = {
        section: other["settings"].get(section, {}) | fields for section, fields in own.pop("settings", {}).items()
    }
    presets = {preset: table for preset, table in other["presets"].items() if preset != "imported"}
    presets |= own.pop("presets", {})
    return {**other, **own, "settings": other["settings"] | settings, "presets": presets}


def _ours() -> list[Family]:
    files = _files()
    return [Family(name, **_table(files, name)) for name in files]


FAMILIES: Mapping[str, Family] = Named(ENTRY_POINTS, _ours)


def offered() -> list[str]:
    """The names that ``--family`` and the forms' drop-down offer: of what can be pre-trained here."""
    return [name for name, family in FAMILIES.items() if family.objective and not family.ablation]


def students() -> list[str]:
    """The names of the families that learn from a teacher."""
    return [name for name in offered() if FAMILIES[name].teacher]


def family_named(name: Any, where: str) -> Family:
    """The family of a recorded name.

    :param where: what holds the name, for the error message.
    :raises InputError: an unknown family.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise InputError(f"{where}: family = {name!r:.60}; {nearest(str(name), FAMILIES)}")
    return FAMILIES[name]


def family_settings(name: Any, preset: str, where: str) -> SettingsBySection:
    """What a family changes in a preset.

    :raises InputError: a family that is unknown, or only stands beside others.
    """
    if not isinstance(name, str) or name not in FAMILIES or FAMILIES[name].ablation:
        raise InputError(f"{where}: family = {name!r:.60}; {nearest(str(name), offered())}")
    family = FAMILIES[name]
    paper = family.presets.get("paper", {}) if preset == "imported" else {}
    published = {section: fields for section, fields in paper.items() if section in ("finetune", "tasks")}
    layers = (family.settings, published, family.presets.get(preset, {}))
    sections = {section for layer in layers for section in layer}
    return {section: {k: v for layer in layers for k, v in layer.get(section, {}).items()} for section in sections}


def shape_settings(shape: Any, where: str) -> SettingsBySection:
    """The settings of a network of a published size, of whichever family the size is.

    :raises InputError: an unknown size.
    """
    names: list[str] = []
    for family in map(FAMILIES.__getitem__, offered()):
        name = family.aliases.get(shape, shape) if isinstance(shape, str) else ""
        if name in family.shapes:
            return {"model": family.shapes[name]}
        names += [*family.shapes, *family.aliases]
    raise InputError(f"{where}: shape = {shape!r:.60}; {nearest(str(shape), names)}")


# --- What is recorded of a network ---


def recorded_family(model: Any, where: str = "model") -> Family:
    """The family of a network by its recorded settings.

    :raises InputError: an unknown family; names ``where`` the settings stand.
    """
    if not isinstance(model, Mapping):
        return FAMILIES[DEFAULT]  # and the reader of the settings says what is wrong with them
    return family_named(model.get("family", _before_families(model)), where)


def with_family(name: str, model: dict[str, Any]) -> dict[str, Any]:
    """A network's settings as they are recorded: with the family's name, unless they are of a kind with those that were
    recorded before families were, whose digests stay.
    """
    return model if _before_families(model) == name else {**model, "family": name}


def _before_families(model: Mapping[str, Any]) -> str:
    """What was recorded without a family: GPT-1, GPT-2 by its norms, or the LSTM of Table 5 by its units."""
    if "n_units" in model:
        return "lstm"
    return "gpt2" if model.get("norm_first") else "gpt"
