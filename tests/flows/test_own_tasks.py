"""Users' own tasks go the way of the twelve: pipeline, leaderboard, card, registry, predict, prompts, sweep, forms."""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import sys
import tomllib
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from prefect.client.orchestration import get_client

from flows.cli import commands
from flows.cli.init_task import init_task
from flows.cli.main import main
from flows.deployments.deploy import deploy
from flows.deployments.settings import Settings
from flows.finetune import finetune, finetune_all
from flows.forms.checks import chosen_tasks
from flows.forms.choices import with_own_tasks
from flows.forms.fields import OWN_TASKS
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.inference import predict
from flows.papers.prompting.flow import few_shot
from flows.papers.prompting.forms import FewShotParameters
from flows.papers.sweep.flow import sweep
from flows.papers.sweep.forms import SweepParameters
from gptcore.base.errors import InputError
from gptcore.config import preset_named
from gptcore.nlu.registry import BEYOND, REGISTRY
from tasks.report.leaderboard import Leaderboard
from tasks.report.suites import EXPERIMENT, read_leaderboard
from tasks.report.terminal import print_board
from tasks.store.store import Store
from tasks.tracking.pyfunc import _load_pyfunc
from tasks.tracking.registry import registered_artifact
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.flows.test_pipeline import newest
from tests.flows.world import OVERRIDES, changed, run_pipeline

pytestmark = pytest.mark.usefixtures("prefect_server")


def write_task(folder: Path, toml: str, **rows: list[str]) -> str:
    """Files of rows by their names without endings, and a task's own file, whose path it gives."""
    folder.mkdir(parents=True, exist_ok=True)
    about = tomllib.loads(toml)
    for name, lines in rows.items():
        (folder / f"{name}.{about['format']}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / f"{about['name']}.toml"
    path.write_text(toml, encoding="utf-8")
    return str(path)


def write_weather(folder: Path, rows: int = 60) -> str:
    """Claims that follow from a forecast, or do not."""
    draws, lines = random.Random(0), []
    for _ in range(rows):
        sky, claim = draws.choice(("rain", "sun")), draws.choice(("wet", "dry"))
        verdict = (sky, claim) in (("rain", "wet"), ("sun", "dry"))
        lines.append(json.dumps({"forecast": f"{sky} today", "claim": f"it is {claim}", "verdict": verdict}))
    return write_task(folder, expected(__file__, "weather"), rows=lines)


def write_topics(folder: Path) -> str:
    """One text, one of twenty classes, as CSV."""
    draws, splits = random.Random(1), {}
    for split, rows in (("train", 80), ("dev", 40)):
        topics = [draws.randrange(20) for _ in range(rows)]
        splits[split] = ["text,topic", *(f'"of thing {topic}, and more",topic {topic}' for topic in topics)]
    return write_task(folder, expected(__file__, "topics"), **splits)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Task -> its file."""
    folder, draws = tmp_path_factory.mktemp("own"), random.Random(2)
    alike = ["a\tb\tscore", *(f"one {n}\tone {n}\t{draws.randint(0, 50) / 10}" for n in range(60))]
    return {
        "weather": write_weather(folder / "weather"),
        "topics": write_topics(folder / "topics"),
        "grades": write_task(folder / "grades", expected(__file__, "grades"), rows=alike),
    }


@pytest.fixture(scope="module")
def board(world: tuple[str, str], store: str, files: dict[str, str], prefect_server: Path) -> Leaderboard:
    """The board of a pipeline over one of the twelve tasks and three of our own."""
    return run_pipeline(world, store, tasks=["rte", *files.values()], jobs=2, seeds=0)


def test_own_columns_stand_beside_the_average(board: Leaderboard) -> None:
    assert board.own_tasks == ["grades", "topics", "weather"]
    assert not set(board.tasks) & set(board.own_tasks)
    ours = next(row for row in board.rows if row.kind == "ours")
    assert set(ours.percent) == {"rte", "grades", "topics", "weather"}
    assert ours.average(list(ours.per_task)) == ours.percent["rte"], "never in the average"
    baselines = [row for row in board.rows if row.kind == "baseline"]
    pairs = {"rte", "grades", "weather"}
    assert all(set(row.percent) >= (pairs if "overlap" in row.name else set(ours.percent)) for row in baselines)
    assert {task: cell.own_select for task, cell in ours.cells.items()} == {
        "rte": "",
        **dict.fromkeys(board.own_tasks, "held-out"),
    }
    (floor,) = board.floors
    assert set(floor.percent) == set(ours.percent)
    text = board.render()
    assert (
        "beyond the twelve, in no average: grades (Pearson correlation), topics (accuracy), weather (F1 of true)"
        in text
    )
    record = next(csv.DictReader(board.render("csv").splitlines()))
    assert float(record["weather"]) == pytest.approx(ours.percent["weather"], abs=0.05)
    assert record["weather_split"] == "dev"


def test_the_terminal_has_a_line_for_each(board: Leaderboard, capsys: pytest.CaptureFixture[str]) -> None:
    print_board(board)
    text = capsys.readouterr().out.partition("seeds")[0]
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    for task in ("rte", "grades", "topics", "weather"):
        assert lines[task].split()[1] == "dev"
    assert list(lines).index("weather") > list(lines).index("rte")


def test_mlflow_keeps_the_columns(board: Leaderboard) -> None:
    ours = next(row for row in board.rows if row.kind == "ours")
    kept = next(row for row in read_leaderboard().rows if row.suite == ours.suite)
    assert kept.percent == pytest.approx(ours.percent)
    assert kept.cells["topics"].own_metric == "accuracy"


def test_a_model_records_its_task_and_the_settings_of_the_file(board: Leaderboard, shelf: Store) -> None:
    models = {shelf.manifest(found)["config"]["task"]: found for found in shelf.list("finetune")}
    weather = shelf.manifest(models["weather"])
    assert weather["config"]["finetune"]["batch_size"] == 4
    assert weather["config"]["finetune"]["lr"] == OVERRIDES["finetune"]["lr"], "the preset's, where it has none"
    assert weather["config"]["spec"]["labels"] == ["false", "true"]
    config = json.loads((shelf.local(models["weather"]) / "model" / "config.json").read_text())
    assert config["labels"] == ["false", "true"]
    assert config["spec"] == weather["config"]["spec"]
    card = (shelf.local(models["topics"]) / "model" / "README.md").read_text()
    assert "paper's own numbers" not in card
    assert 'fine-tuned with L3 of "Improving Language Understanding by Generative Pre-Training" (section 3.2).' in card
    assert "topic 0, topic 1" in card
    assert set(shelf.manifest(models["grades"])["counts"]) >= {"dev/pearson", "dev/spearman", "dev/score_stderr"}
    assert registered_artifact(Tracker(), "models:/gptmill-weather@champion").digest == models["weather"].digest
    assert "spec" not in shelf.manifest(models["rte"])["config"], "the twelve keep their digests"


def test_a_fine_tune_fills_the_same_row(
    board: Leaderboard, world: tuple[str, str], store: str, files: dict[str, str]
) -> None:
    """Whatever own tasks there are, and whatever is done to their rows: the row is the checkpoint's on the twelve."""

    ours = next(row for row in board.rows if row.kind == "ours")
    path = Path(files["weather"]).parent / "rows.jsonl"
    form = FinetuneAllParameters(
        preset="demo", store=store, datasets=world[1], tasks=[files["weather"]], overrides=OVERRIDES
    )
    with changed(path, "\n".join(path.read_text(encoding="utf-8").splitlines()[:40]) + "\n"):
        again = finetune_all(form)
    row = next(found for found in again.rows if found.kind == "ours" and found.suite == ours.suite)
    assert row.percent["rte"] == ours.percent["rte"]
    assert row.cells["weather"].own_data != ours.cells["weather"].own_data


def test_the_command_shows_the_column_of_the_file_that_it_was_given(
    board: Leaderboard, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Leaderboard] = []
    monkeypatch.setattr(commands, "fill", lambda *_, **__: None)
    monkeypatch.setattr(commands, "run_board", lambda *_: (board, "a page"))
    monkeypatch.setattr(commands, "show_board", lambda found, _: shown.append(found))
    commands.finetune(argparse.Namespace(task=files["weather"], no_aux_lm=False))
    assert shown[0].own_tasks == ["weather"]
    assert shown[0].rows


def test_one_own_task_needs_no_datasets_and_no_settings(
    board: Leaderboard, store: str, shelf: Store, files: dict[str, str]
) -> None:
    """A fine-tune has the settings of the demo, which pre-trained, its file's batch size, and the option's epochs."""

    form = FinetuneParameters(task=files["weather"], store=store, epochs=2)
    form.check()
    found = finetune(form)
    assert found.own_tasks == ["weather"]
    ours = next(row for row in found.rows if row.kind == "ours")
    assert set(ours.percent) == {"weather"}
    assert " on these rows\n" in newest("finetune")[1][0]["data"]
    tuned = [shelf.manifest(model)["config"]["finetune"] for model in shelf.list("finetune")]
    (new,) = (each for each in tuned if each["epochs"] == 2)
    assert (new["lr"], new["batch_size"], new["warmup"], new["seed"]) == (5e-4, 4, 0.1, 0)
    (suite,) = Tracker().search("gptmill/leaderboard", {"suite": ours.suite})
    assert suite.data.tags["settings_of"] == "preset demo, which pre-trained the checkpoint"


def test_a_task_that_is_named_after_its_rows_is_fine_tuned(board: Leaderboard, store: str, tmp_path: Path) -> None:
    """Prefect's keys have no underscore, so that such a task once failed after its training."""
    rows = tmp_path / "multi_semi.csv"
    rows.write_text("text,label\n" + "".join(f"of {n % 2},{'ab'[n % 2]}\n" for n in range(40)), encoding="utf-8")
    form = FinetuneParameters(task=init_task(str(rows)), store=store)
    form.check()
    assert "multi_semi" in finetune(form).own_tasks


def test_a_call_for_a_single_text_leaves_the_pairs_their_floors(
    board: Leaderboard, world: tuple[str, str], store: str, files: dict[str, str], tmp_path: Path
) -> None:
    """The suite's page is of all that the suite holds: a call that has no pair to overlap took overlap's row away."""

    def floors(found: Leaderboard) -> dict[str, dict[str, str]]:
        ours = next(row for row in found.rows if row.kind == "ours")
        (run,) = Tracker().search(EXPERIMENT, {"suite": ours.suite})
        path = Tracker().client.download_artifacts(run.info.run_id, "scores.csv", str(tmp_path))
        kept = csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines())
        return {row["suite"].rpartition(" ")[0]: row for row in kept if row["kind"] == "baseline"}

    before = floors(board)
    assert {name: float(row["rte"]) for name, row in before.items()}["overlap"] > 0
    again = finetune_all(
        FinetuneAllParameters(
            preset="demo", store=store, datasets=world[1], tasks=[files["topics"]], overrides=OVERRIDES
        )
    )
    assert floors(again) == before
    assert [floor.percent["rte"] for floor in again.floors] == [floor.percent["rte"] for floor in board.floors]


def test_predict_and_evaluate_know_it(
    board: Leaderboard,
    world: tuple[str, str],
    store: str,
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:

    def answer(task: str, row: dict[str, str]) -> dict[str, Any]:
        stdin = io.TextIOWrapper(io.BytesIO(json.dumps(row).encode() + b"\n"))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["predict", task, "--model", "latest", "--store", store]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    for task in ("weather", files["weather"]):
        found = answer(task, {"forecast": "rain", "claim": "wet"})
        assert found["label"] in ("false", "true")
        assert sum(found["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert len(answer("topics", {"text": "of thing 3"})["probabilities"]) == 20
    assert 0 <= answer("grades", {"a": "x", "b": "y"})["score"] <= 5
    assert main(["evaluate", files["topics"], "--model", "latest", "--store", store, "--datasets", world[1]]) == 0
    assert "macro_f1" in capsys.readouterr().out
    assert main(["predict", "wether", "--model", "latest", "--store", store]) == 2
    assert "found 'wether', did you mean weather?" in capsys.readouterr().err


def test_mlflow_loads_and_calls_a_registered_model(board: Leaderboard, store: str, tmp_path: Path) -> None:
    rows = [
        {"forecast": f"{sky} today", "claim": f"it is {claim}"} for sky in ("rain", "sun") for claim in ("wet", "dry")
    ]
    mlflow.set_tracking_uri(Tracker().uri)
    loaded = mlflow.pyfunc.load_model("models:/gptmill-weather@champion")
    found = loaded.predict(pd.DataFrame(rows, index=[7, 8, 9, 10]))
    expected = list(predict(Store(store), "weather", "best", [json.dumps(row).encode() for row in rows]))
    assert found["label"].tolist() == [answer["label"] for answer in expected]
    for label in ("false", "true"):
        shares = [answer["probabilities"][label] for answer in expected]
        assert found[f"probability {label}"].tolist() == pytest.approx(shares, abs=1e-6)
    assert list(found.index) == [7, 8, 9, 10]
    assert loaded.metadata.signature.inputs.input_names() == ["forecast", "claim", "premise", "hypothesis", "id"]
    none = loaded.predict(pd.DataFrame({"forecast": [], "claim": []}, dtype=str))
    assert (len(none), list(none.columns)) == (0, list(found.columns))
    with pytest.raises(Exception, match="claim"):
        loaded.predict(pd.DataFrame(rows)[["forecast"]])
    blank = loaded.predict(pd.DataFrame([rows[0], {"forecast": "", "claim": " "}]))
    first, second = blank["note"].tolist()
    assert first == ""
    assert "expected text that is not empty" in second

    grades = mlflow.pyfunc.load_model("models:/gptmill-grades/latest").predict(pd.DataFrame({"a": ["x"], "b": ["y"]}))
    assert list(grades.columns) == ["score"]
    models = mlflow.tracking.MlflowClient().search_registered_models("name LIKE 'gptmill-pretrained%'")
    writer = mlflow.pyfunc.load_model(f"models:/{models[0].name}@champion")
    drawn = [writer.predict(pd.DataFrame({"prompt": ["the man"]}), params={"max_tokens": 4, "seed": s}) for s in (1, 1)]
    assert drawn[0].equals(drawn[1])
    assert drawn[0]["continuation"][0].strip()


def test_a_model_is_refused_whose_bytes_are_not_its_digests(board: Leaderboard, store: str, tmp_path: Path) -> None:
    for content in ({"stage": "finetune", "digest": "0" * 64, "url": f"{store}/finetune/{'0' * 64}"}, {"stage": "x"}):
        (tmp_path / "artifact.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"found no complete artifact|digest"):
            _load_pyfunc(str(tmp_path / "artifact.json"))


def test_prompts_and_sweeps_take_it(
    board: Leaderboard, world: tuple[str, str], store: str, files: dict[str, str]
) -> None:
    asked = FewShotParameters(
        store=store,
        checkpoints=["latest"],
        datasets=world[1],
        tasks=[files["weather"], "rte"],
        shots=[0, 1],
        max_rows=8,
    )
    asked.check()
    (table,) = few_shot(asked)
    assert {row[0] for row in table.rows} == {"weather", "rte"}
    plan = {
        "preset": "demo",
        "objective": "dev/score",
        "tasks": [files["topics"]],
        "trials": 2,
        "rungs": 1,
        "settings": {"finetune": {"epochs": 1, "max_train_rows": 16}},
        "space": {"finetune": {"lr": [1e-3, 2e-3]}},
    }
    form = SweepParameters(sweep=plan, store=store, datasets=world[1], checkpoint="latest")
    form.check()
    assert "topics/dev/score" in sweep(form).winner.metrics


def test_check_prints_what_a_task_holds(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "check", files["weather"]]) == 0
    text = capsys.readouterr().out
    for words in (
        "weather: pair, 2 labels, scored by F1 of true, accuracy",
        "rows.jsonl (30% of its rows, drawn by seed 0)",
    ):
        assert words in text
    assert "rows of dev that are in train, too: 18" in text
    assert "note: 18 dev rows: a score moves by 5.6 with each of them" in text
    assert main(["datasets", "check", files["grades"]]) == 0
    assert "a graded score from 0 to 5" in capsys.readouterr().out
    assert main(["datasets", "check", "./weather.json"]) == 2


def test_forms_list_an_own_task_once_it_is_deployed(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def listed(flow: str = "finetune", name: str = "TaskName") -> list[str]:
        with get_client(sync_client=True) as client:
            schema = client.read_deployment_by_name(f"{flow}/{flow}").parameter_openapi_schema or {}
        return list(schema["definitions"][name]["enum"])

    weather, gone = files["weather"], write_weather(tmp_path / "gone")
    Path(gone).write_text(Path(gone).read_text().replace('"weather"', '"mood"'))
    changes = deploy(str(tmp_path / "store"), "", Settings(), [weather, gone])
    assert changes.done["own tasks"] == {"created": [f"weather ({weather})", f"mood ({gone})"]}
    assert listed() == [*REGISTRY, *BEYOND, "weather", "mood"]
    assert listed("few-shot", "PromptTaskName")[-2:] == ["weather", "mood"]
    again = deploy(str(tmp_path / "store"), "", Settings())
    assert again.done["own tasks"] == {"unchanged": [f"weather ({weather})", f"mood ({gone})"]}
    assert set(again.done["deployments"]) == {"unchanged"}
    Path(gone).unlink()
    assert deploy(str(tmp_path / "store"), "", Settings()).done["own tasks"]["removed"] == [f"mood ({gone})"]
    assert listed() == [*REGISTRY, *BEYOND, "weather"]
    with get_client(sync_client=True) as client:
        there = client.read_deployment_by_name("finetune/finetune")
        schema = with_own_tasks(there.parameter_openapi_schema or {}, [weather])
        former = {"job_variables": {}, "parameter_openapi_schema": schema}
        client.request("PATCH", f"/deployments/{there.id}", json=former)  # version 0.1.0 listed the files
    assert deploy(str(tmp_path / "store"), "", Settings()).done["own tasks"] == {"unchanged": [f"weather ({weather})"]}
    assert listed() == [*REGISTRY, *BEYOND, "weather"]
    assert FinetuneParameters(task=weather).task == weather
    with pytest.raises(ValueError, match="task"):
        FinetuneParameters(task="weather")
    monkeypatch.setenv(OWN_TASKS, (there.job_variables or {})["env"][OWN_TASKS])  # as its worker does
    assert FinetuneParameters(task="weather").task == weather
    assert FinetuneParameters(task="rte").task == "rte"


def test_two_tasks_of_one_name_are_refused(board: Leaderboard, world: tuple[str, str], files: dict[str, str]) -> None:
    with pytest.raises(InputError, match="found weather twice, expected each name once"):
        chosen_tasks([files["weather"], files["weather"].replace("/weather/", "/weather/../weather/")], world[1])
    (task,) = chosen_tasks([files["weather"]], "")
    assert task.settings(preset_named("demo")).batch_size == 4
