"""Which host a process is on, as far as locks go: processes of one kernel that use one mounted file system."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from gptcore.base.files import sha256_json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def kernel() -> str:
    """The running kernel's name: one for all containers of a machine, another one after each start."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except FileNotFoundError:  # no Linux
        return socket.gethostname()


def host_of(path: str | os.PathLike[str]) -> str:
    """The host of this process as a user of the file system that ``path`` lies on.

    Where two processes have the same they see each other's locks on it, however it is mounted. Host names would not
    tell: a container that is started again has another one, and two that mount one place each for itself may have the
    same.
    """
    return sha256_json([kernel(), os.stat(path).st_dev])[:16]
