"""Every model as a folder that transformers loads by ``AutoModel...from_pretrained``.

Where transformers has exactly the network and its head, the family's layout writes the folder. Else the folder holds
code for it (:mod:`gptcore.models.modeling_gptmill`): whoever loads it says ``trust_remote_code=True`` and needs
transformers and torch, nothing of ours. What is below the heads is then a network of that code's or, of families that
it does not know, transformers' own.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

import gptcore.models
from gptcore.base.errors import InputError, require
from gptcore.base.files import read_json, write_json_atomic
from gptcore.base.settings import recorded
from gptcore.base.tables import read_table
from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.files.folder import MODEL_TYPE, Exported
from gptcore.models.files.layout import Layout, check_tokenizer
from gptcore.models.files.library import write_library
from gptcore.models.files.readme import write_readme
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import DecoderReader, specials
from gptcore.nlu.spec import TaskSpec
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import SETTINGS_FILE

CODE = ("modeling_gptmill.py", "ngrams.py")
"""The files of code in such a folder, which are those of :mod:`gptcore.models`."""
_TABLES = read_table(__file__, "export.toml")


def export_hugging_face(
    model: Exported[NetworkConfig], tokenizer: Tokenizer, folder: Path, origin: Mapping[str, str] | None = None
) -> None:
    """Write a language model, or an encoder, and its tokenizer; see also :mod:`gptcore.models.files.library`.

    The rows of a fine-tuned decoder come along, as the tokens ``_start_``, ``_delimiter_`` and ``_classify_`` of the
    exported tokenizer, or the marks around titles of papers; its linear layer stays behind. An `original` model drops
    its embedding table, transformers the sum of token and position: the two agree in eval mode.

    Where ids must be ours, for the zero-shot scores of a paper, say, encode with :class:`Tokenizer` and hand the ids
    to the exported model: transformers finds GPT-1's words by itself (`readme.toml` says how), and reads the name of a
    special token as that token.

    :param tokenizer: the one that the model was trained with.
    :param origin: of the weights, see :func:`gptcore.models.files.readme.write_readme`.
    :raises InputError: a tokenizer with another number of ids than the model or of another family, or a network that
        nothing outside of this package computes.
    """
    config = model.config
    check_tokenizer(config, tokenizer)
    try:
        _layout(config).write(model, tokenizer, folder)
    except InputError:
        below, tensors = _below(model, tokenizer)
        classes = ["CausalLM", *["MaskedLM"] * (below["kind"] == "both-ways")]
        own = {"family": config.family, **recorded(config)}
        _write(config, {**own, "network": below}, tensors, classes, tokenizer, folder)
    write_readme(model, None, {}, tokenizer, folder, origin or {})


def export_classifier(
    model: Any,
    spec: TaskSpec,
    settings: Mapping[str, Any],
    tokenizer: Tokenizer,
    folder: Path,
    origin: Mapping[str, str] | None = None,
) -> None:
    """Write a fine-tuned model for transformers' class of its form, ``AutoModelForSequenceClassification`` say.

    Labels and probabilities are ours, and the score of a graded task. What is made of places is the reader's: the
    answer to a question is at most 30 pieces long here, and compared with the score of no answer.

    :param model: a :class:`gptcore.models.classifier.Classifier`.
    :param settings: what its own ``config.json`` says.
    :param origin: as :func:`export_hugging_face` has it.
    :raises InputError: as :func:`export_hugging_face`, or a model that is told what a text's words look like.
    """
    network, form = model.network, form_of(spec)
    config = network.config
    require(not model.words, "it was fine-tuned with finetune.words, which reads the text itself beside its tokens")
    check_tokenizer(config, tokenizer)
    try:
        require(not spec.score_range, "no class of transformers answers with the mean of its classes")
        _layout(config).write_classifier(model, spec.told_labels, tokenizer, folder)
    except InputError:
        below, tensors = _below(network, tokenizer)
        inside = tuple(f"{name}." for name, part in model.named_children() if part is network)
        tensors |= {name: value for name, value in model.state_dict().items() if not name.startswith(inside)}
        is_decoder = issubclass(FAMILIES[config.family].part("inputs"), DecoderReader)
        classifier = {
            "n_outputs": model.n_outputs,
            "last": is_decoder,
            "layer": getattr(model, "layer", None) is not None,
            "pooling": model.pooling,
            "ngrams": model.ngrams.longest if model.ngrams else None,
            "delimiter": specials(config.n_vocab).delimiter if spec.symmetric and is_decoder else None,
            "score_range": spec.score_range,
        }
        ours = settings if below["kind"] != "transformers" else {}
        said = {**ours, **_labels(spec), "network": below, "classifier": classifier}
        _write(config, said, tensors, [form.transformers], tokenizer, folder)
    write_readme(network, spec, settings, tokenizer, folder, origin or {})


def _layout(config: NetworkConfig) -> Layout:
    """:raises InputError: a family that transformers has no network of."""
    family = FAMILIES[config.family]
    require(family.layout, f"a model of the family {family.title}: nothing but gptmill has such a network")
    layout: Layout = family.part("layout")
    return layout


def _labels(spec: TaskSpec) -> dict[str, Any]:
    """What transformers is told of a task's labels."""
    form = form_of(spec)
    if form.outputs:
        return {}
    named = {0: "score"} if spec.score_range else dict(enumerate(spec.told_labels))
    kind = "regression" if spec.score_range else "multi_label_classification" if form.several else None
    said = {"id2label": named, "label2id": {label: number for number, label in named.items()}}
    return {**said, **({"problem_type": kind} if kind else {})}


def _below(network: Any, tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of what is below the heads, and its tensors by the names that they have there.

    :raises InputError: neither the code nor transformers computes the network.
    """
    config, kind = network.config, FAMILIES[network.config.family].custom_code
    known = (*_TABLES["all"], *_TABLES.get(kind, ()))
    others = (f for f in dataclasses.fields(config) if f.name not in known)
    if kind and all(getattr(config, f.name) == f.default for f in others):
        return {**dataclasses.asdict(config), "kind": kind}, _prefixed("gpt", network.state_dict())
    trunk, theirs = _layout(config).trunk(network, tokenizer)
    rows = config.n_vocab + config.n_special
    require(trunk["vocab_size"] == rows, f"a folder with {trunk['vocab_size']} rows of a vocabulary, expected {rows}")
    inside = {f"model.{name}": value for name, value in theirs.items() if not name.startswith("pooler.")}
    pooler = {name: value for name, value in network.state_dict().items() if name.startswith("pooler.")}
    below = {name: getattr(config, name) for name in ("n_vocab", "n_special", "n_ctx", "n_embd")}
    pools = "norm" if "pooler.norm.weight" in pooler else bool(pooler)
    below |= {"kind": "transformers", "trunk": trunk, "pooler": pools}
    return {**below, "segments": (trunk.get("type_vocab_size") or 0) > 1}, _prefixed("gpt", inside | pooler)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _write(
    config: NetworkConfig,
    said: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    classes: Sequence[str],
    tokenizer: Tokenizer,
    folder: Path,
) -> None:
    """Write a folder with code.

    :param said: settings, ours among them, so that the folder is read here, too.
    :param classes: what the names of its classes end with, the most important first.
    """
    module = CODE[0].removesuffix(".py")
    autos = {f"AutoModelFor{name}": f"{module}.GptmillFor{name}" for name in classes}
    settings = {
        **said,
        "model_type": MODEL_TYPE,
        "architectures": [f"GptmillFor{classes[0]}"],
        "auto_map": {"AutoConfig": f"{module}.GptmillConfig", "AutoModel": f"{module}.GptmillModel", **autos},
        "vocab_size": config.n_vocab + config.n_special,
        "hidden_size": config.n_embd,
        "max_position_embeddings": config.n_ctx,
    }
    Layout._write_files(folder, tensors, settings, tokenizer, {"model_max_length": config.n_ctx})
    words = write_library(tokenizer, config, folder, "CausalLM" not in classes)
    file = folder / SETTINGS_FILE
    write_json_atomic(file, {**read_json(file), **words})
    if "CausalLM" in classes:
        hidden = [*range(config.n_vocab, config.n_vocab + config.n_special)] or None
        generation = {"use_cache": False, "pad_token_id": tokenizer.end_of_text or 0, "suppress_tokens": hidden}
        write_json_atomic(folder / "generation_config.json", generation)
    for name in CODE:
        shutil.copyfile(Path(gptcore.models.__file__).with_name(name), folder / name)
