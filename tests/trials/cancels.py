"""A task that is cancelled at any moment leaves no job behind.

    python -m tests.trials.cancels [--count 1000] [--at-once 8]

Threads follow jobs (a stand-in that sleeps), several at once so that the machine is loaded. Into each an exception is
raised at a random moment of the job's first half second, as Prefect cancels a task, and up to three more within
milliseconds after it, which meet the clean-up after the first. A job that runs five seconds after its thread has ended
is left behind; so is a file of its outcome.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import psutil

from tasks.jobs.launch import run_job

_JOB = "tests.tasks.fake_job"
_FIRST_SECONDS, _MORE_SECONDS, _LEFT_SECONDS = 0.5, 0.003, 5.0
_EXIT = ctypes.py_object(SystemExit)  # it ends a thread without a word


def jobs_below(folder: Path) -> list[psutil.Process]:
    """The processes of this one's jobs that have their workspace in a folder."""
    jobs = []
    for child in psutil.Process().children(recursive=True):
        try:
            if any(word.startswith(f"{folder}/") for word in child.cmdline()):
                jobs.append(child)
        except psutil.NoSuchProcess:
            continue
    return jobs


def leaves_behind(workspace: Path, draws: random.Random) -> bool:
    """Whether a job that is cancelled leaves anything behind."""
    inside, entered = FileIO(os.devnull), list[bool]()

    def follow() -> None:
        with inside:  # its end is one instruction, which no exception cuts short
            entered.append(True)
            run_job(_JOB, {"seconds": 60}, workspace, on_metrics=lambda records: None, grace=_LEFT_SECONDS)

    thread = threading.Thread(target=follow)
    thread.start()
    while not entered:
        time.sleep(0.001)
    cancel, number, error = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread.ident or 0), _EXIT
    time.sleep(draws.uniform(0, _FIRST_SECONDS))
    for _ in range(draws.randint(1, 4)):
        if not inside.closed:  # no other thread runs in between: once it has ended its number is the next one's
            cancel(number, error)
        time.sleep(draws.uniform(0, _MORE_SECONDS))
    thread.join()
    deadline = time.monotonic() + _LEFT_SECONDS
    while (left := [*jobs_below(workspace), *workspace.glob(".outcome*")]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for job in left:
        if isinstance(job, psutil.Process):
            job.kill()
    return bool(left)


def left_behind(root: Path, count: int, at_once: int = 8) -> int:
    """How many of so many cancelled jobs leave something behind."""
    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lambda n: leaves_behind(root / str(n), random.Random(n)), range(count)))


def main() -> None:
    """All cancels; the exit code is 1 where a job was left behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gptmill-cancels-") as root:
        left = left_behind(Path(root), given.count, given.at_once)
    print(f"{given.count} cancels in {time.monotonic() - started:.0f} s, {left} jobs left behind")
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
