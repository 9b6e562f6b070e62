"""Small inputs of kinds that people have: each ends as the table beside them says, in whichever format it comes."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import re
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.cli.main import main
from gptcore.base.errors import InputError
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.forms import label_text
from gptcore.nlu.own_rows import read_own_rows
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from tests.expected import expected as table_of
from tests.gptcore.test_encoded import Bytes

INPUTS = Path(__file__).parents[1] / "public_inputs"
FORMATS = ("csv", "tsv", "jsonl", "parquet")


class Case(NamedTuple):
    """A line of the table."""

    name: str
    codes: list[int]
    must: str
    must_not: str


def cases() -> list[Case]:
    lines = [line.replace("\\|", "\0") for line in (INPUTS / "README.md").read_text(encoding="utf-8").splitlines()]
    rows = [
        [cell.strip().replace("\0", "|") for cell in line.split("|")[1:-1]]
        for line in lines
        if "| `" in line or "|  |" in line
    ]
    return [
        Case(name, [int(code) for code in codes.split(" or ")], must.strip("`"), must_not.strip("`"))
        for name, _, codes, must, must_not in rows
    ]


def copied(case: Case, folder: Path) -> str:
    """The path of an input's task file, with its rows beside it, in a folder of its own."""
    for path in INPUTS.glob(f"{case.name}.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    if case.name == "f1":
        (folder / "f1.csv").write_text(f"text,label\n{'a' * 131_073},p\nb,q\n", encoding="utf-8")
    return str(folder / f"{case.name}.toml")


def test_the_table_names_every_input() -> None:
    assert {case.name for case in cases()} == {path.stem for path in INPUTS.glob("*.toml")}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_an_input_ends_as_the_table_says(case: Case, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["datasets", "check", copied(case, tmp_path)])
    printed = "".join(capfd.readouterr())
    assert code in case.codes, printed
    assert re.search(case.must, printed), printed
    assert not case.must_not or not re.search(case.must_not, printed), printed


def test_a_word_may_hold_white_space_that_sets_no_columns_apart(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "check", "conll2003", "--datasets", str(INPUTS / "conll")]) == 0
    assert re.search(r"(?m)^train +1 +4 +4$", capfd.readouterr().out)


# --- the same rows in each format


def write_task(folder: Path, format: str, rows: list[dict[str, Any]], **fields: Any) -> str:
    """The path of a task's file whose train and dev rows are these."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rows.{format}"
    if format == "parquet":
        columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
        pq.write_table(pa.table(columns), path)
    elif format == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="," if format == "csv" else "\t", lineterminator="\n")
            table.writerows([rows[0].keys(), *(row.values() for row in rows)])
    given = {"name": "own", "format": format, "form": "single", "fields": ["text"], "label": "label"} | fields
    given |= {"train": path.name, "dev": path.name}
    (folder / "own.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
    return str(folder / "own.toml")


def classes(url: str) -> list[str]:
    """The label of each row."""
    spec = read_own_task(url).spec
    return [spec.labels[int(row.label or 0)] for row in iterate(spec, "", "train")]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 1], ["0", "1", "1"]),
        ([0.0, 1.0, 0.5], ["0", "1", "0.5"]),
        ([False, True, True], ["false", "true", "true"]),
    ],
)
def test_a_label_has_one_spelling_in_every_format(
    format: str, labels: list[Any], expected: list[str], tmp_path: Path
) -> None:
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    assert classes(write_task(tmp_path, format, rows)) == expected


@settings(max_examples=200)
@given(
    value=st.integers(-(10**6), 10**6),
    kind=st.sampled_from([int, float, str, Decimal, np.float32, np.float64, lambda n: f"{n}.0", lambda n: f"{n}.000"]),
)
def test_spellings_of_a_whole_number_are_one_label(value: int, kind: Any) -> None:
    assert label_text(kind(value)) == str(value)


@settings(max_examples=30)
@given(
    value=st.integers(-99, 99),
    ways=st.lists(st.sampled_from([int, float, str, "{}.0".format, "{}.00".format]), min_size=1),
)
def test_rows_that_spell_one_label_in_any_way_are_of_one_class(value: int, ways: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        rows = [{"text": "a", "label": label} for label in ("other", *(way(value) for way in ways))]
        assert classes(write_task(Path(folder), "jsonl", rows)) == ["other", *[str(value)] * len(ways)]


@given(st.sampled_from([True, False]), st.sampled_from([bool, str, lambda t: str(t).lower(), lambda t: str(t).upper()]))
def test_spellings_of_a_truth_value_are_one_label(truth: bool, kind: Any) -> None:
    assert label_text(kind(truth)) == ("true" if truth else "false")


@pytest.mark.parametrize("text", ["1.10", "01", "1e5", "truth", " 1", "Nanking", "-", "1.0.0"])
def test_other_labels_stay_as_they_are(text: str) -> None:
    assert label_text(text) == text


@pytest.mark.parametrize("format", FORMATS)
def test_missing_labels_are_named_and_can_be_left_out(format: str, tmp_path: Path) -> None:
    missing = [float("nan"), float("nan")] if format == "parquet" else ["nan", float("nan")]
    labels = [0.0, 1.0, *missing] if format == "parquet" else ["p", "q", *missing]
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    with pytest.raises(InputError, match=r"(?i)(line [34]|row 3).*found '?nan'?, expected a label"):
        read_own_task(write_task(tmp_path, format, rows))
    spec = read_own_task(write_task(tmp_path, format, rows, dropped_labels=[""])).spec
    assert (len(spec.labels), len(list(iterate(spec, "", "train")))) == (2, 2)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("labels", "right"), table_of(__file__, "test_what_names_the_right_choice"))
def test_what_names_the_right_choice(format: str, labels: list[Any], right: list[int], tmp_path: Path) -> None:
    rows = [{"q": "?", "x": f"left {n}", "y": f"right {n}", "label": label} for n, label in enumerate(labels)]
    spec = read_own_task(write_task(tmp_path, format, rows, form="choices", fields=["q"], choices=["x", "y"])).spec
    assert [row.label for row in iterate(spec, "", "train")] == right


def test_a_label_that_is_a_choices_text_is_no_other_columns_name(tmp_path: Path) -> None:
    """Blood groups, in columns that are called as some of them are."""
    rows = [
        {"q": "universal?", "A": "O", "B": "A", "label": "A"},
        {"q": "other?", "A": "dog", "B": "AB", "label": "AB"},
        {"q": "first?", "A": "B", "B": "cat", "label": "B"},
    ]
    spec = read_own_task(write_task(tmp_path, "csv", rows, form="choices", fields=["q"], choices=["A", "B"])).spec
    assert [row.label for row in iterate(spec, "", "train")] == [1, 1, 0]
    assert spec.labels == ("column A", "column B")


@pytest.mark.parametrize(("options", "labels"), table_of(__file__, "test_what_may_mean_two_choices_is_asked"))
def test_what_may_mean_two_choices_is_asked(options: tuple[str, ...], labels: list[Any], tmp_path: Path) -> None:
    columns = dict(zip(("x", "y", "z"), options, strict=True))
    rows = [{"q": "?", **columns, "label": label} for label in labels]
    with pytest.raises(InputError, match=r"expected labels = \[\.\.\.\]"):
        read_own_task(write_task(tmp_path, "jsonl", rows, form="choices", fields=["q"], choices=[*columns]))


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("grade", ["1e-05", ".5", "+1", " 0.5 ", "3.", 2, 1e-05])
def test_spellings_of_a_grade(format: str, grade: Any, tmp_path: Path) -> None:
    rows = [{"text": "a", "label": grade}, {"text": "b", "label": 4}]
    spec = read_own_task(write_task(tmp_path, format, rows, score_range=[0, 5])).spec
    assert [row.label for row in iterate(spec, "", "train")] == [float(grade), 4.0]


@pytest.mark.parametrize(("written", "grade"), [("1,5", 1.5), ("0,125", 0.125), ("4 %", 4.0), ("33.5%", None)])
def test_grades_with_commas_and_shares_are_numbers(written: str, grade: float | None, tmp_path: Path) -> None:
    spec = read_own_task(write_task(tmp_path, "jsonl", [{"text": "a", "label": written}], score_range=[0, 5])).spec
    if grade is None:
        with pytest.raises(InputError, match="expected a number from 0 to 5"):
            list(iterate(spec, "", "train"))
    else:
        assert [row.label for row in iterate(spec, "", "train")] == [grade]


@pytest.mark.parametrize("grade", ["1,000", "1,5,5", "0x1", "1_0", "inf", "one", ""])
def test_what_is_no_grade(grade: str, tmp_path: Path) -> None:
    rows = [{"text": "a", "label": grade}]
    with pytest.raises(InputError, match="expected a number from 0 to 5"):
        list(iterate(read_own_task(write_task(tmp_path, "jsonl", rows, score_range=[0, 5])).spec, "", "train"))


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (pa.array([Decimal("1.00"), Decimal("0.50")]), ["1", "0.5"]),
        (pa.array([1, 0.5], pa.float16()), ["1", "0.5"]),
        (pa.array(["p", "q"], pa.string_view()), ["p", "q"]),
        (pa.array(["p", "q"], pa.large_string()), ["p", "q"]),
        (pa.array(["p", "q"]).dictionary_encode(), ["p", "q"]),
    ],
)
def test_types_of_parquet(labels: pa.Array, found: list[str], tmp_path: Path) -> None:
    url = write_task(tmp_path, "parquet", [{"text": "a", "label": "p"}])
    for text in (pa.string_view(), pa.large_string()):
        pq.write_table(pa.table({"text": pa.array(["a", "b"], text), "label": labels}), tmp_path / "rows.parquet")
        assert classes(url) == found


def test_a_timestamp_is_refused_by_its_name(tmp_path: Path) -> None:
    url = write_task(tmp_path, "parquet", [{"text": "a", "label": "p"}])
    table = pa.table({"text": ["a"], "label": pa.array([0], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"column 'label': found type timestamp\[us\], expected number or string"):
        read_own_task(url)


# --- files


ROWS = b"text,label\na,p\nb,q\n"


@pytest.mark.parametrize(
    "content",
    [
        ROWS + b"\n \r\n",
        ROWS.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + ROWS.replace(b"\n", b"\r\n"),
        gzip.compress(ROWS, mtime=0),
        pa.compress(ROWS, "zstd", asbytes=True),
        bz2.compress(ROWS),
        lzma.compress(ROWS),
        ROWS.decode().encode("utf-16"),
        ROWS.decode().encode("utf-32"),
        gzip.compress(ROWS[:15], mtime=0) + gzip.compress(ROWS[15:], mtime=0),
    ],
)
def test_the_same_rows_in_other_files(content: bytes, tmp_path: Path) -> None:
    url = write_task(tmp_path, "csv", [{"text": "a", "label": "p"}])
    (tmp_path / "rows.csv").write_bytes(content)
    assert classes(url) == ["p", "q"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"PK\x03\x04...", "a zip archive"),
        (b"\n<!DOCTYPE html>\n<html><body>", "a page in HTML, expected text, plain or compressed; save the table"),
        (b"\x80\x05\x95\0", "a pickle of Python"),
        (b"BZh9...", r"what cannot be read \(Invalid data stream"),
        (b"\xfd7zXZ\x00...", r"what cannot be read \(Compressed file ended"),
        (b"7z\xbc\xaf...", "a 7z archive, expected text, plain or compressed; unpack it"),
        (gzip.compress(ROWS * 9000, mtime=0)[:60], r"what cannot be read \(Truncated compressed stream"),
        (b"text,label\na,p\n\nb,q\n", "0, expected 2"),
        (b"text,label\r\na,p\rb,q\r\n", "a line end that is CR alone beside others"),
        (ROWS + ROWS, "the names of the columns, expected a row"),
    ],
)
def test_files_that_are_something_else(content: bytes, found: str, tmp_path: Path) -> None:
    url = write_task(tmp_path, "csv", [{"text": "a", "label": "p"}])
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"rows\.csv.*found {found}"):
        read_own_task(url)


def test_blank_last_lines_of_what_is_asked(tmp_path: Path) -> None:
    spec = read_own_task(write_task(tmp_path, "csv", [{"text": "a", "label": "p"}, {"text": "b", "label": "q"}])).spec
    assert [row.fields for row in read_own_rows(spec, [b'{"text": "a"}\n', b"\n", b"  \n"])] == [("a",)]
    with pytest.raises(InputError, match="line 2: found '', expected one JSON object a line"):
        list(read_own_rows(spec, [b'{"text": "a"}\n', b"\n", b'{"text": "b"}\n']))


# --- what is told


def told(tmp_path: Path, values: list[Any], **fields: Any) -> list[str]:
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(values)]
    spec = read_own_task(write_task(tmp_path, "jsonl", rows, **fields)).spec
    report = encode_task(spec, "", Bytes(), tmp_path / "encoded")
    return [spec.note, *report["findings"]]


@pytest.mark.parametrize(("labels", "fields", "sentence"), table_of(__file__, "test_what_is_told_of_rows"))
def test_what_is_told_of_rows(labels: list[Any], fields: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    assert any(sentence in note for note in told(tmp_path, labels, **fields))


def test_nothing_is_told_of_rows_that_are_as_they_should_be(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "pq"[n % 2]} for n in range(200)]
    url = write_task(tmp_path, "csv", rows)
    (tmp_path / "own.toml").write_text(Path(url).read_text().replace('dev = "rows.csv"', "holdout = 0.3"))
    assert encode_task(read_own_task(url).spec, "", Bytes(), tmp_path / "encoded")["findings"] == []
    assert not any("F1" in note for note in told(tmp_path, list("pq"), metrics=["f1"], positive="p"))


NAMES = "line 1: found the names of the columns, expected a row: "


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("text,label", NAMES),
        ("Text,Label", NAMES),
        ("label, TEXT", NAMES),
        ("c,p\n", "line 2.*found 0, expected 2"),
    ],
)
def test_a_header_in_another_case_or_order_is_no_row(header: str, found: str, tmp_path: Path) -> None:
    url = write_task(tmp_path, "csv", [{"text": "a", "label": "p"}], columns=["text", "label"])
    (tmp_path / "rows.csv").write_bytes(ROWS.replace(b"text,label", header.encode()))
    with pytest.raises(InputError, match=found):
        read_own_task(url)


def test_a_score_that_no_rows_could_have_is_refused_before_a_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dev: found '2' as the label of every row, expected two or more"):
        told(tmp_path, [2, 2], score_range=[0, 5])


def test_labels_that_are_one_in_two_spellings_are_refused(tmp_path: Path) -> None:
    for cell in ("['p', 'q']", '["p"]', "[]", "[1, 2]"):  # a list that a program has written as text
        with pytest.raises(InputError, match=r"found .*, expected a list of labels, or text with semicolons"):
            read_own_task(write_task(tmp_path, "csv", [{"text": "a", "label": cell}], form="labels"))
    rows = [{"text": "a", "label": 1}]
    with pytest.raises(InputError, match="expected a list of labels, each once"):
        read_own_task(write_task(tmp_path, "jsonl", rows, labels=["1", "1.0"]))
    with pytest.raises(InputError, match="positive = 'none', expected one of p, q"):
        read_own_task(write_task(tmp_path, "jsonl", rows, labels=["p", "q"], metrics=["f1"], positive="none"))
