"""What every stage has in common: build once, say what happened, leave a card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from gptcore.errors import InputError
from tasks.jobs.launch import JobDiverged
from tasks.report.card import Card, shown
from tasks.store.artifact import Recipe
from tasks.store.store import Built, Store
from tasks.tracking.logs import logger

STAGE_OPTIONS: dict[str, Any] = {
    # The store is the cache: Prefect's own would have to agree with it.
    "cache_policy": NO_CACHE,
    "persist_result": False,
}


def retry_unless_input_error(task: Any, run: Any, state: Any) -> bool:
    """Prefect's retry condition: a retry resumes a crashed job, but mends neither a wrong input nor a diverged loss."""
    try:
        state.result()
    except (InputError, JobDiverged):
        return False
    except Exception:  # whatever else it was: a retry goes on from the last checkpoint
        return True
    return False


JOB_OPTIONS: dict[str, Any] = {
    **STAGE_OPTIONS,
    "retries": 2,
    "retry_delay_seconds": 5,
    "retry_condition_fn": retry_unless_input_error,
}


def build(store: Store, recipe: Recipe, produce: Callable[[Path], dict[str, Any]], what: str) -> Built:
    """Find the artifact of ``recipe`` or make it with ``produce``, and log which of the two it was.

    :param what: the words for the log line, e.g. ``"tokenizer"``.
    """
    built = store.build(recipe, produce)
    how = "already in the store" if built.cached else f"built in {built.manifest['duration_seconds']:.1f} s"
    logger().info("%s %s: %s", what, built.artifact.digest[:12], how)
    return built


def publish_card(card: Card, key: str) -> None:
    """Show a card on the Prefect run's Artifacts page. ``key``: letters, digits and dashes."""
    number = next((f": {name} {shown(value)}" for name, value in card.results.items()), "")
    create_markdown_artifact(markdown=card.markdown(), key=key, description=f"{card.title}{number}")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for files on their way to a tracker."""
    with TemporaryDirectory(prefix="gptmill-") as folder:
        yield Path(folder)
