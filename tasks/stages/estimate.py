"""How long trainings would take on this machine, before any is started: to an order of magnitude, and said as that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.config import FinetuneConfig, NetworkConfig, PretrainConfig, network_config
from gptcore.config.operations import network_flops, pretraining_flops, teaching_flops
from gptcore.families import FAMILIES
from tasks.jobs.devices import SpeedUnknown, training_speed, visible_gpus
from tasks.jobs.placement import on_cluster
from tasks.store.artifact import Artifact
from tasks.store.lineage import teacher_of
from tasks.store.store import Store

_SLOWEST = 1e10  # operations a second that any machine reaches: what is short at that needs no measurement
_UPDATE = 0.01  # seconds that an update takes however small its network is, on a CPU; a GPU's is about as much
_SHORT = 60.0


@dataclass(frozen=True)
class Estimate:
    """The time that trainings would take here."""

    seconds: float | None
    """None: not known."""
    reason: str
    """What it rests on, or why it is not known."""

    def __str__(self) -> str:
        """``some 31 hours (estimate: 4.5e+15 operations, at 40 GFLOP/s on this machine's cpu)``."""
        if self.seconds is None:
            return f"for a time that is not known ({self.reason})"
        return f"{about(self.seconds)} (estimate: {self.reason})"


def estimate(store: Store, trainings: Iterable[tuple[str, Mapping[str, Any]]]) -> Estimate:
    """The time of ``trainings`` on this machine, one after another on all that it has.

    :param trainings: stage and arguments of each; see :func:`operations`.
    """
    if on_cluster():
        return Estimate(None, "as jobs of a cluster")
    trainings = list(trainings)
    work = [operations(store, stage, arguments) for stage, arguments in trainings]
    total = sum(count for count, _ in work)
    fixed = sum(updates for _, updates in work) * _UPDATE
    if total / _SLOWEST + fixed < _SHORT:
        return Estimate(total / _SLOWEST + fixed, f"{total:.1e} operations")
    try:
        speed = training_speed()
    except SpeedUnknown as error:
        return Estimate(None, f"{total:.1e} operations; the speed of this machine: {error}")
    gpus = len(visible_gpus()) if speed.device != "cpu" else 1
    if not any(stage == "pretrain" for stage, _ in trainings):
        gpus = min(gpus, len(trainings))  # each of these has one
    where = f"{gpus} {speed.device}" if gpus > 1 else f"this machine's {speed.device}"
    reason = f"{total:.1e} operations, at {speed.flops * gpus / 1e9:,.0f} GFLOP/s on {where}"
    return Estimate(total / (speed.flops * gpus) + fixed, reason)


def operations(store: Store, stage: str, arguments: Mapping[str, Any]) -> tuple[float, float]:
    """Floating-point operations of one training, forward and backward, and its updates.

    See :mod:`gptcore.config.operations`: nothing here imports torch to count them.

    :param stage: pretrain, finetune or adapt.
    :param arguments: of the stage's task, but for the store.
    """
    if stage == "pretrain":
        counts = _counts(store, arguments["shards"])
        config: PretrainConfig = arguments["config"]
        model: NetworkConfig = arguments["model"]
        total = config.total_steps(model.n_ctx, counts["splits"]["train"]["n_tokens"])
        model = dataclasses.replace(model, n_vocab=counts["n_vocab"])
        flops = pretraining_flops(model, config, total)
        if (teacher := arguments.get("teacher")) is not None:
            flops += teaching_flops(
                model, _network(store, teacher), config, total, soft=arguments["distil"].soft_weight > 0
            )
        return flops, total
    model = _network(store, arguments["checkpoint"])
    told, beside = 1.0, 0.0
    if stage == "finetune":
        told = float(FAMILIES[model.family].auxiliary_loss)  # without it the words' head is left behind
        train = _counts(store, arguments["dataset"])["splits"]["train"]
        settings: FinetuneConfig = arguments["config"]
        rows = min(settings.max_train_rows or train["rows"], train["rows"])
        epochs = settings.epochs + (settings.layer_epochs or 0)
        n_tokens = epochs * train["tokens"] * rows / max(1, train["rows"])
        updates = epochs * rows / settings.batch_size
        if settings.taught and (teacher := teacher_of(store, arguments["checkpoint"])) is not None:
            beside = network_flops(_network(store, teacher), model.n_ctx, told) / 3
    else:
        papers, adapt = _counts(store, arguments["ids"])["distribution"], arguments["config"]
        n_tokens = adapt.epochs * sum(row["bpe_tokens"] for row in papers if row["split"] == "train")
        updates = n_tokens / (adapt.block_size * adapt.batch_size * adapt.accumulation)
    return (network_flops(model, model.n_ctx, told) + beside) * n_tokens, updates


def _network(store: Store, model: Artifact) -> NetworkConfig:
    return network_config(store.manifest(model)["config"]["model"])


def _counts(store: Store, artifact: Artifact) -> Mapping[str, Any]:
    counts: Mapping[str, Any] = store.manifest(artifact)["counts"]
    return counts


def about(seconds: float) -> str:
    """A time in words, as roughly as it is known: ``under a minute``, ``some 20 minutes``, ``some 31 hours``."""
    for unit, size, most in (("minute", 60.0, 100), ("hour", 3600.0, 72)):
        if seconds < most * size:
            count = round(seconds / size)
            return f"some {count} {unit}s" if count > 1 else f"{'a' if unit == 'minute' else 'an'} {unit} or less"
    return f"some {seconds / 86400:,.0f} days"
