"""A pre-trained network of any family plus one linear layer: the network that is fine-tuned, its forms and its folder.

Decoders: sections 3.2 and 3.3 and Figure 1 (right). Encoders: BERT, sections 4.1 and 4.4 (SWAG).

B batch, C sequences an example (choices or orders), T positions, D width, K outputs of the linear layer, N
language-model targets of the whole batch.

    form         sequences C      representation        linear layer   softmax over
    single       1                h at classify         D -> classes   classes
    labels       1                h at classify         D -> classes   none: each class by itself
    pair         1, or 2 (orders) h, or the sum of two  D -> classes   classes
    choices      one a choice     one a choice          D -> 1         choices
    span         1                each state            D -> 2         positions, for the start and for the end
    tags         1                each state            D -> tags      tags, at each position

Of an encoder its summary stands in the place of h, a pair is one sequence, and it alone points at places.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, read_object, write_bytes_atomic, write_json_atomic
from gptcore.base.settings import LARGEST_SIZE, recorded
from gptcore.config import NetworkConfig, network_config
from gptcore.config.training import NGRAM_PIECES
from gptcore.families import FAMILIES
from gptcore.models.cpu import dropout
from gptcore.models.encoder import draw_weights, without_heads
from gptcore.models.files.folder import ModelFolder
from gptcore.models.low_rank import merged
from gptcore.models.network import (
    LanguageModel,
    Network,
    SentenceEncoder,
    build_model,
    initialise,
    next_token_network,
    shapes_only,
)
from gptcore.models.ngrams import NGrams
from gptcore.models.span_reader import SpanReader
from gptcore.models.tagger import WordTagger
from gptcore.nlu.forms import FORMS, form_named

_RECORDED_BEFORE = {"similarity": "pair"}  # what symmetric pairs were called in files up to version 0.1.0


class Head(NamedTuple):
    """What the linear layer on a network is."""

    form: str
    """Name of one of :data:`gptcore.nlu.forms.FORMS`."""
    n_outputs: int
    """K; 1 for "choices", where every choice gets one scalar."""
    clf_pdrop: float
    """Dropout before the linear layer (section 4.1: 0.1)."""
    pooling: str | None = None
    """"mean": the mean of a sequence's states beside what else tells it; None: nothing beside that."""
    words: bool = False
    """Whether the form's reader of words stands between an encoder's states and the linear layer."""


class Classifier(nn.Module, ABC):
    """A pre-trained network and one linear layer: the network that is fine-tuned.

    A call takes tokens [B, C, T], the place of each sequence's classify token [B, C], if asked the places of
    language-model targets, and what else a family's inputs mark (``segments``, ``mask``); it gives task logits [B, K],
    [B, C] for choices, or [B, T, K] for places of a text, and what the language model is to predict from, or None.

    :raises InputError: an unknown form.
    """

    words = False
    """Whether the form's reader of words stands between an encoder's states and the linear layer."""

    def __init__(self, width: int, head: Head) -> None:
        super().__init__()
        self.form, self.n_outputs, self.clf_pdrop, pooling, _ = head
        self.row_form = form_named(head.form)
        self.pooling = None if self.row_form.places else pooling
        self.head = nn.Linear(width, head.n_outputs)
        self.ngrams: NGrams | None = None
        """What its n-grams tell of a sequence beside the network; fitted once that is trained."""

    @classmethod
    @abstractmethod
    def over(cls, network: Network, where: str, head: Head, generator: torch.Generator | None = None) -> Self:
        """One over a network of any family.

        :param where: what holds the network, for the error message.
        :param generator: where the linear layer's weights are drawn from; None: torch's default generator.
        :raises InputError: a network that this kind of classifier cannot read the states of.
        """

    @classmethod
    def network_settings(cls, config: NetworkConfig, **changes: Any) -> NetworkConfig:
        """A pre-training network's settings as those of the one that is fine-tuned.

        :param changes: fields to replace.
        """
        return dataclasses.replace(config, **changes)

    @property
    @abstractmethod
    def network(self) -> Network:
        """What is below the linear layer."""

    @property
    def shares_choices(self) -> bool:
        """Whether in training the states of what an example's choices begin with are the same in each."""
        return False

    def task_logits(self, summary: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
        """[B, K], or [B, C] for choices, of what stands for each sequence.

        :param summary: [B, C, D].
        :param tokens: [B, C, T], and ``ends``, [B, C], the last positions that are no padding.
        """
        words = self.ngrams(tokens, ends) if self.ngrams else None  # (B, C, K)
        if not self.row_form.choices:
            summary = summary.sum(dim=1, keepdim=True)  # (B, 1, D)
            words = None if words is None else words.sum(dim=1, keepdim=True)
        # One mask for all choices of an example, so that none of them is favoured (original code).
        summary = summary * dropout(torch.ones_like(summary[:, :1]), self.clf_pdrop, self.training)
        logits: Tensor = self.head(summary)  # (B, C, 1) for choices, else (B, 1, K)
        return (logits if words is None else logits + words).flatten(1)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What is learnt of a batch's logits, those of a call in training, and of its labels."""
        loss: Tensor = self.row_form.part("loss")(logits, labels)
        return loss

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write ``config.json`` (with ``extra``: task, labels, tokenizer digest, as :meth:`load` gives them back) and
        ``model.safetensors``."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in merged(self).items()}
        write_bytes_atomic(folder / "model.safetensors", save(tensors))
        head = {"form": self.form, "n_outputs": self.n_outputs, "clf_pdrop": self.clf_pdrop}
        head |= {"pooling": self.pooling} if self.pooling else {}
        head |= {"ngrams": self.ngrams.longest} if self.ngrams else {}
        head |= {"words": True} if self.words else {}
        model = {"family": self.network.config.family, **recorded(self.network.config)}
        own = {"model": model, "head": head}
        write_json_atomic(folder / "config.json", own | extra | own)  # its own first, and not what it was loaded with

    @staticmethod
    def load(folder: Path) -> tuple[Classifier, dict[str, Any]]:
        """Read what :meth:`save` wrote: the model of its family, in eval mode on the CPU, and its ``config.json``.

        :raises InputError: if the folder holds no fine-tuned model.
        """
        where = folder / "config.json"
        require(where.is_file(), f"{folder}: no config.json; expected the model folder of a fine-tuning run")
        config = read_object(where, "the settings of a fine-tuned model")
        head, longest = _recorded_head(config, where)
        network = network_config(config.get("model"), f"{where}: model")
        kind: type[Classifier] = FAMILIES[network.family].part("head")
        tensors = ModelFolder(str(folder)).safetensors("model.safetensors")
        if network.layers > len(tensors):
            raise InputError(f"{folder}: {len(tensors)} tensors, expected more for the blocks of {where}")

        def made() -> Classifier:
            classifier = kind.over(build_model(network), str(where), head)
            edges = torch.zeros(network.n_vocab + network.n_special, dtype=torch.uint8)
            classifier.ngrams = NGrams(longest, classifier.n_outputs, edges) if longest else None
            return classifier

        with shapes_only():  # the sizes may be anybody's
            expected = made().state_dict()
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != {name: tensor.shape for name, tensor in expected.items()}:
            odd = sorted(name for name in {*shapes, *expected} if name not in shapes or name not in expected)
            raise InputError(f"{folder}: model.safetensors has other tensors than {where} says ({', '.join(odd[:3])})")
        model = made()
        model.load_state_dict(tensors)
        return model.eval(), config


def _recorded_head(config: Mapping[str, Any], where: Path) -> tuple[Head, int | None]:
    """The head that a model's ``config.json`` records, and how long the n-grams are that it counts, if any.

    :raises InputError: there is none, or one that no fine-tune makes.
    """
    require("head" in config, f"{where}: no entry 'head'; expected a fine-tuned model, not a pre-trained one")
    head = checked_object(config["head"], f"{where}: head", "a JSON object", {"form": str, "n_outputs": int})
    form = _RECORDED_BEFORE.get(head["form"], head["form"])
    rate: Any = head.get("clf_pdrop")
    longest, words = head.get("ngrams"), head.get("words", False)
    possible = (
        form in FORMS
        and 0 < head["n_outputs"] <= LARGEST_SIZE
        and isinstance(rate, int | float)
        and not isinstance(rate, bool)
        and head.get("pooling") in (None, "mean")
        and longest in (None, *range(1, NGRAM_PIECES + 1))
        and words in (False, bool(FORMS[form].word_reader))
    )
    if not possible:
        named = "form, n_outputs, clf_pdrop, pooling, words and ngrams"
        raise InputError(f"{where}: head: found {dict(head, form=form)!r:.200}, expected {named}")
    return Head(form, head["n_outputs"], rate, head.get("pooling"), words), longest


def mean_state(states: Tensor, ends: Tensor) -> Tensor:
    """The mean of each sequence's states [B, C, T, D] up to its end [B, C], that one too: [B, C, D]."""
    real = torch.arange(states.shape[2], device=states.device) <= ends[..., None]  # (B, C, T)
    weights = real.to(states.dtype) / (ends[..., None] + 1).to(states.dtype)
    return (weights[..., None, :] @ states).squeeze(-2)


class ClassificationModel(Classifier):
    """Task logits, and on request the states that the language model predicts from, in one pass through the decoder.

    :param generator: where the linear layer's N(0, 0.02) weights are drawn from; None: torch's default generator.
    """

    def __init__(self, language_model: LanguageModel, head: Head, generator: torch.Generator | None = None) -> None:
        super().__init__(language_model.config.n_embd, head)
        self.gpt = language_model
        initialise(self.head, language_model.config.init_std, generator)

    @classmethod
    def over(cls, network: Network, where: str, head: Head, generator: torch.Generator | None = None) -> Self:
        return cls(next_token_network(network, where), head, generator)

    @property
    def network(self) -> LanguageModel:
        return self.gpt

    @property
    def shares_choices(self) -> bool:
        return self.row_form.choices and not self.gpt.drops

    def forward(
        self, tokens: Tensor, clf_position: Tensor, lm_positions: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Run a batch.

        :param tokens: [B, C, T] ids, right-padded; the causal mask keeps padding from every real position.
        :param clf_position: [B, C] index of the first classify token of each sequence.
        :param lm_positions: [N] positions in the flattened B*C*T whose next token is a language-model target, so that
            padding never reaches the product with the vocabulary, the costliest of a short sequence. None: no states.
        :returns: task logits [B, K], or [B, C] for choices; None, or the states of the asked positions [N, D] and the
            table [V, D] whose rows the language model chooses from (as released, positions are among them).
        """
        n_rows, n_sequences, n_positions = tokens.shape
        table = self.gpt.table()
        for_lm = None
        if lm_positions is None and not self.training and not self.pooling:
            alike = self.row_form.choices  # which share their document; orders share nothing
            shape = (n_rows, n_sequences) if alike else (n_rows * n_sequences, 1)
            summary = self.gpt.last_states(tokens.view(*shape, n_positions), clf_position.view(shape), table)
            summary = summary.view(n_rows, n_sequences, -1)  # (B, C, D)
        else:
            flat, places = self._states(tokens, clf_position, table)
            starts = torch.arange(n_rows * n_sequences, device=tokens.device) * n_positions  # (B*C,)
            ends = starts + clf_position.reshape(-1)
            ends = ends if places is None else places[ends]
            summary = flat[ends].view(n_rows, n_sequences, -1)  # (B, C, D)
            if self.pooling:
                each = flat if places is None else F.embedding(places.clamp(max=len(flat) - 1), flat)  # padding: any
                summary = summary + mean_state(each.view(*tokens.shape, -1), clf_position)
            if lm_positions is not None:
                # A shared position may be asked for once a choice; the gradients of a look-up's rows are added in one
                # order, those of an index on several threads in any.
                states = flat[lm_positions] if places is None else F.embedding(places[lm_positions], flat)
                for_lm = states, table if self.gpt.output is None else self.gpt.output
        return self.task_logits(summary, tokens, clf_position), for_lm

    def _states(self, tokens: Tensor, clf_position: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """States [N, D], and which of them is that of each of the B*C*T positions; None: they are these."""
        if self.row_form.choices:  # which share their document
            return self.gpt.choices(tokens, clf_position, table)
        hidden = self.gpt.sequence_states(tokens.flatten(0, 1), clf_position.flatten(), table)  # (B*C, T, D)
        return hidden.reshape(-1, hidden.shape[-1]), None


class EncoderClassificationModel(Classifier):
    """Task logits from what stands for the whole sequence; nothing is learnt beside the task.

    :param encoder: the pre-trained network, without the heads of its pre-training.
    :param generator: where the linear layer's weights are drawn from, as the encoder's own are; None: torch's default
        generator.
    """

    def __init__(self, encoder: SentenceEncoder, head: Head, generator: torch.Generator | None = None) -> None:
        width, std = encoder.config.n_embd, encoder.config.init_std
        super().__init__(width, head)
        self.encoder = encoder
        has_layer = getattr(encoder.config, "classifier_layer", False) and not self.row_form.places
        self.layer = nn.Linear(width, width) if has_layer else None
        if self.layer is not None:
            draw_weights(self.layer, std, generator)
        draw_weights(self.head, std, generator)
        self.words = head.words and bool(self.row_form.word_reader)
        self.reader: WordTagger | SpanReader | None = None
        if self.words:
            self.reader = self.row_form.part("word_reader")(width, head.n_outputs)
            draw_weights(self.reader, std, generator)

    @classmethod
    def over(cls, network: Network, where: str, head: Head, generator: torch.Generator | None = None) -> Self:
        if not isinstance(network, SentenceEncoder):
            title = FAMILIES[network.config.family].title
            raise InputError(f"{where}: found {title}, expected an encoder")
        return cls(network, head, generator)

    @classmethod
    def network_settings(cls, config: NetworkConfig, **changes: Any) -> NetworkConfig:
        return super().network_settings(without_heads(config), **changes)

    @property
    def network(self) -> SentenceEncoder:
        return self.encoder

    def forward(
        self,
        tokens: Tensor,
        clf_position: Tensor,
        lm_positions: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        words: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Run a batch.

        :param tokens: [B, C, T] ids, right-padded.
        :param clf_position: not read: a sequence is told by its first state.
        :param lm_positions: None: an encoder predicts no next token.
        :param segments: [B, C, T] numbers of segments; None: all 0.
        :param mask: [B, C, T] 1 for a word, 0 for padding; None: all words.
        :param words: [B, C, T, F] features where a word begins, else 0; read where :attr:`words` says so alone.
        :returns: task logits [B, K], [B, C] for choices, [B, T, K] for places (of a span the starts and ends of
            padding are -inf); None, as there is no language model.
        """
        n_rows, n_sequences, _ = tokens.shape
        marks = (None if given is None else given.flatten(0, 1) for given in (segments, mask))
        states = self.encoder.encode(tokens.flatten(0, 1), *marks)  # (B*C, T, D)
        if self.reader is not None:
            assert words is not None, "the rows of a reader that is told of the model's words have them"
            return self.reader(states, tokens[:, 0], words[:, 0], self.head, self.clf_pdrop), None
        if self.row_form.places:
            places: Tensor = self.head(dropout(states, self.clf_pdrop, self.training))  # (B, T, K)
            if self.row_form.over_positions and mask is not None:
                places = places.masked_fill(~mask.flatten(0, 1)[..., None], -torch.inf)
            return places, None
        summary = self.encoder.summary(states)  # (B*C, D)
        if self.layer is not None:
            summary = F.relu(self.layer(summary))
        summary = summary.view(n_rows, n_sequences, -1)  # (B, C, D)
        ends = (torch.ones_like(tokens) if mask is None else mask).sum(dim=-1) - 1  # (B, C)
        if self.pooling:
            summary = summary + mean_state(states.view(*tokens.shape, -1), ends)
        return self.task_logits(summary, tokens, ends), None

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self.reader, WordTagger):
            return self.reader.loss(logits, labels)
        return super().loss(logits, labels)
