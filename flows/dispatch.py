"""Trainings as runs of their own, in the work pool of the machines that train; here, where there is no such machine.

Who needs a trained model asks for a child run, waits, and then runs the same stage itself, which finds the artifact in
the store: nothing comes back through Prefect. The child's idempotency key is made of the store, the recipe's digest and
a number. Prefect gives the old run for a key that it knows: one that runs or waits is adopted, so that a parent that
was killed and started again makes no twin; one that has ended without its artifact is history, and the next number's
turn.
"""

from __future__ import annotations

import itertools
import time
from typing import Any, cast
from uuid import UUID

from httpx import TransportError
from prefect import task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run, task_run
from prefect.states import Cancelling

from flows.servers.pools import GPU, worker_online
from flows.servers.temporary_server import is_temporary
from flows.train import TRAININGS, packed
from gptcore.errors import InputError
from gptcore.files import sha256_json
from tasks.jobs.launch import JobInterrupted, jobs_are_stopped
from tasks.stages.pretrain import pretrain_model, pretrain_recipe
from tasks.stages.stage import STAGE_OPTIONS
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import logger

IN_FLIGHT = 16
"""Children that one parent has waiting or running; the pool's workers decide how many run."""
DEPLOYMENT = "train/train"
_LOST = 2  # times that a child is started again after its machine was lost
_POLL_SECONDS = 2.0
_KNOWN_TRIES, _KNOWN_SECONDS = 20, 0.25


def dispatches_trainings() -> bool:
    """Whether the trainings of the flow at hand become runs of the pool `gpu`; the log says where they are, and why."""
    if is_temporary():
        logger().info("trainings run in this process: the Prefect server is this command's own")
        return False
    with get_client(sync_client=True) as client:
        if _pool(client) == GPU:
            return False  # a worker that takes one run at a time would wait for itself
        if not worker_online(GPU):
            logger().info("trainings run in this process: no worker is online in the work pool %s", GPU)
            return False
        try:
            client.read_deployment_by_name(DEPLOYMENT)
        except ObjectNotFound:
            logger().warning("trainings run in this process: no deployment %s (gptmill deploy)", DEPLOYMENT)
            return False
    logger().info("trainings run in the work pool %s", GPU)
    return True


def pretrained(store: Store, **arguments: Any) -> Artifact:
    """The pre-trained model, trained here or by a run of its own.

    :param arguments: those of :func:`tasks.stages.pretrain.pretrain_model`.
    """
    shards, model, config = arguments["shards"], arguments["model"], arguments["config"]
    recipe = pretrain_recipe(store, shards, model, config, arguments.get("start"))
    if store.find(recipe) or not dispatches_trainings():
        return cast(Artifact, pretrain_model(store, **arguments))
    return cast(Artifact, dispatch_training(store, f"pretrain {recipe.digest[:8]}", "pretrain", recipe, arguments))


@task(name="dispatch training", task_run_name="{title}, in the pool gpu", **STAGE_OPTIONS)
def dispatch_training(store: Store, title: str, stage: str, recipe: Recipe, arguments: dict[str, Any]) -> Any:
    """What the stage's task returns for ``arguments``, trained by a run of the pool `gpu` where the store has it not.

    :param title: what the child run is called.
    :param arguments: those of the stage's task, but for the store.
    :raises InputError: the child's input was bad.
    :raises ChildFailed: the child failed, or was cancelled.
    """
    if store.find(recipe) is None:
        _train(store, title, stage, recipe, arguments)
    return TRAININGS[stage](store, **arguments)


class ChildFailed(RuntimeError):
    """A training's own run did not end well; the message holds its reason."""


def _train(store: Store, title: str, stage: str, recipe: Recipe, arguments: dict[str, Any]) -> None:
    key = sha256_json({"store": store.url, "recipe": recipe.digest})
    mine = f"of {flow_run.root_flow_run_id}"
    lost = 0
    with get_client(sync_client=True) as client:
        parent = _known(client, UUID(str(task_run.id)))
        deployment = client.read_deployment_by_name(DEPLOYMENT)
        for attempt in itertools.count():
            child = client.create_flow_run_from_deployment(
                deployment.id,
                parameters={"stage": stage, "store": store.url, "arguments": packed(arguments)},
                name=title,
                tags=[mine],
                idempotency_key=f"{key}-{attempt}",
                parent_task_run_id=parent,
            )
            if child.state and child.state.is_final():
                continue  # an earlier call's: what it made, if anything, is not in the store
            own = mine in child.tags
            state = _followed(client, child, own).state
            assert state is not None
            if state.is_completed() and store.find(recipe) is not None:
                return
            reason = (state.message or str(state.name)).partition("\n")[0]
            if state.is_crashed() and lost < _LOST:
                lost += 1
                logger().warning("%s lost its machine and is started again: %s", title, reason)
            elif state.is_completed():
                raise ChildFailed(f"{title}: its run ended well, but {store.url} does not have it: another store there")
            elif own:
                raise _error(title, reason)
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


def _followed(client: SyncPrefectClient, child: FlowRun, own: bool) -> FlowRun:
    """The child at its end. Whatever ends this call early cancels it, unless it is somebody else's."""
    silent = False
    try:
        while not (child.state and child.state.is_final()):
            if jobs_are_stopped():
                raise JobInterrupted(f"{child.name} was not waited for, as this process ends")
            time.sleep(_POLL_SECONDS)
            try:
                child, silent = client.read_flow_run(child.id), False
            except TransportError as error:  # a server that is started again: the child does not mind
                if not silent:
                    logger().warning("%s: the Prefect server does not answer (%s); waiting", child.name, error)
                silent = True
        return child
    except BaseException:
        if own:
            client.set_flow_run_state(child.id, Cancelling(message="with the run that started it"))
        raise


def _error(title: str, reason: str) -> Exception:
    """The child's exception, as far as its kind matters here: bad input is no failed work."""
    kind, _, words = reason.removeprefix("Flow run encountered an exception: ").partition(": ")
    return InputError(words) if kind == "InputError" else ChildFailed(f"{title}: {reason}")


def _pool(client: SyncPrefectClient) -> str | None:
    """The work pool that runs this process' flow; None where none does."""
    root = flow_run.root_flow_run_id
    return client.read_flow_run(UUID(str(root))).work_pool_name if root else None
