"""Trainings as runs of their own: adopted, tried again, failed, never twice. The worker is played by the test."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.trainings import dispatch
from flows.trainings.dispatch import ChildFailed, dispatch_training
from flows.trainings.train import REQUESTS, Policy, run_all
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import DistilConfig, EncoderConfig, FinetuneConfig, PretrainConfig
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.training import Distillation, Training
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tests.flows.toy_training import Toy

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_a_request_survives_the_way_through_json(tmp_path: Path) -> None:

    store = Store(str(tmp_path))
    network = EncoderConfig(family="bert", n_vocab=40)
    counts = {"n_vocab": 40, "tokenizer_digest": "t"}
    shards = store.build(Recipe("shards", 1, {}), lambda _: counts).artifact
    teacher = store.build(Recipe("pretrain", 1, {"model": recorded(network)}), lambda _: counts).artifact
    student = dataclasses.replace(network, family="distilbert", n_layer=6)
    distillation = Distillation(teacher, DistilConfig(start="random"))
    pretrain = PretrainRequest(store, shards, student, PretrainConfig(), nproc=2, distillation=distillation)
    finetune = FinetuneRequest(store, "rte", shards, teacher, FinetuneConfig(lr=1e-4, seed=3), "arm", "run")
    for request in (pretrain, finetune):
        assert REQUESTS[request.stage].unpacked(store, json.loads(json.dumps(request.packed()))) == request
    assert pretrain.recipe.inputs == {"shards": shards, "teacher": teacher}

    queued = {**pretrain.packed(), "beside": 1}  # as the version before queued it
    queued |= {
        "teacher": queued["distillation"]["fields"]["teacher"],
        "distil": queued["distillation"]["fields"]["config"],
    }
    del queued["distillation"], queued["label"]
    assert REQUESTS["pretrain"].unpacked(store, queued) == pretrain
    assert REQUESTS["finetune"].unpacked(store, {**finetune.packed(), "threads": 2}) == finetune


class World:
    """A store, a recipe that nothing has made yet, and a worker that does as it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:

        self.store = Store(str(folder / "store"))
        self.request = Toy(self.store, folder.name)
        self.recipe = self.request.recipe
        self.children: list[Any] = []
        self.outcomes: list[str | Callable[[], object]] = []
        monkeypatch.setattr(dispatch, "_followed", self.follow)

    def made(self) -> None:
        self.store.build(self.recipe, lambda _: {})

    def follow(self, client: Any, child: Any, own: bool, _: object) -> Any:
        """End the child as the next outcome says."""

        self.children.append(child)
        outcome = self.outcomes.pop(0)
        if outcome == "well":
            self.made()
        state = {
            "well": Completed(),
            "empty": Completed(),
            "lost": Crashed(message="no heartbeat"),
            "cancelled": Cancelled(message="by hand"),
            "input": Failed(message="Flow run encountered an exception: InputError: RTE: a bad row"),
            "nan": Failed(message="Flow run encountered an exception: JobDiverged: the loss is NaN"),
        }[str(outcome)]
        client.set_flow_run_state(child.id, state, force=True)
        return client.read_flow_run(child.id)

    def parent(self, *outcomes: str) -> Any:
        """A flow that wants the artifact, and what it gets."""

        self.outcomes = list(outcomes)

        @flow(name="parent")
        def wants() -> Any:
            return dispatch_training(self.request)

        return wants()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployed: None) -> World:
    return World(tmp_path, monkeypatch)


def test_a_child_makes_it_once_and_later_nobody_is_asked(small: World) -> None:
    found = small.parent("well")
    assert found == small.store.find(small.recipe)
    assert small.parent() == found
    (child,) = small.children
    assert child.name == small.request.title
    assert "gptmill-internal" in child.tags


def test_a_lost_machine_and_an_old_failure_take_a_new_number(small: World) -> None:
    with pytest.raises(Exception, match="JobDiverged: the loss is NaN"):
        small.parent("nan")
    assert small.parent("lost", "well") is not None
    assert len({child.id for child in small.children}) == 3
    assert [child.idempotency_key[-2:] for child in small.children] == ["-0", "-1", "-2"]


def test_a_machine_that_is_lost_every_time_is_a_failure(small: World) -> None:

    with pytest.raises(ChildFailed, match="no heartbeat"):
        small.parent("lost", "lost", "lost")
    assert len(small.children) == 3


def test_a_run_that_is_under_way_is_adopted(small: World, monkeypatch: pytest.MonkeyPatch) -> None:

    class Killed(BaseException):
        pass

    def dies(client: Any, child: Any, own: bool, _: object) -> Any:
        small.children.append(child)
        raise Killed  # as kill -9: the child is not cancelled

    monkeypatch.setattr(dispatch, "_followed", dies)
    with pytest.raises(Killed):
        small.parent()
    monkeypatch.setattr(dispatch, "_followed", small.follow)
    assert small.parent("well") is not None
    first, second = small.children
    assert first.id == second.id


def test_a_strangers_run_that_was_cancelled_is_replaced_by_one_of_our_own(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:

    def leaves(client: Any, child: Any, own: bool, _: object) -> Any:
        assert own
        raise RuntimeError("the first parent is gone")

    monkeypatch.setattr(dispatch, "_followed", leaves)
    with pytest.raises(RuntimeError, match="gone"):
        small.parent()
    monkeypatch.setattr(dispatch, "_followed", small.follow)
    assert small.parent("cancelled", "well") is not None
    assert len({child.id for child in small.children}) == 2


def test_what_ends_the_parent_cancels_its_child(small: World, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.undo()
    monkeypatch.setattr(dispatch, "jobs_are_stopped", lambda: True)
    with pytest.raises(Exception, match="was not waited for, as this process ends"):
        small.parent()
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=50)
    (child,) = (run for run in runs if run.parameters.get("store") == small.store.url)
    assert child.state
    assert child.state.is_cancelled(), "no worker had taken it: there is nothing to wait for"


def test_bad_input_is_no_failed_work(small: World) -> None:
    with pytest.raises(InputError, match=r"^RTE: a bad row"):
        small.parent("input")


def test_a_worker_with_another_store_is_found_out(small: World) -> None:
    with pytest.raises(Exception, match=r"ended well, but .* does not have it"):
        small.parent("empty")


# --- side by side: equal ones once, what needs another after it, and what a failure does to the others


TWO = Policy(by_deployment=False, at_once=2, beside=2)


@flow
def together(requests: list[Any], **how: Any) -> dict[str, Any]:
    return {"results": run_all(requests, TWO, **how)}


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., Toy]:
    """A training that makes its artifact, and says so; one whose name begins with "bad" fails."""
    store = Store(str(tmp_path))

    def makes(request: Toy) -> None:
        (tmp_path / "order.txt").open("a").write(f"{request.name}\n")
        if request.name.startswith("bad"):
            raise ArithmeticError(request.name)
        store.build(request.recipe, lambda _: {})

    def made(name: str, *after: Training[Any]) -> Toy:
        return Toy(store, name, makes, after=tuple(each.artifact for each in after))

    return made


def order(folder: Path) -> list[str]:
    return (folder / "order.txt").read_text().split()


def test_what_another_is_made_from_comes_first_and_once(toy: Callable[..., Toy], tmp_path: Path) -> None:
    first = toy("first")
    results = together([toy("second", first), first, toy("first")], stage="toys")["results"]
    assert all(isinstance(found, Artifact) for found in results)
    assert results[1] == results[2]
    assert order(tmp_path) == ["first", "second"]


def test_a_failure_is_its_own_and_that_of_what_was_to_be_made_from_it(toy: Callable[..., Toy], tmp_path: Path) -> None:
    bad = toy("bad")
    error, alone, after = together([bad, toy("alone"), toy("after", bad)])["results"]
    assert isinstance(error, ArithmeticError)
    assert after is error
    assert isinstance(alone, Artifact)
    assert sorted(order(tmp_path)) == ["alone", "bad"]


def test_a_failure_of_a_kind_that_ends_all_lets_no_other_begin(toy: Callable[..., Toy], tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="bad"):
        together([toy("bad"), toy("beside"), toy("later")], ends_all=ArithmeticError)
    assert "later" not in order(tmp_path)
