"""A machine's state folder and store, saved, and put back on an empty machine under another path, for another user."""

from __future__ import annotations

import json
import os
import shutil
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
model = mlflow.pyfunc.load_model("models:/gptmill-rte@champion")
print(model.predict(pd.DataFrame({"premise": ["a b"], "hypothesis": ["a"]})).to_json(orient="records"))
"""
QUESTION = '{"premise": "a b", "hypothesis": "a"}\n'


class Machine:
    """A folder with a state folder and a store, where commands run, for another user where root can."""

    def __init__(self, folder: Path, site: Path, ports: list[str]) -> None:
        self.folder, self.ports, self.as_user = folder, ports, list[str]()
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


def machines(folder: Path, ports: list[str]) -> tuple[Machine, Machine]:
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
    first, second = (Machine(folder / name, folder / "site", ports) for name in "ab")
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
    """That of an older version, on SQLite, with a training that was killed: it is gone on with to the same bits."""
    first, second = machines(folder, [])
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
