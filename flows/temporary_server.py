"""A Prefect server of this process' own, for a command that runs a flow where no other server is set.

Prefect's ephemeral server (`SubprocessASGIServer`) is the same application on the same database, but a plain child:
a SIGTERM or Ctrl-C sent to the process group ends it first, and every last report is then retried against it for
minutes; a `kill -9` of its owner leaves it behind for good. Whoever wanted to change that from outside would have to
replace a private method. So this starts `create_app`, which is public, under our own roof: in a session of its own,
where no signal to the group reaches it, told by the kernel when its owner dies, ended last.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time

from flows.environment import answers
from flows.temporary_server_process import STOP_SECONDS
from gptcore.training.process import PARENT_VARIABLE
from tasks.store.state import state_folder

_HOST = "127.0.0.1"
_START_SECONDS = 180.0  # the first start migrates a new database
_POLL_SECONDS = 0.05
_started = False


def is_temporary() -> bool:
    """Whether this process' Prefect API is the one that it started for itself."""
    return _started


def ensure_server() -> None:
    """Give this process a Prefect API if none is set; main thread only.

    The server is told of its owner's death by the kernel, which means the thread that started it.

    :raises RuntimeError: the server did not start; the message holds the end of its log.
    """
    global _started  # noqa: PLW0603  # as is the server of a process
    from prefect.context import refresh_global_settings_context
    from prefect.settings import get_current_settings

    if get_current_settings().api.url:
        return
    log = state_folder() / "logs" / "temporary-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket() as listener, open(log, "ab") as output:
        listener.bind((_HOST, 0))  # the child gets the socket, not its number: nobody else can take it in between
        url = f"http://{_HOST}:{listener.getsockname()[1]}/api"
        earlier = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.temporary_server_process", str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            env=os.environ
            | get_current_settings().to_environment_variables(exclude_unset=True)
            | {PARENT_VARIABLE: str(os.getpid())},
        )
    atexit.register(_stop, process)  # after Prefect's own threads have sent their last reports
    deadline = time.monotonic() + _START_SECONDS
    while not answers(f"{url}/health"):
        if process.poll() is not None or time.monotonic() > deadline:
            ending = "in time" if process.returncode is None else f"(exit code {process.returncode})"
            with open(log, "rb") as file:
                file.seek(earlier)
                tail = b"\n".join(file.read().splitlines()[-15:]).decode(errors="replace")
            raise RuntimeError(f"the temporary Prefect server did not start {ending}; the end of {log}:\n{tail}")
        time.sleep(_POLL_SECONDS)
    os.environ["PREFECT_API_URL"] = url
    os.environ["PREFECT_UI_URL"] = ""  # it has no pages: no links to them
    refresh_global_settings_context()
    _started = True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS + 1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
