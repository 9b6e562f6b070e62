"""The pool of worker processes: it hears no signal to the group, and ends with its owner however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
OWNER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tasks.jobs.parallel import partition_map

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)

if __name__ == "__main__":
    with partition_map(processes=2) as parallel:
        list(parallel(work, [sys.argv[1]] * 4))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_owner_and_without_a_word(tmp_path: Path, number: signal.Signals) -> None:
    script, folder = tmp_path / "owner.py", tmp_path / "workers"
    script.write_text(OWNER, encoding="utf-8")
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2:
        assert owner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = psutil.Process(owner.pid).children(recursive=True)
    assert len(children) >= 3  # two workers and multiprocessing's resource tracker
    if number == signal.SIGKILL:
        owner.kill()  # the owner alone
    else:
        os.killpg(owner.pid, number)  # all of them, as a terminal does
    _, said = owner.communicate(timeout=30)  # every process that holds the pipe has ended
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert said.count("Traceback") == (0 if number == signal.SIGKILL else 1)  # the owner's own
