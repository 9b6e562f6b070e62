"""Trainings as runs of their own: adopted, tried again, failed, ended, never twice. The test plays the worker."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.cli.main import main
from flows.papers.abstracts import flow as abstracts
from flows.papers.abstracts.forms import AbstractsTablesParameters
from flows.trainings import dispatch, train
from flows.trainings.dispatch import ChildFailed, dispatch_training
from flows.trainings.failures import CellsFailed
from flows.trainings.train import REQUESTS, Policy, policy_for, run_all
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import DistilConfig, EncoderConfig, FinetuneConfig, PretrainConfig
from gptcore.config.sizes import Size
from gptcore.papers.abstracts.config import SWEEPS
from tasks.jobs import launch
from tasks.jobs.launch import JobDiverged
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.stage import build
from tasks.stages.training import Distillation, Training
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tests.flows.toy_training import Toy
from tests.flows.world import LANGUAGE

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

    # as versions before queued it
    kinds = {"shards": "Artifact", "model": "EncoderConfig", "config": "PretrainConfig"}
    queued = {**pretrain.packed(), "beside": 1}
    queued |= {name: {"kind": kind, "fields": queued[name]} for name, kind in kinds.items()}
    taught = {"teacher": ("Artifact", teacher), "distil": ("DistilConfig", distillation.config)}
    queued |= {name: {"kind": kind, "fields": dataclasses.asdict(value)} for name, (kind, value) in taught.items()}
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


def test_a_child_makes_it_once_and_later_nobody_is_asked(small: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = small.parent("well")
    assert found == small.store.find(small.recipe)
    for how in ("built in", "already in the store"):  # asked for by this process, and found later
        build(small.store, small.recipe, lambda _: {}, "fine-tunes", lambda _: "")
        assert how in caplog.messages[-1]
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


def test_sixteen_are_under_way_in_the_pool_or_as_many_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "dispatches_trainings", lambda requests: True)
    toys = [Toy(Store(str(tmp_path)), str(number)) for number in range(50)]
    assert [policy_for(toys, jobs).at_once for jobs in (0, 40)] == [16, 40]


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


STAR = {"block_size": 24, "batch_size": 2, "epochs": 0.2, "evaluations": 2, "eval_blocks": 8}
DIVERGED = JobDiverged("the loss is NaN\nthe end of its log")


@pytest.fixture(scope="module")
def form(papers: str, store: str, world: tuple[str, str]) -> AbstractsTablesParameters:
    whole: dict[str, Any] = {"overrides": {**LANGUAGE, "star": STAR}, "only": ["table3"], "jobs": 1}
    return AbstractsTablesParameters(preset="demo", arxiv=papers, corpus=world[0], store=store, **whole)


@pytest.fixture(autouse=True)
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accumulation 1, 2 and 4 alone."""
    monkeypatch.setattr(
        abstracts, "SWEEPS", [dataclasses.replace(SWEEPS[0], rows=dict(list(SWEEPS[0].rows.items())[:3]))]
    )


def training(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Any], BaseException | None]) -> list[Any]:
    """Put in the place of trainings some of which end by an exception; the configs of those that were started."""
    submit, started = train._submitted, []

    def result(error: BaseException) -> None:
        raise error

    def begin(runner: Any, request: Any, policy: Any, needed: Any) -> Any:
        if request.stage == "adapt":
            started.append(request.config)
        error = fails(request)
        if error is None:
            return submit(runner, request, policy, needed)
        return SimpleNamespace(result=lambda: result(error))

    monkeypatch.setattr(train, "_submitted", begin)
    return started


def test_a_cell_that_fails_is_told_at_the_end_and_the_tables_have_the_others(
    form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(monkeypatch, lambda request: DIVERGED if request.config.accumulation == 2 else None)
    told = r"1 of the trainings failed.*: accumulation = 2: JobDiverged: the loss is NaN$"
    with pytest.raises(CellsFailed, match=told) as caught:
        abstracts.abstracts_tables(form)
    (table,) = caught.value.tables
    assert [row[1] == "failed" for row in table.rows] == [False, True, False]
    assert table.rows[1][5] == "2"
    assert any(note.startswith("failed: ") for note in table.notes)


def test_where_every_cell_fails_the_first_reason_is_the_end(
    form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(monkeypatch, lambda request: DIVERGED)
    with pytest.raises(JobDiverged, match="the loss is NaN"):
        abstracts.abstracts_tables(form)


def test_bad_input_ends_it_at_once(form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch) -> None:
    started = training(monkeypatch, lambda request: InputError("train.txt, line 3: found nothing"))
    with pytest.raises(InputError, match=r"train.txt, line 3"):
        abstracts.abstracts_tables(form)
    assert len(started) == 1


def test_what_ends_the_flow_ends_the_trainings_that_it_waits_for(
    form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait hear nothing of Ctrl-C, and the flow's end waits for them."""
    monkeypatch.setattr(launch, "_stopping", type(launch._stopping)())
    started = training(monkeypatch, lambda request: KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        abstracts.abstracts_tables(form)
    assert len(started) == 1
    assert launch.jobs_are_stopped()


def test_a_size_that_cannot_be_pre_trained_costs_its_row_alone(
    form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [Size(f"1 x {n}", {"n_layer": 1, "n_head": 2, "n_embd": n, "n_inner": 4 * n}) for n in (8, 16)]
    monkeypatch.setattr(abstracts, "SIZES", {"demo": sizes})
    small = sizes[0].model["n_embd"]
    training(monkeypatch, lambda each: DIVERGED if each.stage == "pretrain" and each.model.n_embd == small else None)
    overrides = {name: value for name, value in form.overrides.items() if name != "model"}
    whole = {"overrides": {**overrides, "model": {"n_ctx": 48}}, "only": ["sizes"]}
    with pytest.raises(CellsFailed, match=r"1 of the trainings failed.*: 1 x 8: JobDiverged") as caught:
        abstracts.abstracts_tables(form.model_copy(update=whole))
    (table,) = caught.value.tables
    assert [row[0] for row in table.rows if not row[0].startswith("published")] == ["1 x 16"]


def test_the_tables_that_there_are_are_printed(
    form: AbstractsTablesParameters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Found:
        def text(self) -> str:
            return "Table 3, as far as it goes"

    def fail(_: Any) -> None:
        raise CellsFailed({"accumulation = 2": DIVERGED}, [Found()])  # type: ignore[list-item]  # all that is asked of it

    monkeypatch.setattr(abstracts, "abstracts_tables", fail)
    given = ["--arxiv", form.arxiv, "--corpus", form.corpus, "--store", str(tmp_path / "store")]
    assert main(["abstracts", "tables", *given]) == 1
    printed = capsys.readouterr()
    assert "Table 3, as far as it goes" in printed.out
    assert "accumulation = 2: JobDiverged: the loss is NaN" in printed.err
