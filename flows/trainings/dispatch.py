"""Trainings as runs of their own, in the work pool of the machines that train.

Where no such machine is online a setting decides: see :mod:`flows.trainings.worker_policy`.

Who needs a trained model asks for a child run, waits, and then runs the same stage itself, which finds the artifact in
the store: nothing comes back through Prefect. The child's idempotency key is made of the store, the recipe's digest and
a number. Prefect gives the old run for a key that it knows: one that runs or waits is adopted, so that a parent that
was killed and started again makes no twin; one that has ended without its artifact is history, and the next number's
turn.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from httpx import TransportError
from prefect import task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run, task_run
from prefect.states import Cancelling

from flows.servers.pools import INTERNAL_TRAINING, START_WORKER, TRAINERS, worker_online
from flows.servers.temporary_server import is_temporary
from flows.trainings.waiting import NONE_ONLINE, TrainHere, Wait, announced
from flows.trainings.worker_policy import NoWorker, worker_policy
from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from tasks.jobs.launch import JobInterrupted, jobs_are_stopped
from tasks.jobs.placement import on_cluster, slots
from tasks.stages.stage import STAGE_OPTIONS, made_for_us
from tasks.stages.training import Training, estimate
from tasks.tracking.logs import logger

IN_FLIGHT = 16
"""Children that one parent has waiting or running; the pool's workers decide how many run."""
DEPLOYMENT = f"train/{INTERNAL_TRAINING}"
_LOST = 2  # times that a child is started again after its machine was lost
_POLL_SECONDS = 2.0
_KNOWN_TRIES, _KNOWN_SECONDS = 20, 0.25

Made = TypeVar("Made")


def dispatches_trainings(trainings: Iterable[Training[object]]) -> bool:
    """Whether the trainings of the flow at hand become runs of the pool `training`; the log says where and why.

    :param trainings: what the flow may have to train; looked through only where no worker is online.
    :raises InputError: the policy's variable says nothing that is known.
    :raises NoWorker: some are missing, no worker is online, and the policy is to fail.
    """
    if is_temporary():
        logger().info("trainings run in this process: the Prefect server is this command's own")
        return False
    with get_client(sync_client=True) as client:
        root = flow_run.root_flow_run_id  # none where no run of Prefect's does this
        if root and client.read_flow_run(UUID(str(root))).work_pool_name == TRAINERS:
            return False  # a worker that takes one run at a time would wait for itself
        deployed = _is_deployed(client)
    if deployed and worker_online(TRAINERS):
        logger().info("trainings run in the work pool %s", TRAINERS)
        return True
    missing = [training for training in trainings if not training.made]
    return bool(missing) and _waits(missing, deployed)


def _waits(missing: list[Training[object]], deployed: bool) -> bool:
    """Whether trainings wait for a worker; else they are done here.

    :raises NoWorker: neither.
    """
    policy = worker_policy()
    time_here = estimate(missing)
    chosen = policy.choice_for(time_here.seconds, on_cluster())
    why = (
        f"no worker is online in the work pool {TRAINERS}"
        if deployed
        else f"no deployment {DEPLOYMENT} (gptmill deploy)"
    )
    what = missing[0].title if len(missing) == 1 else f"{len(missing)} trainings"
    choice = chosen if deployed or policy.choice else "here"  # nothing on this server could ever take them
    if choice == "here":
        words = "trainings run in this process: %s, and %s; they take %s"
        logger().log(logging.INFO if chosen == "here" else logging.WARNING, words, why, policy, time_here)
        return False
    if choice == "fail" or not deployed:
        raise NoWorker(f"{what}: {why}, and {policy}; start one: {START_WORKER}; here it would take {time_here}")
    words = "%s: waiting up to %g hours for a worker: %s (%s; here it would take %s)"
    logger().warning(words, what, policy.hours, NONE_ONLINE, policy, time_here)
    announced()
    return True


def _is_deployed(client: SyncPrefectClient) -> bool:
    try:
        client.read_deployment_by_name(DEPLOYMENT)
    except ObjectNotFound:
        return False
    return True


@task(name="dispatch training", task_run_name="{request.title}, in the pool training", **STAGE_OPTIONS)
def dispatch_training(request: Training[Made]) -> Made:
    """What a training makes, trained by a run of the pool `training` where the store has it not.

    :raises InputError: the child's input was bad.
    :raises ChildFailed: the child failed, or was cancelled.
    :raises NoWorker: no worker was left to take it, and the policy is not to wait, or no longer.
    """
    if not request.made:
        try:
            _train(request)
        except TrainHere:
            words = "%s runs in this process: no worker is online any more in the work pool %s"
            logger().warning(words, request.title, TRAINERS)
            with _room():
                return request.task(request, 0)
        made_for_us(request.recipe)
    return request.task(request, 0)


@functools.cache
def _room() -> threading.BoundedSemaphore:
    """Held by each training that no worker was left to take: more of them wait for the pool than this machine does."""
    return threading.BoundedSemaphore(slots())


class ChildFailed(RuntimeError):
    """A training's own run did not end well; the message holds its reason."""


def _train(request: Training[object]) -> None:
    title, store = request.title, request.store
    key = sha256_json({"store": store.url, "recipe": request.recipe.digest})
    mine = f"of {flow_run.root_flow_run_id}"
    wait = Wait(request)
    lost = 0
    with get_client(sync_client=True) as client:
        parent = _known(client, UUID(str(task_run.id)))
        deployment = client.read_deployment_by_name(DEPLOYMENT)
        for attempt in itertools.count():
            child = client.create_flow_run_from_deployment(
                deployment.id,
                parameters={"stage": request.stage, "store": store.url, "arguments": request.packed()},
                name=title,
                tags=[mine],
                idempotency_key=f"{key}-{attempt}",
                parent_task_run_id=parent,
            )
            if child.state and child.state.is_final():
                continue  # an earlier call's: what it made, if anything, is not in the store
            own = mine in child.tags
            state = _followed(client, child, own, wait).state
            assert state is not None
            if state.is_completed() and request.made:
                return
            reason = (state.message or str(state.name)).partition("\n")[0]
            if state.is_crashed() and lost < _LOST:
                lost += 1
                logger().warning("%s lost its machine and is started again: %s", title, reason)
            elif state.is_completed():
                raise ChildFailed(f"{title}: its run ended well, but {store.url} does not have it: another store there")
            elif own:
                kind, _, words = reason.removeprefix("Flow run encountered an exception: ").partition(": ")
                raise InputError(words) if kind == "InputError" else ChildFailed(f"{title}: {reason}")
            # else somebody else's run that was adopted, and failed or was cancelled: now one of our own


def _known(client: SyncPrefectClient, run: UUID) -> UUID | None:
    """This task run, once the server has it, which is told of task runs behind their backs; None where that lasts.

    Only the picture of the parent on its page needs it.
    """
    for _ in range(_KNOWN_TRIES):
        try:
            return client.read_task_run(run).id
        except ObjectNotFound:
            time.sleep(_KNOWN_SECONDS)
    return None


def _followed(client: SyncPrefectClient, child: FlowRun, own: bool, wait: Wait) -> FlowRun:
    """The child at its end. Whatever ends this call early cancels it, unless it is somebody else's.

    :raises NoWorker: nobody was left to take it; see :meth:`Wait.look`.
    :raises TrainHere: the same, where the policy is to train here.
    """
    silent = False
    try:
        while not (child.state and child.state.is_final()):
            if jobs_are_stopped():
                raise JobInterrupted(f"{child.name} was not waited for, as this process ends")
            time.sleep(_POLL_SECONDS)
            try:
                child, silent = client.read_flow_run(child.id), False
                wait.look(client, child)
            except TransportError as error:  # a server that is started again: the child does not mind
                if not silent:
                    logger().warning("%s: the Prefect server does not answer (%s); waiting", child.name, error)
                silent = True
        return child
    except BaseException:
        if own:
            client.set_flow_run_state(child.id, Cancelling(message="with the run that started it"))
        raise
    finally:
        wait.over()
