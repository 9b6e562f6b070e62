"""One table in every file that people's programs write: the same rows, or one line that says what was found."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flows.cli.main import main
from gptcore.base.errors import InputError
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.guess import guess_task, task_text
from gptcore.nlu.own_rows import own_example, own_table
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from gptcore.nlu.registry import recorded_task, task_settings, task_spec
from tests.expected import expected
from tests.gptcore.test_own_task import toml

INPUTS = Path(__file__).parents[1] / "public_inputs" / "files"
Rows = list[dict[str, str]]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["a, b", 'he said "no"', "x;y", "a|b", "a\tb", "two\nlines", "é", '"', '""', "sep=;", "# a", "1,5", "text", " a "]
)
TABLE = st.lists(
    st.fixed_dictionaries({"text": TEXT.filter(str.strip), "other": TEXT, "label": st.sampled_from("ab")}),
    min_size=1,
    max_size=5,
).map(lambda rows: [{name: row[name] for name in ("text", "other", "label")} for row in rows])
FOREIGN_WORDS = re.compile("field larger|expected after|unexpected end|new-line")
REFUSAL = re.compile(r"\S+rows\.\w+.*: found .+, expected .+", re.DOTALL)


def read(folder: Path, name: str, **fields: Any) -> list[tuple[tuple[str, ...], float | None]]:
    """The rows of a file as a task has them that names the text's column alone."""
    given = {"name": "own", "form": "single", "fields": ["text"], "label": "label", "labels": ["a", "b"]}
    given |= {"format": name.split(".")[1], "train": name, "dev": name, **fields}
    (folder / "own.toml").write_text(toml(given), encoding="utf-8")
    return [(row.fields, row.label) for row in iterate(read_own_task(str(folder / "own.toml")).spec, "", "train")]


def meant(rows: Rows) -> list[tuple[tuple[str, ...], float | None]]:
    return [((row["text"],), float("ab".index(row["label"]))) for row in rows]


def of_cells(rows: Rows, **dialect: Any) -> str:
    csv.writer(text := io.StringIO(), **dialect).writerows([rows[0].keys(), *(row.values() for row in rows)])
    return text.getvalue()


def is_same(rows: Rows, name: str, write: Callable[[Path], object], **fields: Any) -> None:
    """See that a written file has these rows, or is refused in one line."""
    with TemporaryDirectory() as folder:
        write(Path(folder) / name)
        try:
            found: Any = read(Path(folder), name, **fields)
        except InputError as error:
            found = str(error)
    refused = isinstance(found, str) and REFUSAL.fullmatch(found) and not FOREIGN_WORDS.search(found)
    assert refused or found == meant(rows)


@settings(max_examples=150, deadline=None)
@given(
    rows=TABLE,
    delimiter=st.sampled_from(",;|\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    pack=st.sampled_from([bytes, gzip.compress, bz2.compress, lzma.compress]),
    sep=st.booleans(),
    says=st.booleans(),
)
def test_a_table_of_cells(
    rows: Rows, delimiter: str, quoting: Any, end: str, encoding: str, pack: Any, sep: bool, says: bool
) -> None:
    text = f"sep={delimiter}{end}" * sep + of_cells(rows, delimiter=delimiter, quoting=quoting, lineterminator=end)
    try:
        content = text.encode(encoding)
    except UnicodeEncodeError:
        assume(False)
    told = {"encoding": encoding, "delimiter": delimiter} if says else {}
    if encoding == "cp1252" and not says and not text.isascii():  # bytes that happen to be UTF-8 are read as it
        with pytest.raises(UnicodeDecodeError):
            content.decode()
    is_same(rows, "rows.csv", lambda path: path.write_bytes(pack(content)), **told)


@settings(max_examples=50, deadline=None)
@given(rows=TABLE, quoted=st.booleans())
def test_a_table_between_tabs(rows: Rows, quoted: bool) -> None:
    plain = "".join("\t".join(row) + "\n" for row in [rows[0], *(row.values() for row in rows)])
    text = of_cells(rows, dialect="excel-tab") if quoted else plain
    is_same(rows, "rows.tsv", lambda path: path.write_bytes(text.encode()), quoted=quoted)


def _saved(table: pa.Table, path: Path) -> None:
    path.mkdir()
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    with pa.ipc.new_stream(str(path / "data.arrow"), table.schema) as stream:
        stream.write_table(table)


def _arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=2)


def _excel(rows: Rows, path: Path) -> None:
    sheet = (book := openpyxl.Workbook()).active
    for row in [rows[0], *(row.values() for row in rows)]:
        sheet.append(list(row))
    book.save(path)


COLUMNS: dict[str, Callable[[Rows, Path], object]] = {
    "rows.jsonl": lambda rows, path: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "rows.json": lambda rows, path: path.write_text(json.dumps(rows, indent=1)),
    "rows.json ": lambda rows, path: path.write_text(json.dumps({n: [row[n] for row in rows] for n in rows[0]})),
    "rows.json  ": lambda rows, path: path.write_text(
        json.dumps({name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]})
    ),
    "rows.parquet": lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path),
    "rows.arrow": lambda rows, path: _arrow(pa.Table.from_pylist(rows), path),
    "rows.arrow ": lambda rows, path: _saved(pa.Table.from_pylist(rows), path),
    "rows.xlsx": _excel,
}


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=20, deadline=None)
@given(rows=TABLE)
def test_a_table_of_columns(name: str, rows: Rows) -> None:
    if name == "rows.xlsx":  # which holds no control characters, and calculates what begins with an equals sign
        rows = [{name: "".join(filter(str.isprintable, f"-{text}")) for name, text in row.items()} for row in rows]
        rows = [row | {"label": row["label"][1:]} for row in rows]
    is_same(rows, name.strip(), lambda path: COLUMNS[name](rows, path))


def test_cells_of_excel_are_those_of_a_csv(tmp_path: Path) -> None:
    sheet = (book := openpyxl.Workbook()).active
    for row in (["text", "label", None], [datetime(2024, 1, 31), 1.0], [2.5, True], ["a", 0], [None, None]):
        sheet.append(row)
    book.create_sheet("notes").append(["why"])
    book.save(tmp_path / "rows.xlsx")
    assert read(tmp_path, "rows.xlsx", labels=["0", "1", "true"]) == [(("2024-01-31",), 1), (("2.5",), 2), (("a",), 0)]
    note = read_own_task(str(tmp_path / "own.toml")).spec.note
    assert note == "rows.xlsx: the sheet 'Sheet' is read, and not 'notes' (1 rows)"


# --- files of people


@pytest.mark.parametrize(("file", "code", "told"), expected(__file__, "test_a_file_ends_as_the_table_says"))
def test_a_file_ends_as_the_table_says(
    file: str, code: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["init-task", str(INPUTS / file), "--out", str(tmp_path / "own.toml")]) == code
    printed = "".join(capfd.readouterr())
    assert re.search(told, printed), printed


SAME = ("array.json", "columns.json", "saved", "sep.csv", "semi.csv", "pipe.csv", "cp.csv", "u16.csv", "bz.csv.bz2")


def test_one_table_in_many_files_is_one_table(tmp_path: Path) -> None:
    found = []
    for name in [*(f"18-files/{name}" for name in SAME), *(f"17-tsv-quotes/{n}" for n in ("all.tsv", "pandas.tsv"))]:
        task, rows = tmp_path / "own.toml", INPUTS / name
        task.write_text(task_text(guess_task(str(rows), folder=f"{rows.parent}/")), encoding="utf-8")
        spec = read_own_task(str(task)).spec
        recorded = recorded_task(json.loads(json.dumps(task_settings(spec))))
        table = own_table(recorded, spec.address("", spec.splits["train"][0].path))
        asked = [own_example(recorded, row).fields for row in table]
        labelled = [*iterate(spec, "", "train"), *iterate(spec, "", "dev")]
        assert sorted(asked) == sorted(row.fields for row in labelled)
        found.append(sorted((row.fields, row.label) for row in labelled))
    assert all(each == found[0] for each in found)
    assert len(found[0]) == 80


def test_what_is_told_of_a_table_stands_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rows.csv").write_bytes("sentence;;;n\ncafé, thé;;;1\n".encode("cp1252"))
    monkeypatch.chdir(tmp_path)
    (row,) = own_table(task_spec("sst2"), "rows.csv")
    assert dict(row.columns) == {"sentence": "café, thé", "Unnamed: 1": "", "Unnamed: 2": "", "n": "1"}
    assert caplog.messages == [
        "rows.csv: 2 columns without a name are empty in all rows, and are not read",
        "rows.csv: it is not UTF-8 in 1 lines, and is read as Windows writes it; `encoding` says another",
    ]


def test_glues_pairs_with_an_empty_side_are_checked(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "check", "qqp", "--datasets", str(INPUTS / "19b-qqp")]) == 0
    assert re.search(r"note: \d of \d+ train rows have an empty text", "".join(capfd.readouterr()))


@pytest.mark.parametrize(
    ("dev", "text", "told"),
    [
        ("x\ta\n", 'He said "no"', "1 cells of rows.tsv are quoted as programs do it"),
        ('"x\ta\n', '"He said ""no"""', "1 cells of rows.tsv look quoted, and are read as text"),
        ('"x"\ta\n', '"He said ""no"""', "1 cells of dev.tsv look quoted, and are read as text"),
    ],
)
def test_quotes_are_syntax_where_programs_wrote_those_of_every_file(
    dev: str, text: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.tsv").write_text('text\tlabel\n"He said ""no"""\tb\n')
    (tmp_path / "dev.tsv").write_text(f"text\tlabel\n{dev}")
    assert read(tmp_path, "rows.tsv", dev="dev.tsv") == [((text,), 1)]
    assert told in read_own_task(str(tmp_path / "own.toml")).spec.note


def test_what_a_file_tells_of_itself_keeps_the_digest_of_what_was_read_before(tmp_path: Path) -> None:
    rows = [{"text": "a b", "label": "a"}, {"text": 'c "d" e', "label": "b"}]
    digests = {}
    for name, text in (("tsv", of_cells(rows, dialect="excel-tab")), ("csv", of_cells(rows))):
        for quoted in (None, name == "csv", name != "csv"):
            (tmp_path / f"rows.{name}").write_bytes(text.encode())
            try:
                read(tmp_path, f"rows.{name}", **({} if quoted is None else {"quoted": quoted}))
            except InputError:
                continue
            spec = read_own_task(str(tmp_path / "own.toml")).spec
            digests[name, quoted] = dataset_fingerprint(spec, "")
    assert digests["tsv", None] == digests["tsv", True] != digests["tsv", False]
    assert digests["csv", None] != digests["csv", True]
