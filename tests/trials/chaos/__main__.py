"""Faults on purpose, all over the pipeline's life: what they leave behind, and whether it ends the same.

    python -m tests.trials.chaos [--only disk,clock] [--kills 50] [--seed chaos-1]

Each trial runs the pipeline on a tiny generated world, does one thing to it at a moment that the seed names, and lets
the same command, or the same run of a deployment on the full stack, go on. Then the leaderboard and every model must
be those of an undisturbed run, bit for bit, no process be left, and no run be called running. A line is printed for
each trial, at the end a table of counts; exit code 1 where anything did not hold. Needs gcc and gptmill[stack].
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tests.trials.chaos.agenda import Planned, agenda
from tests.trials.chaos.faults import SOURCE
from tests.trials.chaos.fixture import Fixture, end_all
from tests.trials.chaos.servers import UNDISTURBED, Stack
from tests.trials.scenarios import Trial, compile_shim, options

_INTERRUPTED = 130  # as a shell says it


def main() -> int:
    """All trials; 0 if all ended well."""
    parser = options(__doc__)
    parser.add_argument("--only", default="", metavar="A,B", help="only kinds (of the table) with one of these words")
    parser.add_argument("--kills", type=int, default=50, help="how many (%(default)s)")
    parser.add_argument("--seed", default="chaos-1", help="names the moments (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="trials at the same time (%(default)s)")
    parser.add_argument("--folder", help="keep reference and failed trials there")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background, and so by children
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left behind
    root = Path(given.folder or tempfile.mkdtemp(prefix="gptmill-chaos-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    fixture, stack = Fixture(root), Stack(root)
    fixture.prepare()
    compile_shim(SOURCE, root)
    life = " ".join(f"{part} {span[0]:.1f}" for part, span in fixture.spans.items())
    print(f"seed {given.seed}; reference run, seconds: {life}\nfolder {root}", flush=True)
    planned = agenda(fixture, stack, given.seed, given.kills)
    if words := [word.strip() for word in given.only.split(",") if word.strip()]:
        chosen = {trial.name for trial in planned if any(word in trial.kind for word in words)}
        if any(trial.alone and trial.name in chosen for trial in planned):
            chosen.add(UNDISTURBED)  # whose store the others on the stack begin with
        planned = [trial for trial in planned if trial.name in chosen]
    with stack.running() if any(trial.on_stack for trial in planned) else nullcontext():
        bad = _Lanes(fixture, planned, start).run(given.jobs)
    if not bad and not given.folder:
        shutil.rmtree(root)
    return 1 if bad else 0


class _Lanes:
    """Trials side by side, those that stop a server of the stack one at a time."""

    def __init__(self, fixture: Fixture, planned: list[Planned], start: float) -> None:
        self._fixture, self._waiting, self._start = fixture, list(planned), start
        self._total = len(planned)
        self._one_alone = False
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {trial.kind: [0, 0] for trial in planned}

    def run(self, lanes: int) -> int:
        """How many trials did not end well."""
        with ThreadPoolExecutor(lanes) as pool:
            try:
                for lane in [pool.submit(self._lane) for _ in range(lanes)]:
                    lane.result()
            except KeyboardInterrupt:
                for folder in self._fixture.root.iterdir():  # the stack's among them
                    end_all(Trial(folder, self._fixture.world))
                os._exit(_INTERRUPTED)  # the lanes would go on with their trials
        print(f"\n| {'fault':<28} | trials | well | failed |\n|{'-' * 30}|-------:|-----:|-------:|")
        every = [sum(row[place] for row in self._counts.values()) for place in (0, 1)]
        for kind, (done, bad) in {**self._counts, "all": every}.items():
            print(f"| {kind:<28} | {done:>6} | {done - bad:>4} | {bad:>6} |")
        print(f"\n{time.monotonic() - self._start:.0f} s", flush=True)
        return every[1]

    def _lane(self) -> None:
        while planned := self._next():
            seconds, how, faults = _outcome(self._fixture, planned)
            with self._lock:
                self._one_alone &= not planned.alone
                counts = self._counts[planned.kind]
                counts[0] += 1
                counts[1] += bool(faults)
                done = sum(row[0] for row in self._counts.values())
                at = f"{time.monotonic() - self._start:6.0f} s  {done:>3}/{self._total}  {planned.name}"
                outcome = "FAILED: " + "; ".join(faults) if faults else "well"
                print(f"{at}  {planned.what:<40} {seconds:5.1f} s  {how:<40} {outcome}", flush=True)

    def _next(self) -> Planned | None:
        with self._lock:
            for place, planned in enumerate(self._waiting):
                if not (planned.alone and self._one_alone):
                    self._one_alone |= planned.alone
                    return self._waiting.pop(place)
        return None


def _outcome(fixture: Fixture, planned: Planned) -> tuple[float, str, list[str]]:
    """Seconds, how it went, what did not hold; the folder of a trial that went well is removed."""
    start = time.monotonic()
    trial = Trial(fixture.root / planned.name, fixture.world)
    try:
        how, faults = planned.run()
    except Exception as error:  # a trial that broke down has failed; the others go on
        trial.folder.mkdir(parents=True, exist_ok=True)
        (trial.folder / "trial.txt").write_text(traceback.format_exc())
        how, faults = "the trial broke down", [f"{type(error).__name__}: {error}"]
    end_all(trial)
    if not faults:
        shutil.rmtree(trial.folder, ignore_errors=True)
    return time.monotonic() - start, how, faults


if __name__ == "__main__":
    sys.exit(main())
