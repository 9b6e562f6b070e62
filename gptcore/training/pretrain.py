"""The pre-training job: shards in, a language model out.

    python -m gptcore.training.pretrain JOB.json

JOB.json: {"model": fields of ModelConfig, "pretrain": fields of PretrainConfig, "shards": folder with train/,
validation/ and meta.json, "tokenizer_digest": str, "workspace": folder, "threads": int or null, "start": a model's
folder whose weights it goes on from (left out: weights drawn by the seed), "sharded": whether each of several processes
holds a part of the weights only (left out: no), "teacher": a model's folder that it learns from, with "distil", fields
of DistilConfig (left out: from the text alone), "entities": a folder with what is known of entities and of their
mentions in the shards (left out: nothing), "compiled": whether torch.compile makes its updates faster (left out: where
that pays)}.

The workspace then holds model/ (config.json, model.safetensors, meta.json), snapshots/ (models on the way there),
checkpoints/, metrics.jsonl and result.json. Exit codes: gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from gptcore.base.errors import InputError
from gptcore.base.files import read_object, sha256_file, write_json_atomic
from gptcore.base.settings import recorded
from gptcore.config import DistilConfig, NetworkConfig, PretrainConfig, check_same_shape
from gptcore.config.distillation import check_teacher
from gptcore.config.operations import pretraining_flops
from gptcore.families import FAMILIES
from gptcore.machine import process, rng
from gptcore.machine.device import pays_to_compile, pick_dtype
from gptcore.machine.distributed import Step, World, shard, whole
from gptcore.models.files.layout import read_model
from gptcore.models.network import Network, build_model, load_model
from gptcore.objectives.distillation import Distillation
from gptcore.objectives.objective import PretrainingObjective, Text
from gptcore.training.job import Job, finish_language_model, runner, taught_by
from gptcore.training.loop import Trainer, Training
from gptcore.training.optim import pretraining_schedule

_SNAPSHOTS = 8  # the first one after less than 1 % of the updates

_CPU_TOKENS, _GPU_TOKENS = 4096, 65_536
"""Held at once where no micro-batch size is given: the paper's 64 x 512 would take tens of GB of activations, and a
CPU gains nothing from larger products. On a GPU those of the paper's network of 12 x 768, of larger ones fewer: some 20
GB of activations, where an update of GPT-2 (512 x 1024) would take 160."""


@dataclasses.dataclass(frozen=True)
class PretrainJob(Job):
    """A job file, checked."""

    NAME = "pretrain"

    model: NetworkConfig
    pretrain: PretrainConfig
    shards: Path
    tokenizer_digest: str
    start: Path | None = None
    sharded: bool = False
    teacher: Path | None = None
    distil: DistilConfig | None = None
    entities: Path | None = None
    compiled: bool | None = None

    @classmethod
    def parse(cls, job: Mapping[str, Any]) -> PretrainJob:
        """:raises InputError: naming the field that is missing, unknown, or at odds with the shards' meta.json."""
        parsed = super().parse(job)
        parsed._check_shards()
        parsed._check_teacher()
        parsed.pretrain.require_family(parsed.model.family, "pretrain job: pretrain")
        if parsed.sharded and parsed.pretrain.optimizer == "muon":
            raise InputError("pretrain job: pretrain.optimizer = 'muon' of a sharded training: expected adam")
        if (parsed.entities is not None) != (family := FAMILIES[parsed.model.family]).knowledge:
            wanted = "a folder" if family.knowledge else "none"
            raise InputError(f"pretrain job: entities = {parsed.entities}: {family.title} takes {wanted}")
        return parsed

    def _check_teacher(self) -> None:
        if (self.teacher is None) != (self.distil is None):
            raise InputError("pretrain job: teacher and distil: expected both or neither")
        if self.start is not None and self.distil is not None and self.distil.start == "teacher":
            raise InputError("pretrain job: start and distil.start = 'teacher': expected distil.start = 'random'")
        if self.teacher is None and (family := FAMILIES[self.model.family]).teacher:
            raise InputError(f"pretrain job: no teacher; expected one, from which {family.title} learns")

    def _check_shards(self) -> None:
        path = self.shards / "meta.json"
        fields = {"tokenizer_digest": str, "n_vocab": int}
        meta = read_object(path, "what the folder of encoded shards says of itself", fields)
        if meta["tokenizer_digest"] != self.tokenizer_digest:
            raise InputError(
                f"{path}: encoded with tokenizer {meta['tokenizer_digest']}, the job expects {self.tokenizer_digest}"
            )
        if meta["n_vocab"] != self.model.n_vocab:
            raise InputError(f"{path}: n_vocab = {meta['n_vocab']}, the job has model.n_vocab = {self.model.n_vocab}")


def snapshot_steps(total_steps: int) -> list[int]:
    """Updates after which the model is kept for good: the last one, half as many, a quarter, ... (Figure 2, right)."""
    return sorted({math.ceil(total_steps / 2**halvings) for halvings in range(_SNAPSHOTS)})


@dataclasses.dataclass
class ValidationMonitor:
    """Loss and perplexity on the held-out documents: on a part of them every `eval_every` updates, at last on all."""

    model: Network
    score: Callable[[int | None, Callable[[], bool]], dict[str, float]]
    """What held-out documents cost the model, of at most so many tokens (None: of all); see
    :meth:`gptcore.objectives.objective.PretrainingObjective.score`."""
    config: PretrainConfig
    total_steps: int
    n_targets: int
    """Tokens of all held-out documents."""
    world: World
    snapshots: Path
    """Folder where the model of each of :func:`snapshot_steps` but the last is kept, with its scores."""
    scores: dict[str, float] = dataclasses.field(default_factory=dict, init=False)
    """What the last evaluation gave: validation/loss, validation/perplexity, validation/tokens."""

    def __post_init__(self) -> None:
        self.n_targets = max(1, self.n_targets)  # none at all: the last evaluation is due, and says so
        self._snapshot_steps = snapshot_steps(self.total_steps)[:-1]

    def due(self, step: int) -> float:
        """Targets: after every `eval_every` updates, at every snapshot, and after the last, when all are scored."""
        if step == self.total_steps:
            return self.n_targets
        due = step % self.config.eval_every == 0 or step in self._snapshot_steps
        return min(self.config.eval_tokens, self.n_targets) if due else 0

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Scores over at most `eval_tokens` targets, the same ones each time; over all of them after the last."""
        max_tokens = None if step == self.total_steps else self.config.eval_tokens
        scores = self.score(max_tokens, interrupted)
        self.scores = {f"validation/{name}": value for name, value in scores.items()}
        if step in self._snapshot_steps and all(map(math.isfinite, scores.values())):  # else the loop refuses it
            folder, weights = self.snapshots / f"step-{step:07d}", whole(self.model.state_dict(), self.world)
            if self.world.main:
                self.model.save(folder, weights)
                write_json_atomic(folder / "meta.json", {"steps": step, **self.scores})
        return self.scores

    def state(self) -> dict[str, Any]:
        """The last scores: a job killed after its last checkpoint need not evaluate again."""
        return {"scores": self.scores}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        self.scores = state["scores"]


def sequences_at_once(model: NetworkConfig, device: str) -> int:
    """How many sequences of n_ctx tokens one process holds where no setting says so; ``device``: cpu or cuda."""
    larger = max(1.0, model.layers * model.n_embd / (12 * 768))
    n_tokens = _CPU_TOKENS if device == "cpu" else int(_GPU_TOKENS / larger)
    return max(1, n_tokens // model.n_ctx)


def _pretrain(job: PretrainJob, world: World, stop: process.StopRequest) -> None:
    config = job.pretrain
    learnt = _objective(job, world)
    held_in, held_out = (
        Text(learnt.shards(job.shards / split, job.entities), job.model, config, world)
        for split in ("train", "validation")
    )
    total_steps = config.total_steps(job.model.n_ctx, held_in.shards.n_tokens)
    data = learnt.data(held_in, config.micro_batch_size or sequences_at_once(job.model, world.device.type))
    generator = rng.generator(config.seed, "weights")
    model = build_model(job.model, generator)
    trained = learnt.network(model, config, generator)
    others = learnt.others(trained)
    known = {} if job.entities is None else learnt.know(model, job.entities)
    start = _start(job, model, others)
    objective = Step(trained, learnt.objective(trained, config))
    if world.sharded:
        shard(objective)  # from RAM: a GPU never holds more than its part and a block
    else:
        trained.to(world.device)
    score = partial(learnt.score, objective, held_out)
    monitor = ValidationMonitor(
        model, score, config, total_steps, held_out.shards.n_tokens, world, job.workspace / "snapshots"
    )
    training = Training(
        model=trained,
        objective=objective,
        data=data,
        monitor=monitor,
        settings=config,
        total_steps=total_steps,
        schedule=pretraining_schedule(config.decay, config.warmup_steps, total_steps),
        identity={
            "model": recorded(job.model),
            "pretrain": recorded(config),
            "tokenizer_digest": job.tokenizer_digest,
            **({"muon": "queries, keys and values apart"} if config.optimizer == "muon" else {}),
            **known,
            **start,
            **taught_by(job.teacher, job.distil),
        },
        keep_checkpoints=config.keep_checkpoints,
        checkpoint_every=config.checkpoint_every,
        muon=config.optimizer == "muon",
        compile=partial(_compile, trained) if _compiles(job, total_steps, world, model.drops) else None,
    )
    progress = Trainer(training, job.workspace, world, stop).run()
    finish_language_model(
        model,
        training,
        progress,
        job,
        world,
        tokenizer_digest=job.tokenizer_digest,
        n_positions=job.model.n_ctx,
        scores={"train/loss": progress.metrics["train/loss"], **monitor.scores},
        others=others,
    )


def _compiles(job: PretrainJob, total_steps: int, world: World, drops: bool) -> bool:
    """Whether the job says so, or where it leaves that open, whether it pays.

    Never with several processes: beneath DDP nothing was compiled in one try, and a process was aborted in another.
    """
    if world.size > 1:
        return False
    if job.compiled is not None:
        return job.compiled
    operations = pretraining_flops(job.model, job.pretrain, total_steps)
    return pays_to_compile(operations, world.device, pick_dtype(job.pretrain.precision, world.device), drops)


def _compile(trained: nn.Module) -> None:
    for part in trained.modules():
        if isinstance(part, Network):
            part.compile_layers()


def _objective(job: PretrainJob, world: World) -> PretrainingObjective:
    """What the family learns, with a teacher where the job names one."""
    family = FAMILIES[job.model.family]
    own: PretrainingObjective = family.part("objective")
    if job.teacher is None:
        return own
    assert job.distil is not None, "parse() saw to it"
    teacher = load_model(str(job.teacher))
    check_teacher(job.distil, job.model, teacher.config, str(job.teacher))
    distillation: Distillation = family.part("distillation")
    return distillation.pretraining(own, teacher.to(world.device), job.distil)


def _start(job: PretrainJob, model: Network, others: Mapping[str, Network]) -> dict[str, str]:
    """Take over the weights of the model that the job goes on from; what checkpoints say of it."""
    if job.start is None:
        return {}
    for folder, network in {job.start: model, **{job.start / name: other for name, other in others.items()}}.items():
        if network is not model and not folder.exists():
            continue  # of a model that was made elsewhere: others begin afresh
        stored = read_model(str(folder))
        check_same_shape(stored.config, network.config.started_from(stored.config), str(folder))
        network.go_on_from(stored.tensors, str(folder))
    return {"start": sha256_file(job.start / "model.safetensors")}


run = runner(PretrainJob, _pretrain)
"""Does the job of a file, see :func:`gptcore.training.job.runner`."""

if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
