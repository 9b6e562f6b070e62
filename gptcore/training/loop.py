"""The one training loop, shared by pre-training and fine-tuning.

What differs between jobs comes in through three seams::

    objective  micro-batch -> (loss, named metrics). The losses of all micro-batches of an update, over all processes,
               ADD UP to the update's loss; so do the metrics. Another model family adds its own objective.
    data       update number -> this process's micro-batches, a pure function (no state to save, same global batch for
               any number of processes).
    monitor    evaluations at chosen updates, with whatever state they keep (a best epoch).

Nothing waits for the device between two log lines: losses stay there and are read together. Checkpoints are written
between updates, never between the micro-batches of one, so the accumulation position in them is always 0.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import TrainingConfig
from gptcore.data.feed import Data, Objective, Update, prefetched
from gptcore.machine import rng
from gptcore.machine.device import autocast, pick_dtype
from gptcore.machine.distributed import World, clip_gradients, summing, whole
from gptcore.machine.process import Interrupted, NonFiniteLoss, StopRequest
from gptcore.training import checkpoint
from gptcore.training.checkpoint import MetricsLog, Progress
from gptcore.training.optim import Rated, Schedule, adam, adam_and_muon, optimizer_tensors, restore_optimizer, set_lr


class Monitor(Protocol):
    """Evaluations during training."""

    def due(self, step: int) -> float:
        """How much is to be scored after ``step`` updates, in a unit of the monitor's own; 0: no evaluation is due.

        Asked once for every update, before the first. From this and from what the evaluations so far took follows how
        long those to come will take; where all score the same, True and False do.
        """
        return 0.0

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> Mapping[str, float]:
        """Metrics to log, the same on every process. Called on all of them at once.

        :param interrupted: to be asked now and then, equally often on every process; where it says yes, raise
            :class:`Interrupted`: the loop checkpoints, and the evaluation starts again after the resume.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """JSON values for the checkpoint; none unless a monitor keeps some."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        return


class Unwatched(Monitor):
    """No evaluation at all."""


@dataclass(frozen=True)
class Training:
    """What a job has built for the loop."""

    model: nn.Module
    """What is trained and saved; equal on every process at the start (same seed or same file)."""
    objective: Objective
    """What gives a micro-batch's loss, as :func:`summing` takes it."""
    data: Data
    monitor: Monitor
    settings: TrainingConfig
    total_steps: int
    schedule: Schedule
    identity: Mapping[str, Any]
    """What must be equal for a checkpoint to belong to this run (settings, digests): JSON values.
    :meth:`gptcore.GPT.load` finds the sizes of a pre-trained model under its key "model"."""
    keep_checkpoints: int
    checkpoint_every: int
    """Updates between checkpoints. A resume is exact from any of them."""
    checkpoint_seconds: float | None = None
    """Most seconds between checkpoints; None: by updates alone."""
    rates: Sequence[Rated] | None = None
    """Parameters with learning rates of their own, as :func:`gptcore.training.optim.adam` takes them."""
    muon: bool = False
    """Whether the matrices inside the network are Muon's; then no ``rates``."""
    checkpoints: str = "checkpoints"
    """The folder of the checkpoints in the workspace."""
    before: Progression | None = None
    """Where another training in the same workspace ended that came before; log and costs go on from there."""
    log_bytes: int = 0
    """How long the log was then."""
    compile: Callable[[], None] | None = None
    """Has the network compiled, before the first update; None: it stays as it is."""
    after: int = 0
    """How many updates another training will make in the workspace after this one, at most."""

    @property
    def log_every(self) -> int:
        """Updates between log lines: about 100 lines a run, but at least one every 100 updates."""
        return max(1, min(100, self.total_steps // 100))

    def new_optimizer(self) -> torch.optim.Optimizer:
        """A fresh optimiser over the parameters of the model."""
        return adam_and_muon(self.model, self.settings) if self.muon else adam(self.model, self.settings, self.rates)


@dataclass
class Progression:
    """Where the run stands; all of it travels in a checkpoint."""

    step: int = 0
    """Updates made."""
    tokens_seen: int = 0
    train_seconds: float = 0.0
    """Spent in updates, evaluations and checkpoints left out, over all attempts."""
    wall_seconds: float = 0.0
    """Spent in the loop in all, over all attempts."""
    logged_tokens: int = 0
    """`tokens_seen` at the last log line."""
    logged_seconds: float = 0.0
    """`train_seconds` at the last log line."""
    evaluated: int = 0
    """Updates after which the last evaluation was made."""
    scored: float = 0.0
    """In all evaluations so far, in the unit of :meth:`Monitor.due`."""
    score_seconds: float = 0.0
    """Spent in evaluations, over all attempts."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last training metrics logged."""


class Trainer:
    """Trains a model in ``workspace`` (checkpoints/, metrics.jsonl), going on from the newest valid checkpoint."""

    def __init__(self, training: Training, workspace: Path, world: World, stop: StopRequest) -> None:
        self.training, self.world, self.stop = training, world, stop
        self.data, self.monitor, self.schedule = training.data, training.monitor, training.schedule
        self.optimizer = training.new_optimizer()
        self.model = training.model.to(world.device)
        self.run_objective = summing(training.objective, world)
        self.lr, self.clip_norm = training.settings.lr, training.settings.clip_norm
        self.dtype = pick_dtype(training.settings.precision, world.device)  # of matrix products: bfloat16 by autocast
        self.checkpoints = workspace / training.checkpoints
        self.metrics_path = workspace / "metrics.jsonl"
        self.identity = dict(training.identity)
        before = training.before or Progression()
        self.at = dataclasses.replace(before, step=0, evaluated=0, scored=0.0, score_seconds=0.0)
        self._made_before = before.step
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._names: list[str] = []  # of the objective's metrics, "loss" first
        self._unread: list[Tensor] = []  # per update since the last reading: [n_metrics + 1], on the device
        self._read: list[list[float]] = []  # per update since the last log line
        self._due: dict[int, float] = {}  # updates after which an evaluation is due, and how much it scores
        self._compiled = training.compile is not None
        self._saved = (-1, -1)  # step and last evaluation of the newest checkpoint
        self._clock = self._wall_clock = 0.0  # since when training and wall seconds are not counted yet
        self._resumed_at = (0, 0.0)  # updates made and seconds trained before this attempt

    def run(self) -> Progression:
        """Train until the last update.

        :raises Interrupted: after SIGTERM, once a checkpoint is written.
        :raises NonFiniteLoss: if a loss or gradient norm is not a finite number.
        :raises InputError: if the workspace belongs to a run with other settings.
        """
        log_size = self._resume()
        if self._compiled and self.training.compile is not None:
            self.training.compile()
        self._resumed_at = (self.at.step, self.at.train_seconds)
        steps = range(1, self.training.total_steps + 1)
        self._due = {step: amount for step in steps if (amount := self.monitor.due(step))}
        self.log = MetricsLog(self.metrics_path, log_size) if self.world.main else None
        self.progress = Progress(self.training.total_steps, self.at.step, shown=self.world.main)
        try:
            self._train()
        finally:
            self.progress.close()
            if self.log is not None:
                self.log.close()
        return self.at

    def _train(self) -> None:
        total = self.training.total_steps
        updates = prefetched(self.data, range(self.at.step, total), self.world.device)
        self._clock = self._wall_clock = last_saved = time.monotonic()
        while True:
            self._evaluate_if_due()
            every, seconds = self.training.checkpoint_every, self.training.checkpoint_seconds
            overdue = seconds is not None and self.world.main and time.monotonic() - last_saved >= seconds
            stopping, overdue = self.world.agree(self.stop.requested, overdue)
            step = self.at.step
            if stopping or overdue or step == total or (step and step % every == 0):
                self._save()
                last_saved = time.monotonic()
            if step == total:
                return
            if stopping:
                raise Interrupted(f"SIGTERM: checkpoint written after update {step} of {total}")
            self._update(next(updates))
            self.progress.advance()
            if self.at.step % self.training.log_every == 0 or self.at.step == total:
                self._log_training()

    def _update(self, update: Update) -> None:
        """One update of the parameters; nothing here waits for the device."""
        self.model.train()
        sums: Tensor | None = None
        for number, batch in enumerate(update.micro_batches, start=1):
            with autocast(self.world.device, self.dtype):
                loss, metrics = self.run_objective(batch, number == len(update.micro_batches))
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
            self._names = list(metrics)
            values = torch.stack([value.detach().float() for value in metrics.values()])  # (n_metrics,)
            sums = values if sums is None else sums + values
        assert sums is not None, "an update has at least one micro-batch"
        norm = clip_gradients(self._parameters, self.clip_norm, self.world)
        set_lr(self.optimizer, self.lr * self.schedule(self.at.step), self.at.step)
        self.optimizer.step()
        self.model.zero_grad(set_to_none=True)
        # Metrics are summed over the processes when read; the norm is the same on all, so one of them contributes it.
        share = norm.detach().float().reshape(1) * (1.0 if self.world.main else 0.0)
        self._unread.append(torch.cat([sums, share]))
        self.at.step += 1
        self.at.tokens_seen += update.n_tokens

    def _read_device(self) -> None:
        """Bring the unread updates' metrics to the host: the one place where the loop waits for the device."""
        if not self._unread:
            return
        rows = self.world.sum_(torch.stack(self._unread)).tolist()
        self._unread.clear()
        for step, row in enumerate(rows, start=self.at.step - len(rows) + 1):
            if not all(math.isfinite(value) for value in row):
                loss, norm = row[0], row[-1]
                raise self._broken(step, *(("gradient norm", norm) if math.isfinite(loss) else ("loss", loss)))
        self._read.extend(rows)
        now = time.monotonic()
        self.at.train_seconds += now - self._clock
        self._clock = now

    def _broken(self, step: int, what: str, value: float) -> NonFiniteLoss:
        good = checkpoint.newest_valid(self.checkpoints)
        return NonFiniteLoss(step, what, value, good.folder if good else None, self.data.documents(step - 1))

    def _log_training(self) -> None:
        self._read_device()
        at = self.at
        means = [sum(column) / len(self._read) for column in zip(*self._read, strict=True)]
        self._read.clear()
        metrics = {f"train/{name}": mean for name, mean in zip([*self._names, "grad_norm"], means, strict=True)}
        metrics["train/lr"] = self.lr * self.schedule(at.step - 1)
        metrics["tokens_seen"] = at.tokens_seen
        metrics["tokens_per_second"] = (at.tokens_seen - at.logged_tokens) / max(
            at.train_seconds - at.logged_seconds, 1e-9
        )
        updates = self._made_before + self.training.total_steps + self.training.after
        metrics["progress"] = (self._made_before + at.step) / updates
        metrics["eta_seconds"] = self._training_eta() + self._evaluation_eta()
        at.logged_tokens, at.logged_seconds, at.metrics = at.tokens_seen, at.train_seconds, metrics
        self._write(metrics)

    def _training_eta(self) -> float:
        """Seconds that the updates to come will take, at this attempt's speed: others may have had faster machines."""
        updates, seconds = self._resumed_at
        pace = (self.at.train_seconds - seconds) / (self.at.step - updates)
        return pace * (self.training.total_steps + self.training.after - self.at.step)

    def _evaluation_eta(self) -> float:
        """Seconds that the evaluations to come will take; 0 as long as there has been none to go by."""
        at = self.at
        left = sum(amount for step, amount in self._due.items() if step > at.evaluated)
        return at.score_seconds / at.scored * left if at.scored else 0.0

    def _evaluate_if_due(self) -> None:
        step = self.at.step
        if step <= self.at.evaluated or step not in self._due:
            return
        self._read_device()
        self.model.eval()
        began = time.monotonic()
        try:
            metrics = self.monitor.evaluate(step, lambda: self.world.agree(self.stop.requested)[0])
        except Interrupted:
            self._save()
            raise
        for name, value in metrics.items():
            if not math.isfinite(value):  # this update broke the weights, after its own loss was measured
                raise self._broken(step, name, value)
        self.at.evaluated = step
        self.at.scored += self._due[step]
        self.at.score_seconds += time.monotonic() - began
        self._write(metrics)
        self._clock = time.monotonic()

    def _write(self, metrics: Mapping[str, float]) -> None:
        if self.log is not None:
            self.log.append(self._made_before + self.at.step, metrics)
        self.progress.report(self.at.step, metrics)

    def _save(self) -> None:
        """A checkpoint of this very moment, written by the main process, unless the newest one is of this moment."""
        self._read_device()
        if self._saved == (self.at.step, self.at.evaluated):
            return
        self._saved = (self.at.step, self.at.evaluated)
        now = time.monotonic()
        self.at.wall_seconds += now - self._wall_clock
        self._wall_clock = now
        states = self.world.gather(rng.capture())
        tensors = {
            "model": whole(checkpoint.model_tensors(self.model), self.world),
            "optimizer": whole(optimizer_tensors(self.optimizer, self.model), self.world),
        }
        if self.world.main:
            assert self.log is not None
            state = {
                "identity": self.identity,
                "progression": dataclasses.asdict(self.at),
                "schedule": {"updates_made": self.at.step, "lr": self.optimizer.param_groups[0]["lr"]},
                "data": {"next_update": self.at.step, "accumulated_micro_batches": 0},
                "rng": states,
                "compiled": self._compiled,
                "unlogged": self._read,
                "metrics_bytes": self.log.sync(),
                "monitor": self.monitor.state(),
            }
            checkpoint.save(self.checkpoints, self.at.step, tensors, state, keep=self.training.keep_checkpoints)
        self.world.agree(False)  # torchrun kills the others when one has left after SIGTERM: all wait for the writer
        self._clock = time.monotonic()

    def _resume(self) -> int:
        """Put everything back as the newest valid checkpoint has it, or start afresh; bytes of the log to keep."""
        saved = checkpoint.newest_valid(self.checkpoints) if self.world.main else None
        saved = self.world.broadcast(saved)
        if saved is None:
            rng.seed_everything(rng.derive_seed(self.training.settings.seed, "training", self.world.rank))
            return self.training.log_bytes
        state = saved.state
        _compare(state["identity"], self.identity, saved.folder)
        checkpoint.restore_model(self.model, saved.tensors("model"))
        restore_optimizer(self.optimizer, self.model, saved.tensors("optimizer"))
        self.at = Progression(**state["progression"])
        self._saved = (self.at.step, self.at.evaluated)
        self._compiled = state.get("compiled", False)  # what is compiled draws other dropout
        self._read = [list(row) for row in state["unlogged"]]
        self.monitor.restore(state["monitor"])
        if len(state["rng"]) == self.world.size:
            rng.restore(state["rng"][self.world.rank])
        else:  # another number of processes: same batches, other dropout
            rng.seed_everything(rng.derive_seed(self.training.settings.seed, "training", self.world.rank, self.at.step))
        if self.world.main:
            print(f"resuming from {saved.folder} after update {self.at.step}", file=sys.stderr, flush=True)
            if self._compiled and self.training.compile is None:
                print("what was compiled before is not now: other bits follow", file=sys.stderr, flush=True)
        return int(state["metrics_bytes"])


def _compare(theirs: Mapping[str, Any], ours: Mapping[str, Any], folder: Path) -> None:
    """:raises InputError: naming the first setting in which a checkpoint's run differs from this one."""
    ours = json.loads(json.dumps(ours))  # tuples become lists, as in the checkpoint
    for key in sorted({*theirs, *ours}):
        a, b = theirs.get(key), ours.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            _compare(a, b, folder)
        elif a != b:
            raise InputError(f"{folder}: checkpoint of another run: {key} = {a!r} there, {b!r} here")
