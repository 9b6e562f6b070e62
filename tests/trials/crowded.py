"""A Prefect server on SQLite that many clients write to at once loses none of their requests.

    python -m tests.trials.crowded [--clients 32] [--runs 10]

Each client makes flow runs and moves them from Pending over Running to Completed, as a browser's form would: an answer
other than 2xx is final. Counts them, and what is in the database at the end.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError

from tests.trials.scenarios import call, environment, options, started, wait

_STATES = ("PENDING", "RUNNING", "COMPLETED")


def crowd(url: str, clients: int, runs: int) -> tuple[Counter[int], int]:
    """How often each status came, and how many runs the server calls completed."""
    flow = call(f"{url}/flows/", {"name": "crowded"})["id"]

    def one(_: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for _ in range(runs):
            try:
                run = call(f"{url}/flow_runs/", {"flow_id": flow, "state": {"type": "SCHEDULED"}})["id"]
                statuses[200] += 1
                for state in _STATES:
                    call(f"{url}/flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})
                    statuses[200] += 1
            except HTTPError as error:
                statuses[error.code] += 1
        return statuses

    with ThreadPoolExecutor(clients) as pool:
        statuses = sum(pool.map(one, range(clients)), Counter[int]())
    completed = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
    return statuses, int(call(f"{url}/flow_runs/count", completed))


def answering(url: str) -> Callable[[], bool]:
    """Whether a server answers there."""

    def asked() -> bool:
        try:
            return bool(call(f"{url}/health"))
        except OSError:
            return False

    return asked


def crowd_of(folder: Path, clients: int, runs: int, temporary: bool = False) -> tuple[Counter[int], int]:
    """What comes of a crowd at a server of its own; see :func:`crowd`.

    :param temporary: the one that a single command starts, not that of the stack.
    """
    variables = environment(folder, {"PREFECT_HOME": str(folder)})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, number = listener.getsockname()[1], listener.fileno()
        if temporary:
            command, taken = ["flows.servers.temporary_server", str(number)], [number]
        else:
            listener.close()
            command, taken = ["flows.servers.prefect_server", "--port", str(port)], []
        server = started([sys.executable, "-m", *command], folder / "server.log", variables, pass_fds=taken)
    try:
        url = f"http://127.0.0.1:{port}/api"
        wait(answering(url), "the server", 180)
        return crowd(url, clients, runs)
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    """One crowd; the exit code is 1 where a run was lost."""
    parser = options(__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gptmill-crowded-") as folder:
        statuses, completed = crowd_of(Path(folder), given.clients, given.runs)
    lost = given.clients * given.runs - completed
    print(f"{given.clients} clients: {dict(statuses)}, {lost} runs lost")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
