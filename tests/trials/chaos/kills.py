"""`kill -9` of the command, of its jobs, of its own Prefect server, all over the pipeline's life."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.trials.chaos.fixture import LIMIT_SECONDS, Fixture, come_to, end_all, jobs_of, left_over, linger, part_of
from tests.trials.chaos.plan import JOB_STAGES, LIFE, Moment
from tests.trials.scenarios import Trial

STAGES = {"caller": LIFE, "job": JOB_STAGES, "own server": LIFE[1:-1]}
"""Victim -> the parts of the pipeline's life in which it is there to be killed."""
_ATTEMPTS = 4  # a machine that is busier or quicker than in the reference run: the moment may be over


def kill(fixture: Fixture, name: str, moment: Moment) -> tuple[str, list[str]]:
    """One trial: how it went in few words, and what did not hold."""
    share = moment.share
    for _ in range(_ATTEMPTS):
        trial = fixture.trial(name, moment.stage)
        process = trial.start()
        if come_to(trial, process, moment.stage, job=moment.victim == "job"):
            span = fixture.spans[f"job {moment.stage}" if moment.victim == "job" else moment.stage][0]
            linger(trial, moment.stage, share * span)
            if process.poll() is None and (victim := _victim(trial, process, moment)):
                os.kill(victim, signal.SIGKILL)
                return _aftermath(fixture, trial, process, moment)
        share /= 2
        end_all(trial)
        process.wait()
    return "never met", ["the victim was gone each time"]


def _aftermath(
    fixture: Fixture, trial: Trial, process: subprocess.Popen[bytes], moment: Moment
) -> tuple[str, list[str]]:
    hit = part_of(trial)
    code = process.wait(LIMIT_SECONDS)
    faults = []
    if moment.victim == "caller" and (left := left_over(trial)):
        faults.append(f"orphans: {left}")
    how = "went on by itself"
    if code:
        how = "same command again"
        if again := trial.start().wait(LIMIT_SECONDS):
            return f"in {hit}: {how}", [*faults, f"the same command ended with exit code {again}"]
    return f"in {hit}: {how}", [*faults, *fixture.faults(trial)]


def _victim(trial: Trial, process: subprocess.Popen[bytes], moment: Moment) -> int | None:
    if moment.victim == "caller":
        return process.pid
    if moment.victim == "job":
        jobs = jobs_of(trial)
    else:
        jobs = [pid for pid, words in trial.processes().items() if "-m flows.servers.temporary_server" in words]
    return jobs[moment.draw % len(jobs)] if jobs else None
