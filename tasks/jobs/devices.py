"""The GPUs of this machine, who has which, and how fast it trains: a job sees its own GPUs and no others.

torch is not imported: the speed is measured in a child process, for the process of a flow has no CUDA.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gptcore.base.files import try_lock
from tasks.store.locks import kernel
from tasks.store.state import state_folder

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/gpus")
_LISTED = re.compile(r"GPU \d+: (.*) \(UUID: (GPU-[^)]+)\)")
_SMI_SECONDS = 60.0  # a machine of eight GPUs that nobody has used yet takes seconds for each
_SHARE = 0.3
"""The share of the speed of matrix products alone that a training reaches. Updates on two cores that other work shared,
bfloat16: 0.32 (117 M), 0.24 (small), 0.08 (demo)."""
_SECONDS = 120.0  # a machine that takes longer for a second's products cannot train


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: what CUDA_VISIBLE_DEVICES lists, numbers or UUIDs, else all there are."""
    listed = os.environ.get(VISIBLE_VARIABLE)
    if listed is None:  # numbered without gaps by CUDA, whichever device files a container was given
        return [str(number) for number, _ in enumerate(_device_files())]
    gpus: list[str] = []
    for name in (part.strip() for part in listed.split(",")):
        if not name or name == "-1":  # CUDA takes neither it nor what comes after it
            break
        gpus.append(name)
    return gpus


def _device_files() -> list[Path]:
    return sorted(_DEVICES.glob("nvidia[0-9]*"))


def lease_name(gpu: str) -> str:
    """What names a GPU for everybody who may lease it, on this host and on others that share the state folder.

    That is its UUID: numbers begin with 0 on each host, and in each container of one. Where it cannot be told, the
    number beside the name of the running kernel.

    :param gpu: as CUDA_VISIBLE_DEVICES has it: a number, a UUID or a UUID's beginning.
    """
    uuids = _uuids()
    if not gpu.isdigit():
        fitting = [uuid for uuid in uuids if uuid.startswith(gpu)]
        return fitting[0] if len(fitting) == 1 else gpu.replace("/", "-")
    given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")  # to a container, by what started it
    if given.startswith("MIG-") and "," not in given:  # a part of a GPU, whose own UUID is not its name
        return given
    return uuids[int(gpu)] if int(gpu) < len(uuids) else f"{kernel()}-{gpu}"


def _uuids() -> list[str]:
    """The GPUs' UUIDs in the order of their numbers; none where that cannot be told for sure.

    It cannot for GPUs of several models, which CUDA numbers by their speed.
    """
    for source in (_of_driver, _of_smi):
        gpus = source()
        known = len(gpus) == len(_device_files()) and not any("?" in uuid for _, uuid in gpus)
        if gpus and known and len({model for model, _ in gpus}) == 1:
            return [uuid for _, uuid in gpus]
    return []


def _of_driver() -> list[tuple[str, str]]:
    """Model and UUID of each GPU that has a device file here, by its address on the bus.

    A driver that has not been used yet writes question marks.
    """
    gpus = []
    for path in sorted(_DRIVER.glob("*/information")):
        lines = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in lines}
        if (_DEVICES / f"nvidia{fields.get('Device Minor')}").exists():
            gpus.append((fields.get("Model", ""), fields.get("GPU UUID", "?")))
    return gpus


@functools.cache
def _of_smi() -> list[tuple[str, str]]:
    """Model and UUID of each GPU as NVIDIA's own program tells them; none where that is not there or is silent."""
    if not _device_files():
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "-L"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True).stdout
        return [(listed[1], listed[2]) for line in said.splitlines() if (listed := _LISTED.match(line))]
    return []


class GpuLease:
    """GPUs that no other job of this state folder has, until it ends.

    Lock files hold them, which the kernel lets go with the process that locked them; only processes of one machine ask
    for the same. Who waits for some of several GPUs first takes a place in the queue of each, in one order for all, so
    that two never wait for one another and small jobs do not overtake a large one.

    :param count: how many; where the machine has fewer, all of them, and none where it has none.
    """

    def __init__(self, count: int) -> None:
        self._visible = visible_gpus()
        self._count = min(count, len(self._visible))
        self._folder = state_folder() / "gpus"
        self._names = {gpu: lease_name(gpu) for gpu in self._visible}
        self._held = contextlib.ExitStack()
        self._queues = contextlib.ExitStack()
        self._ahead = sorted(set(self._names.values()))
        self.gpus: list[str] = []

    def take(self) -> bool:
        """Take the free ones of the GPUs that are still missing, without waiting; whether none is missing any more."""
        if len(self.gpus) == self._count:
            return True
        while self._ahead and _lock(self._folder / f".queue-{self._ahead[0]}.lock", self._queues):
            del self._ahead[0]
        if not self._ahead:
            for gpu in [gpu for gpu in self._visible if gpu not in self.gpus]:
                if len(self.gpus) < self._count and _lock(self._folder / f"{self._names[gpu]}.lock", self._held):
                    self.gpus.append(gpu)
        if len(self.gpus) < self._count:
            return False
        self._queues.close()
        return True

    def environment(self) -> Mapping[str, str]:
        """What makes a child process see these GPUs alone; nothing on a machine without any."""
        return {VISIBLE_VARIABLE: ",".join(self.gpus)} if self.gpus else {}

    def release(self) -> None:
        """Let others have them."""
        self._queues.close()
        self._held.close()
        self._ahead = sorted(set(self._names.values()))
        self.gpus = []


def _lock(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock a file for as long as ``held`` is open, if nobody has it now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as closing:
        if not try_lock(closing.enter_context(open(path, "a"))):
            return False
        held.push(closing.pop_all())
    return True


class SpeedUnknown(RuntimeError):
    """The measurement failed; the message holds its last line."""


@dataclass(frozen=True)
class Speed:
    """How fast one GPU trains, or all cores of a machine without one."""

    device: str
    """ "cpu", or the GPU's product name."""
    flops: float
    """Operations a second that a training is expected to reach."""


@functools.cache
def training_speed() -> Speed:
    """What one GPU of this machine, or all of its cores, are expected to train with, as busy as it is now.

    Some three seconds, once a process.

    :raises SpeedUnknown: it cannot be measured here.
    """
    command = [sys.executable, "-m", "gptcore.machine.device"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise SpeedUnknown(f"matrix products took more than {_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or [f"exit code {error.returncode}"]
        raise SpeedUnknown(lines[-1]) from None
    measured = json.loads(done.stdout.splitlines()[-1])
    return Speed(measured["device"], _SHARE * measured["flops"])
