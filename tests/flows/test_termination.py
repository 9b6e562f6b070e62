"""SIGTERM where a pipeline waits or hands over: for a lock, for another try, for the store. See also `test_kill.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trials import termination
from tests.trials.scenarios import Trial, make_world, small


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_waits_ends_when_it_is_told_to_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "_LEFT_SECONDS", 1.0)
    make_world(tmp_path / "world", small(300))
    trial = Trial(tmp_path / "trial", tmp_path / "world")
    for stage in ("retrying", "waiting", "committing"):  # the first run of all makes the lock that the second waits for
        for made in ("pretrain", "finetune"):
            shutil.rmtree(Path(trial.store, made), ignore_errors=True)
        _, _, seconds, code, said, _, left, again = termination.run(trial, stage, "group-TERM")
        assert (code, left, again) == ("143", "nothing", "0"), stage
        assert said.endswith("0 of errors; gptmill: ended by SIGTERM; the same command goes on from here"), stage
        assert float(seconds) < 15, stage
