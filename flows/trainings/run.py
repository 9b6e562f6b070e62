"""Trainings side by side: here, or as runs of the pool `gpu`; a failed one ends no other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from prefect import flow, tags
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.servers import signals
from flows.servers.tags import INTERNAL
from flows.trainings.dispatch import IN_FLIGHT, Training, dispatch_training, dispatches_trainings
from flows.trainings.progress import show_progress, work_of
from flows.trainings.train import TRAININGS
from tasks.jobs.launch import jobs_are_stopped, jobs_of_threads
from tasks.store.store import Store


@dataclass(frozen=True)
class Trained:
    """What each of several trainings came to, in their order: what its task returns, or the exception that ended it."""

    results: list[Any] = field(default_factory=list)


def train_all(store: Store, jobs: int, title: str, stage: str, calls: list[Training], room: int) -> list[Any]:
    """What each of several trainings came to: what its task returns, or the exception that ended it.

    :param jobs: trainings at the same time, as a form has it; 0: ``room`` here, and what the pool takes there.
    """
    dispatched = dispatches_trainings(store, calls)
    workers = (jobs or IN_FLIGHT) if dispatched else room
    if not dispatched:
        for call in calls:
            if call.stage == "pretrain":
                call.arguments["beside"] = room
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=workers)
    run = trainings.with_options(task_runner=cast(TaskRunner[Any], runner), flow_run_name=title)
    with tags(INTERNAL):
        trained: Trained = run(store, calls, stage, dispatched)
    return trained.results


@flow(name="trials", persist_result=False, validate_parameters=False)
def trainings(store: Store, calls: list[Training], stage: str, dispatched: bool) -> Trained:
    """Trainings side by side; a failed one ends no other. Who calls it chooses the number of workers."""
    signals.listen()
    with jobs_of_threads():
        work = [work_of(store, call) for call in calls]  # asked before they run, as what is done has none
        futures: list[PrefectFuture[Any]] = [_submitted(store, call, dispatched) for call in calls]
        show_progress(dict(zip(futures, work, strict=True)), stage)
        return Trained([_result_or_error(future) for future in futures])


def _submitted(store: Store, call: Training, dispatched: bool) -> PrefectFuture[Any]:
    if dispatched:
        return dispatch_training.submit(store, call.title, call.stage, call.recipe, call.arguments)
    return cast(PrefectFuture[Any], TRAININGS[call.stage].submit(store, **call.arguments))


def _result_or_error(future: PrefectFuture[Any]) -> Any:
    try:
        return future.result()
    except Exception as error:  # whatever it was, the trial loses by it and the sweep goes on
        if jobs_are_stopped():
            raise  # this process ends: no failure of the trial
        return error
