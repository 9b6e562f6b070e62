"""The switch of one trial: a full disk, a wrong clock; by the library of faults.c."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path

from tests.trials.scenarios import Trial

SOURCE = Path(__file__).with_name("faults.c")
_FORM = "qq"  # seconds that the clock is wrong by, whether the disk is full


class Switch:
    """What the processes of one trial, started after this, can be made to suffer."""

    def __init__(self, trial: Trial, library: Path, disk: Iterable[Path] = ()) -> None:
        """
        :param library: the folder of the compiled library.
        :param disk: the folders that are the disk.
        """
        control = trial.folder / "control"
        control.write_bytes(struct.pack(_FORM, 0, 0))
        with open(control, "r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), struct.calcsize(_FORM))
        trial.more |= {"LD_PRELOAD": str(library / SOURCE.with_suffix(".so").name), "CHAOS_CONTROL": str(control)}
        trial.more["CHAOS_DISK"] = "".join(f":{folder}" for folder in disk)

    def set(self, *, clock: int = 0, full: bool = False) -> None:
        """From now on, in all processes of the trial.

        :param clock: seconds that the wall clock goes wrong by.
        :param full: whether the disk takes no new bytes.
        """
        self._mapped[:] = struct.pack(_FORM, clock, int(full))
