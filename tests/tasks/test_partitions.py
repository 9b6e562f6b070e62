"""Books cleaned and encoded one by one: the whole is that of an undivided build, and a new book is all that is read."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import tasks.stages.corpus as stages
import tasks.stages.partitions as partitions
from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.config import CorpusConfig, ShardConfig, TokenizerConfig
from gptcore.data.encode import encode_corpus
from gptcore.data.shards import Shards
from gptcore.text.bpe import WordTokenizer
from gptcore.text.corpus import build_corpus
from gptcore.text.sources import RawCorpus
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from tasks.stages.corpus import clean_corpus, encode_shards, local_shards, publish_report
from tasks.stages.partitions import clean_partitions, encode_partitions, is_one_split
from tasks.stages.stage import VERSIONS
from tasks.stages.tokenizer import pin_tokenizer
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tests.gptcore.test_corpus import story
from tests.gptcore.test_held_rows import task as own_task

CONFIG = CorpusConfig(validation_fraction=0.3, min_characters=40)
SHARDS = ShardConfig(max_tokens=60)  # so that documents go on in further files
WORDS = TokenizerConfig()
OPENED: list[str] = []


class Watched(LocalFileSystem):
    """Local files under another name, which keeps account of those that are read."""

    protocol = "watched"

    def _open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        OPENED.append(Path(path).name)
        return super()._open(path, mode, **settings)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("watched://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"watched://{name}"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, so that what it reads can be counted; no page of a run."""
    import fsspec

    fsspec.register_implementation("watched", Watched, clobber=True)
    monkeypatch.setattr(partitions, "partition_map", lambda *_, **__: nullcontext(map))
    monkeypatch.setattr(partitions, "publish_report", lambda *_: None)
    monkeypatch.setattr("tasks.stages.corpus.publish_report", lambda *_: None)  # where no server is, one would start
    OPENED.clear()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Books of one, no, and several documents; some of which lie in two books, or twice in one."""
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(4):
        (folder / f"b{number}.txt").write_text(story(number), encoding="utf-8")
    write_lines(folder / "c.jsonl", [story(5), story(1), story(6), story(6), "short", " \n" * 50])
    write_lines(folder / "d.jsonl", map(story, (7, 5, 8)))
    return folder


def write_lines(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    WordTokenizer.train([" ".join(story(n).lower().split()) for n in range(3)], 60).save(tmp_path / "vocabulary")
    return str(tmp_path / "vocabulary")


def by_partition(store: Store, books: Path, vocabulary: str) -> tuple[Artifact, Artifact]:
    tokenizer = pin_tokenizer.fn(store, vocabulary, WORDS)
    corpus = clean_partitions.fn(store, RawCorpus.at(f"watched://{books}"), CONFIG)
    return corpus, encode_partitions.fn(store, corpus, tokenizer, SHARDS)


def documents(folder: Path) -> list[tuple[str, str, list[int]]]:
    """(split, name, tokens) of every document, in order."""
    return [
        (split, name, np.concatenate(rows).tolist())
        for split in ("train", "validation")
        for name, rows in Shards(folder / split).documents()
    ]


def files(store: Store, artifact: Artifact) -> dict[str, bytes]:
    folder = store.local(artifact)
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"}


def test_weights_mix_partitions_as_they_mix_an_undivided_build(books: Path, vocabulary: str, tmp_path: Path) -> None:
    store, weights = Store(tmp_path / "store"), {"b[01].txt": 3.0, "b*": 2.0}
    by_partition(store, books, vocabulary)  # at first without any
    tokenizer, weighed = pin_tokenizer.fn(store, vocabulary, WORDS), replace(CONFIG, weights=weights)
    raw, shards = RawCorpus.at(str(books)), replace(SHARDS, weights=weights)
    found = []
    for clean, encode in ((clean_partitions, encode_partitions), (clean_corpus, encode_shards)):
        made = encode.fn(store, clean.fn(store, raw, weighed), tokenizer, shards)
        found.append(Counter((split, name, *ids) for split, name, ids in documents(local_shards(store, made))))
        counts = store.manifest(made)["counts"]
        assert counts["weights"] == [*map(list, weights.items())]
        assert counts["splits"]["train"]["n_documents"] == sum(
            n for (split, *_), n in found[-1].items() if split == "train"
        )
    assert found[0] == found[1]
    other = replace(SHARDS, weights=dict(reversed(weights.items())))  # where every match is another's first
    assert encode_shards.fn(store, clean_corpus.fn(store, raw, weighed), tokenizer, other) != made
    often = {name: n for (split, name, *_), n in found[0].items() if split == "train"}
    assert {*often.values()} == {1, 2, 3}
    assert all(n == 1 for (split, *_), n in found[0].items() if split == "validation")
    with pytest.raises(InputError, match=r"corpus\.weights: no file of the corpus matches 'e\.jsonl'"):
        clean_partitions.fn(store, raw, replace(CONFIG, weights={"e.jsonl": 2.0}))


def test_the_whole_is_that_of_an_undivided_build(books: Path, vocabulary: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    corpus, shards = by_partition(store, books, vocabulary)
    report = build_corpus(RawCorpus.at(str(books)), tmp_path / "whole", CONFIG)
    counts = store.manifest(corpus)["counts"]
    assert {name: counts[name] for name in report} == report
    dropped = {"too short": 1, "unreadable": 0, "duplicate": 3, "near duplicate": 0, "no words": 1}
    assert report["documents"]["dropped"] == dropped

    told = encode_corpus(tmp_path / "whole", Tokenizer.load(vocabulary), tmp_path / "encoded", SHARDS)
    folder = local_shards(store, shards)
    assert documents(folder) == documents(tmp_path / "encoded")
    assert {name: read_json(folder / "meta.json")[name] for name in told} == told
    train = Shards(folder / "train")
    assert train.n_tokens == train.lengths.sum()
    assert not list(folder.rglob("*.arrow"))  # named, not copied


def test_ngrams_of_a_large_text_are_counted_where_they_are_asked_for(
    books: Path, vocabulary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    _, shards = by_partition(store, books, vocabulary)
    monkeypatch.setattr(stages, "measure_ngrams", stages.measure_ngrams.fn)
    with monkeypatch.context() as patch:
        patch.setattr(stages, "LARGE", Shards(local_shards(store, shards) / "train").n_tokens - 1)
        assert stages.ngrams_beside(store, shards) is None
        made = stages.ngrams_beside(store, shards, asked=True)
        assert made
        assert made.stage == "ngrams"
        assert stages.ngrams_beside(store, shards) == made  # which the store holds
    assert stages.ngrams_beside(store, shards) == made


def test_sentence_borders_are_those_of_an_undivided_build(books: Path, tmp_path: Path) -> None:
    store, config = Store(tmp_path / "store"), replace(SHARDS, sentences=True)
    pieces = WordPieceTokenizer.train([story(number) for number in range(3)], 60)
    pieces.save(tmp_path / "pieces")

    def produce(out: Path) -> dict[str, Any]:
        pieces.save(out)
        return {"tokenizer_digest": pieces.digest, "n_vocab": pieces.n_vocab}

    tokenizer = store.build(Recipe("tokenizer", 1, {}), produce).artifact
    raw = replace(CONFIG, raw=True)
    corpus = clean_partitions.fn(store, RawCorpus.at(str(books)), raw)
    folder = local_shards(store, encode_partitions.fn(store, corpus, tokenizer, config))
    build_corpus(RawCorpus.at(str(books)), tmp_path / "whole", raw)
    encode_corpus(tmp_path / "whole", pieces, tmp_path / "encoded", config)
    assert documents(folder) == documents(tmp_path / "encoded")
    assert read_json(folder / "pieces.json") == read_json(tmp_path / "encoded" / "pieces.json")
    borders = (Shards(folder / "train").places_of(pieces.specials.sep), Shards(tmp_path / "encoded" / "train"))
    assert len(borders[0][0]) > borders[1].n_rows
    without = encode_partitions.fn(store, corpus, tokenizer, SHARDS)
    assert not (local_shards(store, without) / "pieces.json").exists()


def test_what_is_known_of_partitions_is_parsed_by_one_thread(
    books: Path, vocabulary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy.load in two threads at once ends in a SystemError now and then on Python 3.11."""
    threads: list[int] = []
    load = np.load

    def watched(*given: Any, **settings: Any) -> Any:
        threads.append(threading.get_ident())
        return load(*given, **settings)

    monkeypatch.setattr(np, "load", watched)
    by_partition(Store(tmp_path / "store"), books, vocabulary)
    assert len(threads) == len(list(books.iterdir()))
    assert set(threads) == {threading.get_ident()}


def test_a_new_book_is_all_that_is_read(books: Path, vocabulary: str, tmp_path: Path) -> None:
    """The new book sorts first and repeats an old document: it takes that one's place, and changes no partition."""
    store = Store(tmp_path / "store")
    by_partition(store, books, vocabulary)
    assert set(OPENED) == {path.name for path in books.iterdir()}
    before = {stage: {a.digest for a in store.list(stage)} for stage in ("corpus-part", "shards-part")}

    OPENED.clear()
    write_lines(books / "a.jsonl", map(story, (9, 1, 2)))
    corpus, shards = by_partition(store, books, vocabulary)
    assert set(OPENED) == {"a.jsonl"}
    for stage, digests in before.items():
        after = {artifact.digest for artifact in store.list(stage)}
        assert digests < after
        assert len(after - digests) == 1
    listed = {entry["source"]: entry["dropped"] for entry in read_json(store.local(corpus) / "partitions.json")}
    assert [len(listed[name]) for name in ("a.jsonl", "b1.txt", "b2.txt", "c.jsonl", "d.jsonl")] == [0, 1, 1, 1, 1]

    fresh = Store(tmp_path / "fresh")
    whole = by_partition(fresh, books, vocabulary)
    assert whole[0].digest == corpus.digest
    assert whole[1].digest == shards.digest
    assert files(fresh, whole[0]) == files(store, corpus)
    assert files(fresh, whole[1]) == files(store, shards)
    assert documents(local_shards(fresh, whole[1])) == documents(local_shards(store, shards))

    OPENED.clear()
    assert by_partition(store, books, vocabulary) == (corpus, shards)
    assert not OPENED


def test_a_book_that_goes_leaves_the_others(books: Path, vocabulary: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    by_partition(store, books, vocabulary)
    OPENED.clear()
    (books / "b1.txt").unlink()  # its document is in c.jsonl too, from where it comes now
    _, shards = by_partition(store, books, vocabulary)
    assert not OPENED
    build_corpus(RawCorpus.at(str(books)), tmp_path / "whole", CONFIG)
    encode_corpus(tmp_path / "whole", Tokenizer.load(vocabulary), tmp_path / "encoded", SHARDS)
    assert documents(local_shards(store, shards)) == documents(tmp_path / "encoded")


def test_a_remote_store_reads_small_files_and_copies_partitions_for_training(books: Path, vocabulary: str) -> None:
    store = Store("memory://growing")
    _, shards = by_partition(store, books, vocabulary)
    shutil.rmtree(Path(str(store.local(shards))).parents[1])  # another host has no copies yet
    assert len(documents(local_shards(store, shards))) == 8


def test_what_is_no_text_is_named_as_by_an_undivided_build(
    books: Path, vocabulary: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (books / "noise.txt").write_bytes(bytes(range(128, 256)) * 40)
    (books / "mixed.txt").write_bytes("Zoë ".encode() * 99 + b"caf\xe9")
    store = Store(tmp_path / "store")
    monkeypatch.setattr(partitions, "publish_report", publish_report)
    monkeypatch.setattr("tasks.stages.corpus.publish_table", lambda *_: None)
    corpus, _ = by_partition(store, books, vocabulary)
    report = build_corpus(RawCorpus.at(str(books)), tmp_path / "whole", CONFIG)
    assert [line.partition(":")[0] for line in report["left_out"]] == ["noise.txt"]
    counts = store.manifest(corpus)["counts"]
    assert (counts["left_out"], counts["damaged"]) == (report["left_out"], report["damaged"])
    assert "damaged: mixed.txt: no UTF-8 in 1 of 499 bytes (0.20%)" in caplog.text
    assert not is_one_split(store, corpus)


@pytest.mark.parametrize("clean", [clean_corpus, clean_partitions])
def test_kinds_of_files_and_other_scripts_are_told(
    books: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, clean: Any
) -> None:
    """The files are those that are there now, though nothing is built anew; text that stays as it is has any script."""
    monkeypatch.setattr(partitions, "publish_report", publish_report)
    monkeypatch.setattr("tasks.stages.corpus.publish_report", publish_report)
    monkeypatch.setattr("tasks.stages.corpus.publish_table", lambda *_: None)
    (books / "ru.TXT").write_text("Старый король стоял на холме и смотрел вдаль. " * 9 + "Words\n", encoding="utf-8")
    (books / "a.epub").write_bytes(b"PK")
    store = Store(tmp_path / "store")
    with caplog.at_level("INFO"):
        corpus = clean.fn(store, RawCorpus.at(str(books)), CONFIG)
        assert store.manifest(corpus)["counts"]["files"] == {
            "read": {".jsonl": 2, ".txt": 5},
            "passed over": {".epub": 1},
        }
        told = "; left out: 1 too short, 3 duplicate, 1 no words; read: 2 .jsonl, 5 .txt; passed over: 1 .epub"
        assert told in caplog.text
        assert re.search(r"\d\d? % of the words are in other scripts than the Latin one", caplog.text)
        caplog.clear()
        (books / "a.html").touch()
        assert clean.fn(store, RawCorpus.at(str(books)), CONFIG) == corpus
        assert "passed over: 1 .epub, 1 .html" in caplog.text
        caplog.clear()
        clean.fn(store, RawCorpus.at(str(books)), replace(CONFIG, raw=True))
        assert "other scripts" not in caplog.text


@pytest.mark.parametrize("clean", [clean_corpus, clean_partitions])
def test_a_corpus_without_rows_of_tasks_is_another_one_that_follows_the_tasks(
    books: Path, tmp_path: Path, clean: Any
) -> None:
    store, raw = Store(tmp_path / "store"), RawCorpus.at(str(books))
    before = clean.fn(store, raw, CONFIG)
    config = replace(CONFIG, decontaminate=own_task(tmp_path / "own"))
    apart = clean.fn(store, raw, config)
    assert apart != before
    (tmp_path / "own").rename(tmp_path / "moved")
    config = replace(config, decontaminate=str(tmp_path / "moved" / "task.toml"))
    assert clean.fn(store, raw, config) == apart
    row = {"text": story(1), "label": "0"}
    (tmp_path / "moved" / "dev.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({**row, "label": "1"}))
    documents = store.manifest(clean.fn(store, raw, config))["counts"]["documents"]
    assert documents["dropped"]["holds rows of tasks"] == 2  # of b1.txt and c.jsonl
    assert documents["read"] == documents["kept"] + sum(documents["dropped"].values())


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9], ids=["all to train on", "all held out"])
def test_documents_of_one_split_are_noticed(books: Path, tmp_path: Path, fraction: float) -> None:
    store = Store(tmp_path / "store")
    config = replace(CONFIG, validation_fraction=fraction)
    corpus = clean_partitions.fn(store, RawCorpus.at(str(books)), config)
    assert is_one_split(store, corpus)
    divided = store.manifest(clean_corpus.fn(store, RawCorpus.at(str(books)), config))["counts"]
    assert divided["divided"]
    assert divided["documents"]["train"] > 0
    assert divided["documents"]["validation"] > 0


def test_too_many_files_and_nothing_left(books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no training document left of 13 read in 6 files"):
        clean_partitions.fn(Store(tmp_path / "store"), RawCorpus.at(str(books)), replace(CONFIG, min_characters=10**6))
    monkeypatch.setattr(partitions, "MOST", 3)
    with pytest.raises(InputError, match=r"6 files; by partition \(--tokenizer\) at most 3"):
        clean_partitions.fn(Store(tmp_path / "store"), RawCorpus.at(str(books)), CONFIG)


def test_a_pinned_tokenizer_goes_by_its_content(vocabulary: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = pin_tokenizer.fn(store, vocabulary, WORDS)
    Tokenizer.load(vocabulary).save(tmp_path / "elsewhere")
    assert pin_tokenizer.fn(store, str(tmp_path / "elsewhere"), WORDS) == first
    for ref in ("latest", first.digest, first.short, first.url):
        assert pin_tokenizer.fn(store, ref, WORDS) == first
    assert pin_tokenizer.fn(Store(tmp_path / "other"), first.url, WORDS).digest == first.digest
    with pytest.raises(InputError, match="no such artifact"):
        pin_tokenizer.fn(store, "0000", WORDS)
    with pytest.raises(InputError, match="no tokenizer here"):
        pin_tokenizer.fn(store, str(tmp_path), WORDS)


@pytest.mark.parametrize("clean", [clean_corpus, clean_partitions])
def test_a_corpus_of_the_former_version_stands_unless_near_duplicates_were_dropped(
    books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Any
) -> None:
    """Which they were in any script but Latin, whatever they held: such a corpus is made anew."""
    store, raw = Store(str(tmp_path / "store")), RawCorpus.at(str(books))
    with monkeypatch.context() as then:
        then.setattr("tasks.stages.stage.VERSIONS", {**VERSIONS, "corpus": 2, "corpus-part": 3})
        former = clean.fn(store, raw, CONFIG)
    assert store.manifest(former)["version"] == 2
    assert clean.fn(store, raw, CONFIG) == former
    again = "".join(path.read_text(encoding="utf-8") for path in sorted(books.glob("*.txt"))) * 3
    (books / "z1.txt").write_text(again, encoding="utf-8")
    (books / "z2.txt").write_text(again.upper(), encoding="utf-8")
    raw = RawCorpus.at(str(books))
    with monkeypatch.context() as then:
        then.setattr("tasks.stages.stage.VERSIONS", {**VERSIONS, "corpus": 2, "corpus-part": 3})
        former = clean.fn(store, raw, CONFIG)
    assert store.manifest(former)["counts"]["documents"]["dropped"]["near duplicate"]
    now = clean.fn(store, raw, CONFIG)
    assert now != former
    assert store.manifest(now)["version"] == VERSIONS["corpus"]
