"""The file of a sweep, read and checked whole before anything runs.

preset = "small"                        # what every trial differs from; none with --checkpoint: the one that suits it
objective = "validation/bits_per_byte"  # or validation/loss, or validation/score: the mean over `tasks`, x 100
trials = 12
rungs = 3                               # 3
eta = 3                                 # 3: the best third of each rung goes on, to a training three times as long
seed = 0                                # 0: names the draws
tasks = ["rte", "sst2"]                 # validation/score: fine-tuned from each trial's model, or all from --checkpoint
seeds = 1                               # 1: fine-tunes of each task; the mean counts

[settings.pretrain]                     # what all trials have in common, as a --config file has it
steps = 3200

[space.pretrain]                        # what each trial draws: settings that the preset, of its family, has
lr = { low = 5e-4, high = 5e-3, scale = "log" }
batch_size = [8, 16, 32]

[together.size]                         # settings that go together are drawn together, by their label
narrow = { model = { n_embd = 192, n_inner = 768 } }
wide = { model = { n_embd = 320, n_inner = 1280 } }

Trials are halved successively (Jamieson and Talwalkar 2016; one bracket of Hyperband, Li et al. 2018): on rung r of R
every trial that is left trains for a share eta^(r - R) of its full length, and the best 1/eta of them go on. The
training of each rung is whole, with a schedule of its own: the learning rate falls over the run's own length, so a
longer run is another one from its first update on, and none goes on from a shorter one's weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptcore.base.errors import InputError, require
from gptcore.base.settings import flatten
from gptcore.config import FINE_TUNING, FinetuneConfig, Preset, PretrainConfig, preset_named
from gptcore.nlu.own_task import is_task_file
from gptcore.nlu.registry import task_spec
from gptcore.nlu.toml_fields import TomlFields
from gptcore.papers.sweep.space import (
    Axis,
    Draw,
    Overrides,
    check_storable,
    draw,
    merged,
    named,
    nested,
    space_axes,
    together_axes,
)

LOSS, BITS, SCORE, DEV_SCORE = "validation/loss", "validation/bits_per_byte", "validation/score", "dev/score"
SCORES = (SCORE, DEV_SCORE)
"""The objectives that score fine-tunes: on the rows that chose their epochs, by default held-out training rows; and on
dev rows, as every score was once."""
OBJECTIVES = {LOSS: "nats a token", BITS: "bits a byte", SCORE: "x 100", DEV_SCORE: "x 100"}
"""Name of an objective -> its unit."""
_DECIDED = {
    "model.n_vocab": "the tokenizer",
    "model.n_special": "pre-training and fine-tuning",
    "finetune.seed": "the sweep's seeds",
}
"""Setting that a stage fills in -> what it follows from."""


@dataclass(frozen=True)
class Rung:
    """One round of a sweep."""

    number: int
    """The first rung has 1."""
    trials: int
    """How many trials begin the rung, where none before them failed."""
    part: int
    """The rung's share of the full length is 1 / ``part``."""


def rungs(trials: int, eta: int, count: int) -> list[Rung]:
    """``trials`` begin the first of ``count`` rungs; ``trials // eta ** r`` the one that follows r others.

    :raises InputError: none would be left for the last one.
    """
    if trials < (least := eta ** (count - 1)):
        raise InputError(f"trials = {trials}; expected {least} or more, for {count} rungs with eta = {eta}")
    return [Rung(r + 1, trials // eta**r, eta ** (count - 1 - r)) for r in range(count)]


def survivors(objectives: Mapping[int, float | None], keep: int, lower_is_better: bool) -> list[int]:
    """The ``keep`` best trials, best first; of equals the one with the lower number.

    :param objectives: trial -> what it reached; None: it failed, and does not go on whatever room is left.
    """
    sign = 1 if lower_is_better else -1
    ranked = sorted((sign * value, trial) for trial, value in objectives.items() if value is not None)
    return [trial for _, trial in ranked[:keep]]


def shortened(config: PretrainConfig, part: int) -> PretrainConfig:
    """A pre-training of 1 / ``part`` of the length, its warm-up shorter by as much; itself where ``part`` is 1."""
    if part == 1:
        return config
    warmup = round(config.warmup_steps / part)
    if config.steps is None:
        return dataclasses.replace(config, epochs=config.epochs / part, warmup_steps=warmup)
    return dataclasses.replace(config, steps=max(1, round(config.steps / part)), warmup_steps=warmup)


def fewer_rows(config: FinetuneConfig, part: int, rows: int) -> FinetuneConfig:
    """A fine-tuning on 1 / ``part`` of its training rows; itself where ``part`` is 1.

    :param rows: that the training split has.
    """
    if part == 1:
        return config
    used = min(rows, config.max_train_rows or rows)
    return dataclasses.replace(config, max_train_rows=max(1, round(used / part)))


@dataclass(frozen=True)
class Trial:
    """One draw, and the settings that it stands for."""

    number: int
    """The first trial has 1."""
    drawn: Draw
    """Axis -> the value that was drawn on it."""

    overrides: Overrides
    """All settings in which the trial differs from the preset: what a --config file with them holds."""
    preset: Preset


@dataclass(frozen=True)
class Plan:
    """A sweep, checked."""

    preset: str
    objective: str
    tasks: tuple[str, ...]
    seeds: int
    seed: int
    eta: int
    settings: Overrides
    axes: tuple[Axis, ...]
    rungs: tuple[Rung, ...]
    trials: tuple[Trial, ...]

    @property
    def lower_is_better(self) -> bool:
        """Whether the objective is a loss."""
        return self.objective not in SCORES

    @property
    def unit(self) -> str:
        """The unit of the objective."""
        return OBJECTIVES[self.objective]

    @property
    def pretrains(self) -> bool:
        """Whether anything that a trial draws changes the pre-trained model."""
        return any(not name.startswith(("finetune.", "tasks.")) for axis in self.axes for name in axis.fields)


def read_plan(table: Mapping[str, Any], where: str, from_checkpoint: bool = False) -> Plan:
    """The sweep that a file describes, whose fields the head of this module lists.

    :param table: what the TOML file holds.
    :param where: the file, for the error messages.
    :param from_checkpoint: whether all trials fine-tune one given model; then none pre-trains.
    :raises InputError: a field that is unknown, missing or of the wrong type, a value of no use, or settings that do
        not fit each other.
    """
    given = TomlFields(where, table)
    preset = given.one_of("preset", tuple(FINE_TUNING))
    objective = given.one_of("objective", tuple(OBJECTIVES))
    tasks = _tasks(given, objective)
    trials, seeds = given.whole("trials", None, 1, 1000), given.whole("seeds", 1, 1, 100)
    if objective not in SCORES and "seeds" in given:
        raise InputError(f"{where}: seeds = {seeds}: fine-tunes of a task; expected the objective {SCORE}")
    count, eta = given.whole("rungs", 3, 1, 10), given.whole("eta", 3, 2, 1000)
    seed = given.whole("seed", 0, 0, (1 << 63) - 1)
    settings, space, together = given.table("settings"), given.table("space"), given.table("together")
    given.check_all_read()
    with named(f"{where}: settings"):
        check_storable(settings)
        base = preset_named(preset, settings, f"{where}: settings")
        for task in settings.get("tasks", {}):
            task_spec(task)
    axes = (*space_axes(space, base, where), *together_axes(together, base, where))
    _check_axes(axes, settings, objective, tasks, from_checkpoint, where)
    _check_effects(axes, base, settings, tasks, where)
    with named(where):
        rounds = tuple(rungs(trials, eta, count))
        drawn = draw(axes, trials, seed)
    whole = tuple(_trials(drawn, axes, preset, settings, tasks, where))
    return Plan(preset, objective, tasks, seeds, seed, eta, settings, axes, rounds, whole)


def _tasks(given: TomlFields, objective: str) -> tuple[str, ...]:
    """The tasks that the objective is of: of the twelve by name, a user's own by the address of its file, read later.

    :raises InputError: an unknown one; one twice; some, or none, where the objective says otherwise.
    """
    names = given.texts("tasks")
    with named(f"{given.url}: tasks"):
        tasks = tuple(name if is_task_file(name) else task_spec(name).name for name in names)
    scored = objective in SCORES
    wanted = f"those that {SCORE} is the mean of" if scored else f"none with the objective {objective}"
    require(scored == bool(names), f"{given.url}: tasks = {list(names)}; expected {wanted}")
    return tasks


def _check_axes(
    axes: Sequence[Axis], settings: Overrides, objective: str, tasks: Sequence[str], from_checkpoint: bool, where: str
) -> None:
    """Check that each setting is decided in one place, and that it can change the objective.

    :raises InputError: naming the first that is not.
    """
    require(axes, f"{where}: found nothing to choose, expected [space.SECTION] or [together.NAME]")
    taken = dict.fromkeys(flatten(settings), "settings")
    for name in [*taken, *(name for axis in axes for name in axis.fields)]:
        if name.endswith(".from_task"):
            raise InputError(f"{where}: {name}: trials start from the checkpoint itself; expected no such setting")
    for axis in axes:
        for name in axis.fields:
            decided = taken.get(name)
            require(not decided, f"{where}: {name} is in {decided} and in {axis.place}; expected it in one")
            taken[name] = axis.place
            tunes = name.startswith(("finetune.", "tasks."))
            source = _DECIDED["finetune.seed"] if tunes and name.endswith(".seed") else _DECIDED.get(name)
            require(not source, f"{where}: {name} follows from {source}")
            held_out = (".max_train_rows", ".select") if objective == SCORE else (".select",)
            if name.endswith((".max_eval_rows", *held_out)):
                raise InputError(f"{where}: {name}: trials compare on the same rows; expected it in settings")
            if name.startswith("tasks.") and name.split(".")[1] not in tasks:
                raise InputError(f"{where}: {name}: expected one of the sweep's tasks: {', '.join(tasks) or 'none'}")
            if tunes and objective not in SCORES:
                raise InputError(f"{where}: {name} changes nothing of {objective}; expected the objective {SCORE}")
            if not tunes and from_checkpoint:
                raise InputError(f"{where}: {name} changes nothing of a given --checkpoint; expected fine-tuning's")
            if name.startswith("tokenizer.") and objective == LOSS:
                raise InputError(
                    f"{where}: {name}: a loss a token does not compare between vocabularies; expected the objective "
                    f"{BITS} or {SCORE}"
                )
    if from_checkpoint and objective not in SCORES:
        raise InputError(f"{where}: objective = {objective!r} says nothing of a given --checkpoint; expected {SCORE}")


def _check_effects(axes: Sequence[Axis], base: Preset, settings: Overrides, tasks: Sequence[str], where: str) -> None:
    """Check that no other setting takes the place of what an axis draws.

    :raises InputError: naming the first of which that is so.
    """
    drawn = {name for axis in axes for name in axis.fields}
    if "pretrain.epochs" in drawn and (base.pretrain.steps is not None or "pretrain.steps" in drawn):
        raise InputError(f"{where}: pretrain.epochs changes nothing beside pretrain.steps; expected one of the two")
    decided = drawn | flatten(settings).keys()
    for name in sorted(drawn):
        section, _, field = name.partition(".")
        if section == "finetune" and tasks and all(f"tasks.{task}.{field}" in decided for task in tasks):
            raise InputError(f"{where}: {name} changes nothing: each of {', '.join(tasks)} has its own {field}")


def _trials(
    drawn: Sequence[Draw], axes: Sequence[Axis], preset: str, settings: Overrides, tasks: Sequence[str], where: str
) -> Iterator[Trial]:
    """The trials with all their settings.

    What they draw for fine-tuning holds for the tasks that the preset, and not the file, makes exceptions of, too.

    :raises InputError: settings that do not fit each other, or under which nothing is learnt.
    """
    said, excepted = settings.get("tasks", {}), FINE_TUNING[preset]().tasks
    own = {task: set(excepted.get(task, {})) - set(said.get(task, {})) for task in tasks}
    for number, values in enumerate(drawn, start=1):
        chosen = merged(*(axis.overrides(values[axis.name]) for axis in axes))
        tuned = chosen.get("finetune", {})
        too = [nested(f"tasks.{task}.{name}", tuned[name]) for task in own for name in tuned if name in own[task]]
        overrides = merged(settings, *too, chosen)
        place = f"{where}: trial {number} ({', '.join(f'{name} {value}' for name, value in values.items())})"
        with named(place):
            resolved = preset_named(preset, overrides, place)
            merges = resolved.tokenizer.n_merges
            require(merges > 0, f"tokenizer.n_merges = {merges}: expected 1 or more")
        yield Trial(number, values, overrides, resolved)
