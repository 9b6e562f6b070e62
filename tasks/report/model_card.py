"""The README of a model folder, in the shape that Hugging Face calls a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gptcore
from gptcore.base.files import read_json
from gptcore.families import Family, recorded_family
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import TaskSpec
from tasks.report.card import cost, from_task_note, shown, table
from tasks.store.artifact import Artifact
from tasks.store.counts import CorpusCounts, DatasetCounts, ShardsCounts
from tasks.store.lineage import ancestor
from tasks.store.store import Store
from tasks.tracking.tracker import flatten

_LIMITS = (
    "It writes and reads {reads} of the kind of its books; it knows nothing of the world after them.",
    "It repeats what its books say, their prejudices included. Do not let it decide anything about people.",
)

_USE = 'from gptcore.models.build import load_model\n\nlogits = load_model("model")'
_CALL = "(ids)  # [B, T, V]"
_HIDDEN_CALL = "(ids, segments=segments, mask=mask)"
_OF_HIDDEN_WORDS = {
    "validation/unigram_entropy": "unigram entropy, nats a word",
    "validation/word_accuracy": "hidden words told",
    "validation/pair_accuracy": "pairs of segments told",
    "validation/replaced_share": "hidden words that the generator replaced",
    "validation/replaced_recall": "replaced words found",
    "validation/replaced_precision": "found words that were replaced",
}
_SYNTHETIC = "synthetic: gptmill's generated world, no real text"


def write_pretrained_card(
    folder: Path,
    store: Store,
    shards: Artifact,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
    start: Artifact | None = None,
    teacher: Artifact | None = None,
) -> None:
    """README.md beside a pre-trained model: data, training, results, limits.

    :param settings: {"model": ..., "pretrain": ...}.
    :param result: the job's result.json.
    :param start: the model whose weights it went on from.
    :param teacher: the model that it learnt from.
    """
    corpus = ancestor(store, shards, "corpus")
    read, encoded = CorpusCounts.of(store, corpus), ShardsCounts.of(store, shards)
    training = encoded.splits["train"].n_tokens
    seen = result["tokens_seen"]
    data = {
        **({"origin": _SYNTHETIC} if read.synthetic else {}),
        "documents": read.documents.kept,
        "words": read.words,
        "training tokens": training,
        "held-out tokens": encoded.splits["validation"].n_tokens,
        "vocabulary": encoded.n_vocab,
        "corpus": corpus.short,
        "tokenizer": encoded.tokenizer_digest[:12],
    }
    before = {"went on from": start.short, "tokens seen before": result["tokens_seen_before"]} if start else {}
    before |= {"student of": teacher.short} if teacher else {}
    hidden = "validation/unigram_entropy" in result  # words were told from both sides
    unit = "a hidden word" if hidden else "a token"
    results = {
        f"held-out perplexity, {unit}": result["validation/perplexity"],
        f"held-out loss, nats {unit}": result["validation/loss"],
        **{title: result[name] for name, title in _OF_HIDDEN_WORDS.items() if name in result},
    }
    _write(
        folder,
        title="pre-trained",
        words="A masked language model, pre-trained on words that are told from both sides."
        if hidden
        else "A language model pre-trained with L1 of "
        '"Improving Language Understanding by Generative Pre-Training" (section 3.1).',
        tags=("gptmill", "masked-lm" if hidden else "causal-lm"),
        data=data,
        training={**_cost(result), "tokens seen": seen, "epochs": seen / training, **before, **dict(flatten(settings))},
        results=results,
        limits=(*_LIMITS, f"It saw {seen:,} tokens; the paper's model saw about 100 epochs of 7,000 books."),
        use=_USE + (_HIDDEN_CALL if hidden else _CALL),
    )


def write_finetuned_card(
    folder: Path, spec: TaskSpec, dataset: DatasetCounts, settings: Mapping[str, Any], result: Mapping[str, Any]
) -> None:
    """README.md beside a fine-tuned model.

    :param dataset: counts of the encoded dataset's manifest.
    """
    name, limits = spec.name, [*_LIMITS]
    published = ", ".join(f"{column} {value}" for column, value in spec.paper.items() if value is not None)
    synthetic = dataset.synthetic
    if published:
        limits.append(f"The paper's own numbers ({published}) are test scores of a far larger model.")
    if spec.note and not synthetic:
        limits.append(spec.note)
    if result["majority_collapse"]:
        limits.append("Every dev row got the same answer: this run learnt nothing but the commonest class.")
    rows = {"origin": _SYNTHETIC} if synthetic else {}
    for split, counts in dataset.splits.items():
        of = f" of {counts.published:,} published" if counts.published and not synthetic else ""
        rows[f"{split} rows"] = f"{counts.rows:,}{of}"
    words = (
        f"The task {name} ({spec.form}), fine-tuned with L3 of "
        '"Improving Language Understanding by Generative Pre-Training" (section 3.2).'
        if _family(folder).auxiliary_loss
        else f"The task {name} ({spec.form}), fine-tuned with one linear layer on {form_of(spec).reads}."
    )
    _write(
        folder,
        title=f"fine-tuned on {name}",
        words=" ".join([words, from_task_note(settings["finetune"])]).strip(),
        tags=("gptmill", form_of(spec).pipeline),
        data={**rows, "used": json.dumps(result["rows"]), "labels": ", ".join(spec.labels) or str(spec.score_range)},
        training={**_cost(result), "best epoch": result["best_epoch"], **dict(flatten(settings))},
        results={key: value for key, value in result.items() if key.startswith(("dev/", "test/"))},
        limits=limits,
        use=f"echo '{{...}}' | gptmill predict {name} --model REF",
    )


def _cost(result: Mapping[str, Any]) -> dict[str, Any]:
    spent = cost(result["wall_seconds"], result["threads"], result["device"], result.get("world_size", 1))
    return {"device": f"{result['device']}, {result['precision']}", "cost": spent, "updates": result["steps"]}


def _family(folder: Path) -> Family:
    config = read_json(folder / "config.json")
    return recorded_family(config.get("model", config))  # a fine-tuned model's file holds the head's settings, too


def _write(
    folder: Path,
    *,
    title: str,
    words: str,
    tags: Sequence[str],
    data: Mapping[str, Any],
    training: Mapping[str, Any],
    results: Mapping[str, Any],
    limits: Sequence[str],
    use: str,
) -> None:
    family = _family(folder)
    front = [
        "---",
        "language: en",
        f"library_name: gptmill {gptcore.__version__}",
        "tags:",
        *(f"- {t}" for t in tags),
        "---",
    ]
    parts = ["\n".join(front), f"# {family.title}, {title}", words, "## Use", f"```\n{use}\n```"]
    for heading, values in (("Training data", data), ("Training", training), ("Results", results)):
        parts += [f"## {heading}", table(("what", "value"), [(name, shown(value)) for name, value in values.items()])]
    parts += ["## Limits", "\n".join(f"- {limit.format(reads=family.reads)}" for limit in limits)]
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
