"""Fine-tunes that start from another task's model, and rates that dev rows choose, through flows and forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.finetune import finetune
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters, PipelineParameters
from flows.forms.references import pretrained_model
from flows.papers.students import analyses as analysis
from flows.papers.students.forms import StudentsParameters
from flows.trainings.grid import arms_of
from gptcore.base.errors import InputError
from gptcore.papers.students.speed import KINDS
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Row
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import LEADERBOARD, SWEEPS
from tests.expected import expected
from tests.flows.world import OVERRIDES, run_pipeline

RATES = [1e-3, 4e-3]

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def board(world: tuple[str, str], store: str, prefect_server: Path) -> Leaderboard:
    """RTE and SST-2 with two seeds; RTE from MNLI, which is not among the tasks; two rates tried on both."""
    overrides = {**OVERRIDES, "model": {**OVERRIDES["model"], "n_layer": 2}, "scratch": False}
    chosen = {"tasks": ["rte", "sst2"], "from_task": "mnli", "rates": RATES, "seeds": 2}
    return run_pipeline(world, store, overrides=overrides, **chosen)


def tuned(store: str, task: str) -> list[dict[str, Any]]:
    """Manifests of the models fine-tuned on a task."""
    found = [dict(Store(store).manifest(each)) for each in Store(store).list("finetune")]
    return [manifest for manifest in found if manifest["config"]["task"] == task]


def ours(board: Leaderboard) -> Row:
    return next(row for row in board.rows if row.kind == "ours")


def test_the_row_has_its_own_name_and_only_the_tasks_that_were_asked_for(board: Leaderboard) -> None:
    row = ours(board)
    assert row.name.startswith("pre-trained, then mnli ")
    assert set(row.per_task) == {"rte", "sst2"}
    assert row.seeds == "2"
    assert "rte: started from a model fine-tuned on MNLI" in board.notes
    assert not [note for note in board.notes if note.startswith("sst2: started")]


def test_a_row_whose_settings_start_a_task_so_is_called_as_any_other(board: Leaderboard, store: str) -> None:
    checkpoint = pretrained_model(Store(store), "latest")
    for source, label in (("", "pre-trained"), ("mnli", "pre-trained, then mnli")):
        preset = PipelineParameters(preset="best", from_task=source).chosen_preset
        assert preset.finetune_for("rte").from_task == "mnli"
        assert [arm.label for arm in arms_of(Store(store), preset, checkpoint, source)] == [label]


def test_the_other_tasks_model_is_an_input_and_is_trained_once(board: Leaderboard, store: str) -> None:
    (mnli,) = tuned(store, "mnli")
    assert (mnli["config"]["finetune"]["seed"], "from_task" in mnli["config"]["finetune"]) == (0, False)
    rte = tuned(store, "rte")
    assert len(rte) == 3, "two rates with seed 0, the better one with seed 1"
    for manifest in rte:
        assert manifest["inputs"]["start"] == {"stage": "finetune", "digest": mnli["digest"]}
        assert manifest["config"]["finetune"]["from_task"] == "mnli"
    assert all("start" not in manifest["inputs"] for manifest in tuned(store, "sst2"))
    model = next(each for each in Store(store).list("finetune") if each.digest == rte[0]["digest"])
    card = (Store(store).local(model) / "model/README.md").read_text(encoding="utf-8")
    assert "Started from a model fine-tuned on MNLI." in card


def test_each_task_has_the_rate_with_the_best_dev_score_of_seed_0(board: Leaderboard, store: str) -> None:
    for task in ("rte", "sst2"):
        first = {m["config"]["finetune"]["lr"]: m for m in tuned(store, task) if m["config"]["finetune"]["seed"] == 0}
        assert sorted(first) == RATES
        best = max(RATES, key=lambda rate: first[rate]["counts"]["validation/score"])
        (second,) = [m for m in tuned(store, task) if m["config"]["finetune"]["seed"] == 1]
        assert second["config"]["finetune"]["lr"] == best
        said = {1e-3: "0.001", 4e-3: "0.004"}[best]
        assert f"{task}: rate {said} of 0.001, 0.004, by the score of seed 0 on held-out rows" in board.notes


def test_mlflow_keeps_trials_away_from_the_leaderboard(board: Leaderboard) -> None:
    tracker = Tracker()
    row = ours(board)
    (suite,) = tracker.search(LEADERBOARD, {"kind": "ours", "suite": row.suite})
    cells = tracker.search(LEADERBOARD, {"kind": "finetune", "mlflow.parentRunId": suite.info.run_id})
    assert sorted(each.info.run_name for each in cells) == [
        "mnli seed 0",
        *("rte seed 0", "rte seed 1", "sst2 seed 0", "sst2 seed 1"),
    ]
    rte = next(each for each in cells if each.info.run_name == "rte seed 0")
    assert rte.data.tags["mlflow.note.content"].startswith("Started from a model fine-tuned on MNLI.")
    assert suite.data.params["settings.rte.from_task"] == "mnli"
    assert suite.data.params["settings.rte.lr"] == "best on held-out of 0.001, 0.004"
    (trials,) = [
        each for each in tracker.search(SWEEPS, {"kind": "rates"}) if "settings.rte.epochs" in each.data.params
    ]
    assert set(trials.data.metrics) == {f"{task}/{rate}" for task in ("rte", "sst2") for rate in ("0.001", "0.004")}
    assert "| chosen" in trials.data.tags["mlflow.note.content"]


def test_one_task_by_its_form_skips_the_model_that_is_there(
    board: Leaderboard, world: tuple[str, str], store: str
) -> None:
    given = {
        "checkpoint": "latest",
        "store": store,
        "datasets": world[1],
        "seeds": 1,
        "epochs": 1,
        "max_train_rows": 16,
    }
    form = FinetuneParameters(task="rte", from_task="mnli", **given)
    form.check()
    row = finetune(form).rows[0]
    assert row.name.startswith("pre-trained, then mnli ")
    assert row.name != ours(board).name
    before = len(tuned(store, "mnli"))
    assert finetune(FinetuneParameters(task="mrpc", from_task="mnli", **given)).rows[0].name == row.name
    assert len(tuned(store, "mnli")) == before == 2


@pytest.mark.parametrize(("fields", "message"), expected(__file__, "REFUSED"))
def test_what_does_not_go_together_is_refused_in_one_line(
    world: tuple[str, str], store: str, fields: dict[str, Any], message: str
) -> None:
    form = FinetuneParameters(task="rte", checkpoint="", store=store, datasets=world[1], **fields)
    with pytest.raises(InputError, match=f"^{message}"):
        form.check()


def test_of_a_checkpoint_that_is_there_the_next_fault_is_told(
    board: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    nowhere: dict[str, Any] = {"store": store, "datasets": str(tmp_path)}
    with pytest.raises(InputError, match=r"no data for rte|no dataset"):
        FinetuneParameters(task="rte", **nowhere).check()
    with pytest.raises(InputError, match=r"^finetune.lm_coef = -0.5: expected 0 or more"):
        FinetuneParameters(task="rte", store=store, datasets=world[1], pretrained=False, lm_coef=-0.5).check()
    with pytest.raises(InputError, match="no dataset found"):
        FinetuneAllParameters(**nowhere).check()
    with pytest.raises(InputError, match=r"pretrain\.stepz is not a setting"):
        FinetuneAllParameters(**nowhere, overrides={"pretrain": {"stepz": 1}}).check()


def test_a_task_without_data_is_refused_before_any_work(
    board: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    (tmp_path / "RTE").symlink_to(Path(world[1]) / "RTE")
    given: dict[str, Any] = {"store": store, "datasets": str(tmp_path), "from_task": "mnli"}
    with pytest.raises(InputError, match="no data for mnli; found rte"):
        FinetuneParameters(task="rte", **given).check()
    with pytest.raises(
        InputError, match=r"^--from-task mnli: rte starts from its model; \S+: no data for mnli; found rte"
    ):
        FinetuneAllParameters(**given).check()
    (tmp_path / "SST-2").symlink_to(Path(world[1]) / "SST-2")
    own = {"store": store, "datasets": str(tmp_path), "preset": "best"}
    with pytest.raises(
        InputError, match=r"^tasks\.rte\.from_task = 'mnli' .of preset or settings; '' switches it off.: rte "
    ):
        PipelineParameters(**own).check()
    PipelineParameters(**own, tasks=["sst2"]).check()
    PipelineParameters(**own, overrides={"tasks": {"rte": {"from_task": ""}}}).check()
    (tmp_path / "RTE").unlink()
    with pytest.raises(InputError, match="--from-task mnli: expected one of rte, stsb, mrpc among the tasks"):
        PipelineParameters(store=store, datasets=str(tmp_path), from_task="mnli").check()
    with pytest.raises(InputError, match="--from-task mnli: expected one of rte, stsb, mrpc among the tasks"):
        PipelineParameters(store=store, tasks=["sst2"], from_task="mnli").check()
    with pytest.raises(InputError, match=r"tasks\.rte\.from_task: rte cannot start from itself"):
        PipelineParameters(store=store, overrides={"tasks": {"rte": {"from_task": "rte"}}}).check()


def test_a_decoders_students_are_compared_where_a_task_starts_from_another(
    board: Leaderboard, world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = {"milliseconds": 2.0, "rows_per_second": 900.0, "bytes": 10_000, "peak_memory_bytes": 0, "score": 0.5}
    measured: list[str] = []

    def cost_of(shelf: Store, model: Artifact, _: Artifact) -> dict[str, Any]:
        measured.append(shelf.manifest(model)["config"]["finetune"]["from_task"])
        return {"parameters": 4000, **dict.fromkeys(KINDS, cost)}

    monkeypatch.setattr(analysis, "measure_speed", cost_of)
    chosen = {"datasets": world[1], "store": store, "tasks": ["rte"], "jobs": 1, "seeds": 1}
    overrides = {**OVERRIDES, "scratch": False, "tasks": {"rte": {"from_task": "mnli"}}}
    form = StudentsParameters(preset="demo", teacher="latest", overrides=overrides, **chosen)
    (found,) = analysis.students(form)
    ours = [row[0] for row in found.rows if row[0]]
    assert ours == ["GPT-1, 2 layers: the teacher", "GPT-1, 1 of 2 layers", "GPT-1 of 1 layer, no teacher"]
    assert measured == ["mnli"] * 3
