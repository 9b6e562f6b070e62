"""How far many trainings side by side are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, as_completed

from tasks.tracking.logs import Underway, duration, progress

_SHOWN = 1.0  # seconds between two states of the progress on Prefect's page


def show_progress(work: Mapping[PrefectFuture[Any], float], stage: str) -> None:
    """One progress artifact for all of some trainings, until the last has ended, however it ended.

    The ETA is for the work that is left, at the rate of what has ended. Long trainings under way count when they end:
    until then it is too long.

    :param work: floating-point operations that each training still has to do.
    :param stage: what people call them: letters and dashes.
    """
    start = time.monotonic()
    artifact = cast(UUID, create_progress_artifact(0.0, key=f"{stage}-progress", description="starting"))
    progress(Underway(stage, 0.0, f"0 of {len(work)}"))
    shown = start
    whole, ended = sum(work.values()), 0.0
    for done, training in enumerate(as_completed(list(work)), start=1):
        ended += work[training]
        share = ended / whole if whole and done < len(work) else done / len(work)
        eta = f", ETA {duration((time.monotonic() - start) * (1 / share - 1))}" if ended else ""
        words = f"{done} of {len(work)}{eta}"
        if done == len(work) or time.monotonic() - shown > _SHOWN:  # those in the store come all at once
            update_progress_artifact(artifact, 100.0 * share, description=words)
            shown = time.monotonic()
        progress(Underway(stage, share, words), line=True)
