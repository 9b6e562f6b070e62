"""The process of the temporary server: Prefect's API on the socket whose number is the argument, until SIGTERM."""

from __future__ import annotations

import signal
import socket
import sys
from types import FrameType

from gptcore.training.process import die_with_parent

STOP_SECONDS = 5  # for writing down what has been reported


def serve(listener: socket.socket) -> None:
    """Serve the API until SIGTERM comes, from the owner or from the kernel because the owner is dead."""
    die_with_parent()
    import uvicorn
    from prefect.server.api.server import create_app

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            signal.alarm(STOP_SECONDS)  # whatever hangs: a dead owner sends no SIGKILL
            super().handle_exit(sig, frame)

    app = create_app(ephemeral=True, final=True)
    Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
