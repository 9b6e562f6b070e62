"""Raw corpus files: finding, fingerprints, decoding, and an error that names the place for each kind of damage."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import CorpusConfig
from gptcore.text import sources as sources_module
from gptcore.text.decoding import Read, as_utf8, decode
from gptcore.text.sources import BLOCK, RawCorpus, find_sources, fingerprint, read_documents

STRICT, ANY = CorpusConfig(strict=True), CorpusConfig()


def texts(path: Path | str, config: CorpusConfig = CorpusConfig(), read: Read | None = None) -> list[str]:  # noqa: B008
    (source,) = find_sources(str(path))
    return ["".join(pieces) for pieces in read_documents(source, config, read or Read())]


def error(action: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_is_packed_too_tightly_is_a_bomb(tmp_path: Path) -> None:
    bomb = tmp_path / "a.txt.gz"
    bomb.write_bytes(gzip.compress(bytes(100 << 20)))
    (source,) = find_sources(str(bomb))
    said = error(lambda: [sum(map(len, pieces)) for pieces in read_documents(source, STRICT, Read())])
    found = r"a\.txt\.gz: found [\d,]+ bytes or more unpacked of [\d,]+"
    assert re.fullmatch(f"{found}, expected at most 200 times as many", said)


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    for name in ("b.txt", "a/z.txt", "a/rows.jsonl", "a.txt.gz", "README.md", ".hidden.txt", "_logs/x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(gzip.compress(b"zipped") if name.endswith("gz") else b'{"text": "row"}\n')
    return root


def test_folders_are_walked_in_sorted_order(corpus: Path) -> None:
    found = find_sources(str(corpus))
    assert [source.name for source in found] == ["a.txt.gz", "a/rows.jsonl", "a/z.txt", "b.txt"]
    assert [(source.kind, source.packed) for source in found][:2] == [("txt", "gz"), ("jsonl", "")]
    assert find_sources(f"{corpus}/") == found == find_sources(corpus.as_uri())


def test_globs_and_single_files(corpus: Path) -> None:
    assert [source.name for source in find_sources(f"{corpus}/**/[a-z].txt")] == ["_logs/x.txt", "a/z.txt", "b.txt"]
    assert [source.name for source in find_sources(f"{corpus}/[ab].txt*")] == ["a.txt.gz", "b.txt"]
    assert [source.name for source in find_sources(f"{corpus}/a/z.txt")] == ["z.txt"]
    (corpus / "odd[1].txt").write_text("a name with brackets")
    assert [source.name for source in find_sources(f"{corpus}/odd[1].txt")] == ["odd[1].txt"]


def test_nothing_to_read_is_an_error_that_says_what_was_expected(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.pdf").touch()
    (tmp_path / "joined").mkdir()
    (tmp_path / "joined" / "std::vec.md").touch()
    for url, what in {
        tmp_path / "joined" / "*.md": "std::vec.md: found '::' in the name, which joins addresses",
        tmp_path / "absent": "no such file or folder",
        tmp_path / "empty": "an empty folder",
        tmp_path / "other": "1 files of other kinds",
        corpus / "*.epub": "no file matches",
        tmp_path / "other" / "a.pdf": "a.pdf: found an unknown kind",
    }.items():
        assert what in error(lambda url=url: find_sources(str(url)))  # type: ignore[misc]


def test_fingerprints_follow_content_and_names_not_places(corpus: Path, tmp_path: Path) -> None:
    before = fingerprint(find_sources(str(corpus)))
    assert [sorted(record) for record in before] == [["path", "sha256"]] * 4
    corpus.rename(tmp_path / "moved")
    assert fingerprint(find_sources(str(tmp_path / "moved"))) == before
    (tmp_path / "moved" / "b.txt").write_bytes(b'{"text": "Row"}\n')
    assert [a == b for a, b in zip(fingerprint(find_sources(str(tmp_path / "moved"))), before, strict=True)] == [
        True,
        True,
        True,
        False,
    ]


def test_remote_files_are_found_read_and_fingerprinted() -> None:
    root = f"memory://{uuid.uuid4().hex}"
    with fsspec.open(f"{root}/a/one.txt", "wb") as file:
        file.write(b"one")
    (source,) = find_sources(root)
    assert (source.name, source.size) == ("a/one.txt", 3)
    assert texts(source.url) == ["one"] == texts(f"{root}/*/*.txt")
    first = fingerprint([source])
    assert first == fingerprint([source])
    assert sorted(first[0]) == ["path", "size", "tag"]
    with fsspec.open(f"{root}/a/one.txt", "wb") as file:
        file.write(b"two")
    assert fingerprint([source]) != first


# --- decoding --------------------------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_decoding_equals_pythons_whatever_the_blocks(data: bytes, places: list[int]) -> None:
    edges = sorted({0, *(min(place, len(data)) for place in places), len(data)})
    blocks = [data[start:end] for start, end in itertools.pairwise(edges)]
    read = Read()
    text = "".join(decode(blocks, "name", False, read))
    expected = data.decode("utf-8", "replace")
    assert text == expected.removeprefix("\ufeff")
    genuine = data.decode("utf-8", "ignore")
    assert read == Read(bytes=len(data), undecodable=len(data) - len(genuine.encode()))
    if read.undecodable:
        with pytest.raises(UnicodeDecodeError) as caught:
            data.decode("utf-8")
        place = f"name, byte {caught.value.start}: "
        assert error(lambda: list(decode(blocks, "name", True, Read()))).startswith(place)
    else:
        assert "".join(decode(blocks, "name", True, Read())) == text


def test_marks_and_line_ends_of_all_systems(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\xef\xbb\xbf")
    assert texts(tmp_path / "a.txt") == ["one\ntwo\nthree\n\ufeff"]


def test_undecodable_bytes_are_replaced_and_counted_or_an_error(tmp_path: Path) -> None:
    block = sources_module.BLOCK
    (tmp_path / "a.txt").write_bytes(b"x" * (block - 2) + "é".encode() + b"caf\xe9 \xe2\x82")
    read = Read()
    assert texts(tmp_path / "a.txt", read=read) == ["x" * (block - 2) + "écaf\ufffd \ufffd"]
    assert read == Read(bytes=block + 7, undecodable=3)
    assert read.example == "caf\ufffd"
    assert error(lambda: texts(tmp_path / "a.txt", STRICT)).startswith(f"a.txt, byte {block + 3}: found 0xe9")
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write(b"ok \xff")
    assert "b.txt.gz, byte 3: found 0xff, expected UTF-8" in error(lambda: texts(tmp_path / "b.txt.gz", STRICT))
    (tmp_path / "c.jsonl").write_bytes('{"text": "é"}\n{"text": "'.encode() + b'\xff"}\n')
    assert texts(tmp_path / "c.jsonl") == ["é", "\ufffd"]
    assert "c.jsonl, byte 25: found 0xff" in error(lambda: texts(tmp_path / "c.jsonl", STRICT))


# --- rows ------------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(st.text(max_size=30), max_size=5), st.booleans(), st.integers(1, 50))
def test_jsonl_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[str], ascii_: bool, block: int) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.jsonl.gz"
    lines = [json.dumps({"id": 1, "text": row}, ensure_ascii=ascii_) for row in rows]
    path.write_bytes(gzip.compress("\n\n".join(lines).encode("utf-8", "surrogatepass")))
    expected = [row.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for row in rows]
    expected = [row.replace("\r\n", "\n").replace("\r", "\n") for row in expected]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources_module, "BLOCK", block)
        assert [text.replace("\ufeff", "") for text in texts(path)] == [row.replace("\ufeff", "") for row in expected]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"text": "open', "no valid JSON"),
        (b"[1, 2]", "found JSON list, expected an object with a field 'text'"),
        (b'{"body": "a", "id": 3}', "no field 'text' among ['body', 'id']"),
        (b'{"text": 17}', "field 'text' holds 17, expected text"),
        (b"[" * 100_000, "no valid JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, what: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n\n' + line + b"\n")
    message = error(lambda: texts(tmp_path / "a.jsonl"))
    assert message.startswith("a.jsonl, line 3: ")
    assert what in message


def test_a_line_too_long_for_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "MAX_ROW", 100)
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n' + json.dumps({"text": "x" * 200}))
    assert error(lambda: texts(tmp_path / "a.jsonl")).startswith("a.jsonl, line 2: more than 100 bytes")


def test_parquet_rows(tmp_path: Path) -> None:
    rows = ["one", "", "long " * 1000, "é\r\nb", "\ufeffmark"]
    expected = ["one", "", "long " * 1000, "é\nb", "mark"]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        pq.write_table(pa.table({"id": range(5), "body": pa.array(rows).cast(kind)}), tmp_path / "a.parquet")
        read = Read()
        assert texts(tmp_path / "a.parquet", CorpusConfig(text_field="body"), read) == expected
        assert read.bytes == sum(len(row.encode()) for row in rows)


def test_a_set_of_the_hub_is_a_folder_of_shards(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))):
        path = tmp_path / "books" / "data" / f"train-{number:05}-of-00003.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.array([f"Book {number}.", f"Book {number}, again."]).cast(kind)
        metadata = {"huggingface": json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}}}})}
        pq.write_table(pa.table({"title": ["a", "b"], "text": rows}).replace_schema_metadata(metadata), path)
    for name in ("README.md", ".gitattributes", "dataset_infos.json"):
        (tmp_path / "books" / name).write_text("{}", encoding="utf-8")
    found = find_sources(str(tmp_path / "books"))
    assert [source.name for source in found] == [f"data/train-{number:05}-of-00003.parquet" for number in range(3)]
    read = ["".join(document) for source in found for document in read_documents(source, CorpusConfig(), Read())]
    assert read == [f"Book {number}{rest}." for number in range(3) for rest in ("", ", again")]


def test_broken_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), path)
    missing = error(lambda: texts(path, CorpusConfig(text_field="body")))
    assert missing == "a.parquet: no column 'body' among ['id', 'text'], expected one of text"
    assert "column 'id' has type int64, expected string" in error(lambda: texts(path, CorpusConfig(text_field="id")))
    bad = pa.array([b"fine", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"text": bad}), path)
    assert texts(path) == ["fine", "\ufffd"]
    assert error(lambda: texts(path, STRICT)).startswith("a.parquet, row 2, byte 0: found 0xff")
    path.write_bytes(path.read_bytes()[:-20])
    assert "a.parquet, after row 0: not readable as Parquet" in error(lambda: texts(path))
    path.write_bytes(b"")
    assert "not readable as Parquet" in error(lambda: texts(path))


@pytest.mark.parametrize("damage", ["cut", "garbled", "not gzip"])
def test_broken_gzip_is_named(tmp_path: Path, damage: str) -> None:
    data = bytearray(gzip.compress(b"some text " * 10_000, mtime=0))
    if damage == "cut":
        data = data[:-30]
    elif damage == "garbled":
        data[40:60] = b"\xff" * 20
    else:
        data = bytearray(b"plain text")
    (tmp_path / "a.txt.gz").write_bytes(data)
    assert error(lambda: texts(tmp_path / "a.txt.gz")).startswith("a.txt.gz: broken gzip after byte ")


def test_passing_over_documents_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(5)))
    (source,) = find_sources(str(tmp_path))
    documents = read_documents(source, CorpusConfig(), Read())
    next(documents)
    next(documents)
    assert ["".join(document) for document in documents] == ["row 2", "row 3", "row 4"]


# --- another encoding -------------------------------------------------------------------------------------------------

FRENCH = "Le café était fermé, et l’élève répondit : « Où êtes-vous allé ? »\n"
RUSSIAN = "Все счастливые семьи похожи друг на друга.\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(FRENCH, "cp1252"), (FRENCH.replace("’", "'"), "latin-1"), (RUSSIAN, "koi8-r"), (FRENCH, "utf-16")],
)
@pytest.mark.parametrize("before", ["", "plain " * 100_000])
@pytest.mark.parametrize(("kind", "end"), [("txt", ""), ("txt", "\x1a"), ("jsonl", "")])  # DOS ends a text so
def test_a_book_in_another_encoding_is_refused_or_read(
    text: str, encoding: str, before: str, kind: str, end: str, tmp_path: Path
) -> None:
    path, books = tmp_path / f"a.{kind}", [before, *[text] * 50] if kind == "jsonl" else [before + text * 50 + end]
    rows = [json.dumps({"text": book}, ensure_ascii=False) + "\n" for book in books] if kind == "jsonl" else books
    path.write_bytes("".join(rows).encode(encoding))
    if encoding != "utf-16":  # full of zeros, it is no text to begin with
        refused = error(lambda: texts(path))
        assert re.match(
            rf"a\.{kind}, byte \d+: found 0x\w\w, expected UTF-8; from there on \d+\.\d\d% of the bytes", refused
        )
        as_what = "koi8_r" if encoding == "koi8-r" else "cp1252"
        assert f"corpus.encoding = '{as_what}'" in refused
        assert ("caf\xe9" if text != RUSSIAN else "счастливые") in refused
    assert texts(path, CorpusConfig(encoding=encoding)) == books
    assert (fingerprint(find_sources(str(path)), encoding=encoding) == fingerprint(find_sources(str(path)))) == (
        kind == "txt"
    )


def test_the_encoding_of_others_leaves_utf_8_as_it_is(tmp_path: Path) -> None:
    path, read = tmp_path / "a.txt", Read()
    for data in (FRENCH.encode(), b"x" * (BLOCK - 1) + FRENCH[4:].encode(), FRENCH.encode() + b"\xe9 damage"):
        path.write_bytes(data)
        assert texts(path, CorpusConfig(encoding="cp1252"), read) == [data.decode("utf-8", "replace")]
    assert read.undecodable == 1


def test_an_encoding_that_is_none_or_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9")
    assert "corpus.encoding = 'cp12': no such encoding" in error(lambda: texts(path, CorpusConfig(encoding="cp12")))
    assert "a.txt: found neither UTF-8 nor ascii" in error(lambda: texts(path, CorpusConfig(encoding="ascii")))


@settings(max_examples=100)
@given(st.text(), st.integers(1, 7))
def test_utf_8_in_blocks_of_any_size_stays_as_it_is(text: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert b"".join(as_utf8(blocks, "name", None)) == data


# --- every ending ----------------------------------------------------------------------------------------------------

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}
WRITERS: dict[str, Callable[[list[str | None]], bytes]] = {
    "txt": lambda texts: str(texts[0]).encode(),
    "md": lambda texts: str(texts[0]).encode(),
    "jsonl": lambda texts: "".join(json.dumps({"n": 1, "text": text}) + "\n" for text in texts).encode(),
    "ndjson": lambda texts: "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts).encode(),
    "json": lambda texts: json.dumps([{"text": text, "more": [{}, [1]]} for text in texts], indent=1).encode(),
    "parquet": lambda texts: parquet_bytes(pa.array(texts, pa.string())),
}


def parquet_bytes(column: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": column}), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("value", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("coded", [False, True])
def test_parquet_of_every_kind_of_text_with_nulls(tmp_path: Path, value: pa.DataType, coded: bool) -> None:
    rows = pa.array(["one", None, "é" * 1000, ""]).cast(value)
    if coded and value != pa.string_view():  # which nobody writes so
        rows = rows.dictionary_encode()
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(rows))
    (source,) = find_sources(str(tmp_path))
    read = [None if text is None else "".join(text) for text in read_documents(source, ANY, Read())]
    assert read == ["one", None, "é" * 1000, ""]


def test_a_column_of_nulls_alone(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(pa.nulls(3)))
    (source,) = find_sources(str(tmp_path))
    assert list(read_documents(source, ANY, Read())) == [None] * 3


@pytest.mark.parametrize("what", ["utf16", "gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("ending", ["txt", "jsonl", "json", "md"])
def test_a_file_is_what_its_first_bytes_say(tmp_path: Path, what: str, ending: str) -> None:
    text = "Über den Dächern: 中文, हिन्दी.\n" * 20
    data = WRITERS[ending]([text])
    data = data.decode().encode("utf-16") if what == "utf16" else PACKERS[f".{what}"](data)
    (tmp_path / f"a.{ending}").write_bytes(data)
    assert texts(tmp_path / f"a.{ending}") == [text]
    corpus = RawCorpus.at(str(tmp_path))
    assert corpus.files["read"] == {f".{ending} that is {what}": 1}
    assert fingerprint(corpus.sources)[0]["is"] == what
    with fsspec.open(f"memory://{uuid.uuid4().hex}/a.{ending}", "wb") as file:  # elsewhere it is seen when it is read
        file.write(data)
    assert texts(f"memory://{file.path.lstrip('/')}") == [text]


def test_a_broken_utf16_text_has_undecodable_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("fine".encode("utf-16") + b"\x00\xd8" + " and on".encode("utf-16-le") + b"a")
    read = Read()
    assert re.fullmatch("fine\ufffd+ and on\ufffd+", texts(tmp_path / "a.txt", read=read)[0])
    assert read.undecodable
    assert error(lambda: texts(tmp_path / "a.txt", STRICT)).startswith("a.txt, byte 4: found")


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_what_is_compressed_and_cut_off_is_named(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"a.txt{packed}"
    path.write_bytes(PACKERS[packed](random.Random(1).randbytes(100_000).hex().encode())[:-20])
    assert re.match(rf"a\.txt{packed}: broken \w+ after byte \d+ of its content", error(lambda: texts(path)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["one", "two"]', ["one", "two"]),
        ('{"text": "one"}\n{"text": "two"}', ["one", "two"]),  # lines of JSON, as C4 has them
        ('{\n "id": 1,\n "text": "one"\n}\n', ["one"]),
        ('\ufeff [ {"text": "one"} , {"text": null} ] \n', ["one", None]),
        ('[null, "one", null]', [None, "one", None]),
        ("[]", []),
        ('[{"text": "one"}', "a.json, row 2: found the end of the file, expected that of its array"),
        ('[{"text": "one"}, {"text": "tw', "a.json, row 2: no valid JSON (Unterminated string"),
        ('[{"text": "one"}, 7]', "a.json, row 2: found JSON int, expected an object with a field 'text'"),
        ('[{"body": "one"}]', "a.json, row 1: no field 'text' among ['body']"),
        ("[" * 100_000, "a.json, row 1: no valid JSON"),
        ("12", "a.json, row 1: found JSON int"),
    ],
)
def test_values_of_json(tmp_path: Path, content: str, expected: list[str | None] | str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    (source,) = find_sources(str(path))

    def rows() -> list[str | None]:
        return [None if text is None else "".join(text) for text in read_documents(source, ANY, Read())]

    if isinstance(expected, list):
        assert rows() == expected
    else:
        assert error(rows).startswith(expected)


def test_what_tells_of_a_folder_is_no_book_and_changes_no_digest(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    before = fingerprint(RawCorpus.at(str(tmp_path)).sources)
    for name in ("README.md", "LICENSE.MD", "._a.txt", "_SUCCESS"):
        (tmp_path / name).write_text("# about")
    (tmp_path / "dataset_infos.json").write_text(json.dumps({"default": {"features": {"text": {"dtype": "string"}}}}))
    (tmp_path / "list.json").write_text(json.dumps([{"title": "a"}]))
    corpus = RawCorpus.at(str(tmp_path))
    assert fingerprint(corpus.sources) == before
    passed_over = {".json without 'text'": 2, "LICENSE.MD": 1, "README.md": 1, "hidden": 2}
    assert corpus.files == {"read": {".txt": 1}, "passed over": passed_over}
    assert RawCorpus.at(str(tmp_path), "title").files["read"] == {".json": 1, ".txt": 1}
    assert texts(tmp_path / "README.md") == ["# about"]  # which is asked for by its name
