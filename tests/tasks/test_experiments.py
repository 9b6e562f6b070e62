"""What somebody sees who opens our experiments in MLflow: scores, not names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gptcore.nlu.blimp import COLUMNS as ZERO_SHOT
from gptcore.nlu.blimp import FIELDS
from gptcore.nlu.registry import COLUMNS, REGISTRY
from tasks.report.experiments import LEADERBOARD_PAGE, SCORES, show_experiments
from tasks.report.score import Score, ZeroShot, zero_shot_of
from tasks.report.suites import EXPERIMENT, Suite, open_suite, record_row, row_of
from tasks.tracking.provenance import Data, has_inputs, log_inputs
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import leaderboard_line, leaderboard_link

KIND, TRAINING_KIND = "mlflow.experimentKind", "custom_model_development"


def tags_of(tracker: Tracker, experiment: str) -> dict[str, str]:
    return dict(tracker.client.get_experiment(tracker.experiment(experiment)).tags)


def record(tracker: Tracker, label: str, percent: dict[str, float]) -> str:
    """A row of a baseline, and the id of its run."""
    of = Suite(label, "baseline", {"data": {}})
    scores = [
        Score(task, 0, "dev", {c: percent[c] for c in spec.paper})
        for task, spec in REGISTRY.items()
        if set(spec.paper) <= set(percent)
    ]
    with open_suite(tracker, of) as run:
        record_row(run, row_of(of, [score for score in scores if score.percent]))
        return run.run_id


@pytest.fixture
def writes(shared_tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every experiment tag that is written."""
    written: list[Any] = []
    keep = shared_tracker.client.set_experiment_tag
    monkeypatch.setattr(shared_tracker.client, "set_experiment_tag", lambda *a: (written.append(a), keep(*a)))
    return written


def test_an_experiment_of_any_age_opens_as_model_training(shared_tracker: Tracker) -> None:
    assert tags_of(shared_tracker, "made now")[KIND] == TRAINING_KIND
    old = shared_tracker.client.create_experiment("made by an older version")
    assert shared_tracker.experiment("made by an older version") == old
    assert tags_of(shared_tracker, "made by an older version")[KIND] == TRAINING_KIND


def test_a_saved_view_shows_the_average_and_thirteen_scores_best_first(
    shared_tracker: Tracker, writes: list[Any]
) -> None:
    assert len(SCORES) == 13
    show_experiments(shared_tracker)
    kept = json.loads(tags_of(shared_tracker, EXPERIMENT)[f"mlflow.sharedViewState.{LEADERBOARD_PAGE.key}"])
    assert set(kept) == {"name", "createdAt", "updatedAt", "state"}  # as the UI of 3.17 writes it
    state = json.loads(kept["state"])
    assert state["selectedColumns"][:14] == [f"metrics.`{name}`" for name in ("average", *SCORES)]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`average`", False)
    assert state["searchFilter"] == "tags.kind != 'finetune'"
    writes.clear()
    show_experiments(shared_tracker)
    assert writes == []


MEASURED = zero_shot_of("cd" * 32, {"score": 0.625, "fields": dict.fromkeys(FIELDS, 0.625)})


@pytest.mark.parametrize(
    ("score", "zero_shot", "first"),
    [
        (Score("rte", 0, "dev", {"rte": 50.0}), MEASURED, ["average", *SCORES, "blimp"]),
        (Score("weather", 0, "dev", {"weather": 50.0}, own_metric="f1"), None, ["average", "weather", *SCORES]),
    ],
)
def test_blimp_and_own_tasks_are_columns_once_a_row_has_them(
    shared_tracker: Tracker, score: Score, zero_shot: ZeroShot | None, first: list[str]
) -> None:
    def shown(view: str) -> list[str]:
        kept = tags_of(shared_tracker, EXPERIMENT)[f"mlflow.sharedViewState.{view}"]
        return list(json.loads(json.loads(kept)["state"])["selectedColumns"])

    show_experiments(shared_tracker)
    (extra,) = {*first} - {"average", *SCORES}
    assert f"metrics.`{extra}`" not in shown(LEADERBOARD_PAGE.key)
    assert extra not in tags_of(shared_tracker, EXPERIMENT)["mlflow.note.content"]
    of = Suite("of more columns", "ours", {"data": {}})
    with open_suite(shared_tracker, of) as run:
        record_row(run, row_of(of, [score]), zero_shot)
    try:
        show_experiments(shared_tracker)
        columns = shown(LEADERBOARD_PAGE.key)
        assert columns[:15] == [f"metrics.`{name}`" for name in first]
        assert columns[15:] == ["tags.`split`", "tags.`seeds`"]
        if zero_shot:
            assert shown("blimp") == [f"metrics.`{name}`" for name in ZERO_SHOT]
            assert "62.5" in tags_of(shared_tracker, EXPERIMENT)["mlflow.note.content"]
    finally:
        shared_tracker.client.delete_run(run.run_id)


def test_the_paper_and_the_best_floor_stand_among_ours(shared_tracker: Tracker, writes: list[Any]) -> None:
    def beside() -> dict[str, dict[str, float]]:
        show_experiments(shared_tracker)
        runs = shared_tracker.search(EXPERIMENT, {"kind": "beside"})
        return {run.info.run_name: run.data.metrics for run in runs}

    floor = Suite("majority class", "baseline", {"data": {"rte": "of the floor"}})
    ours = Suite("above it", "ours", {"data": {"rte": "of the floor"}})
    made = []
    for of, score, error in ((floor, 55.5, 0.0), (ours, 61.0, 2.9)):
        with open_suite(shared_tracker, of) as run:
            origin = {"data": "of the floor"}
            scored = Score("rte", 0, "dev", {"rte": score}, stderr={"rte": error}, origin=origin)
            record_row(run, row_of(of, [scored]))
        made.append(run.run_id)
    shown = beside()
    assert shown["GPT-1, the paper"]["average"] == 76.7
    assert {"rte": 55.5} in [*shown.values()]
    assert "61.0±2.9" in tags_of(shared_tracker, EXPERIMENT)["mlflow.note.content"]
    for run_id in made:
        shared_tracker.client.delete_run(run_id)
    assert {"rte": 55.5} not in [*beside().values()]


def test_the_average_follows_the_columns_and_metrics_read_as_the_table_prints_them(shared_tracker: Tracker) -> None:
    exact = 200 / 3
    run_id = record(shared_tracker, "growing", {c: exact for c in COLUMNS if c != "qqp"})
    metrics = shared_tracker.client.get_run(run_id).data.metrics
    assert metrics["rte"] == 66.7
    assert "average" not in metrics  # over eleven tasks it would compare with no other row's
    for qqp in (exact, 0.0):
        record(shared_tracker, "growing", {"qqp": qqp})
        average = shared_tracker.client.get_run(run_id).data.metrics["average"]
        assert average == round((11 * exact + qqp) / 12, 1)


def test_the_description_holds_the_table_and_a_link_to_the_view(shared_tracker: Tracker) -> None:
    record(shared_tracker, "described", dict.fromkeys(COLUMNS, 99.0))
    show_experiments(shared_tracker)
    note = tags_of(shared_tracker, EXPERIMENT)["mlflow.note.content"]
    first, _, header, _, best, *_ = note.splitlines()
    assert "described" in first
    assert "99.0" in first
    assert "the paper 76.7 (test)" in first
    path = leaderboard_link(shared_tracker).removeprefix(f"{shared_tracker.ui}/")
    assert f"]({path})" in first
    assert [cell.strip().removesuffix("&emsp;") for cell in header.strip("|").split("|")][3:] == list(SCORES)
    assert best.count("99.0") == 14


def test_a_link_without_a_server_says_what_it_takes(shared_tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaderboard_line(shared_tracker) == "MLflow: `gptmill up` opens its pages"
    served = Tracker("http://127.0.0.1:7777")
    monkeypatch.setattr(served, "experiment", lambda _: "3")
    assert leaderboard_line(served).startswith("MLflow: http://127.0.0.1:7777/#/experiments/3/runs?")
    assert leaderboard_line(served).endswith("viewStateShareKey=leaderboard")


def test_data_is_an_input_of_its_run(shared_tracker: Tracker) -> None:
    digest = "0123456789abcdef" * 4
    with shared_tracker.open("inputs", "a run", "key", {}, {}) as run:
        assert not has_inputs(run)
        log_inputs(run, [Data("rte", digest, "s3://b/dataset/1", {"train": 600, "dev": 300})])
    assert has_inputs(shared_tracker.open("inputs", "a run", "key", {}, {}))
    (found,) = shared_tracker.client.get_run(run.run_id).inputs.dataset_inputs
    data = found.dataset
    assert (data.name, data.source_type) == ("rte", "s3")
    assert digest.startswith(data.digest)
    assert json.loads(data.source) == {"uri": "s3://b/dataset/1", "sha256": digest}
    assert json.loads(data.profile) == {"num_rows": 900, "train": 600, "dev": 300}
