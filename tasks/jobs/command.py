"""The command line of a training job: one process, or torchrun on one host or several."""

from __future__ import annotations

import sys
from pathlib import Path

_SHUTDOWN_SECONDS = 24 * 3600
"""After SIGTERM torchrun waits so long for checkpoints. Whoever sends it knows how much time there is, and kills."""


def job_command(
    module: str,
    job_file: Path,
    nproc: int = 1,
    *,
    nnodes: str = "1",
    rendezvous: str = "",
    run_id: str = "",
    max_restarts: int = 0,
) -> list[str]:
    """``python -m module JOB.json``, or the same through torchrun; for several hosts the line is the same on each.

    Elastic (``nnodes`` a range): when a host is lost, or one joins, torchrun starts the processes again as another
    world. They go on from the newest checkpoint with the same global batches.

    :param nproc: training processes on each host.
    :param nnodes: how many hosts, ``"2"``, or ``"1:2"`` for at least one and at most two.
    :param rendezvous: ``HOST:PORT``, the same for all hosts: that host's torchrun listens there. Needed for several.
    :param run_id: what tells this job from another one at the same rendezvous.
    :param max_restarts: how often torchrun starts the processes again after one of them failed.
    """
    job = ["-m", module, str(job_file)]
    if nproc == 1 and nnodes == "1":
        return [sys.executable, *job]
    place = ["--standalone", "--local-addr", "127.0.0.1"]  # else by its own host name, which need not resolve
    if nnodes != "1":
        if not rendezvous:
            raise ValueError(f"nnodes = {nnodes} without a rendezvous; expected HOST:PORT")
        place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", rendezvous, "--rdzv-id", run_id or "gptmill"]
    options = ["--nnodes", nnodes, "--nproc-per-node", str(nproc), "--max-restarts", str(max_restarts)]
    options += ["--shutdown-timeout", str(_SHUTDOWN_SECONDS), "--log-dir", "/dev/null"]  # else it litters /tmp
    return [sys.executable, "-m", "gptcore.machine.torchrun", *place, *options, *job]
