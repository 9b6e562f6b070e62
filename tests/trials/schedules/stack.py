"""The stack under trial: `gptmill up` in a folder of its own, its server's API, its processes, what alerts it sent."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil

from tests.trials import scenarios

PATIENCE = 1200.0
"""Seconds, on a busy machine; a lost run is known after 90 to 180 of them."""


class Receiver(BaseHTTPRequestHandler):
    """Keeps what the alerts send."""

    texts: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """Prefect's call."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.texts.append(json.loads(body)["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The table is all that is printed."""


@contextlib.contextmanager
def receiver(port: int = 0) -> Iterator[str]:
    """The address to which alerts are sent while the ``with`` block runs; :class:`Receiver` keeps them."""
    with HTTPServer(("127.0.0.1", port), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()


class Stack:
    """A local stack in a folder of its own."""

    def __init__(self, folder: Path, prefect_port: int, mlflow_port: int, webhook: str) -> None:
        self.folder, self.home, self.store = folder, folder / "home", folder / "store"
        self.api = f"http://127.0.0.1:{prefect_port}/api"
        self.places = ["--store", str(self.store), "--datasets", str(folder / "world/datasets")]
        self.ports = ["--prefect-port", str(prefect_port), "--mlflow-port", str(mlflow_port)]
        more = {"GPTMILL_WEBHOOK": webhook, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "OMP_NUM_THREADS": "1"}
        self.environment = scenarios.environment(self.home, more)

    def gptmill(self, *words: str, code: int | None = 0) -> str:
        """Run a command; what it printed on both streams."""
        command = [sys.executable, "-m", "flows.cli", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if code is not None and done.returncode != code:
            sys.exit(f"gptmill {words[0]}: exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def up(self) -> None:
        """`gptmill up`."""
        self.gptmill("up", *self.places, *self.ports)

    def deploy(self) -> str:
        """`gptmill deploy`."""
        return self.gptmill("deploy", *self.places)

    def request(self, method: str, path: str, body: object | None = None) -> Any:
        """One call of the Prefect server."""
        import httpx

        answer = httpx.request(method, f"{self.api}{path}", json=body, timeout=300)  # a busy machine's
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:  # SQLite, locked
            time.sleep(2.0)
            return self.request(method, path, body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def start(self, deployment: str, form: dict[str, Any], **environment: str) -> str:
        """A run of a deployment, with these variables beside those of its worker; its id."""
        there = self.request("GET", f"/deployments/name/{deployment}/{deployment}")
        merged = {**there["parameters"].get("parameters", {}), **form}
        body = {"parameters": {"parameters": merged}, "job_variables": {"env": environment}}
        return str(self.request("POST", f"/deployments/{there['id']}/create_flow_run", body)["id"])

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow, newest first."""
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC", "limit": 200}
        return list(self.request("POST", "/flow_runs/filter", body))

    def run(self, run: str) -> dict[str, Any]:
        """One flow run."""
        return dict(self.request("GET", f"/flow_runs/{run}"))

    def states(self, run: str) -> list[str]:
        """The names of a run's states, in their order."""
        return [state["name"] for state in self.request("GET", f"/flow_run_states/?flow_run_id={run}")]

    def said(self, run: str, about: str) -> list[str]:
        """Lines of a run's log with these words, oldest first."""
        body = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        return [log["message"] for log in self.request("POST", "/logs/filter", body) if about in log["message"]]

    def online(self, pool: str) -> bool:
        """Whether the server hears of a worker of the pool."""
        workers = self.request("POST", f"/work_pools/{pool}/workers/filter", {"limit": 200, "offset": 0})
        return any(worker["status"] == "ONLINE" for worker in workers)

    def ended(self, run: str) -> dict[str, Any]:
        """The run at a good or bad end that nobody will change."""
        wait(lambda: self.run(run)["state"]["type"] in ("COMPLETED", "FAILED", "CANCELLED"), f"the end of run {run}")
        return self.run(run)

    def processes(self, *parts: str) -> list[psutil.Process]:
        """Processes of this stack with one of these words in their command line or flow run."""
        processes = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
                words = " ".join(process.cmdline()) + " " + environ.get("PREFECT__FLOW_RUN_ID", "")
                if environ.get("GPTMILL_HOME") == str(self.home) and any(part in words for part in parts):
                    processes.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return processes

    def lose(self, pool: str, run: str) -> int:
        """Kill a pool's worker and a run's processes outright, as a machine that goes; how many processes that was."""
        lost = [p for p in self.processes(f"--pool {pool}", run) if "gptcore.training" not in " ".join(p.cmdline())]
        for process in lost:
            process.kill()
        return len(lost)

    def worker(self, pool: str) -> None:
        """Start a worker in the place of the lost one."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
        extra = {"PREFECT_API_URL": self.api, "PREFECT_HOME": str(self.home / "prefect")}
        extra["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.ports[-1]}"
        command += ["--limit", "1" if pool == "training" else "4"]
        log = self.home / "logs" / f"worker-{pool}-2.log"
        scenarios.started(command, log, self.environment | extra, start_new_session=True)

    def stop(self) -> None:
        """End everything of this stack."""
        self.gptmill("down", code=None)
        left = self.processes("")
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        for process in psutil.wait_procs(left, timeout=30)[1]:
            process.kill()


def told(about: str) -> int:
    """How many alerts there were about a run."""
    return sum(about in text for text in Receiver.texts)


def wait(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Wait for something, on a busy machine; see :func:`tests.trials.scenarios.wait`."""
    return scenarios.wait(condition, what, seconds)
