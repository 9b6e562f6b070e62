"""A store and an MLflow home that an earlier version wrote: found, gone on with, loaded (tests/former/README.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flows.forms.checks import check_addresses
from flows.forms.parameters import PipelineParameters
from flows.pipeline import pipeline
from gptcore.base.files import read_json
from tasks.report.suites import read_rows
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.packages import install
from tests.tasks.stores import verify

pytestmark = pytest.mark.usefixtures("prefect_server")
ROOT = Path(__file__).resolve().parents[2]
ENTRY_POINT = "tasks.tracking.database:artifact_repository"
ARCHIVE = Path(__file__).resolve().parents[1] / "former" / "home-and-store.tar.xz"
WRITTEN_IN = "/former"
_MAKER = "AuthenticAMD"
"""Maker of the CPU that the archive was written on: AMD's machines compute the same bits again, Intel's do not."""
STAGES = ("corpus", "dataset", "finetune", "ngrams", "pretrain", "shards", "tokenizer")


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The archive as it is, moved here: its addresses name no folder. Trainings get one core, as then."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / WRITTEN_IN.strip("/")
    monkeypatch.setenv("GPTMILL_HOME", str(folder / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield folder
    os.sched_setaffinity(0, cores)


def run_pipeline(folder: Path, family: str, select: str = "dev") -> None:
    """Run a pipeline as the former version did, when dev rows chose epochs, and the preset had Adam."""
    overrides = tomllib.loads((folder / "settings.toml").read_text())
    overrides["pretrain"] = {"optimizer": "adam", "lr": 2e-3, "warmup_steps": 100, **overrides.get("pretrain", {})}
    overrides["finetune"] = {**overrides.get("finetune", {}), "select": select}
    form = {"preset": "demo", "family": family, "overrides": overrides, "tasks": ["rte"], "seeds": 1}
    places = {"corpus": "world/books", "datasets": "world/datasets", "store": "store"}
    form |= {name: str(folder / place) for name, place in places.items()}
    pipeline(PipelineParameters.model_validate(form))


def files_of(folder: Path) -> dict[str, int]:
    """Every file of the artifacts -> when it was written."""
    return {str(path): path.stat().st_mtime_ns for stage in STAGES for path in (folder / "store" / stage).rglob("*")}


def test_nothing_of_a_former_store_is_computed_anew(former: Path) -> None:
    """The only new rows are the baselines', which have a new version, and those that stand beside ours."""
    store = Store(str(former / "store"))
    counts = {stage: len(store.list(stage)) for stage in STAGES}
    assert counts == dict.fromkeys(STAGES, 2)
    for stage in STAGES:
        for artifact in store.list(stage):
            verify(store, artifact)
    before, client = files_of(former), Tracker().client
    runs = {run.info.run_id for run in client.search_runs([e.experiment_id for e in client.search_experiments()])}
    for family in ("gpt", "bert"):
        run_pipeline(former, family)
    assert files_of(former) == before
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found = client.search_runs(experiments)
    assert {run.info.run_id for run in found if run.data.tags.get("kind") not in ("baseline", "beside")} <= runs
    assert runs <= {run.info.run_id for run in found}
    assert [row.name.split(",")[0] for row in read_rows(Tracker()) if row.chosen_on == "dev"] != []
    versions = {(found.name, int(found.version)) for found in client.search_model_versions()}
    assert versions == {(name, each) for name in ("gptmill-rte", "gptmill-pretrained-synthetic") for each in (1, 2)}


def cpu_maker() -> str:
    """The CPU's maker as Linux names it; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((line.split()[-1] for line in lines if line.startswith("vendor_id")), "")


def test_a_former_interrupted_training_comes_to_the_bits_of_the_uninterrupted(former: Path) -> None:
    import torch

    (workspace,) = (former / "interrupted").iterdir()
    place = former / "store" / "pretrain" / workspace.name
    finished = place.rename(former / "finished")
    (former / "store" / ".work" / "pretrain").mkdir(parents=True)
    resumed = workspace.rename(former / "store" / ".work" / "pretrain" / workspace.name)
    shutil.copytree(finished / "snapshots", resumed / "snapshots")  # those before its checkpoint were left out
    run_pipeline(former, "gpt")
    log = (place / "log.txt").read_text()
    assert "resuming from" in log
    assert "step-00000020" in log
    expected = read_json(finished / "manifest.json")
    found = read_json(place / "manifest.json")
    assert found["counts"]["tokens_seen"] == expected["counts"]["tokens_seen"]
    names = [file["path"] for file in expected["files"]]
    assert [file["path"] for file in found["files"]] == names
    weights = [name for name in names if name.endswith(".safetensors")]
    assert len(weights) == 7
    then = read_json(former / "answers.json")
    # MKL, whose products are torch's in float32, takes other ways on AMD's machines than on Intel's of the same kind.
    theirs = (then["torch"], then["cpu"], _MAKER)
    if (torch.__version__, torch.backends.cpu.get_cpu_capability(), cpu_maker()) == theirs:
        assert all((place / name).read_bytes() == (finished / name).read_bytes() for name in weights)
    else:  # other instructions sum in another order
        from safetensors.numpy import load_file

        for name in weights:
            there = load_file(finished / name)
            for tensor, values in load_file(place / name).items():
                np.testing.assert_allclose(values, there[tensor], rtol=1e-3, atol=1e-4)


ASK = """
import json, mlflow, pandas as pd
asked = json.load(open("answers.json"))["answers"]
said = {model: mlflow.pyfunc.load_model(f"models:/{model}").predict(pd.DataFrame(each["rows"])).to_dict("records")
        for model, each in asked.items()}
json.dump(said, open("said.json", "w"))
"""


def test_former_registered_models_say_what_they_said(
    former: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To MLflow alone, in a process of its own, once a command of ours has seen the home that was moved."""
    install(former / "site", "mlflow.artifact_repository", "mlflow-artifacts", ENTRY_POINT)
    check_addresses({"store": str(former / "store")})
    for _ in range(2):
        client = Tracker().client
    (said,) = [record.getMessage() for record in caplog.records if "wherever it lies" in record.getMessage()]
    assert said.startswith(f"{former}/home/mlflow.db: the files of its 56 runs")
    places = {client.get_experiment(str(number)).artifact_location for number in (1, 2, 3)}
    assert places == {"mlflow-artifacts:/"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", Tracker().uri)
    monkeypatch.setenv("PYTHONPATH", f"{former / 'site'}:{os.environ.get('PYTHONPATH', ROOT)}")
    subprocess.run([sys.executable, "-c", ASK], cwd=former, check=True)
    for model, asked in read_json(former / "answers.json")["answers"].items():
        answers = read_json(former / "said.json")[model]
        for answer, expected in zip(answers, asked["answers"], strict=True):
            answer.pop("note", None)  # that a text was cut, which earlier versions did not say
            assert answer == pytest.approx(expected, abs=1e-5)
