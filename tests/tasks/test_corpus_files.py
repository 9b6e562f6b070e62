"""Any folder of books: each file is read or named, each document kept or left out for a reason, and the numbers are the
same in the stage's line, on the run's page, on the model's card and in the manifest.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import CorpusConfig
from gptcore.text import sources as sources_module
from gptcore.text.decoding import Read
from gptcore.text.sources import RawCorpus, read_documents
from tasks.report import card
from tasks.stages.corpus import clean_corpus, corpus_made
from tasks.store.artifact import Artifact
from tasks.store.counts import ShardsCounts
from tasks.store.store import Store

Draw = Callable[..., Any]
Texts = Sequence[str | None]
LEAST = 12  # characters of a document that is kept
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
ODD = [
    *("", " ", "\n\n", " \n" * 20, "short", "\ufeff", "\ufeffwith a mark in front", "twice and no more\n" * 2),
    *(
        "of DOS\r\nby lines",
        "of a Mac\rby lines",
        "\x00\x01\x02\x03" * 9,
        "words\x00\x01 and more of them",
        "\ufffd" * 30,
    ),
    *("\u0939\u093f\u0928\u094d\u0926\u0940 " * 4, "中文" * 9, "a\u2028b\x85c" * 5),
]
TEXT = st.sampled_from(ODD) | st.text("abc éß\n", min_size=LEAST, max_size=40)
DAMAGED = st.sampled_from(
    [b"\xc3\xa9 caf\xe9 and some more words", b"\xc3\xa9" + b"\xff\xfd" * 20, b"\xc3\xa9, an end \xe2\x82"]
)
KINDS = ("txt", "md", "jsonl", "ndjson", "json", "parquet")
OTHERS = ("html", "epub", "pdf", "docx", "csv", "zip", "tar.gz", "txt.zip", "gz", "txt~", "parquet.gz", "txt.txt.x", "")


class Content(NamedTuple):
    """What stands in a file, before and after it is packed."""

    data: bytes
    documents: Texts
    recognised: str = ""
    """What it is though its ending does not say so."""
    may_break: bool = False
    """Whether it is damaged, so that the corpus may be refused for it."""


@dataclass
class Books:
    """What a folder holds: files that are read and passed over, by how they are counted, and all documents."""

    read: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    documents: list[str | None] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def archive(text: bytes, tar: bool) -> bytes:
    out = io.BytesIO()
    if tar:
        with tarfile.open(fileobj=out, mode="w:gz") as file:
            file.addfile(tarfile.TarInfo("a.txt"), io.BytesIO(text))
    else:
        with zipfile.ZipFile(out, "w") as file_:
            file_.writestr("a.txt", text)
    return out.getvalue()


def parquet(draw: Draw) -> Content:
    """A column of any of Arrow's types of text, some of whose rows may be null, or no UTF-8."""
    rows = draw(st.lists(st.none() | TEXT.map(str.encode) | DAMAGED, max_size=4))
    column = pa.array(rows, pa.binary())
    kind = draw(
        st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), None, pa.binary(), pa.large_binary()])
    )
    if kind is None or not pa.types.is_binary(kind):
        column = column.view(pa.string())
        column = column.dictionary_encode() if kind is None else column.cast(kind)
    pq.write_table(pa.table({"n": range(len(rows)), "text": column}), sink := pa.BufferOutputStream(), row_group_size=2)
    return Content(
        sink.getvalue().to_pybytes(), [None if row is None else row.decode("utf-8", "replace") for row in rows]
    )


def text(draw: Draw, kind: str) -> Content:
    """A document, or rows of JSON in one of their forms."""
    if kind in ("txt", "md"):
        data = draw(TEXT.map(str.encode) | DAMAGED)
        return Content(data, [data.decode("utf-8", "replace")])
    rows = draw(st.lists(st.none() | TEXT, max_size=4))
    objects = [{"n": [1], "text": row, "more": {"a": [None]}} for row in rows]
    ascii_, form = (
        draw(st.booleans()),
        draw(st.sampled_from(["lines", "array", "texts", "one"])) if kind == "json" else "",
    )
    if form in ("", "lines"):
        between = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
        return Content(between.join(json.dumps(each, ensure_ascii=ascii_) for each in objects).encode(), rows)
    if form == "texts":
        rows = [row or "words" for row in rows]
    elif form == "one":
        rows, objects = rows[:1], objects[:1]
    value: Any = {"array": objects, "texts": rows, "one": objects[0] if objects else []}[form]
    return Content(json.dumps(value, ensure_ascii=ascii_, indent=draw(st.sampled_from([None, 1]))).encode(), rows)


def disguised(draw: Draw, kind: str, content: Content, packed: str, breaks: bool) -> Content:
    """The content as it lies in the file: packed, in UTF-16, cut, or empty."""
    data, documents = content.data, content.documents
    whole = data.decode("utf-8", "ignore").encode() == data
    how = draw(st.sampled_from(["", "", "", "", "utf16", *PACKERS] + ["cut", "empty", "utf-16-le"] * breaks))
    if how == "utf-16-le" and kind not in ("parquet", "json") and whole:  # by which a .json has no text
        content = content._replace(data=data.decode().encode("utf-16-le"), may_break=True)
    elif how == "utf16" and kind != "parquet" and whole:
        content = Content(data.decode().removeprefix("\ufeff").encode("utf-16"), documents, "" if packed else how)
    elif how in PACKERS and kind != "parquet" and not packed:
        content = Content(PACKERS[how](data), documents, how)
    if packed:
        content = content._replace(data=PACKERS[packed](content.data))
    if how == "cut" and (packed or kind == "parquet"):
        content = content._replace(data=content.data[: len(content.data) // 2], may_break=True)
    elif how == "empty":
        content = Content(b"", [""] if kind in ("txt", "md") else [], may_break=True)
    return content


@st.composite
def folders(draw: Draw, root: Path, outside: Path) -> Books:
    """Write a folder of books, with folders in it, and say what it holds."""
    books, breaks = Books(), draw(st.integers(0, 4)) == 0
    if draw(st.integers(0, 3)):
        books.documents += [f"a book that is kept, number {number} of three" for number in range(3)]
        books.read[".jsonl"] += 1
        (root / "kept.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in books.documents))
    for number in range(draw(st.integers(1, 12))):
        below = draw(st.sampled_from(["", "", "", "a/", "a/b.txt/", "é ü/", ".git/", "a/_logs/"]))
        kind = draw(st.sampled_from([*KINDS, *KINDS, *OTHERS]))
        packed = draw(st.sampled_from(["", "", *PACKERS])) if kind in KINDS and kind != "parquet" else ""
        stem = draw(st.sampled_from(["", "", "", " y", "[1]", "#1", "%20", ".x", "hidden", "::", "\udce9"]))
        stem = f".{number}" if stem == "hidden" else f"{number:02}{stem}"
        if kind == "md" and not packed and draw(st.booleans()):
            stem = "README"
        ending = "".join(f".{part}" for part in (kind, packed) if part)
        name = draw(st.sampled_from([str, str.upper, str.title]))(f"{stem}{ending}")
        path = root / below / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():  # a second README.md
            continue
        hidden = name.startswith(".") or below in (".git/", "a/_logs/")
        odd = "name with :: or no UTF-8" if {"::", "\udce9"} & {stem[2:]} else ""
        unread = "hidden" if hidden else odd or (name if stem == "README" else "")
        if (link := draw(st.integers(0, 9))) == 0:
            path.symlink_to(outside / "gone")
            books.passed_over["broken link or special file"] += 1
            continue
        if link == 1:
            path.symlink_to(outside / str(number))
        if kind not in KINDS:
            path.write_bytes(draw(st.sampled_from([b"", b"?", archive(b"text", True), archive(b"text", False)])))
            unread = unread or os.path.splitext(name)[1].lower() or "without ending"
            books.passed_over[unread] += 1
            continue
        content = disguised(draw, kind, parquet(draw) if kind == "parquet" else text(draw, kind), packed, breaks)
        path.write_bytes(content.data)
        books.broken += [name] if content.may_break else []
        counted = ending + (f" that is {content.recognised}" if content.recognised else "")
        if kind == "json" and not content.documents:
            unread = unread or f"{counted} without 'text'"
        if unread:
            books.passed_over[unread] += 1
            continue
        books.read[counted] += 1
        books.documents += content.documents
    if draw(st.integers(0, 5)) == 0:
        (root / "linked").symlink_to(draw(st.sampled_from([outside, root])), target_is_directory=True)
        books.passed_over["linked or locked folder"] += 1
    return books


def as_read(document: str | None) -> str | None:
    """A document with one kind of line ends, and without marks."""
    return document and document.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def decided(documents: Texts) -> dict[str, int]:
    """What becomes of documents where only equal ones are duplicates."""
    reasons, seen = Counter[str](), set[str]()
    for document in map(as_read, documents):
        its = document or ""
        if document is None:
            reasons["null"] += 1
        elif len(its) < LEAST:
            reasons["too short"] += 1
        elif len(re.findall("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufffd]", its)) > len(its) / 4:
            reasons["unreadable"] += 1
        else:
            reasons["duplicate" if its in seen else "kept"] += 1
        seen.add(its)
    return dict(reasons)


def told(line: str, behind: str) -> dict[str, int]:
    """The counts behind a word of a line, each with what it counts."""
    part = re.split(r"[;)]", line.partition(behind)[2])[0]
    return {what: int(n.replace(",", "")) for n, what in re.findall(r"(\d[\d,]*) ([^,]+)", part)}


def check_refusal(said: str, books: Books) -> None:
    """A corpus that is refused has nothing to read, or says why each document is left out, or names a broken file."""
    assert "\n" not in said
    if "no training document left" in said:
        read, *left_out = map(int, re.findall(r"(?:of|:|,) (\d+) ", said))
        assert read == sum(left_out) == len(books.documents), said
    elif "of other kinds" in said:
        assert told(said, "kinds (") == books.passed_over, said
        assert not books.read
    else:
        assert any(name in said for name in books.broken), said


def on_the_card(store: Store, corpus: Artifact, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the card of a model says of the corpus that it was trained on."""
    data: dict[str, Any] = {}
    splits = {split: {"n_tokens": 1, "n_documents": 1} for split in ("train", "validation")}
    shards = {"n_vocab": 1, "tokenizer_digest": "", "splits": splits}
    patch.setattr(card, "_write", lambda *given, **_: data.update(given[2]["Training data"]))
    patch.setattr(card, "ancestor", lambda *_: corpus)
    patch.setattr(card.ShardsCounts, "of", lambda *_: ShardsCounts.parse(shards))
    card.write_pretrained_card(Path(), store, corpus, {}, defaultdict(lambda: 1, device="cpu"))
    return data


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), near=st.sampled_from([0.8, 1.0]), block=st.integers(16, 60))
def test_files_and_documents_add_up(data: st.DataObject, near: float, block: int) -> None:
    page: list[dict[str, str]] = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root, outside = Path(folder, "books"), Path(folder, "outside")
        root.mkdir()
        outside.mkdir()
        books = data.draw(folders(root, outside))
        patch.setattr("tasks.stages.corpus.publish_table", lambda rows, *_: page.extend(rows))
        config = CorpusConfig(raw=True, min_characters=LEAST, near_duplicates=near, validation_fraction=0.3)
        store = Store(str(Path(folder, "store")))
        try:
            raw = RawCorpus.at(str(root))
            patch.setattr(sources_module, "BLOCK", block)
            corpus = clean_corpus.fn(store, raw, config)
            read = (document for source in raw.sources for document in read_documents(source, config, Read()))
            texts = [document and as_read("".join(document)) for document in read]
        except InputError as error:
            event("refused")
            check_refusal(str(error), books)
            return
        counts, model = store.manifest(corpus)["counts"], on_the_card(store, corpus, patch)
    event("read")
    assert books.broken or Counter(texts) == Counter(map(as_read, books.documents))
    assert counts["files"] == {"read": books.read, "passed over": books.passed_over}
    documents, dropped = counts["documents"], {reason: n for reason, n in counts["documents"]["dropped"].items() if n}
    assert documents["read"] == documents["kept"] + sum(dropped.values()) == len(books.documents)
    if near == 1:
        assert {"kept": documents["kept"], **dropped} == decided(books.documents)
    line = corpus_made(counts)
    assert told(line, "left out: ") == told(f": {model.get('documents left out', '')}", ": ") == dropped
    assert model["documents"] == documents["kept"]
    if len(books.read) + len(books.passed_over) > 1:
        for files in (line, model["files"]):
            assert (told(files, "read: "), told(files, "passed over: ")) == (books.read, books.passed_over)
    shown = {row["what"]: row["count"] for row in page}
    counted = {f"documents / dropped / {reason}": n for reason, n in dropped.items()}
    counted |= {f"files / {what} / {of}": n for what, each in counts["files"].items() for of, n in each.items()}
    assert {what: shown[what] for what in counted} == {what: str(n) for what, n in counted.items()}
