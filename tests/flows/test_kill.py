"""`kill -9` of the whole process group in the middle, the same command again: the same leaderboard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.world import OVERRIDES, small_world


def toml(overrides: dict[str, dict[str, object]]) -> str:
    return "".join(
        f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for section, values in overrides.items()
    )


@pytest.mark.timeout(600)
def test_a_killed_pipeline_goes_on_to_the_same_leaderboard(tmp_path: Path) -> None:
    books, datasets = small_world(tmp_path / "world")
    # Long enough to be killed inside pre-training, with checkpoints to go on from.
    pretrain = {**OVERRIDES["pretrain"], "steps": 240, "checkpoint_every": 20, "eval_every": 120}
    (tmp_path / "settings.toml").write_text(toml({**OVERRIDES, "pretrain": pretrain}), encoding="utf-8")

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flows.cli", "pipeline", "--preset", "demo", "--tasks", "rte,storycloze"]
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

    def finish(name: str) -> str:
        process = start(name)
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, (tmp_path / f"{name}.log").read_text(encoding="utf-8")[-2000:]
        return output

    victim = start("killed")
    deadline = time.monotonic() + 240
    work = tmp_path / "killed" / "store" / ".work" / "pretrain"
    while not list(work.glob("*/checkpoints/step-*/manifest.json")):
        assert victim.poll() is None, (tmp_path / "killed.log").read_text(encoding="utf-8")[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    assert not (tmp_path / "killed" / "store" / "pretrain").exists()

    after = finish("killed")
    resumed = list((tmp_path / "killed" / "store" / "pretrain").glob("*/log.txt"))
    assert len(resumed) == 1
    assert after == finish("untouched")
    assert "pre-trained" in after
