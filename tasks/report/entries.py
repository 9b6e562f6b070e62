"""What the registry and the runs' pages say of models and data, read off manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gptcore.config import network_config
from gptcore.families import FAMILIES
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import ANSWERS, example_text
from gptcore.nlu.registry import TaskSpec, recorded_task
from tasks.report.card import from_task_note
from tasks.report.table import rendered
from tasks.store.artifact import Artifact
from tasks.store.counts import CorpusCounts, DatasetCounts, FinetuneCounts, PretrainCounts, ShardsCounts
from tasks.store.lineage import ancestor, made_before
from tasks.store.store import Store
from tasks.tracking.keys import key_of
from tasks.tracking.provenance import Data
from tasks.tracking.pyfunc import Interface
from tasks.tracking.registry import NUMBER, Entry

PRETRAINED = "gptmill-pretrained"
_SYNTHETIC = "-synthetic"
_TAKEN = "(?<=^pretrained)$|(?<=-synthetic)$"  # ends of a task's name that would make it the name of other models
_LABELS = 5
"""Most labels of a task that are named on its models' pages."""
_SAMPLING = {"max_tokens": 40, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
"""How a language model's continuations are drawn unless its caller says otherwise."""


def pretrained_entry(store: Store, artifact: Artifact, shards: Artifact) -> Entry:
    """A pre-trained model; compared by perplexity on the same held-out tokens.

    The network of an ablation is a version too, but never champion or latest.
    """
    manifest = store.manifest(artifact)
    counts, model = PretrainCounts.parse(manifest["counts"]), network_config(manifest["config"]["model"])
    synthetic = CorpusCounts.of(store, ancestor(store, shards, "corpus")).synthetic
    perplexity, tokens = counts.validation_perplexity, counts.validation_tokens
    family = FAMILIES[model.family]
    network = f"{family.network_title}, {model.shape}"
    before = made_before(manifest)
    words = {"start": "going on from", "teacher": "a student of"}
    after = "".join(f", {words[role]} {digest[:12]}" for role, digest in before.items())
    name = PRETRAINED + (_SYNTHETIC if synthetic else "")
    return Entry(
        name=name,
        about=_about(f"Language models pre-trained by gptmill on {_origin(synthetic)}.", name),
        artifact=artifact,
        merit=-perplexity,
        yardstick=f"{tokens:.0f} held-out tokens of shards {shards.digest}",
        result=f"held-out perplexity {perplexity:.2f}",
        leads=not family.ablation,
        tags={
            "family": family.name,
            "perplexity": f"{perplexity:.3f}",
            "network": network,
            "data_digest": shards.digest,
            "tokenizer_digest": counts.tokenizer_digest,
            "tokens_seen": str(counts.tokens_seen),
            **{f"{role}_digest": digest for role, digest in before.items()},
        },
        description=_described(
            "pretrained_entry.md",
            store,
            artifact,
            name,
            counts=counts,
            network=network,
            origin=_origin(synthetic),
            after=after,
            params=list(_SAMPLING),
        ),
        manifest=manifest,
        interface=Interface(("prompt",), {"continuation": "string"}, {"prompt": "The"}, _SAMPLING),
    )


def task_model(task: str, synthetic: bool) -> str:
    """What the registry calls a task's models; those of generated data have a name of their own."""
    return f"gptmill-{key_of(task, _TAKEN)}" + (_SYNTHETIC if synthetic else "")


def finetuned_entry(
    store: Store, artifact: Artifact, dataset: Artifact, suite: str, notes: Sequence[str] = ()
) -> Entry:
    """A model for a task; compared by its score on the same dev rows.

    :param suite: digest of the leaderboard's row that it is a cell of.
    :param notes: what is said of the checkpoint that it started from (:func:`tasks.report.card.start_note`).
    """
    manifest, encoded = store.manifest(artifact), store.manifest(dataset)
    counts, config = FinetuneCounts.parse(manifest["counts"]), manifest["config"]["finetune"]
    data = DatasetCounts.parse(encoded["counts"])
    task, synthetic = manifest["config"]["task"], data.synthetic
    scores, rows = counts.scores, counts.rows
    score = scores["dev/score"]
    checkpoint = manifest["inputs"].get("checkpoint", {}).get("digest", "")
    start, stage = "from random weights", manifest["inputs"].get("checkpoint", {}).get("stage")
    if checkpoint:
        start = f"from the {'imported' if stage == 'imported' else 'pre-trained'} {checkpoint[:12]}"
    before = manifest["inputs"].get("start", {}).get("digest", "")
    if note := from_task_note(config):
        start += f" ({note[0].lower()}{note[1:-1]}, {before[:12]})"
    spec, name = recorded_task(manifest["config"]), task_model(task, synthetic)
    return Entry(
        name=name,
        about=_about(f"Models for {task}, fine-tuned by gptmill on {_origin(synthetic)}.", name),
        artifact=artifact,
        merit=counts.figures["dev/score"],
        yardstick=f"{rows['dev']} dev rows of {encoded['inputs']['files']['digest']}",
        result=f"dev score {score:.1f}",
        leads=True,
        tags={
            "dev_score": f"{score:.1f}",
            "task": task,
            "seed": str(config["seed"]),
            "checkpoint_digest": checkpoint,
            "data_digest": dataset.digest,
            "tokenizer_digest": data.tokenizer_digest,
            "suite": suite,
            **({"start_digest": before} if before else {}),
        },
        description=_described(
            "finetuned_entry.md",
            store,
            artifact,
            name,
            scores=scores,
            rows=rows,
            spec=spec,
            start=start,
            notes=notes,
            origin=_origin(synthetic),
            seed=config["seed"],
            form=form_of(spec),
            n_named=_LABELS,
        ),
        manifest=manifest,
        interface=task_interface(spec),
    )


def task_interface(spec: TaskSpec) -> Interface:
    """How a task's model is called: its texts are columns, in input order, under every name that own rows may use."""
    columns, form = (*spec.text_columns, *spec.choices), form_of(spec)
    aliases = tuple(name for name, _ in zip(form.names_of(spec), spec.fields, strict=False) if name not in columns)
    example = {column: example_text(spec, column) for column in columns}
    lists = (ANSWERS,) if spec.choices else ()
    listed = spec.dialect.options.partition(".")[0] if spec.dialect else ""
    passed = tuple(name for name in ("id", listed) if name and name not in (*columns, *aliases))
    return Interface(columns, form.signature(spec), example, aliases=aliases, lists=lists, passed=passed)


def task_data(store: Store, dataset: Artifact) -> Data:
    """A task's rows as an input of a run, under the digest of the published files they were read from."""
    manifest = store.manifest(dataset)
    counts = DatasetCounts.parse(manifest["counts"])
    rows = {split: its.rows for split, its in counts.splits.items()}
    return Data(_marked(counts.task, counts.synthetic), manifest["inputs"]["files"]["digest"], dataset.url, rows)


def corpus_data(store: Store, shards: Artifact) -> list[Data]:
    """The books and their token shards as inputs of a pre-training run."""
    corpus = ancestor(store, shards, "corpus")
    read, encoded = CorpusCounts.of(store, corpus), ShardsCounts.of(store, shards)
    documents = {"train": read.documents.train, "validation": read.documents.validation}
    tokens = {f"{split} tokens": its.n_tokens for split, its in encoded.splits.items()}
    return [
        Data(_marked("books", read.synthetic), corpus.digest, corpus.url, documents, {"words": read.words}),
        Data(_marked("shards", read.synthetic), shards.digest, shards.url, documents, tokens),
    ]


def _marked(name: str, synthetic: bool) -> str:
    return f"{name} (synthetic)" if synthetic else name


def _origin(synthetic: bool) -> str:
    return "synthetic data (no real text)" if synthetic else "real text"


def _about(words: str, name: str) -> str:
    return f'{words}\n\n    mlflow.pyfunc.load_model("models:/{name}@champion").predict(table)'


def _described(template: str, store: Store, artifact: Artifact, name: str, **values: Any) -> str:
    """A version's description, from a template that extends `templates/entry.md`."""
    ref = f"{artifact.short} --store {store.url}"
    return rendered(template, ref=ref, artifact=artifact, name=name, number=NUMBER, **values)
