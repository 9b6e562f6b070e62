"""How far many trainings are: by what each has to do, not by how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from flows.trainings import progress as module
from flows.trainings.progress import show_progress
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, preset_named
from gptcore.nlu.registry import task_settings, task_spec
from tasks.stages.finetune import FinetuneRequest
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import Underway


def told(monkeypatch: pytest.MonkeyPatch, ends: list[tuple[float, float]]) -> tuple[list[tuple[float, str]], float]:
    """What is said of trainings that end one after another, each with its work and the second at which it ends.

    And what Prefect's page shows in the end, in per cent.
    """
    news: list[Underway] = []
    percents: list[float] = []
    now = 100.0
    work = {f"training {place}": amount for place, (amount, _) in enumerate(ends)}

    def ending(trainings: list[str]) -> Iterator[str]:
        nonlocal now
        for training, (_, second) in zip(trainings, ends, strict=True):
            now = 100.0 + second
            yield training

    monkeypatch.setattr(module, "as_completed", ending)
    monkeypatch.setattr("flows.trainings.progress.time.monotonic", lambda: now)
    monkeypatch.setattr(module, "create_progress_artifact", lambda percent, key, description: uuid4())
    monkeypatch.setattr(module, "update_progress_artifact", lambda _, percent, description: percents.append(percent))
    monkeypatch.setattr(module, "progress", lambda item, line=False: news.append(item))
    show_progress(work, "fine-tunes")  # type: ignore[arg-type]  # names in the place of Prefect's futures
    return [(item.share, item.words) for item in news], percents[-1]


def test_the_eta_is_for_the_work_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, percent = told(monkeypatch, [(6.0, 60.0), (3.0, 90.0), (1.0, 100.0)])
    assert lines == [
        (0.0, "0 of 3"),
        (0.6, "1 of 3, ETA 0:40"),
        (0.9, "2 of 3, ETA 0:10"),
        (1.0, "3 of 3, ETA 0:00"),
    ]
    assert percent == 100.0


def test_those_in_the_store_say_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = told(monkeypatch, [(0.0, 0.1), (0.0, 0.2), (2.0, 10.0), (0.0, 10.0), (2.0, 20.0)])
    assert lines[:4] == [(0.0, "0 of 5"), (0.0, "1 of 5"), (0.0, "2 of 5"), (0.5, "3 of 5, ETA 0:10")]
    assert lines[-1] == (1.0, "5 of 5, ETA 0:00")


def test_where_all_are_in_the_store_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, percent = told(monkeypatch, [(0.0, 0.1), (0.0, 0.2)])
    assert lines == [(0.0, "0 of 2"), (0.5, "1 of 2"), (1.0, "2 of 2")]
    assert percent == 100.0


def test_work_is_of_rows_and_epochs_and_none_once_it_is_done(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))

    def made(stage: str, counts: dict[str, Any], **config: Any) -> Artifact:
        return store.build(Recipe(stage, 1, config), lambda _: counts).artifact

    def training(rows: int, epochs: int) -> FinetuneRequest:
        counts = {"splits": {"train": {"rows": rows, "tokens": 50 * rows}}}
        dataset = made("dataset", counts, **task_settings(task_spec("rte")), rows=rows)
        return FinetuneRequest(store, "rte", dataset, checkpoint, FinetuneConfig(epochs=epochs), "pre-trained")

    checkpoint = made("pretrain", {}, model=recorded(preset_named("demo").model))
    small, large = training(100, 3), training(1_000, 6)
    assert small.work_left > 0
    assert large.work_left == pytest.approx(20 * small.work_left)
    store.build(large.recipe, lambda _: {})
    assert large.work_left == 0
