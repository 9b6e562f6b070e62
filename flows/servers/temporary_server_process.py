"""The process of the temporary server: Prefect's API on the socket whose number is the argument, until SIGTERM.

It starts while its owner still imports, and nobody opens its pages. What that allows is left out, so that a command
that finds everything in the store hardly waits for it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any

from flows.servers.guard import Application, guarded, own_names
from gptcore.machine.process import die_with_parent

STOP_SECONDS = 5  # for writing down what has been reported
SETTINGS = {
    # Types of blocks are for forms, and a server with pages registers them. It takes 1.2 s: every integration that is
    # installed is imported for it.
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    # Else a transaction for each event of a task run, of which a command that finds everything has 200.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
}
_AGAIN_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.4)
_UNAVAILABLE = 503

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


def serve(listener: socket.socket) -> None:
    """Serve the API until SIGTERM comes, from the owner or from the kernel because the owner is dead.

    Returns at once where Prefect's settings name another server: its owner does not know them yet.
    """
    die_with_parent()
    gc.disable()  # what is imported stays: looking through it again and again takes a sixth of the start
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
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
            signal.alarm(STOP_SECONDS)  # whatever hangs: a dead owner sends no SIGKILL
            super().handle_exit(sig, frame)

    names = own_names(*listener.getsockname())
    app = guarded(asking_again(create_app(ephemeral=True, final=True)), names)
    Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])


def asking_again(app: Application) -> Application:
    """The application, asked once more before a client is told that it is unavailable.

    Prefect's requests read before they write. If another one writes in between, SQLite refuses at once, the transaction
    is rolled back, and the client gets a 503, upon which it waits for two seconds.
    """

    async def patient(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        request = [await receive()]
        while request[-1].get("more_body"):
            request.append(await receive())
        for seconds in (*_AGAIN_SECONDS, None):
            left, answer = iter(request), list[_Message]()

            async def again(left: Any = left) -> _Message:
                return next(left, None) or await receive()

            async def keep(message: _Message, answer: list[_Message] = answer) -> None:
                answer.append(message)

            error = None
            try:
                await app(dict(scope), again, keep)
            except Exception as raised:  # it answers first, and then raises what went wrong, for the log
                error = raised
            if seconds is None or not answer or answer[0].get("status") != _UNAVAILABLE:
                break
            await asyncio.sleep(seconds)
        for message in answer:
            await send(message)
        if error:
            raise error

    return patient


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
