"""Who reaches the servers: pages of other origins, rebound names, other users and machines, asked for real.

    python -m tests.trials.reach [--port 4700]

Starts the light stack, then the full one, then the servers of the compose file and of the manifests by the command
lines and variables that stand there (on 127.0.0.1, with SQLite in the place of PostgreSQL: no container is needed), and
prints what each kind of request gets. The exit code is 1 if a request gets through that should not, or one does not
that should.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from flows.servers.credentials import MLFLOW, PREFECT
from tests.trials.ports import let_in, listening
from tests.trials.production import Trial
from tests.trials.scenarios import heading, options, row, started, wait

INFRA = Path(__file__).resolve().parents[2] / "infra"
_READ = {"prefect": "/api/admin/version", "mlflow": "/api/2.0/mlflow/experiments/search?max_results=1"}
_WRITE = {"prefect": "/api/variables/", "mlflow": "/api/2.0/mlflow/experiments/create"}
_BODY = '{"name": "evil", "value": "1"}'
_LOG_IN = {"prefect": "admin:of-prefect", "mlflow": "admin:of-mlflow-and-long-enough"}
_PASSWORDS = {
    "PREFECT_API_AUTH_STRING": _LOG_IN["prefect"],
    "MLFLOW_TRACKING_USERNAME": "admin",
    "MLFLOW_TRACKING_PASSWORD": _LOG_IN["mlflow"].partition(":")[2],
}
_REFUSED = 403


@dataclass(frozen=True)
class Server:
    """One server that runs."""

    stack: str
    name: str
    url: str
    host: str
    """What its clients put into `Host`."""
    log_in: str = ""
    """``user:password``; empty: it asks for none."""

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str = "", known: bool = True
    ) -> int:
        """The status of a request; ``known``: with the password, where there is one."""
        user, _, password = self.log_in.partition(":")
        return httpx.request(
            method,
            self.url + path,
            headers={"Host": self.host, **(headers or {})},
            auth=(user, password) if known and self.log_in else None,
            content=body or None,
            timeout=60,
        ).status_code

    def answers(self) -> bool:
        """Whether it answers, and with no error of its own."""
        try:
            return self.ask("GET", _READ[self.name]) < httpx.codes.INTERNAL_SERVER_ERROR
        except httpx.TransportError:
            return False


def main() -> int:
    """Ask them all; 0 if each answers as it should."""
    parser = options(__doc__)
    parser.add_argument("--port", type=int, default=4700, help="the first of the ports that are used (%(default)s)")
    port = parser.parse_args().port
    foreign = ("rebound names", "foreign preflight", "POST as text", "POST as JSON", "read")
    page = "page of another port here"
    heading("stack", "server", "its clients", "without a password", *foreign, page, "listens on")
    good = True
    for full in (False, True):
        with tempfile.TemporaryDirectory(prefix="gptmill-reach-") as folder:
            trial = Trial(Path(folder), port)
            try:
                rows = [_row(server, trial.record()["processes"]) for server in _stack(trial, full)]
                good &= all(rows)  # each has been asked
                if full:
                    good &= _database(trial)
                good &= _ports(trial, full)
            finally:
                trial.gptmill("down", "--wipe")
    for stack, servers in (("compose", _of_compose()), ("Kubernetes", _of_manifests())):
        for name, (command, environment) in servers.items():
            with _started(stack, name, command, environment, port) as server:
                good &= _row(server, {})
    return 0 if good else 1


def _row(server: Server, processes: Mapping[str, Any]) -> bool:
    """What it answers, in a line; whether that is as it should be."""
    read, write, port = _READ[server.name], _WRITE[server.name], server.host.rpartition(":")[2]
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    json, text = {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}
    evil, near = {"Origin": "http://evil.example"}, {"Origin": "http://localhost:8888"}
    ours = [server.ask("GET", read), server.ask("GET", read, {"Origin": f"http://{server.host}"})]
    unknown = server.ask("GET", read, known=False)
    cells = [
        [server.ask("GET", read, {"Host": f"{name}:{port}"}) for name in ("evil.example", "10.evil.example")],
        [server.ask("OPTIONS", write, {**evil, **asked}, known=False)],
        [server.ask("POST", write, {**evil, **text}, _BODY)],
        [server.ask("POST", write, {**evil, **json}, _BODY)],
        [server.ask("GET", read, evil)],
        [server.ask("POST", write, {**near, **json}, _BODY)],
    ]
    listens = _listens(processes[server.name]["pid"]) if processes else []
    statuses = [", ".join(str(status) for status in cell) for cell in (ours, [unknown], *cells)]
    row(server.stack, server.name, *statuses, ", ".join(listens))
    closed = all(status == _REFUSED for cell in cells for status in cell)
    return (
        closed and ours == [200, 200] and unknown == (401 if server.log_in else 200) and set(listens) <= {"127.0.0.1"}
    )


def _listens(pid: int) -> list[str]:
    """The addresses on which a process and its children listen."""
    process = psutil.Process(pid)
    connections = [one for each in (process, *process.children(recursive=True)) for one in each.net_connections()]
    return sorted({str(one.laddr.ip) for one in connections if one.status == psutil.CONN_LISTEN})


def _stack(trial: Trial, full: bool) -> Iterator[Server]:
    trial.gptmill("up", *(["--full", *trial.ports] if full else trial.ports[:4]))
    record, log_in = trial.record(), {"prefect": "", "mlflow": ""}
    if full:
        known = trial.load_credentials()
        log_in = {"prefect": known[PREFECT[1]], "mlflow": f"{known[MLFLOW[1]]}:{known[MLFLOW[2]]}"}
    for name in ("prefect", "mlflow"):
        url = record[f"{name}_url"]
        yield Server("full" if full else "light", name, url, url.removeprefix("http://"), log_in[name])


def _database(trial: Trial) -> bool:
    """PostgreSQL of the full stack, asked with a wrong password."""
    import psycopg2

    port = trial.record()["layout"]["postgres_port"]
    try:
        wrong = secrets.token_hex(8)
        psycopg2.connect(host="127.0.0.1", port=port, user="prefect", dbname="mlflow", password=wrong).close()
        said = "let in"
    except psycopg2.OperationalError as error:
        said = str(error).strip().rpartition("FATAL:")[2].strip()
    print(f"\npostgres of the full stack, with a wrong password: {said}")
    return "authentication failed" in said


def _ports(trial: Trial, full: bool) -> bool:
    """Every port of the stack, asked everything by who may not."""
    processes = trial.record()["processes"]
    sent, wrong = let_in(processes, passwords=full)
    ports = ", ".join(f"{port} ({name})" for port, name in sorted(listening(processes).items()))
    print(f"\n{'full' if full else 'light'} stack: {sent:,} requests to {ports}: {len(wrong)} let in\n")
    print("".join(f"{each}\n" for each in wrong), end="")
    return not wrong


_Servers = dict[str, tuple[list[str], dict[str, str]]]


def _of_compose() -> _Servers:
    """The two servers of the compose file: command line and variables, with passwords of this trial."""
    text = (INFRA / "compose.yaml").read_text(encoding="utf-8")
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: _PASSWORDS.get(found[1], "x"), text)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    services = yaml.safe_load(text)["services"]
    return {name: (services[name]["command"], services[name]["environment"]) for name in _READ}


def _of_manifests() -> _Servers:
    """The two servers of the manifests: command line and variables, with passwords of this trial."""
    folder, servers = INFRA / "kubernetes", {}
    settings = list(yaml.safe_load_all((folder / "settings.yaml").read_text(encoding="utf-8")))
    values = {one["metadata"]["name"]: one["data"] for one in settings if one["kind"] == "ConfigMap"}
    for name in _READ:
        (pod,) = [
            one["spec"]["template"]["spec"]
            for one in yaml.safe_load_all((folder / f"{name}.yaml").read_text(encoding="utf-8"))
            if one["kind"] == "Deployment"
        ]
        environment = {}
        for entry in pod["containers"][0]["env"]:
            source = entry.get("valueFrom", {})
            if "configMapKeyRef" in source:
                reference = source["configMapKeyRef"]
                environment[entry["name"]] = values[reference["name"]][reference["key"]]
            else:
                secret = _PASSWORDS.get(source["secretKeyRef"]["key"], "x") if source else ""
                environment[entry["name"]] = entry.get("value", secret)
        servers[name] = (pod["containers"][0]["args"], environment)
    return servers


@contextmanager
def _started(stack: str, name: str, command: list[str], given: Mapping[str, str], port: int) -> Iterator[Server]:
    """A server of containers, here: on loopback, at another port, on SQLite."""
    their_port = {"prefect": "4200", "mlflow": "5000"}[name]
    everywhere = "0.0.0.0"  # what is taken out
    moved = [word.replace(everywhere, "127.0.0.1").replace(their_port, str(port)) for word in command]
    own = {"prefect": "prefect:4200", "mlflow": "mlflow:5000"}
    host = own[name] if stack == "compose" else own[name].replace(":", ".gptmill.svc:")
    with tempfile.TemporaryDirectory(prefix="gptmill-reach-") as folder:
        users = Path(folder) / "users.ini"
        users.write_text(f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{folder}/users.db\n")
        here = {
            "PREFECT_HOME": folder,
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
            "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/mlflow.db",
            "MLFLOW_AUTH_CONFIG_PATH": str(users),
        }
        inherited = {key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH") if key in os.environ}
        process = started([sys.executable, *moved[1:]], Path(folder) / "log", {**inherited, **given, **here})
        server = Server(stack, name, f"http://127.0.0.1:{port}", host, _LOG_IN[name])
        try:
            wait(lambda: process.poll() is not None or server.answers(), f"{stack}, {name}", 120, pause=0.5)
            if process.poll() is not None:
                raise RuntimeError(f"{stack}, {name} ended:\n{(Path(folder) / 'log').read_text()[-2000:]}")
            yield server
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
