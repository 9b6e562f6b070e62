"""What a growing corpus costs: memory a process and seconds of the corpus stages, at several sizes.

    python -m tests.trials.growth [--megabytes 250,1000,2000] [--folder FOLDER]

For each size a corpus of books is written (paragraphs of generated books in a new order, each with words of its own;
none of it real text), then cleaned, counted for the tokenizer and encoded on two processes, each stage in a process of
its own. Printed are seconds, MB/s, and the most memory that the caller and a worker had (their own pages, without the
files that they map). The files are deleted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import Random

import psutil

from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.storyworld.write import generate
from gptcore.text.bpe import WordTokenizer
from gptcore.text.corpus import build_corpus, read_corpus
from gptcore.text.counting import count_corpus
from gptcore.text.sources import RawCorpus
from tasks.jobs.parallel import partition_map
from tests.trials.scenarios import options

_BOOK = 500_000  # characters
_MERGES = 4000
STAGES = ("clean", "count", "encode")


def write_books(folder: Path, megabytes: int) -> None:
    """So much text as files of about _BOOK characters, no two alike."""
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


def work(stage: str, folder: Path) -> None:
    """One stage, as the pipeline's tasks do it."""
    corpus = folder / "corpus"
    with partition_map(processes=2) as parallel:
        if stage == "clean":
            build_corpus(
                RawCorpus.at(str(folder / "books")), corpus, CorpusConfig(), map=parallel, progress=lambda *_: None
            )
        elif stage == "count":
            count_corpus(corpus, folder / "counts", parallel)
        else:
            few = (text for _, rows in islice(read_corpus(corpus, "train"), 20) for text in rows)
            encode_corpus(corpus, WordTokenizer.train(few, _MERGES), folder / "shards", ShardConfig(), map=parallel)


def measured(stage: str, folder: Path) -> tuple[float, int, int]:
    """Seconds, and the most bytes of the caller and of a worker."""
    start = time.monotonic()
    run = psutil.Popen([sys.executable, "-m", "tests.trials.growth", "--stage", stage, "--folder", str(folder)])
    caller = worker = 0
    while run.poll() is None:
        try:
            caller = max(caller, _own(run))
            worker = max([worker, *map(_own, run.children(recursive=True))])
        except psutil.Error:
            pass  # it has ended meanwhile
        time.sleep(0.2)
    if run.returncode:
        raise subprocess.CalledProcessError(run.returncode, stage)
    return time.monotonic() - start, caller, worker


def _own(process: psutil.Process) -> int:
    """Bytes that a process has for itself, files that it maps left out."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def main() -> None:
    """Print a line a stage and size."""
    parser = options(__doc__)
    parser.add_argument("--megabytes", default="250,1000,2000", help="sizes of the corpus (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where files go while it runs (the temporary folder)")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        work(given.stage, given.folder)
        return
    print(f"{'MB':>6} {'stage':<7}{'seconds':>9}{'MB/s':>8}{'caller MB':>11}{'worker MB':>11}", flush=True)
    for megabytes in map(int, given.megabytes.split(",")):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            folder = Path(name)
            write_books(folder / "books", megabytes)
            for stage in STAGES:
                seconds, caller, worker = measured(stage, folder)
                speed = f"{seconds:9.0f}{megabytes / seconds:8.1f}"
                print(f"{megabytes:6} {stage:<7}{speed}{caller / 1e6:11.0f}{worker / 1e6:11.0f}", flush=True)


if __name__ == "__main__":
    main()
