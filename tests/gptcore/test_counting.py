"""Words of a corpus counted on disk: every one, in bounded pieces, the same whoever counts."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gptcore.text.counting as counting
from gptcore.text.bpe import WordTokenizer
from gptcore.text.counting import count_corpus
from tests.gptcore.test_encode import write_corpus

_LETTERS = "abcdeéß中"


def rows(seed: int) -> list[str]:
    """Cleaned rows with frequent words and with many that come once."""
    draws = Random(seed)
    new = ["".join(draws.choices(_LETTERS, k=draws.randint(1, 7))) for _ in range(60)]
    return [" ".join(draws.choices([*new, "the", "old", "king"], k=40)) + " \n" for _ in range(5)]


TEXTS = [rows(seed) for seed in range(7)]
EXPECTED = Counter(word for texts in TEXTS for row in texts for word in row.split(" "))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    parts = [[(f"{number}-{n}", 0, row) for n, row in enumerate(texts)] for number, texts in enumerate(TEXTS)]
    return write_corpus(tmp_path / "corpus", {"train": parts, "validation": [[("v", 0, "held out \n")]]})


def elsewhere(function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
    """Jobs as a pool does them: sent away, and not done in order."""
    done = {n: pickle.loads(pickle.dumps((function, job))) for n, job in enumerate(items)}
    results = {n: send(job) for n, (send, job) in reversed(done.items())}
    return [results[n] for n in range(len(results))]


def words_of(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    listed = list(items)
    assert len(dict(listed)) == len(listed), "a word comes twice"
    return dict(listed)


@pytest.mark.parametrize("run_words", [1, 30, 10**6])
@pytest.mark.parametrize("run", [1, 3000, 1 << 30])
@pytest.mark.parametrize("bucket", [500, 1 << 30])
def test_every_word_is_counted_however_the_work_is_cut(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_words: int, run: int, bucket: int
) -> None:
    monkeypatch.setattr(counting, "RUN_WORDS", run_words)
    monkeypatch.setattr(counting, "LEAST_RUN", min(run, counting.LEAST_RUN))
    monkeypatch.setattr(counting, "RUN", run)
    monkeypatch.setattr(counting, "BUCKET", bucket)
    monkeypatch.setattr(counting, "_ROWS", 7)
    work = tmp_path / "work"
    work.mkdir()
    (work / "run-00099-0.arrow").write_bytes(b"left by a counting that was killed")
    told: list[int] = []
    found = count_corpus(corpus, work, elsewhere, told.append)
    assert words_of(found.items()) == words_of(found.items()) == EXPECTED
    assert sum(told) == len(TEXTS)
    left = {path.name: path.read_bytes() for path in work.iterdir()}
    assert all(name.startswith("bucket-") for name in left)
    count_corpus(corpus, work)
    assert {path.name: path.read_bytes() for path in work.iterdir()} == left
    assert len(left) > 1 or bucket > 500
    learnt = WordTokenizer.from_corpus(corpus, 30, work)
    assert learnt.digest == WordTokenizer.train([row for texts in TEXTS for row in texts], 30).digest
    assert not work.exists()


@pytest.mark.parametrize("most", [1, 3, 10, 100, len(EXPECTED) - 1, len(EXPECTED), 10**6])
def test_of_too_many_words_the_most_frequent_are_learnt_from(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    most: int,
) -> None:
    monkeypatch.setattr(counting, "MAX_WORDS", most)
    monkeypatch.setattr(counting, "BUCKET", 500)
    with caplog.at_level(logging.WARNING):
        found = words_of(count_corpus(corpus, tmp_path / "work").items())
    least = next(n for n in range(1, 10**6) if sum(count >= n for count in EXPECTED.values()) <= most)
    assert found == {word: n for word, n in EXPECTED.items() if n >= least}
    assert ("distinct words" in caplog.text) == (len(found) < len(EXPECTED))
