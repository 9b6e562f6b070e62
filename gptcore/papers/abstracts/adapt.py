"""The job that fine-tunes a language model on the documents of a domain: shards and a model in, a model out.

    python -m gptcore.papers.abstracts.adapt JOB.json

JOB.json: {"adapt": fields of AdaptConfig, "model": the folder of a pre-trained model (from random weights its shape and
vocabulary are used alone), "n_special": rows that the embedding gains, "shards": folder with train/, valid/ and test/,
"tokenizer_digest": str, "workspace": folder, "threads": int or null}.

The workspace then holds model/, checkpoints/, metrics.jsonl and result.json. Exit codes: gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, sha256_file
from gptcore.base.settings import recorded
from gptcore.data.feed import Objective
from gptcore.data.sampler import Blocks
from gptcore.data.shards import Shards
from gptcore.families import FAMILIES
from gptcore.machine import process, rng
from gptcore.machine.distributed import Step, World
from gptcore.models.network import LanguageModel, build_model, load_language_model, next_token_network
from gptcore.objectives.next_token import PretrainData, language_model_objective
from gptcore.objectives.objective import perplexity
from gptcore.papers.abstracts.config import AdaptConfig
from gptcore.training.job import Job, finish_language_model, runner
from gptcore.training.loop import Monitor, Trainer, Training
from gptcore.training.optim import warmup_linear

SPLITS = ("train", "valid", "test")
_EVAL_TOKENS = 8192  # of a batch
_KEEP_CHECKPOINTS = 2


@dataclasses.dataclass(frozen=True)
class AdaptJob(Job):
    """A job file, checked."""

    NAME = "adapt"

    adapt: AdaptConfig
    model: Path
    n_special: int
    shards: Path
    tokenizer_digest: str


def adapted_model(job: AdaptJob) -> LanguageModel:
    """The network at the start: the pre-trained one with new rows and positions for a block, or all of it drawn.

    :raises InputError: no model there, one of another tokenizer, or one of fewer positions than a block.
    """
    config, draws = job.adapt, rng.generator(job.adapt.seed, "weights")
    source = load_language_model(str(job.model))
    if (family := FAMILIES[source.config.family]).ablation:
        raise InputError(f"{job.model}: found {family.network_title}, expected a Transformer")
    meta = job.model / "meta.json"  # an imported model has none
    known = read_json(meta).get("tokenizer_digest", job.tokenizer_digest) if meta.is_file() else job.tokenizer_digest
    if known != job.tokenizer_digest:
        raise InputError(f"{job.model}: trained with tokenizer {known}, the job expects {job.tokenizer_digest}")
    if config.block_size > source.config.n_ctx:  # from random weights too: the arms differ in nothing else
        raise InputError(f"{job.model}: n_ctx = {source.config.n_ctx}, blocks have {config.block_size} tokens")
    if config.pretrained:
        return source.adapt(job.n_special, n_ctx=config.block_size, generator=draws)
    shape = dataclasses.replace(source.config, n_special=job.n_special, n_ctx=config.block_size)
    return next_token_network(build_model(shape, draws), str(job.model))


class BlockMonitor(Monitor):
    """Loss and perplexity on blocks of validation documents, some in the course of training, all at its end."""

    def __init__(
        self, objective: Objective, blocks: Blocks, config: AdaptConfig, total_steps: int, world: World
    ) -> None:
        self._objective, self._blocks, self._config, self._world = objective, blocks, config, world
        self._total_steps = total_steps
        self._every = math.ceil(total_steps / config.evaluations)

    def due(self, step: int) -> bool:
        """Whether blocks are scored after ``step`` updates: as often as the settings say, and after the last one."""
        return step % self._every == 0 or step == self._total_steps

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Scores over the same blocks each time."""
        scores = self.score(self._blocks, self._config.eval_blocks, interrupted)
        return {f"validation/{name}": value for name, value in scores.items()}

    def score(self, blocks: Blocks, most: int | None, interrupted: Callable[[], bool]) -> dict[str, float]:
        """loss (nats a token), perplexity and tokens of some blocks; None: of all."""
        rows = max(1, _EVAL_TOKENS // self._config.block_size)
        return perplexity(self._objective, blocks.in_order(rows, most), self._world, interrupted)


def _adapt(job: AdaptJob, world: World, stop: process.StopRequest) -> None:
    config = job.adapt
    model = adapted_model(job).to(world.device)
    blocks = {
        split: Blocks(Shards(job.shards / split), config.block_size, rng.derive_seed(config.seed, "blocks"))
        for split in SPLITS
    }
    blocks_per_update = config.batch_size * config.accumulation
    total_steps = max(1, math.ceil(config.epochs * blocks["train"].count / blocks_per_update))
    objective = Step(model, language_model_objective(model))
    monitor = BlockMonitor(objective, blocks["valid"], config, total_steps, world)
    start = {"start": sha256_file(job.model / "model.safetensors")} if config.pretrained else {}
    training = Training(
        model=model,
        objective=objective,
        data=PretrainData(blocks["train"], blocks_per_update, config.batch_size, world),
        monitor=monitor,
        settings=config,
        total_steps=total_steps,
        schedule=warmup_linear(0.0, total_steps),
        identity={
            "adapt": recorded(config),
            "model": recorded(model.config),
            "tokenizer_digest": job.tokenizer_digest,
            **start,
        },
        keep_checkpoints=_KEEP_CHECKPOINTS,
        checkpoint_every=math.ceil(total_steps / config.evaluations),
    )
    progress = Trainer(training, job.workspace, world, stop).run()
    model.eval()
    scores: dict[str, float] = {}
    for split, of_split in blocks.items():
        most = config.eval_blocks if split == "train" else None
        figures = monitor.score(of_split, most, lambda: world.agree(stop.requested)[0])
        scores |= {f"{split}/{name}": value for name, value in figures.items()}
    finish_language_model(
        model,
        training,
        progress,
        job,
        world,
        tokenizer_digest=job.tokenizer_digest,
        n_positions=config.block_size,
        scores=scores,
    )


run = runner(AdaptJob, _adapt)
"""Does the job of a file, see :func:`gptcore.training.job.runner`."""

if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
