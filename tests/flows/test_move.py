"""A machine's state folder and store, saved, and put back on an empty machine under another path, for another user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import install

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "tests" / "former" / "home-and-store.tar.xz"
PIPELINE = ("pipeline", "--preset=demo", "--config=settings.toml", "--tasks=rte", "--seeds=1", "--corpus=world/books")
ADAM = '[pretrain]\noptimizer = "adam"\nlr = 0.002'  # as the preset had it then
NOBODY = 65534
ASK = """
import mlflow, pandas as pd
(name,) = [model.name for model in mlflow.MlflowClient().search_registered_models() if "rte" in model.name]
model = mlflow.pyfunc.load_model(f"models:/{name}@champion")
print(model.predict(pd.DataFrame({"premise": ["a b"], "hypothesis": ["a"]})).to_json(orient="records"))
"""
QUESTION = '{"premise": "a b", "hypothesis": "a"}\n'


class Machine:
    """A folder with a state folder and a store, where commands run, for another user where root can."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder, self.as_user = folder, list[str]()
        home = {"GPTMILL_HOME": str(folder / ".gptmill"), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "AWS_"))
        }
        self.environment = {**kept, **home, "PYTHONPATH": f"{ROOT}:{site}"}

    def python(self, *arguments: str, given: str = "", code: int = 0, **environment: str) -> str:
        command = [*self.as_user, sys.executable, *arguments]
        whole = {**self.environment, **environment}
        done = subprocess.run(
            command, cwd=self.folder, env=whole, input=given, capture_output=True, text=True, check=False, timeout=400
        )
        assert done.returncode == code, f"{' '.join(arguments)}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        return done.stdout + (done.stderr if code else "")

    def gptmill(self, *arguments: str, **more: object) -> str:
        return self.python("-m", "flows.cli", *arguments, **more)  # type: ignore[arg-type]

    def asked(self, store: str, uri: str) -> dict[str, object]:
        """What it says of its models: the leaderboard, an answer, the same of MLflow's own loader."""
        board = self.gptmill("leaderboard", "--format=csv").partition("\n\n")[0]
        answer = json.loads(self.gptmill("predict", "rte", "--store", store, given=QUESTION))
        (loaded,) = json.loads(self.python("-c", ASK, MLFLOW_TRACKING_URI=uri).splitlines()[-1])
        assert loaded["label"] == answer["label"]
        assert loaded["probability entailment"] == pytest.approx(answer["probabilities"]["entailment"], abs=1e-5)
        return {"board": board, "answer": answer}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where another user may enter, which may not be so of pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="gptmill-move-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def machines(folder: Path) -> tuple[Machine, Machine]:
    """A with books, settings and datasets; B with nothing but these."""
    install(
        folder / "site", "mlflow.artifact_repository", "mlflow-artifacts", "tasks.tracking.database:artifact_repository"
    )
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for name in "ab":
        (folder / name).mkdir()
        shutil.copytree(folder / "former" / "world", folder / name / "world")
        settings = (folder / "former" / "settings.toml").read_text()
        (folder / name / "settings.toml").write_text(settings.replace("[pretrain]", ADAM))
    first, second = (Machine(folder / name, folder / "site") for name in "ab")
    return first, second


def leave_for(machine: Machine, other: Machine, backup: Path) -> None:
    """Give a machine to another user, and make the path of the other one impossible."""
    if os.geteuid() == 0:
        machine.as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        machine.as_user += [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]  # to root's own Python
        for path in [*machine.folder.rglob("*"), machine.folder, *backup.rglob("*"), backup]:
            os.chown(path, NOBODY, NOBODY)
    other.folder.rename(other.folder.with_name("gone"))
    other.folder.write_text("no folder\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_former_home_is_saved_and_goes_on_elsewhere(folder: Path) -> None:
    """The home of an older version, on SQLite, with a training that was killed, which goes on to the same bits."""
    first, second = machines(folder)
    shutil.copytree(folder / "former" / "home", first.folder / ".gptmill")
    shutil.copytree(folder / "former" / "store", first.folder / "runs" / "demo")
    (interrupted,) = (folder / "former" / "interrupted").iterdir()
    pretrained = Path("runs", "demo", "pretrain", interrupted.name)
    work = first.folder / "runs" / "demo" / ".work" / "pretrain" / interrupted.name
    shutil.copytree(interrupted, work)
    shutil.copytree(first.folder / pretrained / "snapshots", work / "snapshots")
    shutil.rmtree(folder / "former")
    first.gptmill("predict", "rte", "--store=runs/demo", given=QUESTION)
    before = first.asked("runs/demo", f"sqlite:///{first.folder}/.gptmill/mlflow.db")
    first.gptmill("backup", f"--to={folder / 'saved'}")

    leave_for(second, first, folder / "saved")
    assert "15 of 15 artifacts" in second.gptmill("restore", str(folder / "saved"))
    uri = f"sqlite:///{second.folder}/.gptmill/mlflow.db"
    assert second.asked("runs/demo", uri) == before
    second.gptmill("finetune", "rte", "--checkpoint=latest", "--datasets=world/datasets", "--epochs=1", "--seeds=1")
    whole = (second.folder / pretrained).rename(second.folder / "whole")
    second.gptmill(*PIPELINE, "--datasets=world/datasets")
    assert "resuming from" in (second.folder / pretrained / "log.txt").read_text()
    then, now = (json.loads((each / "manifest.json").read_text()) for each in (whole, second.folder / pretrained))
    assert now["counts"]["tokens_seen"] == then["counts"]["tokens_seen"]
    assert first.folder.read_text() == "no folder\n"


def free_ports(first: int = 21_000) -> dict[str, int]:
    """A port for each server of the full stack; the S3 server takes some beside its own."""
    span = (0, 1, 2, 3, 10_000, 10_001, 10_002, 10_003)

    def free(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    s3 = next(port for port in range(first, first + 9_000, 10) if all(free(port + each) for each in span))
    return {"prefect": s3 + 4, "mlflow": s3 + 5, "postgres": s3 + 6, "s3": s3}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_stack_is_saved_and_goes_on_elsewhere(folder: Path) -> None:
    """PostgreSQL and S3: saved while it runs, put back where no password of the first one is known, and upgraded."""
    first, second = machines(folder)
    ports = {name: f"--{name}-port={port}" for name, port in free_ports().items()}
    store, data = "--store=s3://gptmill/runs", "--datasets=world/datasets"
    first.gptmill("up", "--full", *ports.values())
    try:
        first.gptmill(*PIPELINE, data, store)
        before = first.gptmill("leaderboard", "--format=csv").partition("\n\n")[0]
        answer = first.gptmill("predict", "rte", store, given=QUESTION)
        assert ", whole" in first.gptmill("backup", f"--to={folder / 'saved'}", store)
    finally:
        first.gptmill("down")
    assert "start: gptmill up --full" in first.gptmill("backup", f"--to={folder / 'saved'}", "--store=runs", code=2)
    first.folder.rename(folder / "gone")
    first.folder.write_text("no folder\n")
    second.gptmill("restore", str(folder / "saved"), ports["postgres"], ports["s3"])
    home = second.folder / ".gptmill"
    (home / "postgres.version").write_text("mlflow-3.1.0 prefect-3.0.0\n")
    try:
        second.gptmill("up", "--full", *ports.values())
        assert len(list((home / "before-upgrade").glob("*-mlflow-3.1.0-prefect-3.0.0.dump"))) == 3
        assert second.gptmill("leaderboard", "--format=csv").partition("\n\n")[0] == before
        assert second.gptmill("predict", "rte", store, given=QUESTION) == answer
        lines = (line for line in (home / "credentials").read_text().splitlines() if not line.startswith("#"))
        credentials = dict(line.split("=", 1) for line in lines)
        (loaded,) = json.loads(second.python("-c", ASK, **credentials).splitlines()[-1])
        assert loaded["label"] == json.loads(answer)["label"]
        second.gptmill("finetune", "rte", "--checkpoint=latest", data, store, "--epochs=1", "--seeds=1")
    finally:
        second.gptmill("down")
