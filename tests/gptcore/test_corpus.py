"""The two-pass build: what is kept, where it goes, the report, and that neither parallelism nor interruption shows."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, sha256_file
from gptcore.config import CorpusConfig
from gptcore.text import corpus as corpus_module
from gptcore.text import selection
from gptcore.text.clean import split_clean, words
from gptcore.text.corpus import build_corpus
from gptcore.text.parts import SCHEMA, read_corpus
from gptcore.text.selection import cut_in_two, decide, scan
from gptcore.text.sources import RawCorpus, find_sources
from tests.realdata import real_data

CONFIG = CorpusConfig(min_characters=20, validation_fraction=0.3)


def story(number: int, length: int = 12) -> str:
    draw = random.Random(number)
    names = ["Ann", "Ben", "Mr.", "Cole", "“Dora”", "it’s", "don't", "café", "—", "said,", "went;", "Home!"]
    return f"Story {number}.\n" + "\n".join(" ".join(draw.choices(names, k=9)) for _ in range(length)) + "\n"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in folder.rglob("*") if path.is_file()}


def read_all(folder: Path) -> dict[str, dict[str, list[str]]]:
    return {
        split: {document: [word for row in rows for word in split_clean(row)] for document, rows in parts}
        for split in ("train", "validation")
        for parts in [read_corpus(folder, split)]
    }


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Twenty stories in all kinds of files, with two duplicates, two short ones and one without a word."""
    root = tmp_path / "raw"
    (root / "more").mkdir(parents=True)
    for number in range(5):
        (root / f"{number}.txt").write_text(story(number), encoding="utf-8")
    (root / "again.txt").write_text(story(3).replace("\n", "\r\n"), encoding="utf-8-sig", newline="")
    (root / "short.txt").write_text("too short")
    (root / "blank.txt").write_text(" \n" * 100)
    (root / "more" / "5.txt.gz").write_bytes(gzip.compress(story(5).encode()))
    rows = [*map(story, range(6, 12)), story(0), "short too"]
    (root / "more" / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    pq.write_table(pa.table({"text": [story(number) for number in range(12, 20)]}), root / "more" / "rows.parquet")
    return root


# --- the whole -------------------------------------------------------------------------------------------------------


def test_kept_documents_have_exactly_their_words_in_the_split_of_their_hash(raw: Path, tmp_path: Path) -> None:
    report = build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    found = read_all(tmp_path / "out")
    for split, held_out in {"train": False, "validation": True}.items():
        expected = [story(n) for n in range(20) if (int(digest(story(n))[:16], 16) < 0.3 * 2**64) == held_out]
        assert found[split] == {digest(text): words(text) for text in expected}
    n_words = sum(word != "\n" for split in found.values() for text in split.values() for word in text)
    kept = sum(len(story(number).encode()) for number in range(20))
    extra = len(
        ("\ufeff" + story(3).replace("\n", "\r\n") + story(0) + "too short" + "short too" + " \n" * 100).encode()
    )
    ftfy = sum(story(number).count(curly) for number in range(20) for curly in "“”’")
    train, validation = len(found["train"]), len(found["validation"])
    assert train > validation > 0
    assert report == {
        "documents": {
            "read": 25,
            "kept": 20,
            "train": train,
            "validation": validation,
            "dropped": {"too short": 2, "unreadable": 0, "duplicate": 2, "near duplicate": 0, "no words": 1},
        },
        "bytes": {"read": kept + extra, "kept": kept},
        "words": n_words,
        "characters_repaired": {"undecodable": 0, "ftfy": ftfy},
        "sources": 11,
        "left_out": [],
        "damaged": [],
        "divided": "",
        "synthetic": False,
    }
    assert read_json(tmp_path / "out" / "report.json") == report
    assert {path.split("/")[0] for path in tree(tmp_path / "out")} == {"train", "validation", "report.json"}


def test_file_format_is_as_documented(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "ROW", 200)
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    with pa.memory_map(str(tmp_path / "out" / "train" / "part-00000.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    assert max(len(row["text"]) for row in rows) < 300
    assert max(row["part"] for row in rows) > 1
    for previous, row in itertools.pairwise(rows):
        follows = row["part"] == previous["part"] + 1 and row["document"] == previous["document"]
        assert follows or row["part"] == 0
    assert {row["source"] for row in rows} < {source.name for source in find_sources(str(raw))}


@pytest.mark.parametrize("group", [1, 2000, 1 << 30])
def test_parallelism_does_not_show(raw: Path, tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [function(item) for item in list(items)[::-1]][::-1]

    monkeypatch.setattr(corpus_module, "GROUP", group)
    report = build_corpus(RawCorpus.at(str(raw)), tmp_path / "one", CONFIG)
    assert build_corpus(RawCorpus.at(str(raw)), tmp_path / "two", CONFIG, map=backwards) == report
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    parts = sorted(path for path in tree(tmp_path / "one") if path.startswith("train"))
    assert (len(parts) == 1) == (group == 1 << 30)
    order = [document for document, _ in read_corpus(tmp_path / "one", "train")]
    monkeypatch.setattr(corpus_module, "GROUP", 1 << 20)
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "three", CONFIG)
    assert [document for document, _ in read_corpus(tmp_path / "three", "train")] == order  # order: sorted sources


def test_spawned_processes_give_the_same_folder(raw: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    report = build_corpus(RawCorpus.at(str(raw)), tmp_path / "one", CONFIG, progress=lambda *call: seen.append(call))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert build_corpus(RawCorpus.at(str(raw)), tmp_path / "two", CONFIG, map=pool.map) == report
        (raw / "broken.txt").write_bytes(b"\xff")
        with pytest.raises(InputError, match=r"broken\.txt, byte 0: found 0xff"):
            build_corpus(RawCorpus.at(str(raw)), tmp_path / "three", replace(CONFIG, strict=True), map=pool.map)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    total = sum(path.stat().st_size for path in raw.rglob("*.*") if path.name != "broken.txt")
    assert seen == [("scan", total, total), ("clean", total, total)]


def test_an_interrupted_build_is_taken_up_again(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "GROUP", 1)
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "whole", CONFIG)
    cleaned: list[str] = []
    clean_documents = corpus_module.clean_documents

    def counting(source: Any, *rest: Any) -> Any:
        cleaned.append(source.name)
        if len(cleaned) == 4:
            raise KeyboardInterrupt
        return clean_documents(source, *rest)

    monkeypatch.setattr(corpus_module, "clean_documents", counting)
    with pytest.raises(KeyboardInterrupt):
        build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    assert not (tmp_path / "out" / "report.json").exists()
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    assert len(cleaned) == 4 + 11 - 3
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_parts_of_another_input_are_never_reused(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "GROUP", 1)
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    for name in ("1.txt", "2.txt", "blank.txt"):
        (raw / name).unlink()
    (raw / "0.txt").write_text(story(0)[::-1])
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "fresh", CONFIG)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_file_that_changes_between_the_passes_is_an_error(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide_and_change(*arguments: Any) -> Any:
        (raw / "1.txt").write_text(story(1).upper(), encoding="utf-8")
        return decide(*arguments)

    monkeypatch.setattr(corpus_module, "decide", decide_and_change)
    with pytest.raises(InputError, match=r"1\.txt: changed while it was being cleaned"):
        build_corpus(RawCorpus.at(str(raw)), tmp_path / "out", CONFIG)


def test_very_many_small_documents_in_one_file(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"Number {number % 15_000} is a small one."}) for number in range(20_000)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    report = build_corpus(RawCorpus.at(str(tmp_path / "many.jsonl")), tmp_path / "out", CorpusConfig(min_characters=1))
    assert report["documents"]["dropped"]["duplicate"] == 5000
    assert report["words"] == 15_000 * 7
    assert abs(report["documents"]["validation"] / 15_000 - 0.05) < 0.01
    assert len(list((tmp_path / "out").rglob("*.arrow"))) == 2


# --- decisions -------------------------------------------------------------------------------------------------------


def slow_decide(documents: list[tuple[bytes, int, int]], config: CorpusConfig) -> list[int]:
    seen: set[bytes] = set()
    decisions = []
    for key, characters, unreadable in documents:
        if characters < config.min_characters:
            decisions.append(selection.TOO_SHORT)
        elif 4 * unreadable > characters:
            decisions.append(selection.UNREADABLE)
        elif key in seen and config.drop_duplicates:
            decisions.append(selection.DUPLICATE)
        else:
            below = int.from_bytes(key[:8], "big") < config.validation_fraction * 2**64
            decisions.append(selection.VALIDATION if below else selection.TRAIN)
        seen.add(key)
    return decisions


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 12), max_size=40),
    st.booleans(),
    st.sampled_from([0.0, 0.05, 0.5, 0.999]),
)
def test_decisions_equal_the_plain_rules(keys: list[int], drop: bool, fraction: float) -> None:
    config = CorpusConfig(min_characters=200, drop_duplicates=drop, validation_fraction=fraction)
    documents = [(hashlib.sha256(bytes([key])).digest(), 150 if key % 4 == 0 else 200 + key, 20 * key) for key in keys]
    signatures = [np.random.default_rng(key).integers(1 << 32, size=64, dtype=np.uint32) for key in range(13)]
    stats = np.array([(*row, signatures[key]) for row, key in zip(documents, keys, strict=True)], selection.STATS)
    if not drop:
        config = replace(config, near_duplicates=0.9)  # switched off with the equal ones
    decisions, nearly = decide(stats, config)
    assert not nearly
    assert decisions.tolist() == slow_decide(documents, config)


def test_adding_documents_moves_no_other(raw: Path, tmp_path: Path) -> None:
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "before", CONFIG)
    for number in range(100, 130):
        (raw / f"{number}.txt").write_text(story(number), encoding="utf-8")
    build_corpus(RawCorpus.at(str(raw)), tmp_path / "after", CONFIG)
    before, after = read_all(tmp_path / "before"), read_all(tmp_path / "after")
    for split in ("train", "validation"):
        assert before[split].items() <= after[split].items()


def test_scan_hashes_the_decoded_and_stripped_text(tmp_path: Path) -> None:
    marker = "PROJECT GUTENBERG EBOOK X ***"
    text = f"Project Gutenberg\n*** START OF THE {marker}\n{story(1)}*** END OF THE {marker}\nlicence\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (source,) = find_sources(str(tmp_path))
    scanned = scan([source], CONFIG)
    assert scanned.documents["hash"][0].tobytes().hex() == digest("\n" + story(1))
    assert scanned.documents["characters"].tolist() == [len(story(1)) + 1]
    unstripped = scan([source], replace(CONFIG, strip_gutenberg=False))
    assert unstripped.documents["hash"][0].tobytes().hex() == digest(text)


# --- nothing left ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "config", "why"),
    [
        (["short"], CorpusConfig(), "1 under 200 characters (corpus.min_characters)"),
        ([""], CorpusConfig(min_characters=0), "1 without a word"),
        (["\x00\x01 a", "\ufffd"], CorpusConfig(min_characters=0), "2 no text (undecodable bytes, control characters)"),
        ([], CorpusConfig(), "no training document left of 0 read in 1 files"),
        (["a"], CorpusConfig(validation_fraction=1.0), "corpus.validation_fraction = 1.0, expected 0 <= fraction < 1"),
    ],
)
def test_a_corpus_with_nothing_left_is_an_error_that_says_why(
    tmp_path: Path, texts: list[str], config: CorpusConfig, why: str
) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with pytest.raises(InputError) as caught:
        build_corpus(RawCorpus.at(str(tmp_path)), tmp_path / "out", config)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").rglob("*.arrow"))


# --- size ------------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_one_big_book(tmp_path: Path) -> None:
    page = "".join(story(number) for number in range(100))
    with gzip.open(tmp_path / "big.txt.gz", "wt", encoding="utf-8", compresslevel=1) as file:
        for _ in range(10_000_000 // len(page)):
            file.write(page)
    program = f"""
import resource
from pathlib import Path
from gptcore.config import CorpusConfig
from gptcore.text.corpus import build_corpus
from gptcore.text.parts import read_corpus
from gptcore.text.sources import RawCorpus
from gptcore.text.clean import clean
clean("warm up")
import pyarrow.ipc
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = Path({str(tmp_path / "out")!r})
report = build_corpus(RawCorpus.at({str(tmp_path / "big.txt.gz")!r}), out, CorpusConfig(validation_fraction=0))
print(report["bytes"]["read"], (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, growth = map(int, run.stdout.split())
    assert size > 9_000_000
    assert growth < 60, f"{growth} MB more than at the start"


def test_real_books_build(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for name in ("pg46.txt", "98-0.txt", "Burnett_Lord_1886.txt"):
        (tmp_path / "raw" / name).symlink_to(real_data("books", name))
    report = build_corpus(RawCorpus.at(str(tmp_path / "raw")), tmp_path / "out", CorpusConfig(validation_fraction=0))
    assert report["documents"]["train"] == 3
    assert report["characters_repaired"]["undecodable"] == 0
    texts = [" ".join(rows) for _, rows in read_corpus(tmp_path / "out", "train")]
    assert "gutenberg" not in " ".join(texts)


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab \n"), min_size=2, max_size=120), st.data(), st.integers(1, 40))
def test_a_divided_text_loses_nothing_and_has_two_parts(text: str, data: st.DataObject, size: int) -> None:
    """It holds, too, where the only end of a paragraph, or of a line, is that of the text."""
    cut = data.draw(st.integers(1, len(text) - 1))
    first, rest = cut_in_two((text[start : start + size] for start in range(0, len(text), size)), cut)
    head, tail = "".join(first), "".join(rest)
    assert head + tail == text
    assert 0 < len(head) <= cut
    assert len(tail) <= len(text) - cut + cut // 20
    window = text[cut - cut // 20 : cut]
    border = next((border for border in ("\n\n", "\n", " ") if border in window), None)
    if border is None:
        assert len(head) == cut
    else:
        assert head.endswith(border)
