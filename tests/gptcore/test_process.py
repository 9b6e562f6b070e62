"""The manners of a training process: exit codes, the lock, an end together with its parent."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import FinetuneConfig
from gptcore.data.feed import MicroBatch, Update
from gptcore.machine import process, rng
from gptcore.machine.device import order_unchecked, pick_device
from gptcore.machine.distributed import World
from gptcore.training import checkpoint
from gptcore.training.job import Job, costs, runner
from gptcore.training.loop import Trainer, Training
from gptcore.training.optim import warmup_linear
from tests.expected import expected as table_of
from tests.gptcore.jobs import StopAfter
from tests.trials.scenarios import ended, wait


def outcome(tmp_path: Path, error: BaseException | None) -> int:
    def run(job: dict[str, Any], stop: process.StopRequest) -> None:
        assert job == {"a": 1}
        if error is not None:
            raise error

    path = tmp_path / "job.json"
    path.write_text('{"a": 1}')
    return process.main(run, [str(path)])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (RuntimeError("odd"), 1, "RuntimeError: odd"),
        (InputError("field x"), 2, "error: field x"),
        (process.NonFiniteLoss(7, "loss", float("nan"), Path("ck/step-5"), ["a.txt"] * 9), 3, "loss = nan at step 7"),
        (process.Interrupted("done"), 75, "interrupted: done"),
    ],
)
def test_exit_codes(
    tmp_path: Path, error: BaseException | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(tmp_path, error) == code
    printed = capsys.readouterr().err
    assert said in printed
    if code == 3:
        assert "ck/step-5" in printed
        assert "a.txt and 1 more" in printed


@pytest.mark.parametrize(
    ("there", "restart", "says"),
    [
        (None, 0, "RuntimeError: connection closed by peer"),
        ({"code": 2, "reason": "the other one's", "restart": 0}, 0, "the other one's"),  # also by one that starts late
        ({"code": 75, "reason": "told to stop", "restart": 0}, 0, "RuntimeError: connection closed by peer"),
        ({"code": 3, "reason": "an earlier world's", "restart": 0}, 1, "RuntimeError: connection closed by peer"),
    ],
)
def test_the_first_process_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, Any] | None, restart: int, says: str
) -> None:
    path, left = tmp_path / "job.json", tmp_path / "outcome.json"
    path.write_text("{}")
    monkeypatch.setenv(process.OUTCOME_VARIABLE, str(left))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
    if there:
        left.write_text(json.dumps(there))

    def fails(job: dict[str, Any], stop: process.StopRequest) -> None:
        raise RuntimeError("connection closed by peer")

    assert process.main(fails, [str(path)]) == process.EXIT_FAILED
    outcome = process.read_outcome(left)
    assert outcome.reason == says
    left.write_text('{"code": 2, "rea')
    assert process.read_outcome(left) is None


def test_bad_job_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    assert process.main(lambda job, stop: None, []) == 2
    assert process.main(lambda job, stop: None, [str(path)]) == 2
    for text in ("{", "[1]"):
        path.write_text(text)
        assert process.main(lambda job, stop: None, [str(path)]) == 2
    printed = capsys.readouterr().err
    assert "No such file" in printed
    assert "not JSON" in printed
    assert "found a list, expected a job file" in printed


def test_sigterm_is_noted_and_the_old_handler_returns() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = process.StopRequest()
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
    assert stop.requested
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_lock_has_one_holder(tmp_path: Path) -> None:
    with (
        process.job_lock(tmp_path),
        pytest.raises(TimeoutError, match="another process"),
        process.job_lock(tmp_path, 0.3),
    ):
        pass
    with process.job_lock(tmp_path, 0.0):
        pass


_CHILD = """
import os, sys, time
from gptcore.machine.process import die_with_parent
die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
_PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_an_orphan_is_told() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, _CHILD], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait(lambda: ended(child), "the orphan's end", 10, pause=0.02)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_parent_that_is_gone_already_is_noticed() -> None:
    environment = os.environ | {process.PARENT_VARIABLE: "1"}
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], env=environment, capture_output=True, timeout=30, check=False
    )
    assert child.returncode == -signal.SIGTERM
    assert json.dumps(child.stdout.decode()) == '""'


def test_an_orphan_with_a_long_update_does_not_stay() -> None:
    """The process's parent is gone, SIGTERM is noted, and the update never ends."""
    script = """
import time
from gptcore.machine import process
process._ORPHAN_SECONDS = 1
with process.StopRequest().listening():
    process.die_with_parent()
    time.sleep(60)
"""
    environment = os.environ | {process.PARENT_VARIABLE: "1"}  # not this process, which started it
    done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=40, check=False)
    assert done.returncode == -signal.SIGALRM


# --- what a training process does to its machine before it computes


_STORM = """
import os, torch
from gptcore.machine.device import pick_device

def differs():
    torch.set_num_threads(2)
    torch.randn(400, 400) @ torch.randn(400, 400)  # both threads are there
    pick_device(0)
    x = torch.linspace(-20, 0, 45_800)
    return any(not torch.equal(f(x), f(x)) for f in (torch.exp, torch.tanh))

bad, children = 0, 0
for _ in range(400):
    if children == 8:
        bad += os.wait()[1] != 0
        children -= 1
    if os.fork() == 0:
        os._exit(differs())
    children += 1
while children:
    bad += os.wait()[1] != 0
    children -= 1
print(bad)
"""


@pytest.mark.slow
def test_the_first_call_of_a_vector_function_gives_the_bits_of_every_other() -> None:
    """Many processes on few cores, so that threads meet in the first call; without the remedy some of them differ."""
    done = subprocess.run([sys.executable, "-c", _STORM], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "0"


# --- checkpoints are complete or not seen; random states come back bit for bit


def write(root: Path, step: int, keep: int = 3) -> Path:
    groups = {"model": {"w": torch.full((3,), float(step))}, "optimizer": {"w/step": torch.tensor(1.0)}}
    return checkpoint.save(root, step, groups, {"note": f"at {step}"}, keep=keep)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, 7)
    found = checkpoint.newest_valid(tmp_path)
    assert (found.folder, found.step, found.state["note"]) == (folder, 7, "at 7")
    assert torch.equal(found.tensors("model")["w"], torch.full((3,), 7.0))
    assert set(read_json(folder / "manifest.json")["files"]) == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }


def test_nothing_there(tmp_path: Path) -> None:
    assert checkpoint.newest_valid(tmp_path / "absent") is None
    (tmp_path / "step-notanumber").mkdir()
    assert checkpoint.newest_valid(tmp_path) is None


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "model.safetensors"),
        lambda folder: (folder / "optimizer.safetensors").unlink(),
        lambda folder: (folder / "state.json").write_text("{}"),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("[1"),
        lambda folder: (folder / "manifest.json").write_text('{"format": 99}'),
        lambda folder: (folder / "manifest.json").write_text("[]"),
    ],
    ids=["flipped bit", "missing file", "other state", "no manifest", "cut manifest", "other format", "other JSON"],
)
def test_a_broken_checkpoint_is_passed_over(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    write(tmp_path, 9)
    damage(write(tmp_path, 10))  # 9 and 10: names sort as numbers
    found = checkpoint.newest_valid(tmp_path)
    assert found.step == 9


def test_only_the_newest_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    leftover = tmp_path / ".step-00000002.4242.tmp"
    leftover.mkdir()
    for step in (1, 2, 3, 12):
        write(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000012"]


def test_the_same_step_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 5)
    checkpoint.save(tmp_path, 5, {"model": {"w": torch.zeros(1)}}, {"note": "again"}, keep=1)
    found = checkpoint.newest_valid(tmp_path)
    assert found.state["note"] == "again"


def test_random_states_come_back(tmp_path: Path) -> None:
    rng.seed_everything(11)
    np.random.normal()  # leaves a cached second value behind: part of the state
    checkpoint.save(tmp_path, 1, {}, {"rng": rng.capture()}, keep=1)

    def draws() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.normal()), torch.rand(()).item()]

    expected = draws()
    found = checkpoint.newest_valid(tmp_path)
    rng.restore(found.state["rng"])
    assert draws() == expected


def test_seeds_belong_to_their_names() -> None:
    seeds = {rng.derive_seed(1, "a"), rng.derive_seed(1, "b"), rng.derive_seed(2, "a"), rng.derive_seed(1, "a", 0)}
    assert len(seeds) == 4
    assert rng.derive_seed(1, "a") == rng.derive_seed(1, "a")


# --- A fourth training job on the shared skeleton: little code, and it resumes to the bit


UPDATES = 40


@dataclass(frozen=True)
class LineJob(Job):
    """Learns y = 3 x + 1."""

    NAME = "line"

    line: FinetuneConfig
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
    progress = Trainer(training, job.workspace, world, stop).run()
    result = {**costs(progress, job.line.precision, world), "loss": progress.metrics["train/loss"]}
    write_json_atomic(job.workspace / "result.json", result)


def job_file(workspace: Path, **changes: Any) -> dict[str, Any]:
    line = dataclasses.asdict(FinetuneConfig(lr=0.2, weight_decay=0.0, precision="float32"))
    return {"line": line, "workspace": str(workspace), "threads": 1, **changes}


def run(workspace: Path, stop: process.StopRequest | None = None, **changes: Any) -> None:
    runner(LineJob, work, alone=True)(job_file(workspace, **changes), stop or process.StopRequest())


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
    ("changes", "message"), table_of(__file__, "test_a_job_file_is_checked_by_the_types_of_its_fields")
)
def test_a_job_file_is_checked_by_the_types_of_its_fields(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        LineJob.parse({**job_file(tmp_path), **changes})
    assert not any(tmp_path.iterdir())


def test_on_a_gpu_torch_refuses_what_has_no_order_instead_of_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    for name, found in {"is_available": True, "device_count": 1, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, found=found: found)
    try:
        pick_device(0)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.is_deterministic_algorithms_warn_only_enabled()  # attention would add as it comes
        with order_unchecked():
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.allow_tf32 = True
