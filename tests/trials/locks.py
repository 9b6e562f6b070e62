"""Hosts that share a folder, simulated on one machine, with the manners of locks that shared file systems have.

    python -m tests.trials.locks FOLDER

runs the same small pipeline from two hosts at once on one store, under each manner, and compares what both have come to
with an undisturbed run. Needs gcc; no root.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.trials.chaos.fixture import LIMIT_SECONDS, Fixture, unclear
from tests.trials.scenarios import Trial, compile_shim

MANNERS = ("cluster", "nfs", "node")
"""Locks that all hosts see; that all see, and that are refused as NFS does; that each host sees of its own alone."""
NO_LOCKS = "none"
MANNERS_SOURCE = Path(__file__).with_name("manners.c")


def variables(library: Path, folder: Path, manner: str, host: str) -> Mapping[str, str]:
    """The environment variables of a process on ``host``.

    :param folder: what the hosts share of the simulation itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    boot_id = folder / f"{host}.boot_id"
    if not boot_id.exists():
        boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    return {"LD_PRELOAD": str(library), "LOCKS_FOLDER": str(folder), "LOCKS_MANNER": manner, "LOCKS_HOST": host}


def from_two_hosts(fixture: Fixture, library: Path, manner: str, killed: bool) -> tuple[str, list[str]]:
    """Run one pipeline from two hosts at the same time: both end well, with one artifact each.

    :param killed: end the first host's processes in the middle, then start its command again.
    """
    root = fixture.root / f"locks-{manner}{'-killed' if killed else ''}"
    shutil.rmtree(root, ignore_errors=True)
    hosts = []
    for name in "ab":
        more = dict(variables(library, root / "locks", manner, name))
        hosts.append(Trial(root / name, fixture.world, str(root / "store"), more))
        shutil.copytree(fixture.root / "home", hosts[-1].home)
    started = time.monotonic()
    running = [host.start() for host in hosts]
    if killed:
        while not list((root / "store" / ".work" / "pretrain").glob("*/checkpoints/*")):
            time.sleep(0.05)
        holder = next((root / "store" / ".locks").glob("pretrain-*.holder")).read_text(encoding="utf-8")
        first = 0 if holder.split()[1] in map(str, hosts[0].processes()) else 1
        for pid in hosts[first].processes():
            subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
        running[first].wait()
        running[first] = hosts[first].start()
    codes = [process.wait(2 * LIMIT_SECONDS) for process in running]
    seconds = time.monotonic() - started
    faults = [fault for host, code in zip(hosts, codes, strict=True) if code for fault in unclear(host, code)]
    faults += [f"exit codes {codes}"] if any(codes) else []
    for host in hosts:
        faults += [f"{host.folder.name}: {fault}" for fault in fixture.faults(host)]
    faults += [f"left: {path}" for path in (root / "store" / ".locks").rglob("*.holder*")]
    return f"exit codes {codes}, {seconds:.0f} s", faults


def main(folder: Path) -> int:
    """Run all; a line a trial. Exit code 1 where anything did not hold."""
    folder.mkdir(parents=True, exist_ok=True)
    fixture, library = Fixture(folder), compile_shim(MANNERS_SOURCE, folder)
    fixture.prepare()
    bad = 0
    for manner in MANNERS:
        for killed in (False, True):
            how, faults = from_two_hosts(fixture, library, manner, killed)
            bad += bool(faults)
            print(f"{manner:<8} {'one killed' if killed else 'undisturbed':<12} {how}: {faults or 'well'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
