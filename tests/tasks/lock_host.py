"""A process on one of several hosts (tests/trials/manners.c), which does what each line of its standard input says.

python -m tests.tasks.lock_host STORE BEAT_SECONDS SILENT_SECONDS
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from tasks.jobs import devices
from tasks.store import locks, presence
from tasks.store.artifact import Recipe
from tasks.store.garbage import Referred, Rules, inventory, plan
from tasks.store.store import Store
from tasks.tracking import owners

RECIPE = Recipe("stage", 1, {"size": 1})
URI = "uri"


class Actions:
    """What a test may ask for: the names of these, and of this module."""

    def __init__(self, store: Path) -> None:
        self.store, self.shared, self.host = Store(store), store.parent, os.environ["LOCKS_HOST"]
        self.leases: list[devices.GpuLease] = []

    def build(self) -> bool:
        """Build the artifact, once there is a file `go` or `<host>.go`; whether somebody else had."""
        return self.store.build(RECIPE, self._produce).cached

    def dead(self) -> dict[str, list[str]]:
        """The dead owners and their lines."""
        with owners.dead_owners(URI) as found:
            return found

    def left(self) -> tuple[list[list[str]], int, set[str]]:
        """Lines of dead owners, how many artifacts may go, and what is worked with."""
        with owners.dead_owners(URI) as dead, presence.noted(self.store.scratch) as leased:
            rules = Rules((), (), "world", timedelta(0), unknown=True)
            items, now = inventory(self.store, ["stage"]), datetime.now(UTC) + timedelta(days=1)
            dropped = plan(items, Referred({}, ()), leased, rules, now).dropped
            return list(dead.values()), len(dropped), leased

    def machine(self, folder: str) -> None:
        """The folders `dev` and `driver` of GPUs."""
        devices._DEVICES, devices._DRIVER = Path(folder, "dev"), Path(folder, "driver")
        devices._of_smi = list  # type: ignore[assignment]  # no program

    def take(self, count: int = 1) -> list[str] | None:
        """Lease GPUs; None where they are not free."""
        self.leases.append(devices.GpuLease(count))
        return self.leases[-1].gpus if self.leases[-1].take() else None

    def _produce(self, workspace: Path) -> dict[str, Any]:
        with open(workspace / "log", "a", encoding="utf-8") as file:
            print(self.host, "begins", file=file, flush=True)
            (self.shared / f"{self.host}.works").touch()
            while not (self.shared / "go").exists() and not (self.shared / f"{self.host}.go").exists():
                time.sleep(0.01)
            print(self.host, "ends", file=file, flush=True)
        return {}


def main(store: str, beat: str, silent: str) -> None:
    locks.BEAT_SECONDS, locks.SILENT_SECONDS = float(beat), float(silent)
    actions = Actions(Path(store))
    for line in sys.stdin:
        try:
            print(repr(eval(line, globals(), {"self": actions})), flush=True)
        except InputError as error:
            print(repr(str(error)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
