"""A state folder or store that takes no more bytes ends a pipeline with one line, in a minute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trials.scenarios import Trial, make_world, small
from tests.trials.unwritable import CASES, tried


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
