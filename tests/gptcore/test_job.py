"""A fourth training job on the shared skeleton: little code, and it resumes to the bit."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from gptcore.config import FinetuneConfig
from gptcore.data.feed import MicroBatch, Update
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.training import checkpoint
from gptcore.training.job import Training, costs, parse_job, run_job, train
from gptcore.training.schedules import warmup_linear
from tests.gptcore.jobs import StopAfter

UPDATES = 40


@dataclass(frozen=True)
class LineJob:
    """Learns y = 3 x + 1."""

    line: FinetuneConfig
    workspace: Path
    threads: int | None
    rows: int = 8


class Points:
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def update(self, step: int) -> Update:
        x = torch.randn(self.rows, 1, generator=torch.Generator().manual_seed(step))
        return Update([{"x": x, "y": 3 * x + 1}], self.rows)

    def documents(self, step: int) -> list[str]:
        return [f"points {step}"]


class Silent:
    def due(self, step: int) -> float:
        return 0

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> Mapping[str, float]:
        raise AssertionError("never due")

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


def work(job: LineJob, world: World, stop: process.StopRequest) -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)

    def objective(batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        return loss, {"loss": loss}

    training = Training(
        model=model,
        objective=objective,
        data=Points(job.rows),
        monitor=Silent(),
        settings=job.line,
        total_steps=UPDATES,
        schedule=warmup_linear(0.1, UPDATES),
        identity={"rows": job.rows},
        keep_checkpoints=2,
        checkpoint_every=10,
    )
    progress = train(training, job, world, stop)
    result = {**costs(progress, job.line.precision, world), "loss": progress.metrics["train/loss"]}
    write_json_atomic(job.workspace / "result.json", result)


def job_file(workspace: Path, **changes: Any) -> dict[str, Any]:
    line = dataclasses.asdict(FinetuneConfig(lr=0.2, weight_decay=0.0, precision="float32"))
    return {"line": line, "workspace": str(workspace), "threads": 1, **changes}


def run(workspace: Path, stop: process.StopRequest | None = None, **changes: Any) -> None:
    run_job(parse_job(LineJob, "line", job_file(workspace, **changes)), work, stop or process.StopRequest(), alone=True)


def test_another_job_learns_and_resumes_to_the_bit(tmp_path: Path) -> None:
    run(tmp_path / "straight")
    with pytest.raises(process.Interrupted):
        run(tmp_path / "stopped", StopAfter(17))
    run(tmp_path / "stopped")
    ours, theirs = (checkpoint.newest_valid(tmp_path / name / "checkpoints") for name in ("stopped", "straight"))
    assert ours is not None
    assert theirs is not None
    for group in ("model", "optimizer"):
        a, b = ours.tensors(group), theirs.tensors(group)
        assert all(torch.equal(a[name], b[name]) for name in b)
    result = json.loads((tmp_path / "stopped" / "result.json").read_text())
    assert (result["steps"], result["tokens_seen"]) == (UPDATES, 8 * UPDATES)
    assert result["loss"] < 1.0
    with pytest.raises(InputError, match="rows = 8 there, 9 here"):
        run(tmp_path / "straight", rows=9)


def test_the_eta_counts_evaluations_by_what_they_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly anything takes time but evaluations: 3 s a row, of 2 rows after update 10 and of 50 after the last."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1e-6
        return now

    class Slow(Silent):
        def due(self, step: int) -> float:
            return {10: 2, UPDATES: 50}.get(step, 0)

        def evaluate(self, step: int, interrupted: Callable[[], bool]) -> Mapping[str, float]:
            nonlocal now
            now += 3 * self.due(step)
            return {}

    monkeypatch.setattr(sys.modules[__name__], "Silent", Slow)
    monkeypatch.setattr("gptcore.training.loop.time.monotonic", clock)
    with pytest.raises(process.Interrupted):
        run(tmp_path, StopAfter(17))
    run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    eta = {record["step"]: record["metrics"]["eta_seconds"] for record in records if record["metrics"]}
    assert eta == {step: pytest.approx(0 if step <= 10 else 150, abs=0.1) for step in range(1, UPDATES + 1)}


def test_the_eta_of_a_resumed_job_goes_by_its_own_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preempted job often goes on where an update takes a hundredth of the time."""
    now, tick = 0.0, 1.0

    def clock() -> float:
        nonlocal now
        now += tick
        return now

    monkeypatch.setattr("gptcore.training.loop.time.monotonic", clock)
    with pytest.raises(process.Interrupted):
        run(tmp_path, StopAfter(17))
    tick = 0.01
    run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    pace = {at["step"]: at["metrics"]["eta_seconds"] / (UPDATES - at["step"]) for at in records[: UPDATES - 1]}
    assert all(0.5 < pace[step] < 5 for step in range(1, 17)), pace
    assert all(0.005 < pace[step] < 0.05 for step in range(18, UPDATES)), pace


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 1}, "line job: missing or unknown field: speed; expected line, rows, threads, workspace"),
        ({"rows": "8"}, "rows"),
        ({"workspace": 3}, "workspace"),
        ({"line": {"lr": "fast"}}, "line job: line.lr = 'fast'; expected float"),
    ],
)
def test_a_job_file_is_checked_by_the_types_of_its_fields(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        parse_job(LineJob, "line", {**job_file(tmp_path), **changes})
    assert not any(tmp_path.iterdir())
