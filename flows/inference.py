"""Using the models that a store holds: answers to a user's own rows, the perplexity of a text, models to go on with.

Plain functions without Prefect: nothing here is worth a run's record, and an answer should take no server's start.
Models come from the store by REF (a digest or its beginning, latest, best, an artifact's URL, models:/NAME@ALIAS), or
from a folder with a model, together with the folder of its tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flows.forms.references import WORDS, any_model, fine_tuned_model
from gptcore.base.errors import InputError, require
from gptcore.evaluation import inference
from gptcore.evaluation.inference import Tally
from gptcore.evaluation.likelihood import encoder_likelihood, pseudo_perplexity
from gptcore.evaluation.predict import TaskModel
from gptcore.families import FAMILIES
from gptcore.machine.device import pick_device
from gptcore.models.classifier import Classifier
from gptcore.models.encoder import Encoder
from gptcore.models.files.export import export_classifier, export_hugging_face
from gptcore.models.files.folder import ModelFolder, export_release
from gptcore.models.network import LanguageModel, Network, load_model, next_token_network
from gptcore.models.transformer import GPT
from gptcore.nlu.own_rows import TYPED, labelled_rows, own_lines, own_table
from gptcore.nlu.readers import decoded_lines
from gptcore.nlu.registry import recorded_task
from gptcore.text.tokenizer import Tokenizer
from tasks.store.lineage import ancestor, card_origin, home_of, opened_model
from tasks.store.store import Store


def predict(
    store: Store,
    task: str,
    model: str,
    rows: str | Iterable[bytes],
    tokenizer: str = "",
    tally: Tally | None = None,
    table: bool = False,
    name: str = TYPED,
) -> Iterator[dict[str, Any]]:
    """Answer rows with a fine-tuned model.

    :param model: REF of a `finetune` artifact, latest or best among those of this task; or with ``tokenizer`` the local
        folder of a fine-tuned model.
    :param rows: a table's address, or lines as :func:`gptcore.nlu.own_rows.own_lines` takes them.
    :param tally: is kept, see :class:`gptcore.evaluation.inference.Tally`.
    :param table: as :func:`gptcore.evaluation.inference.predict_records` does, and not as ``predict_jsonl``.
    :param name: what messages call lines.
    :raises InputError: no such model, one of another task, or a broken row.
    """
    found, tally = _task_model(store, task, model, tokenizer), tally or Tally()
    if not isinstance(rows, str) and not table:
        return inference.predict_jsonl(found, rows, tally, name)
    read: Any = own_table if isinstance(rows, str) else own_lines
    return inference.predict_records(found, read(found.spec, rows, tally.skip), tally)


def score_table(store: Store, task: str, model: str, file: str) -> dict[str, float]:
    """The task's metrics x 100 of a fine-tuned model on a labelled table, and "rows".

    :param model: as in :func:`predict`, of a store.
    :raises InputError: no such model, one of another task, or a broken row.
    """
    found = _task_model(store, task, model, "")
    scores = found.scored(labelled_rows(found.spec, own_table(found.spec, file)))
    return {name: 100 * value if isinstance(value, float) else value for name, value in scores.items()}


def _task_model(store: Store, task: str, model: str, tokenizer: str) -> TaskModel:
    """:raises InputError: no such model, or one of another task."""
    if tokenizer:
        found = TaskModel(Path(model), Tokenizer.load(tokenizer))
    else:
        found = TaskModel(*opened_model(fine_tuned_model(store, model, task)))
    require(found.spec.name == task, f"--model {model}: a model for {found.spec.name}, expected one for {task}")
    return found


_OF_TASKS = ("ForSequenceClassification", "ForMultipleChoice", "ForQuestionAnswering", "ForTokenClassification")
"""How the names of transformers' classes end that have a head for a task."""


def perplexity(store: Store, model: str, lines: Iterable[bytes], tokenizer: str = "") -> dict[str, float]:
    """How well a model predicts a text; see :func:`gptcore.evaluation.inference.text_perplexity`.

    Of a pre-trained encoder its pseudo-perplexity, each line by itself, which compares with no decoder's; see
    :func:`gptcore.evaluation.likelihood.pseudo_perplexity`.

    :param model: REF of a `pretrain`, `finetune` or `adapt` artifact, or with ``tokenizer`` the folder of any model.
    :raises InputError: no such model, or a text too short.
    """
    network, folder, words = _network(store, model, tokenizer)
    if isinstance(network, Encoder) and _task_of(folder) is None:
        likelihood = encoder_likelihood(str(folder), words.specials)
        texts = (text for _, text in decoded_lines(lines, TYPED))
        return pseudo_perplexity(likelihood, words, texts)
    found = next_token_network(network, str(folder)).to(pick_device(0)).eval()
    return inference.text_perplexity(found, words, lines)


def language_model(store: Store, model: str, tokenizer: str = "") -> tuple[LanguageModel, Tokenizer]:
    """A model that predicts the next token, on this machine's device in eval mode, and its tokenizer.

    :param model: as in :func:`perplexity`.
    :raises InputError: no such model.
    """
    network, folder, words = _network(store, model, tokenizer)
    return next_token_network(network, str(folder)).to(pick_device(0)).eval(), words


def _network(store: Store, model: str, tokenizer: str) -> tuple[Network, Path, Tokenizer]:
    """A pre-trained model, or the one inside a fine-tuned one; its folder; its tokenizer."""
    if tokenizer:
        folder, words = Path(model), Tokenizer.load(tokenizer)
    else:
        folder, words = opened_model(any_model(store, model))
    fine_tuned = _task_of(folder) is not None
    network = Classifier.load(folder)[0].network if fine_tuned else load_model(str(folder))
    words.require_rows(network.config.n_vocab, str(folder))
    return network, folder, words


def export(store: Store, model: str, layout: str, out: str, tokenizer: str = "", int8: bool = False) -> list[str]:
    """Write a model in another layout.

    :param model: as in :func:`perplexity`; for "onnx" the REF of a `finetune` artifact.
    :param layout: "hugging-face" (tokenizer included), "release" (the original's arrays), or "onnx" (a classifier).
    :param out: a new folder; whether it can be one is the command's to say, before torch is imported.
    :param int8: of "onnx" also with int8 weights.
    :return: the files written; of "onnx" each with what it is worth beside the model.
    :raises InputError: no such model, or one that the layout cannot hold.
    """
    folder = Path(out)
    if layout == "onnx":
        return _export_onnx(store, model, folder, tokenizer, int8)
    require(not int8, f"--int8: found --format {layout}, expected --format onnx")
    origin: dict[str, str] = {}
    if tokenizer:
        where, words = Path(model), Tokenizer.load(tokenizer)
    else:
        artifact = any_model(store, model)
        (where, words), origin = opened_model(artifact), card_origin(home_of(artifact), artifact)
    if (task := _task_of(where)) is not None:
        try:
            require(layout != "release", "the release's arrays are those of a pre-trained model, without a classifier")
            classifier, settings = Classifier.load(where)
            export_classifier(classifier, recorded_task(settings), settings, words, folder, origin)
        except InputError as error:
            raise InputError(f"--model {model}: a model for {task}; {error}") from None
        return sorted(str(path) for path in folder.iterdir())
    _refuse_classifier(where)
    found = load_model(str(where)).eval()
    if layout == "hugging-face":
        export_hugging_face(found, words, folder, origin)
    elif isinstance(found, GPT):
        export_release(found, folder)
    else:
        title = FAMILIES[found.config.family].title
        raise InputError(f"--model {model}: a model of the kind {title}, expected a decoder as released")
    return sorted(str(path) for path in folder.iterdir())


def _export_onnx(store: Store, model: str, folder: Path, tokenizer: str, int8: bool) -> list[str]:
    from gptcore.evaluation.exported import INT8, MODEL, write_onnx

    require(not tokenizer, "--format onnx: found a model's folder, expected a model of a store, which has its dev rows")
    artifact = any_model(store, model)
    require(artifact.stage == "finetune", f"--format onnx: found {WORDS[artifact.stage]}, expected {WORDS['finetune']}")
    where, words = opened_model(artifact)
    home = home_of(artifact)
    found = write_onnx(where, words, home.local(ancestor(home, artifact, "dataset")), folder, int8)
    lines = sorted(str(path) for path in folder.iterdir() if path.name not in (MODEL, INT8))
    for name in (MODEL, INT8) if int8 else (MODEL,):
        measured = found[name]
        lines.append(
            f"{folder / name}: {measured['bytes'] / 1e6:.1f} MB, logits within {measured['largest_difference']:.2g}, "
            f"score {100 * measured['score']:.1f} (the model's {100 * found['score']:.1f}) and "
            f"{100 * measured['same_answers']:.1f} % of the answers on {found['rows']} dev rows"
        )
    return lines


def _refuse_classifier(folder: Path) -> None:
    """:raises InputError: a folder of transformers' with a head for a task, which is not read here."""
    settings = ModelFolder(str(folder)).object("config.json") if (folder / "config.json").is_file() else {}
    for name in settings.get("architectures") or []:
        if str(name).endswith(_OF_TASKS):
            raise InputError(f"{folder}: found {name}, whose head is not read; expected a language model's folder")


def _task_of(folder: Path) -> str | None:
    """The task of a fine-tuned model's folder; None where it is a language model's."""
    config = folder / "config.json"
    settings = ModelFolder(str(folder)).object("config.json") if config.is_file() else {}
    return str(settings["task"]) if "head" in settings else None
