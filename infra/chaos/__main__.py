"""Faults on purpose, all over the pipeline's life: what they leave behind, and whether it ends the same.

    python -m infra.chaos [--only kill,disk] [--kills 50] [--seed chaos-1]

Each trial runs `gptmill pipeline` on a tiny generated world, does one thing to it at a moment that the seed names, and
lets the same command go on. Then the leaderboard and every model must be those of an undisturbed run, bit for bit, no
process be left, and no run be called running. A line is printed for each trial, at the end a table of counts; exit
code 1 where anything did not hold. Needs gcc, and `pip install gptmill[stack]` for the S3 server.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.chaos import clock, damage, disk, kills, objects
from infra.chaos.ground import Ground, end_all
from infra.chaos.plan import Moment, moments
from infra.chaos.shim import compile_shim
from infra.trials import Trial

NETWORK, HOSTS = "flaky S3", "two hosts, one S3 store"
_JUMPS = 6
_NETWORKS = 4
_PAIRS = 2


@dataclass(frozen=True)
class Planned:
    """A trial that waits for its turn."""

    kind: str
    name: str
    """Folder of its files, below the kind's."""
    what: str
    run: Callable[[], tuple[str, list[str]]]


def plan_kills(ground: Ground, seed: str, count: int) -> list[Planned]:
    """The kills of processes that a command starts, shared out between caller, jobs and server."""
    counts = {"caller": count - count // 2, "job": count // 2 - count // 8, "own server": count // 8}
    planned = []
    for number, moment in enumerate(moments(seed, counts, kills.STAGES)):
        name = f"kill-{number:02d}"
        planned.append(Planned(f"kill {moment.victim}", name, str(moment), partial(kills.kill, ground, name, moment)))
    return planned


def plan_disk(ground: Ground, seed: str) -> list[Planned]:
    """A full disk once in each stage."""
    return _of_moments("disk full", seed, disk.STAGES, len(disk.STAGES), lambda n, m: disk.fill(ground, n, m))


def plan_clock(ground: Ground, seed: str) -> list[Planned]:
    """The clock set by hours."""
    return _of_moments("clock jump", seed, clock.STAGES, _JUMPS, lambda n, m: clock.jump(ground, n, m))


def _of_moments(
    kind: str, seed: str, stages: Sequence[str], count: int, run: Callable[[str, Moment], tuple[str, list[str]]]
) -> list[Planned]:
    planned = []
    for number, moment in enumerate(moments(seed, {kind: count}, {kind: stages})):
        name = f"{kind.replace(' ', '-')}-{number:02d}"
        planned.append(Planned(kind, name, str(moment), partial(run, name, moment)))
    return planned


def plan_damage(ground: Ground, seed: str) -> list[Planned]:
    """Flipped bits and cut files."""
    planned = []
    for kind, (wounds, run) in damage.TRIALS.items():
        for number, wound in enumerate(wounds):
            name = f"{kind.replace(' ', '-')}-{number:02d}"
            planned.append(Planned(kind, name, wound.what, partial(run, ground, name, wound, seed)))
    return planned


def plan_objects(ground: Ground, seed: str) -> list[Planned]:
    """One S3 store: over bad networks, and from two hosts at once."""
    planned = []
    for number in range(_NETWORKS):
        name = f"network-{number:02d}"
        run = partial(objects.over_bad_network, ground, name, f"{seed}/network/{number}")
        planned.append(Planned(NETWORK, name, "requests dropped, refused, cut, late", run))
    for number in range(_PAIRS):
        name = f"hosts-{number:02d}"
        planned.append(Planned(HOSTS, name, "at the same time", partial(objects.from_two_hosts, ground, name)))
    return planned


def main() -> int:
    """All trials; 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="A,B", help="only kinds that begin with one of these words")
    parser.add_argument("--kills", type=int, default=50, help="how many (%(default)s)")
    parser.add_argument("--seed", default="chaos-1", help="names the moments (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="trials at the same time (%(default)s)")
    parser.add_argument("--folder", help="keep reference and failed trials there")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background, and so by children
    root = Path(options.folder or tempfile.mkdtemp(prefix="gptmill-chaos-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    ground = Ground(root)
    ground.lay()
    compile_shim(root)
    life = " ".join(f"{part} {span[0]:.1f}" for part, span in ground.spans.items())
    print(f"seed {options.seed}; reference run, seconds: {life}\nfolder {root}", flush=True)
    planned = plan_kills(ground, options.seed, options.kills) + plan_disk(ground, options.seed)
    planned += plan_clock(ground, options.seed) + plan_damage(ground, options.seed)
    planned += plan_objects(ground, options.seed)
    if words := tuple(word.strip() for word in options.only.split(",") if word.strip()):
        planned = [trial for trial in planned if trial.kind.startswith(words)]
    planned = _mixed(planned)
    remote = any(trial.kind in (NETWORK, HOSTS) for trial in planned)
    counts: dict[str, list[int]] = {}
    with objects.s3_server(root) if remote else nullcontext(), ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(_run, ground, trial): trial for trial in planned}
        for number, future in enumerate(as_completed(futures), start=1):
            trial = futures[future]
            seconds, how, faults = future.result()
            done = counts.setdefault(trial.kind, [0, 0])
            done[0] += 1
            done[1] += bool(faults)
            outcome = "FAILED: " + "; ".join(faults) if faults else "well"
            at = time.monotonic() - start
            print(f"{at:6.0f} s  {number:>3}/{len(planned)}  {trial.name}  {trial.what:<40} {seconds:5.1f} s  "
                  f"{how:<40} {outcome}", flush=True)  # fmt: skip
    print(f"\n| {'fault':<24} | trials | well | failed |\n|{'-' * 26}|-------:|-----:|-------:|")
    for kind, (n, bad) in counts.items():
        print(f"| {kind:<24} | {n:>6} | {n - bad:>4} | {bad:>6} |")
    n, bad = (sum(row[i] for row in counts.values()) for i in (0, 1))
    print(f"| {'all':<24} | {n:>6} | {n - bad:>4} | {bad:>6} |\n\n{time.monotonic() - start:.0f} s", flush=True)
    if not bad and not options.folder:
        shutil.rmtree(root)
    return 1 if bad else 0


def _mixed(planned: list[Planned]) -> list[Planned]:
    """The first of every kind, then the second of every kind, and so on: what goes wrong shows early."""
    seen: Counter[str] = Counter()
    places = []
    for trial in planned:
        places.append(seen[trial.kind])
        seen[trial.kind] += 1
    return [trial for _, trial in sorted(zip(places, planned, strict=True), key=lambda pair: pair[0])]


def _run(ground: Ground, planned: Planned) -> tuple[float, str, list[str]]:
    """Seconds, how it went, what did not hold; the folder of a trial that went well is removed."""
    start = time.monotonic()
    trial = Trial(ground.root / planned.name, ground.world)
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
