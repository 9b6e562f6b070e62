"""The corpus stages on a Dask cluster of two worker processes: the local bits, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import gptcore.evaluation.ngram as ngram
import gptcore.text.corpus as corpus_module
import gptcore.text.counting as counting
from gptcore.base.errors import InputError
from gptcore.base.files import sha256_file
from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.data.shards import Shards
from gptcore.text.bpe import WordTokenizer
from gptcore.text.corpus import build_corpus
from gptcore.text.counting import count_corpus
from gptcore.text.sources import RawCorpus
from tasks.jobs.parallel import connect, partition_map
from tests.gptcore.test_corpus import story
from tests.trials.scenarios import wait

CONFIG = CorpusConfig(validation_fraction=0.3, min_characters=40)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def all_stages(folder: Path, parallel: Callable[..., Any]) -> dict[str, Any]:
    """What every corpus stage leaves: files by their digests, and n-gram perplexities."""
    report = build_corpus(RawCorpus.at(str(folder.parent / "books")), folder / "corpus", CONFIG, map=parallel)
    tokenizer = WordTokenizer.from_counts(count_corpus(folder / "corpus", folder / "counts", parallel), 60)
    encode_corpus(folder / "corpus", tokenizer, folder / "shards", ShardConfig(max_tokens=300), map=parallel)
    train, validation = Shards(folder / "shards" / "train"), Shards(folder / "shards" / "validation")
    left = {str(p.relative_to(folder)): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    return {"report": report, "ngrams": ngram.ngram_perplexity(train, validation, 3, map=parallel), **left}


def noted(marks: Path, function: Callable[..., Any], *items: Any) -> Any:
    """``function``, with a mark of who did it; the worker that cleans its second file or so is killed."""
    result = function(*items)
    name = getattr(function, "func", function).__name__  # of a function with some of its parameters given, its own
    number = len(list(marks.glob(f"{name}-*")))
    (marks / f"{name}-{number}-{os.getpid()}").touch()
    if name == "_clean_group" and not (marks / "killed").exists() and number:
        (marks / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the stages leave when they run here, one item after the other; books and result in one folder."""
    root = tmp_path_factory.mktemp("dask")
    (root / "books").mkdir()
    for number in range(12):
        (root / "books" / f"{number:02d}.txt").write_text(story(number), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        return {"root": root, **all_stages(root / "here", map)}


_WORK = ("scan", "_clean_group", "_count_run", "_add_up", "encode_part", "_write", "_count_rows")


def small(patch: pytest.MonkeyPatch) -> None:
    """Many pieces of work for a small corpus."""
    patch.setattr(corpus_module, "GROUP", 1)
    patch.setattr(ngram, "_CHUNK", 50)
    patch.setattr(counting, "LEAST_RUN", 1)
    patch.setattr(counting, "BUCKET", 10_000)


@pytest.mark.slow
def test_every_stage_gives_the_local_bits_although_a_worker_is_killed(
    local: dict[str, Any], scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    expected = dict(local)
    root = expected.pop("root")
    with partition_map(scheduler, shared=root, reads=root / "books" / "00.txt") as parallel:
        found = all_stages(root / "there", lambda f, *items: parallel(partial(noted, tmp_path, f), *items))
    assert found == expected
    assert (tmp_path / "killed").exists()
    workers = {name: {mark.name.rpartition("-")[2] for mark in tmp_path.glob(f"{name}-*")} for name in _WORK}
    assert all(workers.values())
    assert str(os.getpid()) not in set.union(*workers.values())
    assert not list(root.rglob(".shared-*"))


def test_only_so_many_items_are_under_way(scheduler: str) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(40):
            taken.append(number)
            yield number

    for address, workers in ((scheduler, None), ("", 2)):
        taken.clear()
        with partition_map(address, workers) as parallel:
            results = parallel(abs, items())
            assert next(results) == 0
            assert len(taken) <= 2 * 2 + 1
            assert list(results) == list(range(1, 40))


def test_a_folder_that_workers_do_not_share_is_said(scheduler: str, tmp_path: Path, monkeypatch: Any) -> None:
    import tasks.jobs.parallel as cluster

    with pytest.raises(InputError, match=r"does not see .*gone\.txt of this machine"):
        check_with(scheduler, reads=tmp_path / "gone.txt")
    monkeypatch.setattr(cluster.os.path, "exists", _sees_nothing)
    with pytest.raises(InputError, match=rf"worker tcp://.* does not see {tmp_path} of this machine"):
        check_with(scheduler, shared=tmp_path)
    assert not list(tmp_path.iterdir())


def _sees_nothing(_: str) -> bool:
    return False


def check_with(scheduler: str, **places: Path) -> None:
    with partition_map(scheduler, **places):
        pass


@pytest.mark.parametrize("address", ["nonsense", "ftp://x", "tcp://127.0.0.1:abc", "tcp://127.0.0.1:9"])
def test_an_address_where_no_scheduler_answers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.jobs.parallel as cluster

    monkeypatch.setattr(cluster, "_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(InputError, match=f"--dask {address}: no scheduler answers") as caught, connect(address):
        pass
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 5


# --- the pool of worker processes: it hears no signal to the group, and ends with its owner however that ends


ROOT = Path(__file__).parents[2]
OWNER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tasks.jobs.parallel import partition_map

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)

if __name__ == "__main__":
    with partition_map(processes=2) as parallel:
        list(parallel(work, [sys.argv[1]] * 4))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_owner_and_without_a_word(tmp_path: Path, number: signal.Signals) -> None:
    script, folder = tmp_path / "owner.py", tmp_path / "workers"
    script.write_text(OWNER, encoding="utf-8")
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    wait(lambda: len(list(folder.iterdir())) >= 2 or owner.poll() is not None, "two workers", 60, pause=0.02)
    assert owner.poll() is None
    children = psutil.Process(owner.pid).children(recursive=True)
    assert len(children) >= 3  # two workers and multiprocessing's resource tracker
    if number == signal.SIGKILL:
        owner.kill()  # the owner alone
    else:
        os.killpg(owner.pid, number)  # all of them, as a terminal does
    _, said = owner.communicate(timeout=30)  # every process that holds the pipe has ended
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert said.count("Traceback") == (0 if number == signal.SIGKILL else 1)  # the owner's own
