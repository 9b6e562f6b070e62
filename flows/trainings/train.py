"""A training as a run of its own: what a worker of the pool `gpu` starts for a pipeline or a fan-out."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.servers import signals
from flows.trainings.requests import REQUESTS
from tasks.store.store import Store


@flow(name="train", persist_result=False)
def train(stage: str, store: str, arguments: dict[str, Any]) -> None:
    """One training of a pipeline or a fan-out, which starts it, waits for it and reads its result from the store."""
    signals.listen()
    request = REQUESTS[stage].unpacked(Store(store), arguments)  # as Training.packed() wrote them
    request.task(request, 0)
