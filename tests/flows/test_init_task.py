"""A task's file that is written after what rows look like: what is guessed, what is asked."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.cli.init_task import init_task
from flows.cli.main import main
from gptcore.base.errors import InputError
from gptcore.nlu.columns import Said
from gptcore.nlu.examples import Record
from gptcore.nlu.forms import form_of, label_text
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.guess import guess_task, task_text
from gptcore.nlu.own_rows import own_example
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from tests.expected import expected as table_of
from tests.flows.test_public_inputs import INPUTS, Case, copied

MEANT: dict[str, tuple[str, list[Any]]] = table_of(__file__, "MEANT")
"""Input -> the option that is asked for, if any, with an answer; and what the rows' labels then mean."""


def answers(file: Path) -> list[Any]:
    """What each row of a task is answered with, in the order of the file."""
    spec = read_own_task(str(file)).spec
    rows = [row for split in ("train", "dev") for row in iterate(spec, "", split)]
    rows.sort(key=lambda row: int(row.row.rpartition(":")[2]))
    return [row.choices[int(row.label or 0)] if row.choices else form_of(spec).spelled(spec, row.label) for row in rows]


def run(*arguments: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["init-task", *arguments])
    return code, "".join(capfd.readouterr())


@pytest.mark.parametrize("name", MEANT)
def test_every_public_input_is_guessed_or_asked_about(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert MEANT.keys() == {path.stem for path in INPUTS.glob("*.toml")}
    task = Path(copied(Case(name, [], "", ""), tmp_path))
    task.unlink()
    (rows,) = tmp_path.iterdir()
    option, meant = MEANT[name]
    code, printed = run(str(rows), capfd=capfd)
    if option:
        assert (code, list(tmp_path.iterdir())) == (2, [rows])
        assert re.fullmatch(rf"gptmill: error: {rows}: .* {option.partition('=')[0]}\b.*\n", printed)
    if "=" in option:
        code, printed = run(str(rows), option, capfd=capfd)
    if meant:
        assert code == 0, printed
        assert printed.startswith(f"{task}:\n\n{task.read_text()}\n{name}: ")
        assert f"\nnext: gptmill finetune {task} " in re.sub(r"( \\)?\n {6,}", " ", printed)
        assert answers(task) == meant


@pytest.mark.parametrize(("file", "content", "options", "meant"), table_of(__file__, "test_what_files_are_taken_for"))
def test_what_files_are_taken_for(
    file: str, content: list[str], options: list[str], meant: dict[str, Any], tmp_path: Path
) -> None:
    rows, (label, *_) = tmp_path / file, (*options, "")
    rows.write_text(
        "".join(f"{line.replace('{n}', str(n))}\n" for n in range(12) for line in content[n > 0 :]), encoding="utf-8"
    )
    fields = guess_task(str(rows), Said(label))
    found = {name: value for name, (value, _) in fields.items()}
    assert {name: found.get(name) for name in meant} == meant
    (tmp_path / "own.toml").write_text(task_text(fields), encoding="utf-8")
    read_own_task(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("rows", "fields", "expected"),
    [
        (12, "text", {"epochs": 60, "pooling": "mean", "ngrams": 3}),
        (6_000, "text", {"epochs": 10, "pooling": "mean", "ngrams": 3}),
        (6_000, "premise,hypothesis", {"epochs": 10, "ngrams": 3}),
        (20_000, "text", {"pooling": "mean", "ngrams": 3}),
        (20_000, "premise,hypothesis", {"ngrams": 3}),
    ],
)
def test_few_rows_are_read_more_often(rows: int, fields: str, expected: dict[str, Any] | None, tmp_path: Path) -> None:
    text = ",".join(["some words"] * len(fields.split(",")))
    lines = [f"{fields},label", *(f"{text},{n % 2}" for n in range(rows))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    assert tomllib.loads(task_text(guess_task(str(tmp_path / "rows.csv")))).get("small") == expected


@pytest.mark.parametrize(("content", "expected"), table_of(__file__, "test_what_is_asked_or_refused"))
def test_what_is_asked_or_refused(
    content: str, expected: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(content, encoding="utf-8")
    code, printed = run(str(rows), capfd=capfd)
    assert (code, list(tmp_path.iterdir())) == (2, [rows])
    assert re.search(expected, printed), printed


@pytest.mark.parametrize(
    ("unlabelled", "why"),
    [
        (["text,number", "some words,1"], ""),
        (["text", "some words", "more; words"], ""),
        (["text,label", "some words,?", "more,?"], ", where each row has '?'"),
    ],
)
def test_files_that_lie_beside_are_taken_and_what_is_there_stays(
    unlabelled: list[str], why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "News 20"
    folder.mkdir()
    for file in ("train.csv", "valid.csv"):
        (folder / file).write_text("text,label\n" + "".join(f"words of {n},{n % 2}\n" for n in range(9)))
    (folder / "test.csv").write_text("\n".join(unlabelled))
    out = tmp_path / "elsewhere.toml"
    code, printed = run(str(folder / "train.csv"), "--out", str(out), capfd=capfd)
    assert code == 0, printed
    assert f"# not test.csv beside it: labels are missing there{why}\n" in printed
    written = tomllib.loads(out.read_text())
    assert {name: written.get(name) for name in ("name", "train", "dev", "test", "holdout")} == {
        "name": "news-20",  # of the folder, as the file is called after its split
        "train": str(folder / "train.csv"),
        "dev": str(folder / "valid.csv"),
        "test": None,  # it has no labels
        "holdout": None,
    }
    code, printed = run(str(folder / "train.csv"), "--out", str(out), capfd=capfd)
    refused = f"--out {out}: is there already, expected a new file, or --force to replace it"
    assert (code, printed) == (2, f"gptmill: error: {refused}\n")
    before = out.read_bytes()
    code, printed = run(str(folder / "train.csv"), "--out", str(out), "--labels", "0", "--force", capfd=capfd)
    assert (code, out.read_bytes()) == (2, before), printed
    code, printed = run(str(folder / "train.csv"), "--out", str(out), "--name", "other", "--force", capfd=capfd)
    assert (code, tomllib.loads(out.read_text())["name"]) == (0, "other")


@pytest.mark.parametrize(("file", "options", "expected"), table_of(__file__, "test_options_that_are_refused"))
def test_options_that_are_refused(
    file: str, options: list[str], expected: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / file
    rows.write_text("text,label\n" + "".join(f"words of {n},{('angry', 'happy')[n % 2]}\n" for n in range(8)))
    code, printed = run(str(rows), *(option.replace("{}", str(tmp_path)) for option in options), capfd=capfd)
    assert (code, list(tmp_path.iterdir())) == (2, [rows])
    assert printed == f"gptmill: error: {expected.replace('{}', str(tmp_path))}\n"


def test_a_reader_that_has_enough_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"words of {n},{n % 2}\n" for n in range(8)))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["init-task", str(tmp_path / "rows.csv")]) == 0
    assert read_own_task(str(tmp_path / "rows.toml")).spec.labels == ("0", "1")


NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(max_examples=150)
@given(
    names=st.lists(NAME, min_size=2, max_size=2, unique=True),
    labels=st.lists(NAME, min_size=2, max_size=5, unique_by=label_text).filter(
        lambda labels: not {"", "-"} & {*map(label_text, labels)} and any(grade_of(label) is None for label in labels)
    ),
)
@example(names=["'", "0"], labels=["0", ":"])  # quotes that are all of a name
@example(names=["text", "label"], labels=["0\x1f", "p"])  # white space to Python, but not to its float
def test_any_names_and_labels_are_read_again_as_they_are(names: list[str], labels: list[str]) -> None:
    text, label = names
    with TemporaryDirectory() as folder:
        rows, file = Path(folder, "rows.jsonl"), Path(folder, "own.toml")
        lines = [{text: f"words of {n}", label: value} for n, value in enumerate(labels * 3)]
        rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        file.write_bytes(task_text(guess_task(str(rows), Said(label))).encode())
        spec = read_own_task(str(file)).spec
        assert (spec.fields, spec.label) == ((text,), label)
        if spec.form == "single":
            assert sorted(spec.labels) == sorted(map(label_text, labels))
            assert answers(file) == [label_text(value) for value in labels * 3]


def test_rows_without_a_header_are_told_with_the_line_that_names_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"main-news\t2012test\t{n:04d}\t{n % 6}.000\tA plane {n} takes off .\tAn air plane flies ." for n in range(9)
    ]
    (tmp_path / "rows.tsv").write_text("".join(f"{line}\n" for line in lines))
    given = 'name = "own"\nformat = "tsv"\nform = "pair"\nfields = ["a", "b"]\nlabel = "score"\nscore_range = [0, 5]\n'
    task = tmp_path / "own.toml"
    task.write_text(f'{given}train = "rows.tsv"\nholdout = 0.2\n')
    assert main(["datasets", "check", str(task)]) == 2
    found = capfd.readouterr().err
    assert "it looks like a row, the task's file names the columns" in found
    names = re.search(r"columns = .*", found)
    assert names
    assert names[0] == 'columns = ["c1", "c2", "c3", "score", "a", "b"]'
    task.write_text(f"{task.read_text()}{names[0]}\n")
    assert main(["datasets", "check", str(task)]) == 0


FILES = Path(__file__).parents[1] / "public_inputs" / "files"


@pytest.mark.parametrize(
    ("file", "meant"),
    [
        *((f"02-labels-with-pipes/{name}.csv", {"form": "labels", "separator": mark}) for name, mark in
          (("pipe", "|"), ("hash", "#"), ("comma", ","), ("space", " "))),
        ("03-endings-list/train.jsonl", {"form": "choices", "fields": ["ctx"], "choices": "endings"}),
        ("03-endings-list/arc.jsonl", {"form": "choices", "choices": "choices.text", "label": "answerKey"}),
        ("04-test-minus-one/train.jsonl", {"labels": ["0", "1", "2"], "dev": "validation.jsonl", "test": None}),
        ("05-keys-by-row/rows.jsonl", {"labels": ["angry", "calm"], "dropped_labels": [""]}),
        ("08-unnamed-columns/spam.csv", {"fields": ["v2"], "label": "v1", "labels": ["ham", "spam"], "columns": None}),
        ("16-labels/iso639.csv", {"labels": ["deu", "eng", "nan", "yue"], "dropped_labels": None}),
        ("16-labels/decimal.tsv", {"score_range": [1, 5], "labels": None}),
        ("16-labels/percent.csv", {"score_range": [10, 90], "labels": None}),
    ],
)  # fmt: skip
def test_peoples_files_are_taken_for_what_they_are(file: str, meant: dict[str, Any], tmp_path: Path) -> None:
    rows = shutil.copytree((FILES / file).parent, tmp_path / "rows") / Path(file).name
    fields = guess_task(str(rows))
    assert {name: fields.get(name, (None,))[0] for name in meant} == meant
    (rows.parent / "own.toml").write_text(task_text(fields), encoding="utf-8")
    spec = read_own_task(str(rows.parent / "own.toml")).spec
    for split in spec.splits:
        assert list(iterate(spec, "", split))


@pytest.mark.parametrize(
    ("encoding", "text", "told"),
    [
        ("cp1252", "Die Brücke über den Fluß", "note: rows.csv: it is not UTF-8 in 12 lines, and is read as Windows"),
        (
            "cp1251",
            "старый мельник",
            "line 2, byte offset 11: found byte 0xf1, expected UTF-8 text; if Windows wrote it",
        ),
    ],
)
def test_semicolons_with_bytes_of_windows(
    encoding: str, text: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["text;label", *(f"{text} {n};{'pq'[n % 2]}" for n in range(12))]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding=encoding)
    code, printed = run(str(tmp_path / "rows.csv"), capfd=capfd)
    assert (code, told in printed) == (0 if encoding == "cp1252" else 2, True), printed
    code, printed = run(str(tmp_path / "rows.csv"), "--encoding", encoding, "--force", capfd=capfd)
    assert (code, text in printed) == (0, True), printed


def test_a_list_of_choices_is_asked_about_as_it_is_written(tmp_path: Path) -> None:
    """A key of the list, or a number, or the text itself is the label."""
    rows = shutil.copytree(FILES / "03-endings-list", tmp_path / "rows")
    for file, column in (("arc.jsonl", "choices"), ("train.jsonl", "endings")):
        (rows / "own.toml").write_text(task_text(guess_task(str(rows / file))), encoding="utf-8")
        spec = read_own_task(str(rows / "own.toml")).spec
        row = json.loads((rows / file).read_text().splitlines()[0])
        (first, *_) = iterate(replace(spec, holdout=None), "", "train")
        key = row["label"] if file == "train.jsonl" else row["choices"]["label"].index(row["answerKey"])
        assert first.label == key
        asked = own_example(spec, Record("request", "1", {spec.fields[0]: first.fields[0], column: row[column]}))
        assert (asked.fields, asked.choices) == (first.fields, first.choices)
    short = {**row, "endings": row["endings"][:2]}
    with pytest.raises(InputError, match=r"column 'endings': found .*, expected a list of 4 texts"):
        own_example(spec, Record("request", "1", short))


def test_who_sits_before_a_terminal_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,mood,weather\n" + "".join(f"some words {n},m{n % 2},w{n % 3}\n" for n in range(30)))
    monkeypatch.setattr("sys.stdin", io.StringIO("weather\n"))
    assert read_own_task(init_task(str(rows), ask=True)).spec.label == "weather"
    assert "could be the label, expected --label COLUMN\n--label (mood or weather): " in capfd.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(InputError, match="expected --label COLUMN"):
        init_task(str(rows), force=True, ask=True)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (Said("stars"), {"form": "single", "fields": [["title", "text"]], "score_range": [1, 3]}),
        (Said("stars", graded=True, texts=["text"]), {"fields": ["text"], "score_range": [1, 3]}),
        (Said("stars", form="pair", texts=["text", "title"]), {"form": "pair", "fields": ["text", "title"]}),
        (Said("kind", form="single"), {"form": "single", "labels": ["x", "x;y", "y"]}),
        (Said("kind"), {"form": "labels", "labels": ["x", "y"]}),
    ],
)
def test_what_a_user_says_goes_before_what_rows_suggest(said: Said, meant: dict[str, Any], tmp_path: Path) -> None:
    kinds = ("x", "y", "x;y")
    lines = [f"some words,more of these words {n},{1 + n % 3},{kinds[n % 3]}" for n in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["title,text,stars,kind", *lines]))
    fields = guess_task(str(tmp_path / "rows.csv"), said)
    assert {name: fields[name][0] for name in meant} == meant
