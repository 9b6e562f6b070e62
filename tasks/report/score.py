"""One cell's worth of result: what a fine-tune or a baseline reached on its task, and what it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gptcore.nlu.blimp import BLIMP
from gptcore.nlu.metrics import glue_score, leaderboard_cells
from gptcore.nlu.registry import TaskSpec
from tasks.store.counts import DatasetCounts

_STDERR = "_stderr"
HARNESS = "lm-eval/"
"""How the columns of lm-evaluation-harness begin: lm-eval/TASK/METRIC."""
_FRACTIONS = ("acc", "acc_norm", "exact_match", "f1", "mcc")  # the harness' metrics that are columns
_NO_COLUMN = re.compile(r"[^\w./ -]")  # characters that MLflow takes in no metric's name


@dataclass(frozen=True)
class Score:
    """A small record that crosses from a Prefect task to its flow."""

    task: str
    seed: int
    split: str
    """The split of ``percent``: test where the public test rows carry labels, else dev."""
    percent: dict[str, float]
    """Leaderboard column -> headline metric x 100."""
    notes: tuple[str, ...] = ()
    stderr: dict[str, float] = field(default_factory=dict)
    """Leaderboard column -> standard error of ``percent`` over the scored rows, where the run measured it."""
    glue: float | None = None
    """The task's part of GLUE's average x 100 (:func:`gptcore.nlu.metrics.glue_score`)."""
    synthetic: bool = False
    """Whether the rows are generated, and the number says nothing about real text."""
    collapsed: bool = False
    """Whether every dev row got the same answer."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Digests of what the number was made from, by their names in a suite's identity (`PARTS` of report/suites.py)."""
    commit: str = ""
    """The git commit that made it, `+` behind it where that had local changes."""
    own_metric: str = ""
    """What people are shown of the headline metric of a user's own task; empty for the twelve."""
    selected: str = ""
    """How the epoch was chosen, in words; of baselines none was."""
    model: str = ""
    """Address of the fine-tuned model in its store; baselines have none."""
    page: str = ""
    """Address of the page of the MLflow run that the score is from."""
    network: dict[str, float] = field(default_factory=dict)
    """Leaderboard column -> what the network reaches without the words and n-grams that are counted beside it, x 100;
    none where none are."""
    answers: str = ""
    """Address of the file with the answers to the scored rows, in its store; empty: nobody kept them."""


@dataclass(frozen=True)
class ZeroShot:
    """What a pre-trained model does without fine-tuning; every row that starts from it has the same."""

    percent: dict[str, float]
    """Zero-shot column -> accuracy x 100."""
    digest: str = ""
    """Digest of the `blimp` artifact in the store; empty: there is none."""


def zero_shot_of(digest: str, counts: Mapping[str, Any]) -> ZeroShot:
    """The columns of a `blimp` artifact, from its manifest's counts (fractions)."""
    percent = {BLIMP: counts["score"], **{f"{BLIMP}/{field}": score for field, score in counts["fields"].items()}}
    return ZeroShot(_percent(percent), digest)


def harness_columns(manifests: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The columns of artifacts of the stage `harness`, x 100, from their manifests, the newest first.

    Of all rows alone, and without the tasks that a group among them has.
    """
    whole = [made for made in manifests if made["config"]["limit"] is None]
    parts = {item["digest"] for made in whole if "group" in made["config"] for item in made["inputs"].values()}
    columns: dict[str, float] = {}
    for made in (made for made in whole if made["digest"] not in parts):
        settings, shots = made["config"], made["config"]["num_fewshot"]
        for name, value in made["counts"]["results"].items():
            metric, _, how = name.partition(",")
            if metric in _FRACTIONS:
                words = [settings.get("group") or settings["task"], metric, how if how != "none" else ""]
                words.append("" if shots is None else f"{shots}-shot")
                columns.setdefault(HARNESS + _NO_COLUMN.sub("_", "/".join(filter(None, words))), 100 * value)
    return columns


def score_of(
    spec: TaskSpec,
    seed: int,
    results: Mapping[str, Any],
    notes: tuple[str, ...] = (),
    origin: Mapping[str, Any] | None = None,
    commit: str = "",
    synthetic: bool = False,
    answers: str = "",
) -> Score:
    """A score from results named ``<split>/<metric>`` (fractions): the test split's where there is one, else dev's.

    :param answers: address of the folder with a file of answers for each split; empty: there is none.
    """
    split = "test" if "test/score" in results else "dev"
    values = {key.partition("/")[2]: value for key, value in results.items() if key.startswith(f"{split}/")}
    errors = {key.removesuffix(_STDERR): value for key, value in values.items() if key.endswith(_STDERR)}
    alone = f"network/{split}/"
    network = {key.removeprefix(alone): value for key, value in results.items() if key.startswith(alone)}
    glue = glue_score(spec, values)
    return Score(
        spec.name,
        seed,
        split,
        _percent(leaderboard_cells(spec, values)),
        notes,
        stderr=_percent(leaderboard_cells(spec, errors)) if errors else {},
        glue=None if glue is None else 100 * glue,
        network=_percent(leaderboard_cells(spec, network)) if network else {},
        synthetic=synthetic,
        collapsed=bool(results.get("majority_collapse", False)),
        origin=origin or {},
        commit=commit,
        own_metric=spec.title_of(spec.headline) if spec.own else "",
        answers=f"{answers}/{split}.jsonl" if answers else "",
    )


def finetune_origin(finetune: Mapping[str, Any], dataset: Mapping[str, Any]) -> dict[str, Any]:
    """What a fine-tune was made from, read off its own manifest and its dataset's."""
    checkpoint = finetune["inputs"].get("checkpoint")
    code = {"finetune": finetune["version"], "dataset": dataset["version"]}
    return {**dataset_origin(dataset), "code": code, **({"checkpoint": checkpoint["digest"]} if checkpoint else {})}


def dataset_origin(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Files and tokenizer behind an encoded dataset, read off its manifest."""
    return {
        "data": dataset["inputs"]["files"]["digest"],
        "tokenizer": DatasetCounts.parse(dataset["counts"]).tokenizer_digest,
    }


def commit_of(manifest: Mapping[str, Any]) -> str:
    """Short name of the code that made an artifact; the package's version where it ran from no checkout."""
    code = manifest["code"]
    if not code["git"]:
        return f"gptmill-{code['package']}"
    return str(code["git"])[:12] + ("+" if code["dirty"] else "")


def _percent(fractions: Mapping[str, float]) -> dict[str, float]:
    return {column: 100 * value for column, value in fractions.items()}


def notes_on(scores: Sequence[Score]) -> tuple[str, ...]:
    """What a reader must know of the scores, each thing once."""
    return tuple(dict.fromkeys(note for score in scores for note in score.notes))
