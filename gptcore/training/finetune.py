"""The fine-tuning job: a language model and an encoded dataset in, a scored task model out (sections 3.2, 3.3, 4.1).

`original` in the settings makes it the released recipe of Story Cloze, for every task: positions join the embedding
table, n_ctx is the longest example's, either side of the delimiter takes half of the room at most, rows are shuffled
plainly, the released Adam, the best parameters by dev accuracy. An LSTM has no positions, so its table stays as it is.

    python -m gptcore.training.finetune JOB.json

JOB.json: {"task": str, "finetune": fields of FinetuneConfig, "model": a pre-trained model's folder or null,
"model_config": fields of ModelConfig or LSTMConfig (needed where "model" is null), "dataset": folder of the encoded
dataset, "workspace": folder, "threads": int or null, "start": folder of a model fine-tuned on `from_task`, or null,
"teacher": folder of a model fine-tuned on the task, whose predictions are learnt, with "distil", fields of
DistilConfig, or null, "proposer": folder of the pre-trained teacher, which replaces words, with "pieces", folder with
its vocabulary's pieces.json, or null, "word_edges": which pieces begin and end words, where n-grams are counted}.

The workspace then holds model/ (of the chosen epoch: FinetuneConfig.select), predictions/, metrics.jsonl and
result.json, whose scores are fractions; while the job runs also checkpoints/ and best/. Exit codes:
gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_bytes_atomic, write_json_atomic
from gptcore.base.seeds import choose_rows
from gptcore.base.settings import recorded
from gptcore.base.types import Ints
from gptcore.config import DistilConfig, FinetuneConfig, NetworkConfig
from gptcore.data.masking import PieceTable
from gptcore.evaluation.predict import EVAL_ROW_SEED, answers_of, check_dataset, reader_for
from gptcore.families import FAMILIES
from gptcore.machine import process, rng
from gptcore.machine.device import pick_dtype
from gptcore.machine.distributed import World
from gptcore.models.classifier import ClassificationModel, Classifier, Head
from gptcore.models.low_rank import add_low_rank
from gptcore.models.network import Network, build_model, load_model
from gptcore.nlu.encoded import encoded_splits, encoded_task, read_encoded, recorded_pieces, write_encoded
from gptcore.nlu.forms import form_of
from gptcore.nlu.held_out import held_out_rows
from gptcore.nlu.inputs import RowReader, released_part_tokens
from gptcore.nlu.metrics import needs_threshold, stderrs_of_file
from gptcore.nlu.own_task import check_class_weights
from gptcore.nlu.registry import TaskSpec, task_settings
from gptcore.nlu.rows import Rows, numbered_rows, split_rows
from gptcore.objectives.distillation import Distillation, Trained
from gptcore.objectives.task import FinetuneData, finetune_objective
from gptcore.training.best_epoch import BestEpoch
from gptcore.training.decision import move_decision
from gptcore.training.job import Job, costs, runner, taught_by
from gptcore.training.loop import Monitor, Progression, Trainer, Training, Unwatched
from gptcore.training.ngrams import add_ngrams
from gptcore.training.optim import finetuning_schedule, rates_by_depth

_CHECKPOINT_SECONDS = 60.0
_KEEP_CHECKPOINTS = 2


_GIVEN_WITH = {
    "from_task": ("start",),
    "taught": ("teacher", "distil"),
    "augmentation": ("proposer", "pieces"),
    "ngrams": ("word_edges",),
}
"""Setting -> the fields of a job file that are given with it, and are null without it."""


@dataclasses.dataclass(frozen=True)
class FinetuneJob(Job):
    """A job file, checked."""

    NAME = "finetune"

    task: str
    finetune: FinetuneConfig
    model: Path | None
    dataset: Path
    model_config: NetworkConfig | None = None
    start: Path | None = None
    teacher: Path | None = None
    distil: DistilConfig | None = None
    proposer: Path | None = None
    pieces: Path | None = None
    word_edges: str | None = None

    @classmethod
    def parse(cls, job: Mapping[str, Any]) -> FinetuneJob:
        """:raises InputError: naming the field that is missing, unknown or of no use."""
        parsed = super().parse(job)
        settings = parsed.finetune
        shapeless = parsed.model is None and parsed.model_config is None
        if shapeless or settings.pretrained != (parsed.model is not None):
            wanted = "model = a folder" if settings.pretrained else "model = null and a model_config"
            raise InputError(f"finetune job: pretrained = {settings.pretrained}, expected {wanted}")
        for setting, names in _GIVEN_WITH.items():
            value = getattr(settings, setting)
            if any(bool(getattr(parsed, name)) != bool(value) for name in names):
                raise InputError(f"finetune job: {setting} = {value}, expected {' and '.join(names)} with it alone")
        return parsed


def task_model(job: FinetuneJob, spec: TaskSpec) -> tuple[Classifier, str | None]:
    """The network at the start of fine-tuning, and the digest of its tokenizer where it has one.

    Pre-trained blocks and embeddings, with new special rows and linear layer; or, the same shape and the same draws,
    everything new; or the whole network of another task's model, special rows included, with a new linear layer.

    :raises InputError: if the folder holds no model, or one with fewer blocks than ``n_transfer``.
    """
    config = job.finetune
    draws = rng.generator(config.seed, "weights")
    digest: str | None = None
    source: Network | None = None
    if job.start is not None:
        tuned, about = Classifier.load(job.start)
        source, digest = tuned.network, about.get("tokenizer_digest")
    elif job.model is not None:
        source = load_model(str(job.model))
        if (meta := job.model / "meta.json").is_file():  # absent from imported models
            digest = read_json(meta).get("tokenizer_digest")  # a model kept on the way has none
    shape = job.model_config if source is None else source.config
    assert shape is not None, "parse() saw to it"
    family, form = FAMILIES[shape.family], form_of(spec)
    kind: type[Classifier] = family.part("head")
    config.require_family(family.name, "finetune job: finetune")
    if job.start is None:
        family.require_form(spec.name, form.places)
    changes: dict[str, Any] = {"n_special": family.part("inputs").n_special}
    changes |= {"original": True} if config.original and hasattr(shape, "original") else {}
    changes |= {"linked": False} if config.unlinked else {}
    if source is None:
        network = build_model(kind.network_settings(shape, **changes), draws)
    else:
        network = source if job.start else source.adapt(n_transfer=config.n_transfer, generator=draws, **changes)
    rate = config.span_pdrop or 0.0 if form.over_positions else config.clf_pdrop
    head = Head(spec.form, form.n_outputs(spec), rate, config.pooling, config.words)
    model = kind.over(network, str(job.model), head, draws)
    if config.lora_rank:
        add_low_rank(model.network, config.lora_rank, draws)
    return model, digest


def _finetune_once(job: FinetuneJob, world: World, stop: process.StopRequest) -> None:
    if not (job.workspace / "result.json").is_file():
        _finetune(job, world, stop)
    for leftover in ("checkpoints", "best", "augmented"):  # three times the model's size, and of no more use
        shutil.rmtree(job.workspace / leftover, ignore_errors=True)


def _finetune(job: FinetuneJob, world: World, stop: process.StopRequest) -> None:
    config, spec = job.finetune, encoded_task(job.dataset, job.task)
    check_class_weights(spec, config)
    model, model_digest = task_model(job, spec)
    meta = check_dataset(job.dataset, spec, model_digest, model.network.config.n_vocab, str(job.model))
    part_tokens = released_part_tokens(model.network.config.n_ctx) if config.original else None
    reader = reader_for(model, spec, part_tokens)
    numbers = choose_rows(len(read_encoded(job.dataset, "train")), config.max_train_rows, config.seed)
    held_out = held_out_rows(job.dataset, numbers) if config.select else numbers[:0]
    trained = np.setdiff1d(numbers, held_out)
    rows = {"train": _training_rows(job, model, reader, "augmented", trained)}
    rows |= {"validation": numbered_rows(reader, job.dataset, "train", held_out)} if len(held_out) else {}
    scored = [split for split in encoded_splits(job.dataset) if split != "train"]
    rows |= {split: split_rows(reader, job.dataset, split, config.max_eval_rows, EVAL_ROW_SEED) for split in scored}
    if config.original:
        assert isinstance(model, ClassificationModel), "the settings are refused for others"
        # fewer positions, so fewer rows in the language model's softmax
        model.gpt = model.gpt.adapt(reader.n_special, n_ctx=max(part.longest for part in rows.values()))
    data = FinetuneData(rows["train"], config, repeats=model.shares_choices)
    extra = {**task_settings(spec), "labels": list(spec.labels), "tokenizer_digest": meta["tokenizer_digest"]}
    if part_tokens is not None:
        extra["part_tokens"] = part_tokens  # who uses the model must cut as it was trained
    monitor = BestEpoch(
        model=model,
        spec=spec,
        rows=rows["validation" if len(held_out) else "dev"],
        held_out=len(held_out) > 0,
        batches_per_epoch=data.batches_per_epoch,
        world=world,
        dtype=pick_dtype(config.precision, world.device),
        folder=job.workspace / "best",
        extra=extra,
        original=config.original,
        first=data.batches_per_epoch * (config.layer_epochs or 0),
    )
    training = _training(job, model, data, monitor, extra, world)
    if config.select == "refit":
        rows["train"] = _training_rows(job, model, reader, "augmented/again", numbers)
        progress = _refit(job, training, rows["train"], monitor, world, stop)
    else:
        progress = Trainer(training, job.workspace, world, stop).run()
        shutil.copytree(monitor.best / "model", job.workspace / "model", dirs_exist_ok=True)
    beside = {"validation/chance": monitor.chance} if monitor.held_out else {}
    if config.ngrams and job.word_edges is not None and not form_of(spec).places:
        learnt, every = (numbered_rows(reader, job.dataset, "train", part) for part in (trained, numbers))
        folder = job.workspace / "model"
        beside |= add_ngrams(
            folder, config.ngrams, job.word_edges, learnt, every, monitor, interrupted=lambda: stop.requested
        )
    if monitor.held_out and needs_threshold(spec):
        beside["decision_shift"] = monitor.shift
        if monitor.shift:
            move_decision(job.workspace / "model", monitor.shift)
    _finish(job, spec, rows, monitor, progress, beside, world, stop)


def _training(
    job: FinetuneJob, model: Classifier, data: FinetuneData, monitor: Monitor, extra: Mapping[str, Any], world: World
) -> Training:
    """A training of all epochs.

    :raises InputError: a teacher that does not fit.
    """
    config = job.finetune
    n_layer_steps = data.batches_per_epoch * (config.layer_epochs or 0)
    total_steps = data.batches_per_epoch * config.epochs + n_layer_steps
    if job.teacher is not None and job.distil is not None:
        teacher = Classifier.load(job.teacher)[0].to(world.device)
        trained = _distillation(model).finetuning(model, teacher, data, job.distil, config, str(job.teacher))
    else:
        trained = Trained(model, finetune_objective(model, config.lm_coef), data)
    return Training(
        model=trained.model,
        objective=trained.objective,
        data=trained.data,
        monitor=monitor,
        settings=config,
        total_steps=total_steps,
        schedule=finetuning_schedule(config, n_layer_steps, total_steps),
        identity={
            "finetune": recorded(config),
            "model": recorded(model.network.config),
            **extra,
            **taught_by(job.teacher, job.distil),
        },
        keep_checkpoints=_KEEP_CHECKPOINTS,
        checkpoint_every=data.batches_per_epoch,
        checkpoint_seconds=_CHECKPOINT_SECONDS,
        rates=rates_by_depth(model, config),
    )


def _refit(
    job: FinetuneJob, first: Training, rows: Rows, monitor: BestEpoch, world: World, stop: process.StopRequest
) -> Progression:
    """Choose an epoch by held-out rows, then train a new network on all rows up to there; its model is in its place.

    The rate is at every epoch what it was in the first training, of which this one is the same with more rows.

    :param first: the training that chooses.
    :param rows: all that are trained on.
    :return: what both did.
    """
    model, _ = task_model(job, monitor.spec)
    data = FinetuneData(rows, job.finetune, repeats=model.shares_choices)
    second = _training(job, model, data, Unwatched(), monitor.extra, world)
    chosen, log = monitor.folder / "chosen.json", job.workspace / "metrics.jsonl"
    if not chosen.is_file():
        progress = Trainer(dataclasses.replace(first, after=second.total_steps), job.workspace, world, stop).run()
        choice = {"best": monitor.state(), "progression": dataclasses.asdict(progress), "log_bytes": log.stat().st_size}
        write_json_atomic(chosen, choice)
    choice = read_json(chosen)
    monitor.restore(choice["best"])
    before, left_out = Progression(**choice["progression"]), job.finetune.epochs - int(monitor.epoch)
    second = dataclasses.replace(
        second,
        total_steps=second.total_steps - left_out * data.batches_per_epoch,
        checkpoints="checkpoints/again",
        before=before,
        log_bytes=choice["log_bytes"],
    )
    progress = Trainer(second, job.workspace, world, stop).run()
    model.save(job.workspace / "model", monitor.settings)
    return dataclasses.replace(progress, step=before.step + progress.step)


def _training_rows(job: FinetuneJob, model: Classifier, reader: RowReader, name: str, numbers: Ints) -> Rows:
    """The training rows of these numbers, and others made from them where the settings say so.

    :param name: of the folder in the workspace that these are kept in.
    :raises InputError: a task whose answers are places of the text that would change.
    """
    if job.proposer is None or job.pieces is None:
        return numbered_rows(reader, job.dataset, "train", numbers)
    if form_of(reader.spec).places:
        raise InputError(
            f"finetune.augmentation: {reader.spec.name} points at places; expected a task with classes or choices"
        )
    out = job.workspace / name
    if not (out / "meta.json").is_file():  # written last
        out.mkdir(parents=True, exist_ok=True)
        pieces, table = recorded_pieces(job.dataset), PieceTable.read(job.pieces)
        assert pieces is not None, "an encoder's rows"
        train = read_encoded(job.dataset, "train")
        kept = [train[int(row)] for row in numbers]
        more = _distillation(model).augmented(kept, job.proposer, pieces, table, job.finetune)
        write_encoded(out / "train.arrow", more, table.n_vocab)
        write_bytes_atomic(out / "meta.json", (job.dataset / "meta.json").read_bytes())
    return split_rows(reader, out, "train")


def _distillation(model: Classifier) -> Distillation:
    """How the networks of a model's family learn from a teacher."""
    part: Distillation = FAMILIES[model.network.config.family].part("distillation")
    return part


def _finish(
    job: FinetuneJob,
    spec: TaskSpec,
    rows: Mapping[str, Rows],
    monitor: BestEpoch,
    progress: Progression,
    beside: Mapping[str, float],
    world: World,
    stop: process.StopRequest,
) -> None:
    """Score the rows that nothing was chosen on and that carry labels with the model, and write result.json."""
    folder, held_out = job.workspace / "predictions", monitor.held_out
    folder.mkdir(exist_ok=True)
    if not held_out:
        write_bytes_atomic(folder / "dev.jsonl", (monitor.best / "predictions.jsonl").read_bytes())
    chosen_on, collapsed = ("validation" if held_out else "dev"), monitor.collapsed
    scores = {f"{chosen_on}/{name}": value for name, value in monitor.scores.items()}
    started = time.monotonic()
    model, saved = Classifier.load(job.workspace / "model")
    model.to(world.device)
    for split in [split for split in rows if split not in ("train", chosen_on)]:
        logits = monitor.logits(model, rows[split], lambda: stop.requested)
        answers = answers_of(spec, rows[split], logits).using(saved)
        answers.write(spec, folder / f"{split}.jsonl")
        scores |= {f"{split}/{name}": value for name, value in answers.scores(spec).items()}
        collapsed = answers.collapsed if split == "dev" else collapsed
    for predictions in sorted(folder.glob("*.jsonl")):
        stderrs = stderrs_of_file(spec, predictions)
        scores |= {f"{predictions.stem}/{name}": value for name, value in stderrs.items()}
    test_seconds = time.monotonic() - started
    refit = job.finetune.select == "refit"
    result = {
        "task": spec.name,
        "seed": job.finetune.seed,
        **scores,
        "best_epoch": monitor.epoch,
        "best_step": monitor.step,
        "majority_collapse": collapsed,
        "rows": {split: part.n_rows for split, part in rows.items()},
        "truncated": sum(part.truncated for split, part in rows.items() if not (refit and split == "validation")),
        **costs(progress, job.finetune.precision, world),
        "wall_seconds": progress.wall_seconds + beside.get("ngrams_seconds", 0.0) + test_seconds,
        "train/loss": progress.metrics["train/loss"],
        **beside,
    }
    write_json_atomic(job.workspace / "result.json", result)


run = runner(FinetuneJob, _finetune_once, alone=True)
"""Does the job of a file, see :func:`gptcore.training.job.runner`."""

if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
