"""`kill -9` or SIGTERM in the middle: nothing stays behind, and the same command again goes on to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.flows.world import OVERRIDES, small_world
from tests.trials.scenarios import toml

CHECKPOINTS = "*/checkpoints/step-*/manifest.json"


def processes_of(home: Path) -> list[list[str]]:
    """Command lines of what inherited this state folder and still runs: job, pool workers, Prefect server, all."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("GPTMILL_HOME") == str(home):
                found.append(process.cmdline())
    return found


def assert_nothing_left(home: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left := processes_of(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_pipeline_goes_on_to_the_bits_of_an_undisturbed_training(tmp_path: Path, prefect_server: Path) -> None:
    """Killed, told to end, and at last let be: the weights are those of the same job, run once from its beginning."""
    home, store = tmp_path / "home", tmp_path / "store"
    (home / "prefect").mkdir(parents=True)
    shutil.copy(prefect_server, home / "prefect" / "prefect.db")  # a server that makes its tables is tested elsewhere
    books, datasets = small_world(tmp_path / "world")
    # Long enough to be killed inside pre-training, with checkpoints to go on from.
    pretrain = {**OVERRIDES["pretrain"], "steps": 240, "checkpoint_every": 20, "eval_every": 120}
    settings = tmp_path / "settings.toml"
    settings.write_text("scratch = false\n" + toml({**OVERRIDES, "pretrain": pretrain}), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    log = tmp_path / "log.txt"

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flows.cli", "pipeline", "--preset", "demo", "--tasks", "rte"]
        command += ["--corpus", books, "--datasets", datasets, "--store", str(store), "--config", str(settings)]
        with open(log, "a", encoding="utf-8") as file:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
                env={**environment, "GPTMILL_HOME": str(home)},
            )

    work = store / ".work" / "pretrain"

    def start_and_wait(checkpoint: int) -> subprocess.Popen[str]:
        """The command, up to the first checkpoint of pre-training after that step."""
        victim, deadline = start(), time.monotonic() + 240
        while not any(int(path.parent.name[5:]) > checkpoint for path in work.glob(CHECKPOINTS)):
            assert victim.poll() is None, log.read_text(encoding="utf-8")[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return victim

    victim = start_and_wait(0)
    assert len(processes_of(home)) >= 3  # the command, its job, its Prefect server
    victim.kill()
    victim.communicate()
    assert_nothing_left(home, 10.0)

    (job,) = work.glob("*/JOB.json")
    given = json.loads(job.read_text(encoding="utf-8"))
    reached = max(int(path.parent.name[5:]) for path in work.glob(CHECKPOINTS))
    victim = start_and_wait(reached)
    os.killpg(victim.pid, signal.SIGTERM)
    victim.communicate(timeout=60)
    assert victim.returncode == 143
    assert_nothing_left(home, 1.0)
    [said] = [line for line in log.read_text(encoding="utf-8").splitlines() if "gptmill:" in line]
    assert "ended by SIGTERM" in said
    assert not (store / "pretrain").exists()

    again = start()
    board, _ = again.communicate(timeout=280)
    assert again.returncode == 0, log.read_text(encoding="utf-8")[-2000:]
    assert "pre-trained" in board
    (resumed,) = (store / "pretrain").iterdir()
    assert not (resumed / "checkpoints").exists()  # of no more use, and most of its bytes
    with sqlite3.connect(f"file:{home / 'prefect' / 'prefect.db'}?mode=ro", uri=True) as prefect:
        states = prefect.execute("select state_name, count(*) from flow_run group by state_name").fetchall()
    assert dict(states) == {"Crashed": 2, "Completed": 2}  # one killed, one told to end; the last, with its fine-tunes

    untouched = tmp_path / "untouched"
    untouched.mkdir()
    (untouched / "JOB.json").write_text(json.dumps({**given, "workspace": str(untouched)}), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "gptcore.training.pretrain", str(untouched / "JOB.json")], check=True)
    expected = load_file(untouched / "model" / "model.safetensors")
    found = load_file(resumed / "model" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
