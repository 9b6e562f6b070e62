"""What a family of models is: its name, and the names of its parts, which live in the rooms below this one.

A part is named as entry points are, ``package.module:attribute``, and imported when it is asked for: listing the
families costs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gptcore.base.errors import InputError

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
    objective_settings: tuple[str, ...] = ("repeating_steps", "repeating_share")
    """Those of the settings `OF_OBJECTIVES` (:mod:`gptcore.config.training`) that this objective reads."""
    inputs: str = "gptcore.nlu.inputs:DECODER_INPUTS"
    """How a row of a task becomes sequences, a :class:`gptcore.nlu.inputs.Inputs`: specials, order, truncation."""
    head: str = "gptcore.models.heads:ClassificationModel"
    """The network that is fine-tuned: this one and its linear layer."""
    places: bool = False
    """Whether it can be fine-tuned on tasks whose answers are places of a text."""
    auxiliary_loss: bool = True
    """Whether fine-tuning can learn the next token beside the task (GPT-1, section 3.2), and as released."""
    likelihood: str = "gptcore.evaluation.likelihood:network_likelihood"
    """What tells how likely a sentence is, from a model's folder and the ids of its vocabulary's special pieces."""
    layout: str = ""
    """The family's folders of Hugging Face's kind; empty: transformers has no such network."""

    settings: SettingsBySection = field(default_factory=dict)
    """What makes a preset one of this family."""
    presets: Mapping[str, SettingsBySection] = field(default_factory=dict)
    """Preset -> sizes and rates that are the family's own."""
    shapes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Published size -> settings of the network."""
    finetuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Published size -> settings of fine-tuning that are its own."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of published sizes."""

    knowledge: bool = False
    """Whether it has entities of a knowledge graph beside words, without which none is trained."""

    teacher: bool = False
    """Whether it learns from a teacher, without which none is trained."""
    distillation: str = ""
    """How its networks read a batch beside a teacher, a :class:`gptcore.objectives.distillation.Reading`; empty: none
    of them learns from another."""

    ablation: bool = False
    """A network that only stands beside others in a table of the paper: it is not offered, and never the latest."""
    tokenizer_recorded: Mapping[str, Any] | None = None
    """What the digest of a tokenizer says of its kind; None: the name in ``tokenizer``."""

    @property
    def taught(self) -> bool:
        """Whether it learns its tasks from its teacher's models of them, unless settings say otherwise."""
        return bool(self.settings.get("finetune", {}).get("taught", False))

    def part(self, name: str) -> Any:
        """The part that a field names: ``family.part("network")`` is the class.

        :raises InputError: the family has no such part.
        """
        module, _, attribute = str(getattr(self, name)).partition(":")
        if not module:
            raise InputError(f"{self.title}: this family has no {name}; expected another one")
        return getattr(import_module(module), attribute)

    @property
    def generates(self) -> bool:
        """Whether it predicts the next token of a text, so that it can go on with one."""
        return bool(self.reader)

    def require_form(self, task: str, places: bool) -> None:
        """See that the family can be fine-tuned on a task.

        :param places: whether the task's answers are places of a text.
        :raises InputError: it cannot.
        """
        if places and not self.places:
            raise InputError(
                f"{task}: found {self.title}, which answers for a text as a whole; expected an encoder (bert, albert, "
                "electra), as the answers are places of a text"
            )

    def titled(self, text: str) -> str:
        """``text`` behind the family's title, which GPT-1's goes without: "pre-trained", "GPT-2 pre-trained"."""
        return text if self.name == "gpt" or self.ablation else f"{self.title} {text}"
