"""What a growing corpus costs: time and memory of the corpus stages at several sizes, and how either grows with it.

    python -m tests.trials.growth [--megabytes 1000,4000,16000] [--workers 2] [--dask] [--folder FOLDER] [--out FOLDER]

For each size a corpus of books is written (paragraphs of generated books in a new order, each with words of its own;
none of it real text), then cleaned, counted for the tokenizer and encoded, each stage in a process of its own with
workers: processes, or with --dask those of a local Dask cluster. Printed are the CPU seconds of all its processes
(which others on the machine do not change), MB for each of them, and the most memory that the caller and a worker had
(their own pages, without the files that they map), then the slopes of seconds and of memory over size, both in
logarithms: 1 and 0 are what a plan hopes for. Files are deleted as soon as no stage needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import psutil

from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.papers.storyworld.write import generate
from gptcore.text.bpe import WordTokenizer
from gptcore.text.corpus import build_corpus
from gptcore.text.counting import count_corpus
from gptcore.text.parts import read_corpus
from gptcore.text.sources import RawCorpus
from tasks.jobs.parallel import partition_map
from tasks.report.figures import COLORS, new_canvas
from tests.trials.scenarios import options

_BOOK = 500_000  # characters
_MERGES = 4000
STAGES = ("clean", "count", "encode")
_LOOKS = 0.1  # seconds between two looks at the processes


@dataclass(frozen=True)
class Cost:
    """What one stage took at one size."""

    megabytes: int
    stage: str
    seconds: float
    """CPU time of the caller and its workers."""
    caller: int
    """Bytes at most."""
    worker: int
    """Bytes at most, of the largest."""


def write_books(folder: Path, megabytes: int) -> None:
    """Write so many megabytes of text as files of about _BOOK characters, no two alike."""
    draws = Random(megabytes)
    with tempfile.TemporaryDirectory() as world:
        generate(Path(world) / "world", seed=1, books=8, characters=60_000)
        texts = [path.read_text(encoding="utf-8") for path in sorted((Path(world) / "world" / "books").glob("*.txt"))]
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n")]
    folder.mkdir(parents=True)
    for number in range(megabytes * 1_000_000 // _BOOK):
        with open(folder / f"{number:05d}.txt", "w", encoding="utf-8") as file:
            while file.tell() < _BOOK:
                letters = "".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=6))
                file.write(f"{draws.choice(paragraphs)} “So it was,” said {letters.capitalize()}.\n\n")


def work(stage: str, folder: Path, workers: int, address: str) -> None:
    """One stage, as the pipeline's tasks do it."""
    corpus = folder / "corpus"
    with partition_map(address, processes=workers) as parallel:
        if stage == "clean":
            raw = RawCorpus.at(str(folder / "books"))
            build_corpus(raw, corpus, CorpusConfig(), map=parallel, progress=lambda *_: None)
        elif stage == "count":
            count_corpus(corpus, folder / "counts", parallel)
        else:
            few = (text for _, rows in islice(read_corpus(corpus, "train"), 20) for text in rows)
            encode_corpus(corpus, WordTokenizer.train(few, _MERGES), folder / "shards", ShardConfig(), map=parallel)


def measured(stage: str, folder: Path, megabytes: int, workers: int = 2, dask: bool = False) -> Cost:
    """Run one stage in a process of its own, and watch it and its workers."""
    with _cluster(workers if dask else 0) as (address, others):
        before = _spent(others)
        command = [sys.executable, "-m", "tests.trials.growth", "--stage", stage, "--folder", str(folder)]
        run = psutil.Popen([*command, "--workers", str(workers), "--address", address])
        caller = worker = 0
        while run.poll() is None:
            try:
                caller = max(caller, _own(run))
                worker = max([worker, *map(_own, [*run.children(recursive=True), *others])])
            except psutil.Error:
                pass  # it has ended meanwhile
            time.sleep(_LOOKS)
        if run.returncode:
            raise subprocess.CalledProcessError(run.returncode, stage)
        return Cost(megabytes, stage, _spent(others) - before, caller, worker)


@contextmanager
def _cluster(workers: int) -> Iterator[tuple[str, list[psutil.Process]]]:
    """The address of a local Dask cluster with so many workers, and these; of none without any."""
    if not workers:
        yield "", []
        return
    from distributed import LocalCluster

    alone = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(n_workers=workers, **alone) as cluster:  # type: ignore[no-untyped-call]
        yield cluster.scheduler_address, [psutil.Process(worker.pid) for worker in cluster.workers.values()]


def _spent(others: Sequence[psutil.Process]) -> float:
    """CPU seconds of every process of this one's that has ended, and of ``others``."""
    ended = os.times()
    running = (each.cpu_times() for each in others)
    return ended.children_user + ended.children_system + sum(times.user + times.system for times in running)


def _own(process: psutil.Process) -> int:
    """Bytes that a process has for itself, files that it maps left out."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def table(costs: Sequence[Cost]) -> str:
    """A row a stage and size, and one for how each stage grows."""
    lines = ["| stage | MB | CPU seconds | MB a CPU second | caller, MB | worker, MB |", "|---|---|---|---|---|---|"]
    for stage in STAGES:
        own = [cost for cost in costs if cost.stage == stage]
        for cost in own:
            memory = f"{cost.caller / 1e6:,.0f} | {cost.worker / 1e6:,.0f}"
            speed = f"{cost.seconds:,.0f} | {cost.megabytes / cost.seconds:.1f}"
            lines.append(f"| {stage} | {cost.megabytes:,} | {speed} | {memory} |")
        if len(own) > 1:
            grows = [f"{slope(own, name):.2f}" for name in ("seconds", "caller", "worker")]
            lines.append(f"| {stage} | exponent | {grows[0]} | | {grows[1]} | {grows[2]} |")
    return "\n".join(lines) + "\n"


def slope(costs: Sequence[Cost], name: str) -> float:
    """Least squares of the logarithms: of what ``name`` says, over the size."""
    logs = np.log([[cost.megabytes, getattr(cost, name)] for cost in costs])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def draw(costs: Sequence[Cost], path: Path) -> None:
    """Seconds and memory over the size of the corpus, all in logarithms."""
    canvas = new_canvas(9, 3.6)
    time_axes, memory_axes = canvas.subplots(1, 2)
    for stage, color in zip(STAGES, COLORS, strict=False):
        own = [cost for cost in costs if cost.stage == stage]
        sizes = [cost.megabytes / 1000 for cost in own]
        time_axes.plot(sizes, [cost.seconds for cost in own], "o-", color=color, label=stage)
        memory_axes.plot(sizes, [cost.worker / 1e6 for cost in own], "o-", color=color, label=f"{stage}, a worker")
        memory_axes.plot(sizes, [cost.caller / 1e6 for cost in own], "o--", color=color, label=f"{stage}, the caller")
    for axes, label in ((time_axes, "CPU seconds"), (memory_axes, "MB at most")):
        axes.set(xscale="log", yscale="log", xlabel="GB of text", ylabel=label)
        axes.set_xticks(sorted({cost.megabytes / 1000 for cost in costs}))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
        axes.grid(alpha=0.25)
    time_axes.set_ylim(10, 10 ** np.ceil(np.log10(max(cost.seconds for cost in costs))))
    memory_axes.set_ylim(10, 2000)
    time_axes.legend(frameon=False)
    memory_axes.legend(frameon=False, ncols=2, fontsize=7)
    canvas.savefig(path)


def grow(folder: Path, megabytes: int, workers: int, dask: bool) -> Iterator[Cost]:
    """All stages at one size; what none of them needs any more is deleted, so that no more than twice the text lies
    there.
    """
    done_with = {"clean": "books", "count": "counts", "encode": "shards"}
    write_books(folder / "books", megabytes)
    for stage in STAGES:
        yield measured(stage, folder, megabytes, workers, dask)
        shutil.rmtree(folder / done_with[stage])


def main() -> None:
    """Print a line a stage and size, and leave them in a file at once."""
    parser = options(__doc__)
    parser.add_argument("--megabytes", default="1000,4000,16000", help="sizes of the corpus (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where files go while it runs (the temporary folder)")
    parser.add_argument("--workers", type=int, default=2, help="processes that do the work (%(default)s)")
    parser.add_argument("--dask", action="store_true", help="they are a local Dask cluster's")
    parser.add_argument("--out", type=Path, help="a folder for growth.jsonl, taken up where it ends, and growth.png")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        work(given.stage, given.folder, given.workers, given.address)
        return
    log = given.out and given.out / "growth.jsonl"
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
    known = [Cost(**json.loads(line)) for line in log.read_text().splitlines()] if log and log.exists() else []
    for megabytes in map(int, given.megabytes.split(",")):
        if len([cost for cost in known if cost.megabytes == megabytes]) == len(STAGES):
            continue
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            for cost in grow(Path(name), megabytes, given.workers, given.dask):
                print(cost, flush=True)
                known.append(cost)
                if log:
                    with open(log, "a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(cost)) + "\n")
    known.sort(key=lambda cost: cost.megabytes)
    print(table(known), end="")
    if given.out:
        draw(known, given.out / "growth.png")


if __name__ == "__main__":
    main()
