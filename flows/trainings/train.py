"""The one place that runs trainings: side by side, here or as runs of the pool `gpu`, and what a worker of it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import UUID

from prefect import flow, tags
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.plugins import added, named
from flows.servers import signals
from flows.servers.pools import INTERNAL
from flows.trainings.dispatch import IN_FLIGHT, dispatch_training, dispatches_trainings
from tasks.jobs.launch import jobs_are_stopped, jobs_of_threads
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.training import Training
from tasks.store.store import Store
from tasks.tracking.keys import key_of
from tasks.tracking.logs import Underway, duration, progress

_SHOWN = 1.0  # seconds between two states of the progress on Prefect's page
Made = TypeVar("Made")
REQUESTS: dict[str, type[Training[object]]] = {
    **{kind.stage: kind for kind in (PretrainRequest, FinetuneRequest)},
    **{stage: named(path) for stage, path in added("trainings").items()},
}
"""Stage -> its kind of training, those of plugins among them."""


@dataclass(frozen=True)
class Policy:
    """Where trainings go on, and how many at the same time."""

    by_deployment: bool
    """Whether each is a run of the pool `gpu`, else a job of this process."""
    at_once: int
    beside: int
    """Those that go on here at the same time, of which each has its share of the cores."""


def policy_for(requests: Sequence[Training[object]], jobs: int = 0) -> Policy:
    """How some trainings go on.

    :param jobs: at the same time, as a form has it; 0: as many as the machine, or the pool, takes.
    :raises InputError: see :func:`flows.trainings.dispatch.dispatches_trainings`.
    :raises NoWorker: the same.
    """
    by_deployment = dispatches_trainings(requests)
    room = requests[0].room(jobs, len({request.key for request in requests})) if requests else 1
    return Policy(by_deployment, (jobs or IN_FLIGHT) if by_deployment else room, room)


def run_one(request: Training[Made]) -> Made:
    """What a training makes, here or by a run of its own."""
    if request.made or not dispatches_trainings([request]):
        return request.task(request)
    return dispatch_training(request)


def run_all(
    requests: Sequence[Training[Made]],
    policy: Policy,
    stage: str = "",
    ends_all: type[Exception] | tuple[type[Exception], ...] = (),
) -> list[Made | Exception]:
    """What each of several trainings came to, in their order: what it made, or the exception that ended it.

    One that goes on from what another one makes, or learns from it, waits for it, and ends with it. Equal ones are done
    once.

    :param stage: what people call them all, letters and dashes, where their progress is shown; empty: it is not.
    :param ends_all: the kinds of failures after which no other is started, raised at once; any other failure is its own
        training's alone.
    """
    makers = {request.recipe.digest: request for request in reversed(requests)}
    first = {request.key: [makers[digest] for digest in request.needs if digest in makers] for request in requests}
    futures: dict[str, PrefectFuture[Made]] = {}
    found: dict[str, Made | Exception] = {}

    def started(request: Training[Made]) -> PrefectFuture[Made]:
        if request.key not in futures:
            needed = [started(other) for other in first[request.key]]
            futures[request.key] = _submitted(runner, request, policy, needed)
        return futures[request.key]

    def result(request: Training[Made]) -> Made | Exception:
        for other in first[request.key]:
            if isinstance(error := result(other), Exception):
                return error
        try:
            return futures[request.key].result()
        except Exception as error:  # whatever it was, the caller says what it means, and the others' work stands
            if jobs_are_stopped() or isinstance(error, ends_all):
                raise  # this process ends: no failure of the training
            return error

    ordered = sorted(requests, key=lambda request: bool(first[request.key]))
    size = policy.at_once if ends_all else max(1, len(ordered))
    with ThreadPoolTaskRunner[Any](max_workers=policy.at_once) as runner, jobs_of_threads():
        for batch in (ordered[place : place + size] for place in range(0, len(ordered), size)):
            work = {request.key: request.work_left for request in batch if stage}  # asked before it runs
            for request in batch:
                started(request)
            if stage:
                show_progress({futures[key]: left for key, left in work.items()}, stage)
            found |= {request.key: result(request) for request in batch}
    return [found[request.key] for request in requests]


def _submitted(
    runner: ThreadPoolTaskRunner[Any], request: Training[Made], policy: Policy, needed: Sequence[PrefectFuture[Made]]
) -> PrefectFuture[Made]:
    if policy.by_deployment:
        return runner.submit(dispatch_training, {"request": request}, wait_for=needed)
    return runner.submit(request.task, {"request": request, "beside": policy.beside}, wait_for=needed)


def show_progress(work: Mapping[PrefectFuture[Any], float], stage: str) -> None:
    """One progress artifact for all of some trainings, until the last has ended, however it ended.

    The ETA is for the work that is left, at the rate of what has ended. Long trainings under way count when they end:
    until then it is too long.

    :param work: floating-point operations that each training still has to do.
    :param stage: what people call them.
    """
    start = time.monotonic()
    artifact = cast(UUID, create_progress_artifact(0.0, key=key_of(f"progress-{stage}"), description="starting"))
    several = len(work) > 1  # of one its own progress says more
    if several:
        progress(Underway(stage, 0.0, (f"0 of {len(work)}",)))
    shown = start
    whole, ended = sum(work.values()), 0.0
    for done, training in enumerate(as_completed(list(work)), start=1):
        ended += work[training]
        share = ended / whole if whole and done < len(work) else done / len(work)
        eta = [f"{duration((time.monotonic() - start) * (1 / share - 1))} left"] if ended else []
        news = Underway(stage, share, (*eta, f"{done} of {len(work)}"))
        if done == len(work) or time.monotonic() - shown > _SHOWN:  # those in the store come all at once
            update_progress_artifact(artifact, 100.0 * share, description=news.words)
            shown = time.monotonic()
        if several:
            progress(news, line=True)


@dataclass(frozen=True)
class Trained:
    """What each of several trainings came to, in their order; see :func:`run_all`."""

    results: list[Any] = field(default_factory=list)


def train_all(requests: Sequence[Training[Made]], jobs: int, title: str, stage: str) -> list[Made | Exception]:
    """Train by :func:`run_all` in a flow run of its own that is called ``title``; a failed training ends no other.

    :param jobs: see :func:`policy_for`.
    """
    policy = policy_for(requests, jobs)
    with tags(INTERNAL):
        trained: Trained = trials.with_options(flow_run_name=title)(list(requests), policy, stage)
    return trained.results


@flow(name="trials", persist_result=False, validate_parameters=False)
def trials(requests: list[Training[Any]], policy: Policy, stage: str) -> Trained:
    signals.listen()
    return Trained(run_all(requests, policy, stage))


@flow(name="train", persist_result=False)
def train(stage: str, store: str, arguments: dict[str, Any]) -> None:
    """One training of a pipeline or a fan-out, which starts it, waits for it and reads its result from the store."""
    signals.listen()
    request = REQUESTS[stage].unpacked(Store(store), arguments)  # as Training.packed() wrote them
    request.task(request, 0)
