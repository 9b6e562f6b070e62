"""A state folder or store that takes no more bytes ends a pipeline with one line, in a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trials.scenarios import Trial, environment, make_world, small
from tests.trials.unwritable import CASES, disk, tried


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk, which root alone may do")
@pytest.mark.parametrize("name", CASES)
def test_a_place_that_takes_no_more_bytes_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    make_world(tmp_path / "world", small(40))
    trial = Trial(tmp_path / name, tmp_path / "world")
    seconds, code, (line,) = tried(CASES[name], trial)
    assert (code, seconds < 60) == (1, True)
    place = str(trial.home if CASES[name].place == "home" else trial.store)
    if CASES[name].read_only:
        assert line.startswith(f"gptmill: failed: nothing can be written to the read-only file system of {place}")
    else:
        assert line.startswith(f"gptmill: failed: no space left on the disk of {place}")
        assert "MB free, 32 MB or more needed); free some, and the same command goes on from here" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk, which root alone may do")
@pytest.mark.parametrize("command", ["finetune rte", "finetune-all", "analysis table5", "sweep plan.toml", "abstracts"])
def test_no_command_that_trains_begins_where_it_cannot_be_written_down(command: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with disk(home, "6m"):
        said = [_refused(command, home)]
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        said += [_refused(command, home), _refused(command, home / "below")]
    assert said[0].startswith(f"gptmill: failed: no space left on the disk of {home}")
    assert "MB free, 32 MB or more needed); free some, and the same command goes on from here" in said[0]
    for line in said[1:]:
        assert line.startswith(f"gptmill: failed: nothing can be written to the read-only file system of {home}")


def _refused(command: str, home: Path) -> str:
    """The one line that is said, with exit code 1."""
    words = [sys.executable, "-m", "flows.cli", *command.split()]
    done = subprocess.run(
        words, env=environment(home, {}), cwd=home.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    return line
