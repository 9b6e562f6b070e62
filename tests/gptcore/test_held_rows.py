"""Documents that hold rows of dev and test sets, in any script and however they are cut into pieces."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import CorpusConfig
from gptcore.evaluation.held_rows import rows_fingerprint, search_at
from gptcore.text.corpus import build_corpus
from gptcore.text.partition import Partition, clean_partition, compose
from gptcore.text.sources import RawCorpus

SCRIPTS = {"Latin": "abcdefgh", "Hindi": "\u0915\u0916\u0917\u093f\u0924\u0940", "Thai": "\u0e01\u0e02\u0e04\u0e34"}


def sentence(script: str, seed: int, n_words: int = 20) -> str:
    draws = random.Random(f"{script} {seed}")
    words = ("".join(draws.choices(SCRIPTS[script], k=5)) for _ in range(n_words))
    return ("" if script == "Thai" else " ").join(words)


def task(folder: Path, script: str = "Latin") -> str:
    """The file of an own task with ten rows in each split."""
    folder.mkdir(exist_ok=True)
    for split, first in (("train", 0), ("dev", 100), ("test", 200)):
        rows = [{"text": sentence(script, first + number), "label": str(number % 2)} for number in range(10)]
        short = {"text": " ".join(["all is well", "so it is and so it was", "then"]), "label": "1"}  # of 12 words
        lines = [json.dumps(row) for row in (*rows, *([short] if script == "Latin" else []))]
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    splits = "".join(f'{split} = "{split}.jsonl"\n' for split in ("train", "dev", "test"))
    settings_ = 'name = "own"\nformat = "jsonl"\nform = "single"\nfields = ["text"]\nlabel = "label"\n'
    (folder / "task.toml").write_text(f'{settings_}metrics = ["accuracy"]\n{splits}', encoding="utf-8")
    return str(folder / "task.toml")


@pytest.fixture(scope="module", params=SCRIPTS)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return request.param, task(tmp_path_factory.mktemp("own"), request.param)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([100, 209]), st.integers(0, 5), st.integers(1, 400), st.floats(0, 1))
def test_a_row_is_found_wherever_it_stands(
    own: tuple[str, str], row: int, around: int, size: int, where: float
) -> None:
    script, address = own
    before, after = (" ".join(sentence(script, 900 + side + n) for n in range(around)) for side in (0, 50))
    held = f"{before}\n{sentence(script, row).upper()}! {after}"
    search = search_at(address)
    for start in range(0, len(held), size):
        search.update(held[start : start + size])
    assert search.holds()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (sentence("Latin", 0), False),  # of the rows that are learnt from
        (sentence("Latin", 201)[: -6 * 3], True),  # 10 of 13 8-grams
        (sentence("Latin", 201)[: -6 * 8], False),  # 5 of 13
        ("all is well so it is and so it was then " * 9, False),
        ("", False),
    ],
)
def test_most_of_a_row_of_a_dev_or_test_set_counts(tmp_path: Path, text: str, holds: bool) -> None:
    search = search_at(task(tmp_path / "own"))
    search.update(text)
    assert search.holds() == holds


def test_documents_with_rows_are_left_out_counted_and_named(tmp_path: Path) -> None:
    address = task(tmp_path / "own")
    (tmp_path / "books").mkdir()
    texts = [" ".join(sentence("Latin", 500 + 10 * book + line) for line in range(9)) for book in range(4)]
    texts[2] += sentence("Latin", 101) + "."
    for number, text in enumerate(texts):
        (tmp_path / "books" / f"{number}.txt").write_text(text, encoding="utf-8")
    raw, config = RawCorpus.at(str(tmp_path / "books")), CorpusConfig(validation_fraction=0.0, decontaminate=address)
    plain = build_corpus(raw, tmp_path / "plain", config)
    assert plain["documents"]["kept"] == 4
    search = partial(search_at, address)
    report = build_corpus(raw, tmp_path / "out", config, search=search)
    assert report["documents"]["dropped"]["holds rows of tasks"] == 1
    assert report["documents"]["kept"] == 3
    assert report["left_out"] == ["2.txt: holds rows of the tasks' dev or test sets"]
    parts = []
    for number, source in enumerate(raw.sources):
        counts = clean_partition(source, tmp_path / f"{number}", config, search)
        parts.append(Partition.read(counts, (tmp_path / f"{number}" / "documents.npy").read_bytes()))
    _, composed = compose(parts, [source.name for source in raw.sources], config)
    assert {**composed, "synthetic": False} == report


def test_the_datasets_content_is_what_is_recorded(tmp_path: Path) -> None:
    first, second = task(tmp_path / "a"), task(tmp_path / "b")
    assert recorded(CorpusConfig(decontaminate=first)) == recorded(CorpusConfig())
    before = rows_fingerprint(first)
    assert rows_fingerprint(second) == before != rows_fingerprint(f"{first},{second}")
    with (tmp_path / "a" / "dev.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"text": "more", "label": "0"}')
    assert rows_fingerprint(first) != before
    for folder, found in (("nowhere", "no such folder"), ("", "found no dataset in")):
        with pytest.raises(InputError, match=found):
            rows_fingerprint(str(tmp_path / folder))
