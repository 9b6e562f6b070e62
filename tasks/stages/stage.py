"""What every stage has in common: its version, and that it builds once and says what happened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from prefect.cache_policies import NO_CACHE

from gptcore.base.errors import InputError, unwritable
from tasks.jobs.launch import JobDiverged, JobInterrupted, jobs_are_stopped
from tasks.stages.table import Versions
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Built, Store
from tasks.tracking.logs import Made, logger

VERSIONS = Versions()
"""Stage -> a number that is raised by hand when its code starts to give different output for the same settings."""

STAGE_OPTIONS: dict[str, Any] = {
    # The store is the cache: Prefect's own would have to agree with it.
    "cache_policy": NO_CACHE,
    "persist_result": False,
}


def retry_unless_input_error(task: Any, run: Any, state: Any) -> bool:
    """Prefect's retry condition: a retry resumes a crashed job, but mends neither a wrong input nor a diverged loss.

    Nor does it make room to write. And there is none in a process that ends: its user waits for the prompt.
    """
    try:
        state.result()
    except (InputError, JobDiverged):
        return False
    except Exception as error:  # whatever else it was: a retry goes on from the last checkpoint
        if (isinstance(error, JobInterrupted) and jobs_are_stopped()) or unwritable(error):
            return False
        reason = str(error).partition("\n")[0]
        logger().warning("%s failed and is tried again: %s: %s", run.name, type(error).__name__, reason)
        return True
    return False


def recipe_of(stage: str, config: Mapping[str, Any], inputs: Mapping[str, Artifact | str]) -> Recipe:
    """The recipe of an artifact of ``stage``, in its present version."""
    return Recipe(stage, VERSIONS[stage], config, inputs)


CHECKPOINTS = ("checkpoints",)
"""What a training's job goes on from (:class:`gptcore.training.loop.Trainer`). Nobody reads them once it is done: a
fine-tune, and a pre-training that goes on from this one, begin with the weights and a fresh optimiser."""

JOB_OPTIONS: dict[str, Any] = {
    **STAGE_OPTIONS,
    "retries": 2,
    "retry_delay_seconds": 5,
    "retry_condition_fn": retry_unless_input_error,
}


_made_for_us: set[str] = set()
"""Digests of recipes that another process has just followed because this one asked it to."""


def made_for_us(recipe: Recipe) -> None:
    """Another process has just made this one's artifact: :func:`build`, which finds it, will say that it was made."""
    _made_for_us.add(recipe.digest)


def build(
    store: Store,
    recipe: Recipe,
    produce: Callable[[Path], dict[str, Any]],
    stage: str,
    made: Callable[[Mapping[str, Any]], str | Mapping[str, int]],
    item: str = "",
    unit: str = "task",
    transient: Collection[str] = (),
) -> Built:
    """Find the artifact of ``recipe`` or make it with ``produce``, and log what it is and which of the two it was.

    :param stage: what people call it: ``"corpus"``, ``"datasets"``.
    :param made: the manifest's counts in few words, or as amounts that add up over the items.
    :param item: which one of several: ``"mnli"``.
    :param unit: what an item is.
    :param transient: see :meth:`Store.build`.
    """
    built = store.build(recipe, produce, transient)
    seconds, digest = built.manifest["duration_seconds"], built.artifact.short
    cached = built.cached and recipe.digest not in _made_for_us
    _made_for_us.discard(recipe.digest)
    news = Made(stage, made(built.counts), seconds, cached, digest, item, unit)
    what = news.made if isinstance(news.made, str) else ", ".join(f"{n:,} {name}" for name, n in news.made.items())
    how = "already in the store" if cached else f"built in {seconds:.1f} s"
    logger().info("%s", f"{stage} {item}".strip() + f" {digest}: {what}; {how}", extra={"news": news})
    return built
