"""A job of several processes without a network: each leaves its number, and waits for SIGTERM or fails as told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from gptcore.machine import process


def run(job: dict[str, Any], stop: process.StopRequest) -> None:
    rank, workspace = os.environ["RANK"], Path(sys.argv[1]).parent
    (workspace / f"{rank}.pid").write_text(str(os.getpid()))
    if rank in (job.get("refuses"), job.get("killed")):  # its end ends the others, who shall have begun
        while len(list(workspace.glob("*.pid"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.02)
    if rank == job.get("refuses"):
        raise InputError("batch_size = 1 is less than the 2 processes")
    if rank == job.get("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + job.get("seconds", 0)
    while time.monotonic() < deadline:
        time.sleep(0.02)
        if stop.requested and not job.get("deaf"):
            (workspace / f"{rank}.saved").write_text("saved")
            raise process.Interrupted("checkpoint written")
    write_json_atomic(workspace / "result.json", {"processes": os.environ["WORLD_SIZE"]})


if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
