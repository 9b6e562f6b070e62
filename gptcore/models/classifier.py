"""What a network and the linear layer on it have in common, whichever the family: forms, the folder, what it is asked.

B batch, C sequences an example (choices or orders), T positions, K outputs of the linear layer.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import save
from torch import nn

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object, read_object, write_bytes_atomic, write_json_atomic
from gptcore.base.settings import LARGEST_SIZE, recorded
from gptcore.config import NetworkConfig, network_config
from gptcore.families import FAMILIES
from gptcore.models.files.folder import ModelFolder
from gptcore.models.network import Network, build_model, shapes_only
from gptcore.nlu.forms import FORMS, form_named

_RECORDED_BEFORE = {"similarity": "pair"}  # what symmetric pairs were called in files up to version 0.1.0


class Head(NamedTuple):
    """What the linear layer on a network is."""

    form: str
    """Name of one of :data:`gptcore.nlu.forms.FORMS`."""
    n_outputs: int
    """K; 1 for "choices", where every choice gets one scalar."""
    clf_pdrop: float
    """Dropout before the linear layer."""


class Classifier(nn.Module, ABC):
    """A pre-trained network and one linear layer: the network that is fine-tuned.

    A call takes tokens [B, C, T], the place of each sequence's classify token [B, C], if asked the places of
    language-model targets, and what else a family's inputs mark (``segments``, ``mask``); it gives task logits [B, K],
    [B, C] for choices, or [B, T, K] for places of a text, and what the language model is to predict from, or None.

    :param form: name of one of :data:`gptcore.nlu.forms.FORMS`.
    :param n_outputs: K; 1 for "choices", where every choice gets one scalar.
    :param clf_pdrop: dropout before the linear layer (section 4.1: 0.1).
    :raises InputError: an unknown form.
    """

    def __init__(self, width: int, form: str, n_outputs: int, clf_pdrop: float) -> None:
        super().__init__()
        self.form = form
        self.row_form = form_named(form)
        self.n_outputs = n_outputs
        self.clf_pdrop = clf_pdrop
        self.head = nn.Linear(width, n_outputs)

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

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write ``config.json`` (with ``extra``: task, labels, tokenizer digest) and ``model.safetensors``."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        write_bytes_atomic(folder / "model.safetensors", save(tensors))
        head = {"form": self.form, "n_outputs": self.n_outputs, "clf_pdrop": self.clf_pdrop}
        model = {"family": self.network.config.family, **recorded(self.network.config)}
        write_json_atomic(folder / "config.json", {"model": model, "head": head, **extra})

    @staticmethod
    def load(folder: Path) -> tuple[Classifier, dict[str, Any]]:
        """Read what :meth:`save` wrote: the model of its family, in eval mode on the CPU, and its ``config.json``.

        :raises InputError: if the folder holds no fine-tuned model.
        """
        where = folder / "config.json"
        if not where.is_file():
            raise InputError(f"{folder}: no config.json; expected the model folder of a fine-tuning run")
        config = read_object(where, "the settings of a fine-tuned model")
        if "head" not in config:
            raise InputError(f"{where}: no entry 'head'; expected a fine-tuned model, not a pre-trained one")
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
        kind: type[Classifier] = FAMILIES[network.family].part("head")
        tensors = ModelFolder(str(folder)).safetensors("model.safetensors")
        if network.layers > len(tensors):
            raise InputError(f"{folder}: {len(tensors)} tensors, expected more for the blocks of {where}")
        given = str(where), Head(head["form"], head["n_outputs"], rate)
        with shapes_only():  # the sizes may be anybody's
            expected = kind.over(build_model(network), *given).state_dict()
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != {name: tensor.shape for name, tensor in expected.items()}:
            odd = sorted(name for name in {*shapes, *expected} if name not in shapes or name not in expected)
            raise InputError(f"{folder}: model.safetensors has other tensors than {where} says ({', '.join(odd[:3])})")
        model = kind.over(build_model(network), *given)
        model.load_state_dict(tensors)
        return model.eval(), config
