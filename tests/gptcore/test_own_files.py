"""Files that people's programs write: their rows, what is told of them, or one line that says what was found."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from flows.cli.main import main
from gptcore.base.errors import InputError
from gptcore.nlu.columns import Said
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


def read(folder: Path, name: str, **fields: Any) -> list[tuple[tuple[str, ...], float | None]]:
    """The rows of a file as a task has them that names the text's column alone."""
    given = {"name": "own", "form": "single", "fields": ["text"], "label": "label", "labels": ["a", "b"]}
    given |= {"format": name.split(".")[1], "train": name, "dev": name, **fields}
    (folder / "own.toml").write_text(toml(given), encoding="utf-8")
    return [(row.fields, row.label) for row in iterate(read_own_task(str(folder / "own.toml")).spec, "", "train")]


def of_cells(rows: Rows, **dialect: Any) -> str:
    csv.writer(text := io.StringIO(), **dialect).writerows([rows[0].keys(), *(row.values() for row in rows)])
    return text.getvalue()


def test_cells_of_excel_are_those_of_a_csv(tmp_path: Path) -> None:
    sheet = (book := openpyxl.Workbook()).active
    rows = [datetime(2024, 1, 31), 1.0], [2.5, True], ["a", 0], ["b", "#N/A"], [None, None]
    for row in (["text", "label", None], *rows):
        sheet.append(row)
    book.create_sheet("notes").append(["why"])
    book.save(tmp_path / "rows.xlsx")
    told: dict[str, Any] = {"labels": ["0", "1", "true"], "dropped_labels": [""]}
    assert read(tmp_path, "rows.xlsx", **told) == [(("2024-01-31",), 1), (("2.5",), 2), (("a",), 0)]
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


# --- what dev rows tell, and what they do not


def guessed(folder: Path, **columns: list[Any]) -> dict[str, Any]:
    """What two files are taken for, whose rows have these labels."""
    for split, labels in columns.items():
        rows = [{"text": f"row {number} of {split}", "score": label} for number, label in enumerate(labels)]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return {name: value for name, (value, _) in guess_task(str(folder / "train.jsonl"), Said("score")).items()}


def test_grades_reach_from_the_lowest_to_the_highest_of_all_files(tmp_path: Path) -> None:
    found = guessed(tmp_path, train=[1.5, 2, 3.25, 4], dev=[0.5, 4.75], test=[-0.5, 2])
    assert (found["score_range"], found["metrics"]) == ([-1, 5], ["pearson", "spearman"])
    assert (found["dev"], found["test"]) == ("dev.jsonl", "test.jsonl")
    assert "labels" not in found


@pytest.mark.parametrize(
    ("train", "dev", "metrics", "positive"),
    [
        ("ab" * 10, "a" + "b" * 9, ["accuracy"], None),
        ("a" * 7 + "b" * 13, "ab" * 5, ["accuracy"], None),
        ("a" * 7 + "b" * 14, "ab" * 5, ["f1", "accuracy"], "a"),
        ("a" * 14 + "b" * 7, "b" * 99 + "a", ["f1", "accuracy"], "b"),
        ("a" * 7 + "b" * 13 + "c" * 14, "abc", ["macro_f1", "accuracy"], None),
        ("a" * 7 + "b" * 13 + "c" * 13, "a" + "bc" * 5, ["accuracy"], None),
    ],
)
def test_training_rows_alone_choose_the_metric(
    train: str, dev: str, metrics: list[str], positive: str | None, tmp_path: Path
) -> None:
    """One that is fair to rare labels where the commonest is twice as frequent as the rarest, or more."""
    found = guessed(tmp_path, train=[*train], dev=[*dev])
    assert (found["metrics"], found.get("positive")) == (metrics, positive)
    assert found["labels"] == sorted({*train})


def test_a_label_of_dev_rows_alone_is_a_class(tmp_path: Path) -> None:
    found = guessed(tmp_path, train=[*"ab" * 5], dev=[*"abc"])
    assert (found["labels"], found["metrics"]) == (["a", "b", "c"], ["macro_f1", "accuracy"])


@pytest.mark.parametrize(("number", "named"), [(20, True), (21, False)])
def test_twenty_labels_are_named_in_the_file_and_of_more_rows_tell(number: int, named: bool, tmp_path: Path) -> None:
    """Unless another file beside it has some that these rows lack."""
    names = [chr(ord("a") + at) for at in range(number)]
    assert ("labels" in guessed(tmp_path, train=names * 2)) == named
    assert guessed(tmp_path, train=names * 2, dev=names)["labels"] == names
