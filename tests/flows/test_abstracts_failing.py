"""Trainings behind the tables that fail, or that somebody ends: the others stand, and nothing trains on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows import abstracts
from flows.cli.main import main
from flows.forms.generation import AbstractsTablesParameters
from flows.trainings import train
from flows.trainings.failures import CellsFailed
from gptcore.abstracts.config import SWEEPS
from gptcore.base.errors import InputError
from gptcore.config.sizes import Size
from tasks.jobs import launch
from tasks.jobs.launch import JobDiverged
from tests.flows.world import LANGUAGE

pytestmark = pytest.mark.usefixtures("prefect_server")

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
    """Their threads hear nothing of Ctrl-C, and the flow's end waits for them."""
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
