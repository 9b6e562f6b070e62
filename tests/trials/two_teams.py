"""Two teams on one Prefect server: what `gptmill deploy` leaves alone, and what its automations act on.

    python -m tests.trials.two_teams [--port 4600]

Another team's flows, deployments, pool, automation and runs are on a server of this trial's own, runs in every state
that an automation of ours looks for: some are there before `gptmill deploy`, some come to it afterwards. Ours come to
the same states. Minutes later, what has happened to each is printed, and the exit code is 1 if one of theirs was
touched or one of ours was not. A lost run is told after 45 s in place of 9 minutes, by a constant that the trial sets.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.expected import expected
from tests.trials.scenarios import heading, options, row, started, wait
from tests.trials.schedules.stack import Receiver, Stack, receiver

_SILENT = 1.5  # heartbeats of 30 s
_DEPLOY = f"""
import sys
import flows.deployments.automations as automations
from flows.cli.main import main
automations._MISSED = {_SILENT}
sys.exit(main(["deploy", *sys.argv[1:]]))
"""
_TEAM = "finance"
_LIVE = {"lost": "Running", "alive": "Running", "suspended": "Suspended", "paused": "Paused"}
"""What a process of a run does -> the state in which it leaves the run; a lost one is killed there."""
_SET: dict[str, list[str]] = expected(__file__, "_SET")
"""What a run is put into -> the types of state on its way there."""
_OURS: dict[str, list[str]] = expected(__file__, "_OURS")
"""Our runs that something has to happen to, and which states they go through."""


class Team:
    """One team's runs on the server: of a deployment of theirs, which nobody works on."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.runs: dict[str, str] = {}
        """What each stands for -> its id."""
        self.processes: list[subprocess.Popen[bytes]] = []

    def put(self, deployment: str, when: str = "") -> None:
        """A run of a deployment in each of `_SET`.

        :param when: ends what they are called.
        """
        for name, states in _SET.items():
            run = self._create(deployment, timedelta(minutes=-5) if name == "Late" else timedelta(days=1))
            self.runs[f"{name}{when}"] = run
            for state in states:
                body = {"state": {"type": state}, "force": True}
                self.stack.request("POST", f"/flow_runs/{run}/set_state", body)

    def live(self, deployment: str, *what: str) -> None:
        """A run of a deployment in a process of its own, for each of ``what``, at the state that it is to leave."""
        for one in what:
            run = self.runs[one] = self._create(deployment, timedelta())
            command = [sys.executable, "-m", "tests.trials.two_teams", "--run", run, "--then", one]
            environment = {**self.stack.environment, "PREFECT_API_URL": self.stack.api}
            self.processes.append(started(command, self.folder / f"{run}.log", environment))
            wait(partial(self._is, run, _LIVE[one]), f"{one}: {_LIVE[one]}", 120.0)
            if one == "lost":
                wait(partial(self._beats, run), "a heartbeat", 60.0)
                self.processes[-1].kill()

    def state(self, run: str) -> str:
        """The name of a run's state."""
        return str(self.stack.run(run)["state"]["name"])

    def seen(self) -> dict[str, Any]:
        """Every run as the server has it, but for what time alone changes."""
        ticking = ("estimated_run_time", "estimated_start_time_delta", "total_run_time", "updated")
        runs = {name: self.stack.run(run) for name, run in self.runs.items()}
        return {name: {key: run[key] for key in run if key not in ticking} for name, run in runs.items()}

    def stop(self) -> None:
        """End its processes."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _create(self, deployment: str, later: timedelta) -> str:
        there = self.stack.request("GET", f"/deployments/name/{deployment}")
        at = (datetime.now(UTC) + later).isoformat()
        body = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": at}}}
        return str(self.stack.request("POST", f"/deployments/{there['id']}/create_flow_run", body)["id"])

    def _is(self, run: str, state: str) -> bool:
        return self.state(run) == state

    def _beats(self, run: str) -> bool:
        return "prefect.flow-run.heartbeat" in _events(self.stack, run)


def main() -> int:
    """Try it; 0 if theirs are untouched and ours acted on."""
    parser = options(__doc__)
    parser.add_argument("--port", type=int, default=4600, help="the server's, and the next one (%(default)s)")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # a process of one of the runs
    parser.add_argument("--then", choices=_LIVE, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        _be(UUID(given.run), given.then)
        return 0
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="gptmill-teams-")))
        stack = Stack(folder, given.port, 0, ends.enter_context(receiver(given.port + 1)))
        ends.enter_context(_server(stack, given.port))
        return _try(stack, folder, ends)


def _try(stack: Stack, folder: Path, ends: ExitStack) -> int:
    theirs, ours = Team(stack, folder), Team(stack, folder)
    ends.callback(theirs.stop)
    ends.callback(ours.stop)
    flows = _arrive(stack)
    heading("what", "found", "as it should be")
    theirs.put("billing/nightly", ", before")
    wait(lambda: theirs.state(theirs.runs["Late, before"]) == "Late", "Late", 120.0)
    before = _things(stack)
    code, said = _deploy(stack)
    good = _say("deploy, where pipeline/pipeline is theirs", f"exit code {code}: {said}", code == 2)
    alone = {one["name"] for one in _automations(stack)} == {_TEAM}
    good &= _say("their server after it", "as it was", _things(stack) == before and alone)
    deployment = stack.request("GET", "/deployments/name/pipeline/pipeline")["id"]
    stack.request("DELETE", f"/deployments/{deployment}")
    _deployment(stack, flows["pipeline"], "reports")
    before, runs_before = _things(stack), theirs.seen()
    code, said = _deploy(stack)
    good &= _say("deploy, after they have renamed it", f"exit code {code}", code == 0)
    theirs.put("pipeline/reports", ", after")
    theirs.live("pipeline/reports", *_LIVE)
    wait(lambda: theirs.state(theirs.runs["Late, after"]) == "Late", "Late", 120.0)
    runs_before |= {name: run for name, run in theirs.seen().items() if name not in runs_before}
    ours.put("pipeline/pipeline")
    ours.live("pipeline/pipeline", "lost", "alive")
    good &= _acted_on(stack, ours)
    touched = [name for name, run in theirs.seen().items() if run != runs_before[name]]
    for name in theirs.runs:
        said = stack.run(theirs.runs[name])["state"]["message"]
        states = " > ".join(stack.states(theirs.runs[name])) + (f" ({said})" if said else "")
        acted = any(event.startswith("prefect.automation") for event in _events(stack, theirs.runs[name]))
        good &= _say(f"their run: {name}", states, name not in touched and not acted)
    good &= _say("their flows, deployments, pool, automation", "as they were", before.items() <= _things(stack).items())
    names = [str(stack.run(run)["name"]) for run in ours.runs.values()]
    told = [text for text in Receiver.texts if _TEAM in text or not any(name in text for name in names)]
    return (
        0 if good & _say("told of failures", f"{len(Receiver.texts)} of ours, {len(told)} of theirs", not told) else 1
    )


def _acted_on(stack: Stack, ours: Team) -> bool:
    begun, good = time.monotonic(), True
    missing = dict(_OURS)
    while missing and time.monotonic() - begun < 420:
        for name, wanted in list(missing.items()):
            if _in_order(wanted, found := stack.states(ours.runs[name])):
                good &= _say(f"our run: {name}", f"{' > '.join(found)}, {time.monotonic() - begun:.0f} s later", True)
                del missing[name]
        time.sleep(2.0)
    for name in missing:
        good &= _say(f"our run: {name}", " > ".join(stack.states(ours.runs[name])), False)
    for name in ("alive", "Scheduled", "Late"):
        states = stack.states(ours.runs[name])
        good &= _say(f"our run: {name}", " > ".join(states), "Crashed" not in states)
    return good


def _in_order(wanted: list[str], states: list[str]) -> bool:
    left = iter(states)
    return all(name in left for name in wanted)


def _arrive(stack: Stack) -> dict[str, str]:
    """The other team's flows, deployments, pool and automation; the flows' ids."""
    stack.request("POST", "/work_pools/", {"name": f"{_TEAM}-pool", "type": "process"})
    names = {"billing": "nightly", "pipeline": "pipeline", "train": "weekly"}
    flows = {name: str(stack.request("POST", "/flows/", {"name": name})["id"]) for name in names}
    for flow, deployment in names.items():
        _deployment(stack, flows[flow], deployment)
    trigger = {"type": "event", "expect": [f"{_TEAM}.closed"], "posture": "Reactive", "threshold": 1, "within": 0}
    automation = {"name": _TEAM, "trigger": trigger, "actions": [{"type": "do-nothing"}]}
    stack.request("POST", "/automations/", automation)
    return flows


def _deployment(stack: Stack, flow: str, name: str) -> None:
    body = {"name": name, "flow_id": flow, "entrypoint": f"{_TEAM}.py:{name}", "tags": [_TEAM]}
    stack.request("POST", "/deployments/", {**body, "work_pool_name": f"{_TEAM}-pool", "parameters": {}})


def _things(stack: Stack) -> dict[str, Any]:
    """Everything of the other team's that is no run, whole, by id."""
    deployments = stack.request("POST", "/deployments/filter", {"deployments": {"tags": {"all_": [_TEAM]}}})
    automations = [one for one in _automations(stack) if one["name"] == _TEAM]
    flows = [stack.request("GET", f"/flows/{one['flow_id']}") for one in deployments]
    pool = stack.request("GET", f"/work_pools/{_TEAM}-pool")
    return {one["id"]: one for one in (*deployments, *automations, *flows, pool)}


def _automations(stack: Stack) -> list[dict[str, Any]]:
    return list(stack.request("POST", "/automations/filter", {}))


def _events(stack: Stack, run: str) -> list[str]:
    """The names of the events that have to do with a run."""
    query = {"filter": {"any_resource": {"id": [f"prefect.flow-run.{run}"]}}, "limit": 50}
    return [event["event"] for event in stack.request("POST", "/events/filter", query)["events"]]


def _deploy(stack: Stack) -> tuple[int, str]:
    """`gptmill deploy`: its exit code and what it said on standard error."""
    environment = {**stack.environment, "PREFECT_API_URL": stack.api}
    command = [sys.executable, "-c", _DEPLOY, *stack.places]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


@contextmanager
def _server(stack: Stack, port: int) -> Iterator[None]:
    from flows.servers.environment import answers

    stack.home.mkdir()
    environment = {**stack.environment, "PREFECT_HOME": str(stack.home / "prefect")}
    # Prefect ends what nobody cancels by itself, after 300 s: here it is to be seen who did.
    environment["PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_CANCELLING_TIMEOUT_SECONDS"] = "7200"
    command = [sys.executable, "-m", "flows.servers.prefect_server", "--port", str(port)]
    process = started(command, stack.home / "server.log", environment)
    try:
        wait(lambda: answers(f"{stack.api}/health"), "the server", 120.0)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _be(run_id: UUID, then: str) -> None:
    """What the process of a run does: the flow is the run's, its work is to leave the run in a state."""
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.flow_runs import pause_flow_run, suspend_flow_run

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        name = client.read_flow(run.flow_id).name

    def work(parameters: dict[str, Any] | None = None) -> None:  # as the forms of our deployments have them
        if then == "suspended":
            suspend_flow_run(timeout=3600)
        elif then == "paused":
            pause_flow_run(timeout=3600)
        time.sleep(3600.0)

    run_flow(flow(name=name)(work), flow_run=run, parameters={}, return_type="state")


def _say(what: str, seen: str, good: bool) -> bool:
    row(what, seen, "good" if good else "NOT GOOD")
    return good


if __name__ == "__main__":
    sys.exit(main())
