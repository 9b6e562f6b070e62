"""How a pipeline ends whose state folder or store takes no more bytes: one line, and exit code 1.

    python -m tests.trials.unwritable [--cases home-small,store-fills]

As root: each place is a disk in memory of its own (tmpfs), as large as its case says, or mounted read-only. What
"fills" has room when the command begins, and none from its training on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gptcore.base.files import free_bytes
from tests.trials.scenarios import Trial, heading, make_world, options, row, small

_LIMIT_SECONDS = 120.0
_SIZE = "64m"


@dataclass(frozen=True)
class Case:
    """What is wrong with which place."""

    place: str
    size: str = _SIZE
    fills: bool = False
    read_only: bool = False


CASES: Mapping[str, Case] = {
    "home-small": Case("home", "6m"),
    "home-fills": Case("home", fills=True),
    "home-read-only": Case("home", read_only=True),
    "store-small": Case("store", "6m"),
    "store-fills": Case("store", fills=True),
    "store-read-only": Case("store", read_only=True),
}


@contextmanager
def disk(folder: Path, size: str) -> Iterator[None]:
    """A disk in memory at a folder, which goes with what is on it."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def tried(case: Case, trial: Trial) -> tuple[float, int, list[str]]:
    """Seconds, exit code, and what was printed on standard error but for lines of finished stages."""
    place = trial.home if case.place == "home" else Path(trial.store)
    with disk(place, case.size):
        if case.read_only:
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        started = time.monotonic()
        process = trial.start()
        if case.fills:
            while process.poll() is None and not trial.stored(".work/pretrain/*"):
                time.sleep(0.01)
            with suppress(OSError), open(place / "others", "wb") as file:
                file.write(bytes(free_bytes(place)))
            started = time.monotonic()
        code = process.wait(_LIMIT_SECONDS)
        seconds = time.monotonic() - started
    said = (trial.folder / "err.txt").read_text(encoding="utf-8").splitlines()
    return seconds, code, [line for line in said if line.startswith(("gptmill", "error", "warning", "Traceback"))]


def main() -> None:
    """All cases, a row each; the exit code is 1 where one has other than one line, or another exit code."""
    parser = options(__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    given = parser.parse_args()
    good = True
    heading("case", "seconds", "exit code", "said")
    with tempfile.TemporaryDirectory(prefix="gptmill-unwritable-") as root:
        make_world(Path(root) / "world", small(40))
        for name in given.cases.split(","):
            seconds, code, said = tried(CASES[name], Trial(Path(root) / name, Path(root) / "world"))
            row(name, f"{seconds:.1f}", code, "; ".join(said))
            good &= code == 1 and len(said) == 1
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
