"""What every training job does, whatever it learns: read its file, join the other processes, train, say what it took.

A job is a frozen dataclass whose fields are those of its file. :meth:`Job.parse` fills it, :func:`runner` gives it a
world and its workspace, :class:`gptcore.training.loop.Trainer` runs the loop over what the job has built, :func:`costs`
is the part of result.json that all jobs share.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, get_args, get_type_hints

import torch

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object, sha256_file, write_json_atomic
from gptcore.base.settings import off_settings, recorded, replace_settings
from gptcore.config import DistilConfig, NetworkConfig, network_config
from gptcore.machine import process
from gptcore.machine.device import device_name, model_flops_utilisation, peak_memory_bytes, pick_device, pick_dtype
from gptcore.machine.distributed import World, join_world, whole
from gptcore.models.network import Network
from gptcore.training.loop import Progression, Training


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the files of all jobs hold; a subclass adds what its own say, and checks it in :meth:`parse`."""

    NAME: ClassVar[str]
    """What messages call the job: "pretrain"."""

    workspace: Path
    """Where the job keeps what it makes."""
    threads: int | None
    """CPU threads; None: torch's choice."""

    @classmethod
    def parse(cls, job: Mapping[str, Any]) -> Self:
        """A job file, checked and converted by the types of the fields.

        Paths are texts in the file; settings are tables as they are recorded; a network's say their family.

        :raises InputError: naming the field that is missing, unknown, of another type or of no use.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        defaults = {n: f.default for n, f in fields.items() if f.default is not MISSING}
        given = {**defaults, **job}
        if set(given) != set(fields):
            odd = ", ".join(sorted(set(given) ^ set(fields)))
            raise InputError(f"{cls.NAME} job: missing or unknown field: {odd}; expected {', '.join(sorted(fields))}")
        hints = {n: _without_none(hint) for n, hint in get_type_hints(cls).items() if n in fields}
        plain = {n: str if hints[n] is Path else hints[n] for n, value in given.items() if value is not None}
        plain = {n: hint for n, hint in plain.items() if hint in (str, int)}
        checked_object(given, f"{cls.NAME} job", "a JSON object", plain)
        return cls(**{n: _converted(value, hints[n], f"{cls.NAME} job: {n}") for n, value in given.items()})


AnyJob = TypeVar("AnyJob", bound=Job)


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if isinstance(hint, UnionType) else [hint]
    return kinds[0]


def _converted(value: Any, kind: Any, where: str) -> Any:
    if value is None or isinstance(value, kind if isinstance(kind, type) and kind is not NetworkConfig else ()):
        return value
    if kind is NetworkConfig:
        return network_config(value, where)
    return kind(value) if kind is Path else replace_settings(kind(**off_settings(kind)), value, where)


def runner(
    kind: type[AnyJob], work: Callable[[AnyJob, World, process.StopRequest], None], *, alone: bool = False
) -> Callable[[Mapping[str, Any], process.StopRequest], None]:
    """The function ``run`` of a job's module: it does the job of a file in this process, one of the world's.

    The main process holds the workspace meanwhile. ``run`` raises :class:`InputError` before any work if the job cannot
    be done as given, :class:`gptcore.machine.process.NonFiniteLoss` as :meth:`Trainer.run` does, and
    :class:`gptcore.machine.process.Interrupted` after SIGTERM, with a checkpoint written.

    :param kind: has a field ``sharded`` where each of several processes may hold a part of the weights only.
    :param work: what the job is.
    :param alone: the job is one process, whatever the environment says.
    """

    def run(job: Mapping[str, Any], stop: process.StopRequest) -> None:
        parsed = kind.parse(job)
        if parsed.threads is not None:
            torch.set_num_threads(parsed.threads)
        lone = contextlib.nullcontext(World(0, 1, pick_device(0))) if alone else None
        with (
            lone or join_world(getattr(parsed, "sharded", False)) as world,
            process.job_lock(parsed.workspace) if world.main else contextlib.nullcontext(),
        ):
            work(parsed, world, stop)

    return run


def taught_by(teacher: Path | None, distil: DistilConfig | None) -> dict[str, Any]:
    """What checkpoints say of the folder of a teacher, and of how a student learns from it."""
    if teacher is None or distil is None:
        return {}
    return {"distil": recorded(distil), "teacher": sha256_file(teacher / "model.safetensors")}


def costs(progress: Progression, precision: str, world: World) -> dict[str, Any]:
    """What a training took, for its result.json.

    :param precision: as the settings have it.
    """
    return {
        "steps": progress.step,
        "tokens_seen": progress.tokens_seen,
        "tokens_per_second": progress.tokens_seen / progress.train_seconds,
        "wall_seconds": progress.wall_seconds,
        "peak_memory_bytes": peak_memory_bytes(world.device),
        "device": device_name(world.device),
        "precision": str(pick_dtype(precision, world.device)).removeprefix("torch."),
    }


def finish_language_model(
    model: Network,
    training: Training,
    progress: Progression,
    job: Job,
    world: World,
    *,
    tokenizer_digest: str,
    n_positions: int,
    scores: Mapping[str, float],
    others: Mapping[str, Network] | None = None,
) -> None:
    """Write model/ and result.json of a job that made a language model; called on every process.

    :param n_positions: of the sequences that it was trained on.
    :param scores: what the result says beside the costs.
    :param others: networks that were trained with it, by the names of their folders inside model/.
    """
    peak = max(world.gather(peak_memory_bytes(world.device)))
    weights = whole(model.state_dict(), world)
    kept = {name: (other, whole(other.state_dict(), world)) for name, other in (others or {}).items()}
    if not world.main:
        return
    meta = {"tokenizer_digest": tokenizer_digest, "steps": progress.step, "tokens_seen": progress.tokens_seen}
    model.save(job.workspace / "model", weights)
    for name, (other, its) in kept.items():
        other.save(job.workspace / "model" / name, its)
    write_json_atomic(job.workspace / "model" / "meta.json", meta | {"parameters": model.num_parameters})
    spent = costs(progress, training.settings.precision, world)
    dtype = pick_dtype(training.settings.precision, world.device)
    flops, rate = model.flops_per_token(n_positions), spent["tokens_per_second"]
    mfu = model_flops_utilisation(flops, rate, world.device, dtype, world.size)
    result = {**spent, **scores, "peak_memory_bytes": peak, "world_size": world.size, "mfu": mfu}
    write_json_atomic(job.workspace / "result.json", result)
