"""One S3 store for several hosts: over a bad network, and worked on by two hosts at once."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.credentials import S3
from flows.stack import processes, s3
from infra.chaos.ground import LIMIT_SECONDS, Ground, unclear
from infra.chaos.proxy import SHARES, FaultPlan, Proxy
from infra.trials import Trial

PORT = 4640
_COMMANDS = 6


@contextmanager
def s3_server(root: Path) -> Iterator[None]:
    """The full stack's S3 server alone, and this process as its client."""
    os.environ["GPTMILL_HOME"] = str(root / "objects")
    (root / "objects").mkdir(exist_ok=True)
    os.environ |= {S3[0]: f"http://{s3.HOST}:{PORT}", S3[1]: "chaos", S3[2]: secrets.token_hex(24)}
    s3.prepare(os.environ)
    service = s3.s3(PORT, os.environ)
    process = processes.start(service, root)
    try:
        processes.wait_until_ready(service, process, root)
        yield
    finally:
        processes.stop([(process, signal.SIGTERM)])


def over_bad_network(ground: Ground, name: str, seed: str) -> tuple[str, list[str]]:
    """A pipeline whose store is behind a flaky proxy: the same command, a few times if it must be, ends the same."""
    proxy = Proxy(PORT, FaultPlan(seed, SHARES))
    faults = []
    with proxy.running():
        trial = _trial(ground, name, name)
        trial.more[S3[0]] = f"http://{s3.HOST}:{proxy.port}"
        codes: list[int] = []
        while len(codes) < _COMMANDS and (not codes or codes[-1]):
            codes.append(trial.start().wait(LIMIT_SECONDS))
            faults += unclear(trial, codes[-1]) if codes[-1] else []
    how = f"{proxy.faults.total()} of {proxy.requests} requests; exit codes {codes}"
    return how, [*faults, *(["it never came through"] if codes[-1] else []), *ground.faults(trial)]


def from_two_hosts(ground: Ground, name: str) -> tuple[str, list[str]]:
    """Two state folders, one store, the same pipeline at the same time: both end well, with one artifact each."""
    hosts = [_trial(ground, f"{name}-{host}", name) for host in "ab"]
    codes = [process.wait(LIMIT_SECONDS) for process in [host.start() for host in hosts]]
    faults = [f"exit codes {codes}"] if any(codes) else []
    for host in hosts:
        faults += [f"{host.folder.name}: {fault}" for fault in ground.faults(host)]
        if not faults:
            shutil.rmtree(host.folder)
    return f"exit codes {codes}", faults


def _trial(ground: Ground, name: str, prefix: str) -> Trial:
    """A host's trial on a store of the S3 server."""
    trial = Trial(ground.root / name, ground.world, f"s3://{s3.BUCKET}/{prefix}")
    shutil.rmtree(trial.folder, ignore_errors=True)
    shutil.copytree(ground.root / "home", trial.home)
    return trial
