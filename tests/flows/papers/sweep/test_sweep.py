"""A sweep through Prefect's harness: a trial that diverges loses, a sweep that was ended goes on, nothing twice."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
import tomli_w

from flows.cli import main as cli
from flows.papers.sweep.flow import TrialInputs
from flows.papers.sweep.forms import SweepParameters
from gptcore.base.errors import InputError
from gptcore.config import preset_named
from gptcore.config.presets import PRESETS, demo
from gptcore.families import FAMILIES
from gptcore.papers.sweep.plan import Rung, Trial, read_plan, shortened
from gptcore.text.parts import read_corpus
from gptcore.text.tokenizer import Tokenizer
from tasks.papers.sweep.report import Outcome, SweepResult
from tasks.report.suites import EXPERIMENT as LEADERBOARD
from tasks.stages.pretrain import PretrainRequest
from tasks.store.lineage import ancestor
from tasks.store.store import Store
from tasks.tracking.registry import referred
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import SWEEPS
from tests.expected import expected
from tests.flows.world import OVERRIDES
from tests.toy_family.family import FAMILY

pytestmark = pytest.mark.usefixtures("prefect_server")

PRETRAIN = {name: value for name, value in OVERRIDES["pretrain"].items() if name != "steps"}
SETTINGS = {"corpus": OVERRIDES["corpus"], "model": OVERRIDES["model"], "finetune": OVERRIDES["finetune"]}
BY_BITS: dict[str, Any] = {
    "preset": "demo",
    "objective": "validation/bits_per_byte",
    "trials": 3,
    "rungs": 2,
    "settings": {**SETTINGS, "pretrain": {**PRETRAIN, "steps": 12}},
    "together": {
        "vocabulary": {
            "small": {"tokenizer": {"n_merges": 150}, "pretrain": {"lr": 2e-3}},
            "large": {"tokenizer": {"n_merges": 200}, "pretrain": {"lr": 2e-3}},
            "endless": {"tokenizer": {"n_merges": 150}, "pretrain": {"lr": 1e30}},  # its loss is not finite
        }
    },
}


def run(world: tuple[str, str], store: str, plan: dict[str, Any], **form: Any) -> SweepResult:
    from flows.papers.sweep.flow import sweep

    books, datasets = world
    places = {"store": store, "corpus": books, "datasets": datasets, "jobs": 3}
    result = sweep(SweepParameters(sweep=plan, **{**places, **form}))
    assert isinstance(result, SweepResult)
    return result


def made(store: str) -> dict[str, str]:
    """Digest -> when it was made, of everything that a sweep trains."""
    found = Store(store)
    return {a.digest: found.manifest(a)["created"] for stage in ("pretrain", "finetune") for a in found.list(stage)}


@pytest.fixture(scope="module")
def others(prefect_server: Path) -> frozenset[str]:
    """Runs of the sweeps of other modules' tests, with which this one shares a tracker."""
    return frozenset(run.info.run_id for run in Tracker().search(SWEEPS, {}))


def own(others: frozenset[str], kind: str = "sweep") -> list[Any]:
    """This module's sweeps, or their trials, newest first."""
    return [run for run in Tracker().search(SWEEPS, {"kind": kind}) if run.info.run_id not in others]


@pytest.fixture(scope="module")
def ended(world: tuple[str, str], store: str, others: frozenset[str]) -> dict[str, str]:
    """What a sweep had made when it was ended after its first rung."""

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.papers.sweep.flow.survivors", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            run(world, store, BY_BITS)
    (sweep,) = own(others)
    assert sweep.info.status == "KILLED"
    return made(store)


@pytest.fixture(scope="module")
def swept(world: tuple[str, str], store: str, ended: dict[str, str]) -> SweepResult:
    """The sweep that was ended, started again."""
    return run(world, store, BY_BITS)


def trial_of(swept: SweepResult, label: str) -> int:
    return next(trial.number for trial in swept.plan.trials if trial.drawn["vocabulary"] == label)


def test_a_sweep_that_was_ended_goes_on(swept: SweepResult, ended: dict[str, str], store: str) -> None:
    after = made(store)
    assert len(ended) == 2, "the diverged trial left no model"
    assert ended.items() < after.items()
    assert set(after) - set(ended) == {swept.winner.checkpoint}


def test_a_trial_that_diverges_loses_and_says_why(swept: SweepResult, others: frozenset[str]) -> None:
    lost = swept.of(trial_of(swept, "endless"), 1)
    assert lost.objective is None
    assert "JobDiverged" in lost.failure
    assert "validation/loss = nan at step 2" in lost.failure
    runs = [run for run in own(others, "trial") if run.data.tags["trial"] == str(lost.trial)]
    assert [(run.info.status, run.data.tags["failure"]) for run in runs] == [("FAILED", lost.failure)]
    assert f"trial {lost.trial} failed on rung 1" in swept.text()
    assert swept.table().records()[-1]["trial"] == str(lost.trial)


def test_bits_a_byte_are_those_of_the_text_itself(swept: SweepResult, shelf: Store) -> None:
    """Counted the slow way: the tokens of the held-out documents, encoded anew, and the bytes of the same."""
    for label in ("small", "large"):
        outcome = swept.of(trial_of(swept, label), 1)
        model = shelf.artifact("pretrain", outcome.checkpoint)
        tokenizer = Tokenizer.load(str(shelf.local(ancestor(shelf, model, "tokenizer"))))
        corpus = shelf.local(ancestor(shelf, model, "corpus"))
        texts = ["".join(rows) for _, rows in read_corpus(corpus, "validation")]
        counts = shelf.manifest(model)["counts"]
        lengths = [len(tokenizer.encode_clean(text)) for text in texts]
        assert counts["validation/tokens"] == sum(lengths) - len(texts)
        nats = counts["validation/loss"] * counts["validation/tokens"] + len(texts) * math.log(tokenizer.n_vocab)
        assert outcome.objective == pytest.approx(nats / math.log(2) / sum(len(text.encode()) for text in texts))


def test_the_winner_is_the_pipelines_own_model(swept: SweepResult, shelf: Store) -> None:
    preset = preset_named("demo", tomllib.loads(swept.settings))
    model = shelf.artifact("pretrain", swept.winner.checkpoint)
    shards = ancestor(shelf, model, "shards")
    whole = PretrainRequest(shelf, shards, preset.model, preset.pretrain)
    assert whole.recipe.digest == swept.winner.checkpoint
    first = swept.of(swept.winner.trial, 1)
    short = PretrainRequest(shelf, shards, preset.model, shortened(preset.pretrain, 3))
    assert short.recipe.digest == first.checkpoint
    assert (first.updates, swept.winner.updates) == (4, 12)


def test_mlflow_has_the_picture_the_settings_and_every_trial(
    swept: SweepResult, others: frozenset[str], tmp_path: Path
) -> None:
    tracker = Tracker()
    (parent,) = own(others)
    assert parent.info.status == "FINISHED"
    there = {item.path for item in tracker.client.list_artifacts(parent.info.run_id)}
    assert there == {"parallel-coordinates.png", "sweep.csv", "sweep.md", "sweep.toml"}
    picture = tracker.client.download_artifacts(parent.info.run_id, "parallel-coordinates.png", str(tmp_path))
    assert matplotlib.image.imread(picture).std() > 0.01
    settings = Path(tracker.client.download_artifacts(parent.info.run_id, "sweep.toml", str(tmp_path)))
    assert settings.read_text(encoding="utf-8") == swept.settings
    children = own(others, "trial")
    assert {child.data.tags["mlflow.parentRunId"] for child in children} == {parent.info.run_id}
    assert len(children) == 4  # three trials, and the winner again
    for child in children:
        assert child.data.params == {"vocabulary": child.data.params["vocabulary"]}
        if child.info.status == "FINISHED":
            assert {"objective", "rung", "updates", "wall_seconds"} <= set(child.data.metrics)
    assert parent.data.metrics["objective"] == pytest.approx(swept.winner.objective, abs=1e-4)
    named = referred(tracker).named
    assert named[swept.winner.checkpoint] == "sweeps"
    lost = swept.of(trial_of(swept, "small"), 1)
    assert named.get(lost.checkpoint) != "sweeps", "what lost may be deleted"


def test_the_page_has_the_table_and_the_picture(swept: SweepResult) -> None:
    from tests.flows.test_pipeline import newest

    name, artifacts = newest("sweep")
    assert name == f"sweep demo by validation/bits_per_byte → {swept.headline}"
    (page,) = (found["data"] for found in artifacts if found["type"] == "markdown")
    assert page.startswith(f"# {swept.headline}")
    assert "no test row was read" in page
    assert "data:image/png;base64," in page


def test_fine_tuning_is_swept_by_held_out_scores(
    swept: SweepResult, others: frozenset[str], world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = expected(__file__, "of fine-tuning")  # of a task that has public test rows, too
    started = {"storycloze": {"from_task": "mnli"}}  # as a preset may have it; here nothing is trained first
    monkeypatch.setitem(PRESETS, "demo", lambda: dataclasses.replace(demo(), tasks=started))
    tracker = Tracker()
    rows, versions = len(tracker.search(LEADERBOARD, {})), len(tracker.client.search_model_versions())
    before = made(store)
    found = run(world, store, plan, checkpoint=swept.winner.checkpoint)
    trained = {digest: Store(store).artifact("finetune", digest) for digest in set(made(store)) - set(before)}
    manifests = [Store(store).manifest(artifact) for artifact in trained.values()]
    assert sorted(manifest["config"]["finetune"]["max_train_rows"] for manifest in manifests) == [16, 16, 32]
    (last,) = (m for m in manifests if m["config"]["finetune"]["max_train_rows"] == 32)
    assert found.winner.objective == pytest.approx(100 * last["counts"]["validation/score"])
    assert last["config"]["finetune"]["lr"] == found.plan.trials[found.winner.trial - 1].drawn["finetune.lr"]
    assert not any(name.startswith("test/") for outcome in found.outcomes for name in outcome.metrics)
    assert len(tracker.search(LEADERBOARD, {})) == rows, "no row of the leaderboard"
    assert len(tracker.client.search_model_versions()) == versions, "nor a model of the registry"

    def no_job(*_: object, **__: object) -> None:
        raise AssertionError("a job was started")

    monkeypatch.setattr("tasks.jobs.launch.start_job", no_job)
    again = run(world, store, plan, checkpoint=swept.winner.checkpoint)
    assert again.text() == found.text()
    assert len(own(others)) == 2, "the same sweep is the same run"


def test_a_command_names_the_file_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: tuple[str, str]
) -> None:
    path = tmp_path / "sweep.toml"
    for text, words in expected(__file__, "test_a_command_names_the_file_before_anything_runs"):
        path.write_text(text, encoding="utf-8")
        assert cli.main(["sweep", str(path), "--store", str(tmp_path / "store"), "--corpus", world[0]]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.match(rf"gptmill: error: {path}(, line \d+, column \d+)?: ", line)
        assert words in line
    assert not (tmp_path / "store").exists()
    assert cli.main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: found nothing there, expected a TOML file" in capsys.readouterr().err


def test_a_family_of_another_package_is_swept_by_its_own_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES._theirs, FAMILY.name, FAMILY)  # type: ignore[attr-defined]
    path, settings = tmp_path / "sweep.toml", {"model": {"n_head": 4}, "pretrain": {"steps": 9}, "family": FAMILY.name}
    plan = {**BY_BITS, "rungs": 1, "settings": settings, "together": {}}
    read = read_plan({**plan, "space": {"model": {"n_head_keys": [1, 2, 4]}}}, "a.toml")
    assert sorted(vars(trial.preset.model)["n_head_keys"] for trial in read.trials) == [1, 2, 4]
    for axis, words in (
        ({"n_head_key": [1, 2, 4]}, "space.model.n_head_key is not a setting of ToyLlama; did you mean n_head_keys?"),
        ({"n_head_keys": [1, 0, 4]}, "space.model.n_head_keys = 0: expected 1 to "),
        ({"n_head_keys": [1, 3, 4]}, "(model.n_head_keys 3): model.n_head = 4 is not a multiple of model.n_head_keys"),
    ):
        path.write_text(tomli_w.dumps({**plan, "space": {"model": axis}}), encoding="utf-8")
        assert cli.main(["sweep", str(path), "--store", str(tmp_path / "store")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"gptmill: error: {path}: ")
        assert words in line


def test_the_example_is_a_good_plan() -> None:
    path = Path(__file__).resolve().parents[4] / "infra" / "sweep-small.toml"
    plan = read_plan(tomllib.loads(path.read_text(encoding="utf-8")), path.name)
    assert plan.pretrains


def test_a_sweep_of_tasks_without_data_is_refused(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    plan = {**BY_BITS, "objective": "dev/score", "tasks": ["rte"]}
    with pytest.raises(InputError, match="no data for rte"):
        run(world, store, plan, datasets=str(tmp_path))


def reaching(monkeypatch: pytest.MonkeyPatch, fails: set[tuple[int, int]], error: Exception) -> list[list[int]]:
    """Let three trials reach 2.5, 1.5 and 3.0 but for those (trial, rung) that fail; the trials of each call."""
    tried: list[list[int]] = []

    def run_rung(
        _inputs: TrialInputs, rung: Rung, trials: list[Trial], _runs: object
    ) -> dict[int, Outcome | Exception]:
        tried.append([trial.number for trial in trials])
        return {
            n: error
            if (n, rung.number) in fails
            else Outcome(n, rung.number, (2.5, 1.5, 3.0)[n - 1], updates=4, seconds=1.0, checkpoint=f"{n}" * 64)
            for n in tried[-1]
        }

    monkeypatch.setattr("flows.papers.sweep.flow.run_rung", run_rung)
    return tried


def test_a_trial_that_failed_once_may_win_the_next_time(
    world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {**BY_BITS, "seed": 5}
    broken = {(2, 1)}
    reaching(monkeypatch, broken, OSError("no space left on the disk"))
    assert run(world, store, plan).winner.trial == 1
    broken.clear()
    assert run(world, store, plan).winner.trial == 2
    tracker = Tracker()
    sweep = next(found for found in tracker.search(SWEEPS, {"kind": "sweep"}) if found.data.tags["winner"] == "trial 2")
    assert sweep.data.metrics["objective"] == 1.5
    assert "trial 2" in sweep.data.tags["mlflow.note.content"]
    named = referred(tracker).named
    assert (named.get("1" * 64), named.get("2" * 64)) == (None, "sweeps")
    shown = tracker.search(SWEEPS, {"kind": "trial", "sweep": sweep.data.tags["sweep"]})
    assert sorted(str(found.info.run_name) for found in shown) == [
        "trial 1, rung 1",
        "trial 2, rung 1",
        "trial 2, rung 2",
        "trial 3, rung 1",
    ]
    assert {found.data.tags["failure"] for found in shown} == {""}


def test_the_next_best_takes_the_place_of_the_last_that_was_left(
    world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = {(2, 2), (1, 2)}
    tried = reaching(monkeypatch, fails, ArithmeticError("loss is nan"))
    plan = {**BY_BITS, "seed": 6}
    result = run(world, store, plan)
    assert tried == [[1, 2, 3], [2], [1], [3]], "trial 2 was the best, then trial 1"
    assert result.winner.trial == 3
    assert [row["trial"] for row in result.table().records()] == ["3", "1", "2"]
    assert len(result.failures) == 2
    fails.add((3, 2))
    with pytest.raises(ArithmeticError, match="loss is nan"):
        run(world, store, plan)


def test_a_winners_file_says_which_command_takes_it(swept: SweepResult) -> None:
    first, second, *_ = swept.settings.splitlines()
    assert first == f"# {swept.headline}; checkpoint {swept.winner.checkpoint[:12]}"
    assert second == "# gptmill pipeline --preset demo --config sweep.toml"
