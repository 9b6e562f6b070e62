"""A pre-trained decoder plus one linear layer: the network that is fine-tuned (sections 3.2 and 3.3, Figure 1 right).

B batch, C sequences an example (choices or orders), T positions, D width, K outputs of the linear layer, N
language-model targets of the whole batch.

    form         sequences C      representation        linear layer   softmax over
    single       1                h at classify         D -> classes   classes
    pair         1, or 2 (orders) h, or the sum of two  D -> classes   classes
    choices      one a choice     one a choice          D -> 1         choices
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from gptcore.config import network_config
from gptcore.errors import InputError
from gptcore.families import FAMILIES
from gptcore.files import checked_object, read_object, write_bytes_atomic, write_json_atomic
from gptcore.limits import LARGEST_SIZE
from gptcore.models.build import build_model, next_token_network
from gptcore.models.dropout import dropout
from gptcore.models.files.folder import ModelFolder
from gptcore.models.language_model import LanguageModel, initialise
from gptcore.models.shapes import shapes_only
from gptcore.settings import recorded

FORMS = ("single", "pair", "choices")
_RECORDED_BEFORE = {"similarity": "pair"}  # what symmetric pairs were called in files up to version 0.1.0


class ClassificationModel(nn.Module):
    """Task logits, and on request the states that the language model predicts from, in one pass through the decoder.

    :param form: one of :data:`FORMS`.
    :param n_outputs: K; 1 for "choices", where every choice gets one scalar.
    :param clf_pdrop: dropout before the linear layer (section 4.1: 0.1).
    :param generator: where the linear layer's N(0, 0.02) weights are drawn from; None: torch's default generator.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        form: str,
        n_outputs: int,
        clf_pdrop: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if form not in FORMS:
            raise InputError(f"form = {form!r}, expected one of {', '.join(FORMS)}")
        self.gpt = language_model
        self.form = form
        self.n_outputs = n_outputs
        self.clf_pdrop = clf_pdrop
        self.head = nn.Linear(language_model.config.n_embd, n_outputs)
        initialise(self.head, language_model.config.init_std, generator)

    @property
    def shares_choices(self) -> bool:
        """Whether in training the states of what an example's choices begin with are the same in each."""
        return self.form == "choices" and not self.gpt.drops

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
        found = None
        if lm_positions is None and not self.training:
            alike = self.form == "choices"  # which share their document; orders share nothing
            shape = (n_rows, n_sequences) if alike else (n_rows * n_sequences, 1)
            summary = self.gpt.last_states(tokens.view(*shape, n_positions), clf_position.view(shape), table)
            summary = summary.view(n_rows, n_sequences, -1)  # (B, C, D)
        else:
            flat, places = self._states(tokens, clf_position, table)
            starts = torch.arange(n_rows * n_sequences, device=tokens.device) * n_positions  # (B*C,)
            ends = starts + clf_position.reshape(-1)
            ends = ends if places is None else places[ends]
            summary = flat[ends].view(n_rows, n_sequences, -1)  # (B, C, D)
            if lm_positions is not None:
                # A shared position may be asked for once a choice; the gradients of a look-up's rows are added in one
                # order, those of an index on several threads in any.
                states = flat[lm_positions] if places is None else F.embedding(places[lm_positions], flat)
                found = states, table
        if self.form != "choices":
            summary = summary.sum(dim=1, keepdim=True)  # (B, 1, D)
        # One mask for all choices of an example, so that none of them is favoured (original code).
        summary = summary * dropout(torch.ones_like(summary[:, :1]), self.clf_pdrop, self.training)
        logits = self.head(summary)  # (B, C, 1) for choices, else (B, 1, K)
        return logits.flatten(1), found

    def _states(self, tokens: Tensor, clf_position: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """States [N, D], and which of them is that of each of the B*C*T positions; None: they are these."""
        if self.form == "choices":  # which share their document
            return self.gpt.choices(tokens, clf_position, table)
        hidden = self.gpt.states(tokens.flatten(0, 1), table)  # (B*C, T, D)
        return hidden.reshape(-1, hidden.shape[-1]), None

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write ``config.json`` (with ``extra``: task, labels, tokenizer digest) and ``model.safetensors``."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        write_bytes_atomic(folder / "model.safetensors", save(tensors))
        head = {"form": self.form, "n_outputs": self.n_outputs, "clf_pdrop": self.clf_pdrop}
        model = {"family": self.gpt.config.family, **recorded(self.gpt.config)}
        write_json_atomic(folder / "config.json", {"model": model, "head": head, **extra})

    @staticmethod
    def load(folder: Path) -> tuple[ClassificationModel, dict[str, Any]]:
        """Read what :meth:`save` wrote: the model of its family, in eval mode on the CPU, and its ``config.json``.

        :raises InputError: if the folder holds no fine-tuned model.
        """
        where = folder / "config.json"
        if not where.is_file():
            raise InputError(f"{folder}: no config.json; expected the model folder of a fine-tuning run")
        config = read_object(where, "the settings of a fine-tuned model")
        if "head" not in config:
            raise InputError(f"{where}: no entry 'head'; expected a fine-tuned model, not a bare decoder")
        head = checked_object(config["head"], f"{where}: head", "a JSON object", {"form": str, "n_outputs": int})
        head["form"] = _RECORDED_BEFORE.get(head["form"], head["form"])
        rate = head.get("clf_pdrop")
        if (
            head["form"] not in FORMS
            or not 0 < head["n_outputs"] <= LARGEST_SIZE
            or isinstance(rate, bool)
            or not isinstance(rate, int | float)
        ):
            raise InputError(f"{where}: head: found {head!r:.200}, expected form, n_outputs and clf_pdrop")
        network = network_config(config.get("model"), f"{where}: model")
        kind: type[ClassificationModel] = FAMILIES[network.family].part("head")
        tensors = ModelFolder(str(folder)).safetensors("model.safetensors")
        if network.layers > len(tensors):
            raise InputError(f"{folder}: {len(tensors)} tensors, expected more for the blocks of {where}")
        with shapes_only():  # the sizes may be anybody's
            expected = kind(
                next_token_network(build_model(network), str(where)), head["form"], head["n_outputs"], rate
            ).state_dict()
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != {name: tensor.shape for name, tensor in expected.items()}:
            odd = sorted(name for name in {*shapes, *expected} if name not in shapes or name not in expected)
            raise InputError(f"{folder}: model.safetensors has other tensors than {where} says ({', '.join(odd[:3])})")
        model = kind(next_token_network(build_model(network), str(where)), head["form"], head["n_outputs"], rate)
        model.load_state_dict(tensors)
        return model.eval(), config
