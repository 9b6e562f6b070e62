"""How far many trainings side by side are."""

from __future__ import annotations

import time
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, as_completed

from tasks.tracking.logs import Underway, duration, progress

_SHOWN = 1.0  # seconds between two states of the progress on Prefect's page
_TRAINED = 2.0  # seconds: runs that take less on average were found in the store, and tell nothing of the others


def show_progress(futures: list[PrefectFuture[Any]], stage: str) -> None:
    """One progress artifact for all of ``futures``, until the last has ended, however it ended.

    :param stage: what people call them: letters and dashes.
    """
    start = time.monotonic()
    artifact = cast(UUID, create_progress_artifact(0.0, key=f"{stage}-progress", description="starting"))
    progress(Underway(stage, 0.0, f"0 of {len(futures)}"))
    shown = start
    for done, _ in enumerate(as_completed(futures), start=1):
        each = (time.monotonic() - start) / done
        eta = f", ETA {duration(each * (len(futures) - done))}" if each >= _TRAINED else ""
        words = f"{done} of {len(futures)}{eta}"
        if done == len(futures) or time.monotonic() - shown > _SHOWN:  # those in the store come all at once
            update_progress_artifact(artifact, 100.0 * done / len(futures), description=words)
            shown = time.monotonic()
        progress(Underway(stage, done / len(futures), words), line=True)
