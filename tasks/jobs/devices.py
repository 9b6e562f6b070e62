"""The GPUs of this machine, and who has which: a job sees its own and no other. torch is not imported."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from tasks.store.state import state_folder

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICES = Path("/dev")


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: what CUDA_VISIBLE_DEVICES lists, numbers or UUIDs, else all there are."""
    listed = os.environ.get(VISIBLE_VARIABLE)
    if listed is None:  # numbered without gaps by CUDA, whichever device files a container was given
        return [str(number) for number, _ in enumerate(_DEVICES.glob("nvidia[0-9]*"))]
    gpus: list[str] = []
    for name in (part.strip() for part in listed.split(",")):
        if not name or name == "-1":  # CUDA takes neither it nor what comes after it
            break
        gpus.append(name)
    return gpus


class GpuLease:
    """GPUs that no other job of this machine's state folder has, until it ends.

    Lock files hold them, which the kernel lets go with the process that locked them. Who waits for several collects
    them behind one more lock, so that two never wait for one another and small jobs do not overtake a large one.

    :param count: how many; where the machine has fewer, all of them, and none where it has none.
    """

    def __init__(self, count: int) -> None:
        self._visible = visible_gpus()
        self._count = min(count, len(self._visible))
        self._folder = state_folder() / "gpus"
        self._held = contextlib.ExitStack()
        self._collecting = contextlib.ExitStack()
        self._waits = False
        self.gpus: list[str] = []

    def take(self) -> bool:
        """Take what is free of what is still missing; whether that was all. Does not wait."""
        if len(self.gpus) == self._count:
            return True
        self._waits = self._waits or _lock(self._folder / ".collecting.lock", self._collecting)
        if self._waits:
            missing = [gpu for gpu in self._visible if gpu not in self.gpus]
            for gpu in missing[:]:
                if len(self.gpus) < self._count and _lock(self._folder / f"{gpu.replace('/', '-')}.lock", self._held):
                    self.gpus.append(gpu)
        if len(self.gpus) < self._count:
            return False
        self._collecting.close()
        return True

    def environment(self) -> Mapping[str, str]:
        """What makes a child process see these GPUs alone; nothing on a machine without any."""
        return {VISIBLE_VARIABLE: ",".join(self.gpus)} if self.gpus else {}

    def release(self) -> None:
        """Let others have them."""
        self._collecting.close()
        self._held.close()
        self.gpus = []


def _lock(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock a file for as long as ``held`` is open, if nobody has it now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a")  # noqa: SIM115 - closed by `held`
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    held.enter_context(file)
    return True
