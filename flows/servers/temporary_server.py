"""A Prefect server of this process' own, for a command that runs a flow where no other server is set.

Prefect's ephemeral server (`SubprocessASGIServer`) is the same application on the same database, but a plain child:
a SIGTERM or Ctrl-C sent to the process group ends it first, and every last report is then retried against it for
minutes; a `kill -9` of its owner leaves it behind for good. Whoever wanted to change that from outside would have to
replace a private method. So this starts `create_app`, which is public, under our own roof: in a session of its own,
where no signal to the group reaches it, told by the kernel when its owner dies, ended last, and started again on the
same socket when somebody kills it alone.

It starts while its owner still imports, and nobody opens its pages. What that allows is left out, so that a command
that finds everything in the store hardly waits for it.

    python -m flows.servers.temporary_server NUMBER    # the process: serves on the socket of that number until SIGTERM
"""

from __future__ import annotations

import atexit
import gc
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from flows.servers.environment import answers, set_defaults
from flows.servers.guard import guarded, own_names
from flows.servers.prefect_server import check_home
from flows.servers.signals import on_server
from flows.servers.transactions import waiting_for_their_turn
from gptcore.machine.process import PARENT_VARIABLE, die_with_parent
from tasks.store.state import state_folder

_HOST = "127.0.0.1"
_START_SECONDS = 180.0  # the first start migrates a new database
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5  # for writing down what has been reported
_SHORT_LIFE = 10.0  # seconds: a second server that dies younger than this is not followed by a third
_log = logging.getLogger(__name__)
_beginning: _Server | None = None
_started = False


def is_temporary() -> bool:
    """Whether this process' Prefect API is the one that it started for itself."""
    return _started


def begin_server() -> None:
    """Start a Prefect API for this process where none is set, and do not wait for it. Main thread only.

    It takes seconds, which the imports of a flow can fill, Prefect's among them: where its settings name a server that
    the environment does not, this one ends by itself. It is told of its owner's death by the kernel, which means the
    thread that started it.
    """
    global _beginning  # noqa: PLW0603  # as is the server of a process
    if _beginning or os.environ.get("PREFECT_API_URL"):
        return
    check_home(os.environ.get("PREFECT_HOME", ""))
    log = state_folder() / "logs" / "temporary-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket()
    listener.bind((_HOST, 0))  # the child gets the socket, not its number: nobody else can take it in between
    _beginning = _Server(listener, log)
    atexit.register(_beginning.stop)  # after Prefect's own threads have sent their last reports


def ensure_server() -> None:
    """Give this process a Prefect API if none is set; end what killed commands left Running there. Main thread only.

    :raises RuntimeError: the server did not start; the message holds the end of its log.
    """
    global _beginning, _started  # noqa: PLW0603  # as is the server of a process
    from prefect.context import refresh_global_settings_context
    from prefect.settings import get_current_settings

    if url := get_current_settings().api.url:
        if _beginning:
            _beginning.stop()
            _beginning = None
        on_server(url)
        return
    begin_server()
    assert _beginning, "no other server is set"
    server, _beginning = _beginning, None
    server.wait()
    os.environ["PREFECT_API_URL"] = server.url
    os.environ["PREFECT_UI_URL"] = ""  # it has no pages: no links to them
    refresh_global_settings_context()
    on_server(str(get_current_settings().home))
    _started = True


class _Server:
    """The process, and the socket that outlives it: who connects while none serves waits for the next one."""

    def __init__(self, listener: socket.socket, log: Path) -> None:
        self._listener, self._log = listener, log
        self._environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        self._stopping = threading.Event()
        self.url = f"http://{_HOST}:{listener.getsockname()[1]}/api"
        self._earlier = log.stat().st_size if log.exists() else 0
        self.process = self._start()

    def wait(self) -> None:
        """Until it answers; from then on it is kept alive.

        :raises RuntimeError: the server did not start; the message holds the end of its log.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not answers(f"{self.url}/health"):
            if (code := self.process.poll()) is not None or time.monotonic() > deadline:
                ending = "in time" if code is None else f"(exit code {code})"
                with open(self._log, "rb") as file:
                    file.seek(self._earlier)
                    tail = b"\n".join(file.read().splitlines()[-15:]).decode(errors="replace")
                raise RuntimeError(
                    f"the temporary Prefect server did not start {ending}; the end of {self._log}:\n{tail}"
                )
            time.sleep(_POLL_SECONDS)
        threading.Thread(target=self.keep, name="temporary server", daemon=True).start()

    def keep(self) -> None:
        """Start the server again when somebody kills it (a machine that runs out of memory does), until `stop`."""
        started = -math.inf
        while True:
            code = self.process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - started < _SHORT_LIFE:
                _log.warning("the temporary Prefect server ended with code %d again; see %s", code, self._log)
                self._listener.close()  # a refused connection is an answer, too
                return
            _log.warning("the temporary Prefect server ended with code %d and is started again", code)
            started = time.monotonic()
            self.process = self._start()

    def stop(self) -> None:
        self._stopping.set()
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS + 1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.servers.temporary_server", str(self._listener.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[self._listener.fileno()],
                start_new_session=True,
                umask=0o077,  # its database and log are nobody else's
                env=self._environment,
            )


# --- the process


def serve(listener: socket.socket) -> None:
    """Serve the API until SIGTERM comes, from the owner or from the kernel because the owner is dead.

    Returns at once where Prefect's settings name another server: its owner does not know them yet.
    """
    die_with_parent()
    gc.disable()  # what is imported stays: looking through it again and again takes a sixth of the start
    set_defaults("temporary-server")
    from prefect.settings import get_current_settings

    if get_current_settings().api.url:
        return
    import uvicorn
    from prefect.server.api.server import create_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            gc.freeze()
            gc.enable()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            signal.alarm(_STOP_SECONDS)  # whatever hangs: a dead owner sends no SIGKILL
            super().handle_exit(sig, frame)

    names = own_names(*listener.getsockname())
    with waiting_for_their_turn():
        app = guarded(create_app(ephemeral=True, final=True), names)
        Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
