"""`kill -9` or SIGTERM in the middle: nothing stays behind, and the same command again gives the same leaderboard."""

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

from tests.flows.world import OVERRIDES, small_world

CHECKPOINTS = "*/checkpoints/step-*/manifest.json"


def toml(overrides: dict[str, dict[str, object]]) -> str:
    return "".join(
        f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for section, values in overrides.items()
    )


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


@pytest.mark.timeout(600)
def test_a_killed_pipeline_goes_on_to_the_same_leaderboard(tmp_path: Path, prefect_server: Path) -> None:
    for name in ("killed", "untouched"):  # a server that makes its tables is tested elsewhere
        (tmp_path / name / "home" / "prefect").mkdir(parents=True)
        shutil.copy(prefect_server, tmp_path / name / "home" / "prefect" / "prefect.db")
    books, datasets = small_world(tmp_path / "world")
    # Long enough to be killed inside pre-training, with checkpoints to go on from.
    pretrain = {**OVERRIDES["pretrain"], "steps": 240, "checkpoint_every": 20, "eval_every": 120}
    (tmp_path / "settings.toml").write_text(
        "scratch = false\n" + toml({**OVERRIDES, "pretrain": pretrain}), encoding="utf-8"
    )

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flows.cli", "pipeline", "--preset", "demo", "--tasks", "rte"]
        command += ["--corpus", books, "--datasets", datasets, "--store", str(tmp_path / name / "store")]
        home = str(tmp_path / name / "home")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
        with open(tmp_path / f"{name}.log", "a", encoding="utf-8") as log:
            return subprocess.Popen(
                [*command, "--config", str(tmp_path / "settings.toml")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**environment, "GPTMILL_HOME": home},
            )

    def finished(name: str, process: subprocess.Popen[str]) -> str:
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, (tmp_path / f"{name}.log").read_text(encoding="utf-8")[-2000:]
        return output

    home = tmp_path / "killed" / "home"
    work = tmp_path / "killed" / "store" / ".work" / "pretrain"

    def start_and_wait(checkpoint: int) -> subprocess.Popen[str]:
        """The command, up to the first checkpoint of pre-training after that step."""
        victim, deadline = start("killed"), time.monotonic() + 240
        while not any(int(path.parent.name[5:]) > checkpoint for path in work.glob(CHECKPOINTS)):
            assert victim.poll() is None, (tmp_path / "killed.log").read_text(encoding="utf-8")[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return victim

    victim = start_and_wait(0)
    assert len(processes_of(home)) >= 3  # the command, its job, its Prefect server
    victim.kill()
    victim.communicate()
    assert_nothing_left(home, 10.0)

    reached = max(int(path.parent.name[5:]) for path in work.glob(CHECKPOINTS))
    victim = start_and_wait(reached)
    os.killpg(victim.pid, signal.SIGTERM)
    victim.communicate(timeout=60)
    assert victim.returncode == 143
    assert_nothing_left(home, 1.0)
    [said] = [line for line in (tmp_path / "killed.log").read_text(encoding="utf-8").splitlines() if "gptmill:" in line]
    assert "ended by SIGTERM" in said
    assert not (tmp_path / "killed" / "store" / "pretrain").exists()

    again, untouched = start("killed"), start("untouched")
    after = finished("killed", again)
    resumed = list((tmp_path / "killed" / "store" / "pretrain").glob("*/log.txt"))
    assert len(resumed) == 1
    assert not (resumed[0].parent / "checkpoints").exists()  # of no more use, and most of its bytes
    with sqlite3.connect(f"file:{home / 'prefect' / 'prefect.db'}?mode=ro", uri=True) as prefect:
        states = prefect.execute("select state_name, count(*) from flow_run group by state_name").fetchall()
    assert dict(states) == {"Crashed": 2, "Completed": 2}  # one killed, one told to end; the last, with its fine-tunes
    assert after == finished("untouched", untouched)
    assert "pre-trained" in after
