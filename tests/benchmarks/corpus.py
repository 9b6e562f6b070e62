"""The corpus stages: two processes against one, and a larger corpus against a smaller one."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

from gptcore.config import CorpusConfig
from gptcore.text.corpus import build_corpus
from gptcore.text.sources import RawCorpus
from tasks.jobs.parallel import partition_map
from tests.benchmarks.table import Rate, Work, beside, line
from tests.benchmarks.text import texts_of_books
from tests.trials.growth import STAGES, measured, write_books

_SMALL, _LARGE = 20, 200  # MB; `python -m tests.trials.growth` goes on to 16 GB


def run(_seconds: float, folder: Path) -> None:
    """Rows 4 and 12, as far as the corpus goes."""
    _two_processes(folder)
    _growth(folder)


def _two_processes(folder: Path) -> None:
    """Clean all books that are there: a process takes a second to start, which of 50 MB would be a third."""
    for number, text in enumerate(texts_of_books()):
        (folder / f"{number:03d}.txt").write_bytes(text.encode())
    if real := os.environ.get("GPTMILL_REAL_DATA"):
        for path in Path(real, "books-more").glob("*.txt.gz"):
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    sizes = [path.stat().st_size for path in folder.glob("*.txt")]
    megabytes = sum(sizes) / 1e6

    def cleaning(processes: int) -> Work:
        def clean() -> float:
            with tempfile.TemporaryDirectory() as out, partition_map(processes=processes) as parallel:
                books = RawCorpus.at(str(folder / "*.txt"))
                build_corpus(books, Path(out), CorpusConfig(), map=parallel, progress=lambda *_: None)
            return megabytes

        return clean

    what = f"clean {len(sizes)} books on 2 processes, {megabytes:.0f} MB, their start included"
    beside("4", what, "MB/s", 0.0, cleaning(2), (cleaning(1), ">= 1.8x", "on 1"), turns=2)


def _growth(folder: Path) -> None:
    """Each stage at two sizes; both start a process, which is left out by taking the smaller from the larger."""
    seconds, peak = {}, 0
    for megabytes in (_SMALL, _LARGE):
        write_books(folder / str(megabytes) / "books", megabytes)
        for stage in STAGES:
            cost = measured(stage, folder / str(megabytes), megabytes)
            seconds[stage, megabytes], peak = cost.seconds, max(peak, cost.caller, cost.worker)
    for stage in STAGES:
        begun, further = seconds[stage, _SMALL], seconds[stage, _LARGE] - seconds[stage, _SMALL]
        rates = Rate(((_LARGE - _SMALL) / further,)), Rate((_SMALL / begun,))
        what = f"{stage}, from {_SMALL} to {_LARGE} MB of invented words"
        line("12", what, *rates, "MB/CPU s", ">= 1x", f"its first {_SMALL} MB, start included")
    line("4", f"most memory of a process, {_LARGE} MB", Rate((peak / 1e9,)), None, "GB", "< 1.5")
