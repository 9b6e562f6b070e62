"""The manners of a training process: exit codes, the lock, an end together with its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.errors import InputError
from gptcore.machine import process


def outcome(tmp_path: Path, error: BaseException | None) -> int:
    def run(job: dict[str, Any], stop: process.StopRequest) -> None:
        assert job == {"a": 1}
        if error is not None:
            raise error

    path = tmp_path / "job.json"
    path.write_text('{"a": 1}')
    return process.main(run, [str(path)])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (RuntimeError("odd"), 1, "RuntimeError: odd"),
        (InputError("field x"), 2, "error: field x"),
        (process.NonFiniteLoss(7, "loss", float("nan"), Path("ck/step-5"), ["a.txt"] * 9), 3, "loss = nan at step 7"),
        (process.Interrupted("done"), 75, "interrupted: done"),
    ],
)
def test_exit_codes(
    tmp_path: Path, error: BaseException | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(tmp_path, error) == code
    printed = capsys.readouterr().err
    assert said in printed
    if code == 3:
        assert "ck/step-5" in printed
        assert "a.txt and 1 more" in printed


@pytest.mark.parametrize(
    ("there", "restart", "says"),
    [
        (None, 0, "RuntimeError: connection closed by peer"),
        ({"code": 2, "reason": "the other one's", "restart": 0}, 0, "the other one's"),  # also by one that starts late
        ({"code": 75, "reason": "told to stop", "restart": 0}, 0, "RuntimeError: connection closed by peer"),
        ({"code": 3, "reason": "an earlier world's", "restart": 0}, 1, "RuntimeError: connection closed by peer"),
    ],
)
def test_the_first_process_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, Any] | None, restart: int, says: str
) -> None:
    path, left = tmp_path / "job.json", tmp_path / "outcome.json"
    path.write_text("{}")
    monkeypatch.setenv(process.OUTCOME_VARIABLE, str(left))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
    if there:
        left.write_text(json.dumps(there))

    def fails(job: dict[str, Any], stop: process.StopRequest) -> None:
        raise RuntimeError("connection closed by peer")

    assert process.main(fails, [str(path)]) == process.EXIT_FAILED
    outcome = process.read_outcome(left)
    assert outcome is not None
    assert outcome.reason == says
    left.write_text('{"code": 2, "rea')
    assert process.read_outcome(left) is None


def test_bad_job_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    assert process.main(lambda job, stop: None, []) == 2
    assert process.main(lambda job, stop: None, [str(path)]) == 2
    for text in ("{", "[1]"):
        path.write_text(text)
        assert process.main(lambda job, stop: None, [str(path)]) == 2
    printed = capsys.readouterr().err
    assert "No such file" in printed
    assert "not JSON" in printed
    assert "found a list, expected a job file" in printed


def test_sigterm_is_noted_and_the_old_handler_returns() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = process.StopRequest()
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
    assert stop.requested
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_lock_has_one_holder(tmp_path: Path) -> None:
    with (
        process.job_lock(tmp_path),
        pytest.raises(TimeoutError, match="another process"),
        process.job_lock(tmp_path, 0.3),
    ):
        pass
    with process.job_lock(tmp_path, 0.0):
        pass


_CHILD = """
import os, sys, time
from gptcore.machine.process import die_with_parent
die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
_PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_an_orphan_is_told() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, _CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while _alive(child):
        assert time.monotonic() < deadline, "the orphan lives on"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_parent_that_is_gone_already_is_noticed() -> None:
    environment = os.environ | {process.PARENT_VARIABLE: "1"}
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], env=environment, capture_output=True, timeout=30, check=False
    )
    assert child.returncode == -signal.SIGTERM
    assert json.dumps(child.stdout.decode()) == '""'


def test_an_orphan_with_a_long_update_does_not_stay() -> None:
    """Its parent is gone, SIGTERM is noted, and the update never ends."""
    script = """
import time
from gptcore.machine import process
process._ORPHAN_SECONDS = 1
with process.StopRequest().listening():
    process.die_with_parent()
    time.sleep(60)
"""
    environment = os.environ | {process.PARENT_VARIABLE: "1"}  # not this process, which started it
    done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=40, check=False)
    assert done.returncode == -signal.SIGALRM
