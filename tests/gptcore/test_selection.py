"""What is no text, nearly another text, or the only text of a corpus."""

from __future__ import annotations

import hashlib
import json
import random
import re
import tracemalloc
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import CorpusConfig
from gptcore.text.corpus import build_corpus
from gptcore.text.decoding import Read
from gptcore.text.partition import Partition, clean_partition, compose
from gptcore.text.parts import read_corpus
from gptcore.text.selection import PERMUTATIONS, RUN, STATS, Scanned, Sketch, decide, near_duplicates
from gptcore.text.sources import RawCorpus, find_sources
from tests.realdata import real_data

WORDS = [f"{first}{second}" for first in "bdfgklmn" for second in ("an", "ero", "ilu")]


def prose(seed: int, n_words: int = 3000) -> list[str]:
    draws = random.Random(seed)
    return [draws.choice(WORDS) + (".\n\n" if draws.random() < 0.02 else "") for _ in range(n_words)]


def similarity(a: str, b: str) -> float:
    first, second = ({text[i : i + RUN] for i in range(len(text) - RUN + 1)} for text in map(letters, (a, b)))
    return len(first & second) / len(first | second)


def letters(text: str) -> str:
    """Letters and vowel signs, each as often as it has bytes in a run."""
    found = []
    for character in unicodedata.normalize("NFD", text).casefold():
        kind = unicodedata.category(character)
        if not (character.isalnum() or kind in ("Mn", "Mc", "So")) or unicodedata.combining(character):
            continue
        if character.isascii() or kind in ("Mn", "Mc") or unicodedata.name(character, "").startswith("HANGUL"):
            found.append(character)
        else:
            found.append(character * (3 if unicodedata.east_asian_width(character) == "W" else 2))
    return "".join(found)


def scripts() -> dict[str, str]:
    """Every script of ten letters or more -> its letters, by the first word of their names."""
    found: dict[str, list[str]] = {}
    for character in map(chr, range(0x110000)):
        if unicodedata.category(character) in ("Lu", "Ll", "Lo"):
            found.setdefault(unicodedata.name(character, "TANGUT").split()[0], []).append(character)
    braille = "".join(map(chr, range(0x2801, 0x2900)))  # whose letters are symbols in Unicode
    return {name: "".join(known) for name, known in found.items() if len(known) >= 10} | {"BRAILLE": braille}


SCRIPTS = scripts()
WITHOUT_BLANKS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI", "TANGUT", "NUSHU"}
MARKS = "\u0964\u060c\u3002\uff0c\uff01\u00a0\u3000\u2009\u200b\ufeff\u201c\u201d\u2019\u2013\u2026"
MARKS += "\u104a\u1362\u0f0d\u05be\u00ab\u2122"
"""Danda, Arabic comma, full stops, blanks of all widths, quotes, dashes."""


def book(script: str, seed: int, n_words: int = 1000, one_in: int = 0) -> str:
    """Words of random letters; of ``one_in`` words one is another."""
    draws, other = random.Random(seed), random.Random(-1 - seed)
    size = 2 if script in ("CJK", "YI", "TANGUT", "NUSHU") else 5
    words = ["".join(draws.choices(SCRIPTS[script], k=size)) for _ in range(n_words)]
    for at in range(0, n_words, one_in or n_words + 1):
        words[at] = "".join(other.choices(SCRIPTS[script], k=size)) if one_in else words[at]
    return ("" if script in WITHOUT_BLANKS else " ").join(words)


def signature(text: str, size: int = 1 << 20) -> np.ndarray:
    sketch = Sketch()
    for start in range(0, len(text), size):
        sketch.update(text[start : start + size].encode())
    return sketch.signature()


def test_groups_of_sources_are_numbered_through(tmp_path: Path) -> None:
    """Two groups of three and two sources; damaged are the first group's last and the second group's last."""

    def group(sizes: list[int], damaged: int) -> Scanned:
        found = np.zeros(sum(sizes), STATS)
        found["characters"] = 10 * len(sizes)
        read = {damaged: Read(9, undecodable=damaged)}
        return Scanned(found, np.cumsum([0, *sizes]), Read(100, undecodable=damaged), read)

    whole = Scanned.together(iter([group([1, 0, 2], 2), group([3, 1], 1)]), tmp_path)
    assert whole.borders.tolist() == [0, 1, 1, 3, 6, 7]
    assert {number: read.undecodable for number, read in whole.damaged.items()} == {2: 2, 4: 1}
    assert (whole.read.undecodable, len(whole.documents)) == (3, 7)
    assert whole.documents["characters"].tolist() == [30] * 3 + [20] * 4
    assert [whole.source(document) for document in range(7)] == [0, 2, 2, 3, 3, 3, 4]
    assert [whole.of_source(number) for number in (1, 3)] == [slice(1, 1), slice(3, 6)]


@pytest.mark.parametrize("changed", [0, 5, 20, 60, 3000])
def test_the_estimate_is_near_the_share_of_equal_runs(changed: int) -> None:
    words = prose(1)
    other = list(words)
    for at in random.Random(2).sample(range(len(words)), changed):
        other[at] = "changed"
    exact = similarity(" ".join(words), " ".join(other))
    estimated = float((signature(" ".join(words)) == signature(" ".join(other))).mean())
    assert abs(estimated - exact) < 0.2  # three standard errors of 64 values, and which runs are looked at


@settings(max_examples=50)
@given(st.text(max_size=3000), st.integers(1, 500))
def test_pieces_case_and_punctuation_do_not_show(text: str, size: int) -> None:
    assert np.array_equal(signature(text, size), signature(text))
    plain = "".join(c for c in text if c.isascii())
    assert np.array_equal(signature(plain.upper().replace(" ", " -\n")), signature(plain))


def test_text_in_ascii_has_the_signature_that_it_always_had() -> None:
    """Corpora in English keep their documents, whatever is done for other scripts."""
    found = (hashlib.sha256(signature(text).tobytes()).hexdigest()[:12] for text in (" ".join(prose(1)), "Short."))
    assert tuple(found) == ("d6f00862a32a", "5ae8e8040bd6")


@pytest.mark.parametrize("script", SCRIPTS)
def test_books_in_any_script_differ_and_a_corrected_one_is_found(script: str) -> None:
    books = [book(script, seed) for seed in range(12)]
    rows = np.stack([signature(text) for text in (*books, book(script, 3, one_in=200))])
    found = near_duplicates(rows, np.arange(13), CorpusConfig().near_duplicates)
    assert [(pair.document, pair.earlier) for pair in found] == [(12, 3)]
    exact = similarity(books[3], book(script, 3, one_in=200))
    assert abs(found[0].similarity - exact) < 0.2


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_in_no_script_do_marks_forms_accents_and_case_show(data: st.DataObject) -> None:
    script = data.draw(st.sampled_from(list(SCRIPTS)))
    texts = st.text(st.sampled_from(SCRIPTS[script] + WORDS[0] + MARKS), min_size=70, max_size=400)
    text = data.draw(texts)
    expected = signature(text)
    assert np.array_equal(signature(text, data.draw(st.integers(1, 99))), expected)
    assert np.array_equal(signature("".join(c for c in text if c not in MARKS)), expected)
    for form in ("NFC", "NFD"):
        assert np.array_equal(signature(unicodedata.normalize(form, text)), expected)
    if script in ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "DESERET", "ADLAM", "CHEROKEE"):
        simple = "".join(c for c in text if c.upper().lower() == c.lower() and len(c.upper()) == 1)  # not ß, ı
        assert np.array_equal(signature(simple.upper()), signature(simple))


def test_no_character_has_more_letters_than_bytes_by_canonical_decomposition() -> None:
    """Which is why a text and its decomposed form are one: what does not fit would be cut off."""
    characters = "".join(map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x110000)]))
    composed = [c for c in characters if unicodedata.normalize("NFD", c) != c]
    assert len(composed) > 13_000
    whole, decomposed = Sketch(), Sketch()
    for character in composed:
        whole.update(character.encode())
        decomposed.update(unicodedata.normalize("NFD", character).encode())
    assert whole._letters == decomposed._letters


def test_documents_without_a_letter_are_no_duplicates_of_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    for number, draws in enumerate(map(random.Random, range(4))):
        (folder / f"{number}.txt").write_text("".join(draws.choices(".- ", k=900)), encoding="utf-8")
    report = build_corpus(RawCorpus.at(str(folder)), tmp_path / "out", CorpusConfig())
    assert report["documents"]["dropped"]["near duplicate"] == 0


def test_groups_of_near_duplicates_keep_their_first() -> None:
    draws = np.random.default_rng(0)
    base = draws.integers(1 << 32, size=(3, PERMUTATIONS), dtype=np.uint32)
    rows = [base[0], base[1], base[0].copy(), base[2], base[0].copy(), base[1].copy()]
    rows[2][:6] += 1
    rows[4][:20] += 1  # too far from the first
    found = near_duplicates(np.stack([rows[0], *rows]), np.arange(1, 7), 0.8)  # the first of all is not compared
    assert [(pair.document, pair.earlier) for pair in found] == [(3, 1), (6, 2)]
    assert found[0].similarity == 1 - 6 / PERMUTATIONS
    assert near_duplicates(np.stack(rows), np.arange(0), 0.8) == []


def test_a_few_hundred_bytes_are_held_for_each_file_of_one_document(tmp_path: Path) -> None:
    number, draws = 4000, np.random.default_rng(0)
    for n in range(number):
        (tmp_path / f"a-book-of-some-name-{n:05d}.txt").touch()

    def scanned() -> Iterator[Scanned]:
        for _ in range(0, number, 8):
            found = np.zeros(8, STATS)
            found["hash"] = np.frombuffer(draws.bytes(8 * 32), "V32")
            found["characters"], found["signature"] = 5000, draws.integers(1 << 32, size=(8, PERMUTATIONS))
            yield Scanned(found, np.arange(9), Read(5000), {})

    decide(next(scanned()).documents, CorpusConfig())  # imports
    tracemalloc.start()
    sources = find_sources(str(tmp_path))
    decisions, nearly = decide(Scanned.together(scanned(), tmp_path).documents, CorpusConfig())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(sources) == len(decisions) == number
    assert not nearly
    assert peak < 400 * number


def edition(words: list[str], seed: int) -> str:
    """Another edition of a text: with other line breaks, quotes, capitals and a few printer's errors."""
    draws = random.Random(seed)
    quoted = (f"\u201c{word.title()}\u201d" if draws.random() < 0.1 else word for word in words)
    return " ".join(quoted).replace(" ", "\n", 50)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(12):
        (folder / f"b{number:02}.txt").write_text(" ".join(prose(number)), encoding="utf-8")
    (folder / "z1.txt").write_text(edition(prose(3), 1), encoding="utf-8")
    with (folder / "b05.txt").open("ab") as file:
        file.write("\nZoë had\n".encode() + b"\na caf\xe9, na\xefve")
    (folder / "a0.txt").write_text(edition(prose(7), 2), encoding="utf-8")
    return folder


def test_near_duplicates_are_named_and_dropped_in_one_pass_and_part_by_part(books: Path, tmp_path: Path) -> None:
    config = CorpusConfig(validation_fraction=0.3)
    report = build_corpus(RawCorpus.at(str(books)), tmp_path / "out", config)
    assert report["documents"]["dropped"]["near duplicate"] == 2
    assert [re.sub(r"\(\d+%", "(N", line) for line in report["left_out"]] == [
        "b07.txt: nearly the same as a0.txt (N of the runs of some ten words)",
        "z1.txt: nearly the same as b03.txt (N of the runs of some ten words)",
    ]
    size = (books / "b05.txt").stat().st_size
    assert report["damaged"] == [
        f"b05.txt: no UTF-8 in 2 of {size:,} bytes ({2 / size:.2%}), which became U+FFFD, "
        "as in 'dilu Zoë had a caf\ufffd, na\ufffdve'"
    ]
    sources = find_sources(str(books))
    parts = []
    for number, source in enumerate(sources):
        counts = clean_partition(source, tmp_path / f"part{number}", config)
        parts.append(Partition.read(counts, (tmp_path / f"part{number}" / "documents.npy").read_bytes()))
    dropped, composed = compose(parts, [source.name for source in sources], config)
    assert {**composed, "synthetic": False} == report
    assert [source.name for source, gone in zip(sources, dropped, strict=True) if gone] == ["b07.txt", "z1.txt"]
    everything = build_corpus(
        RawCorpus.at(str(books)), tmp_path / "all", CorpusConfig(validation_fraction=0.3, near_duplicates=1.0)
    )
    assert everything["documents"]["kept"] == report["documents"]["kept"] + 2
    with pytest.raises(InputError, match=r"corpus\.near_duplicates = 0\.0, expected 0 < share <= 1"):
        build_corpus(RawCorpus.at(str(books)), tmp_path / "none", CorpusConfig(near_duplicates=0.0))


def test_one_of_the_real_books_is_another_and_no_other_pair_is() -> None:
    books, more = real_data("books"), real_data("books-more")
    sources = [*find_sources(str(books)), *find_sources(str(more / "*.txt.gz"))]
    from gptcore.text.selection import scan

    config = CorpusConfig()
    rows = np.stack([scan([source], config).documents["signature"][0] for source in sources])
    found = near_duplicates(rows, np.arange(len(sources)), 0.5)
    assert [(sources[pair.document].name, sources[pair.earlier].name) for pair in found] == [
        ("pg2641.txt", "Forster_View_1908.txt")
    ]


def test_a_null_is_a_document_left_out_and_counted(tmp_path: Path) -> None:
    """In one pass and part by part; all documents that were read are kept or dropped for a reason."""
    (tmp_path / "books").mkdir()
    rows = [{"text": text} for text in (" ".join(prose(0)), None, "", " ".join(prose(1)), None)]
    (tmp_path / "books" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = CorpusConfig(validation_fraction=0.0)
    raw = RawCorpus.at(str(tmp_path / "books"))
    documents = build_corpus(raw, tmp_path / "out", config)["documents"]
    assert documents["dropped"]["null"] == 2
    assert documents["read"] == 5 == documents["kept"] + sum(documents["dropped"].values())
    counts = clean_partition(raw.sources[0], tmp_path / "part", config)
    part = Partition.read(counts, (tmp_path / "part" / "documents.npy").read_bytes())
    assert compose([part], ["a.jsonl"], config)[1]["documents"] == documents
    (tmp_path / "books" / "a.jsonl").write_text('{"text": null}\n' * 3)
    with pytest.raises(InputError, match=r"of 3 read in 1 files: .+ 3 null"):
        build_corpus(raw, tmp_path / "none", config)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (random.Random(0).randbytes(4000), False),
        ("The old king. ".encode("utf-16") * 100, True),
        ("The old king. ".encode("utf-16-le") * 100, False),
        ("\x80\x91\x9f a".encode() * 100, False),
        ("«\xa0Té»".encode() * 100, True),
        ("Это текст. ".encode() * 100, True),
    ],
)
def test_what_is_mostly_undecodable_is_no_book(tmp_path: Path, data: bytes, kept: bool) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "a.txt").write_bytes(data)
    (folder / "b.txt").write_text(" ".join(prose(0)), encoding="utf-8")
    report = build_corpus(RawCorpus.at(str(folder)), tmp_path / "out", CorpusConfig())
    assert report["documents"]["dropped"]["unreadable"] == (not kept)
    assert [line.partition(":")[0] for line in report["left_out"]] == ([] if kept else ["a.txt"])
    if not kept:
        (folder / "b.txt").unlink()
        with pytest.raises(InputError, match="1 no text"):
            build_corpus(RawCorpus.at(str(folder)), tmp_path / "alone", CorpusConfig())


@pytest.mark.parametrize(("seeds", "fraction"), [([1], 0.1), ([1, 2], 0.1), ([1], 0.99)])
@pytest.mark.parametrize("raw", [False, True])
def test_of_one_book_the_end_is_held_out(tmp_path: Path, seeds: list[int], fraction: float, raw: bool) -> None:
    """Whichever split its hash falls into."""
    folder = tmp_path / "books"
    folder.mkdir()
    for number, seed in enumerate(seeds):
        (folder / f"{number}.txt").write_text(" ".join(prose(seed, 3000 - 500 * number)), encoding="utf-8")
    report = build_corpus(
        RawCorpus.at(str(folder)), tmp_path / "out", CorpusConfig(validation_fraction=fraction, raw=raw)
    )
    documents = report["documents"]
    n = len(seeds)
    assert (documents["kept"], documents["train"], documents["validation"]) == (n, n, 1)
    assert report["divided"].startswith("0.txt, from character ")
    splits = [read_corpus(tmp_path / "out", split) for split in ("train", "validation")]
    train, held = ({name: "".join(rows) for name, rows in split} for split in splits)
    (end,) = held.values()
    (begin,) = (train[name] for name in held)
    text = (folder / "0.txt").read_text(encoding="utf-8")
    wanted = min(fraction * sum(path.stat().st_size for path in folder.iterdir()), len(text) / 2)
    assert wanted <= len(end) < wanted + len(text) / 20  # back to the end of a paragraph, or of a line or word
    if raw:
        assert begin + end == text
        assert begin.endswith(("\n", " "))
    else:
        assert (begin + " " + end).replace(" .", ".").split() == text.split()
