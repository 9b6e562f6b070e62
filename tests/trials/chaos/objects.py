"""One S3 store, the full stack's, for commands elsewhere: over a bad network, and from two hosts at once."""

from __future__ import annotations

import shutil

from flows.servers.credentials import S3
from flows.servers.stack import s3
from tests.trials.chaos.fixture import LIMIT_SECONDS, Fixture, unclear
from tests.trials.chaos.proxy import SHARES, FaultPlan, Proxy
from tests.trials.chaos.servers import PORTS
from tests.trials.scenarios import Trial

_COMMANDS = 6


def over_bad_network(fixture: Fixture, name: str, seed: str) -> tuple[str, list[str]]:
    """A pipeline whose store is behind a flaky proxy: the same command, a few times if it must be, ends the same."""
    proxy = Proxy(PORTS["s3"], FaultPlan(seed, SHARES))
    faults = []
    with proxy.running():
        trial = _trial(fixture, name, name)
        trial.more[S3[0]] = f"http://{s3.HOST}:{proxy.port}"
        codes: list[int] = []
        while len(codes) < _COMMANDS and (not codes or codes[-1]):
            codes.append(trial.start().wait(LIMIT_SECONDS))
            faults += unclear(trial, codes[-1]) if codes[-1] else []
    how = f"{proxy.faults.total()} of {proxy.requests} requests; exit codes {codes}"
    return how, [*faults, *(["it never came through"] if codes[-1] else []), *fixture.faults(trial)]


def from_two_hosts(fixture: Fixture, name: str) -> tuple[str, list[str]]:
    """Two state folders, one store, the same pipeline at the same time: both end well, with one artifact each."""
    hosts = [_trial(fixture, f"{name}-{host}", name) for host in "ab"]
    codes = [process.wait(LIMIT_SECONDS) for process in [host.start() for host in hosts]]
    faults = [f"exit codes {codes}"] if any(codes) else []
    for host in hosts:
        faults += [f"{host.folder.name}: {fault}" for fault in fixture.faults(host)]
        if not faults:
            shutil.rmtree(host.folder)
    return f"exit codes {codes}", faults


def _trial(fixture: Fixture, name: str, prefix: str) -> Trial:
    """A host's trial on a store of the S3 server."""
    trial = Trial(fixture.root / name, fixture.world, f"s3://{s3.BUCKET}/{prefix}")
    shutil.rmtree(trial.folder, ignore_errors=True)
    shutil.copytree(fixture.root / "home", trial.home)
    return trial
