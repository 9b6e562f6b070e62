"""A user's own rows and text: what may be written, what comes back, and how a broken row is named."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.evaluation.inference import Tally, predict_jsonl, predict_records, text_perplexity
from gptcore.evaluation.predict import TaskModel
from gptcore.evaluation.tables import json_line, write_table
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import example_text, labelled_rows, own_example, own_table, read_own_rows
from gptcore.nlu.readers import Example, Record
from gptcore.nlu.registry import REGISTRY, TaskSpec, task_spec
from gptcore.papers.analyses.lstm import LSTM
from gptcore.text.bpe import WordTokenizer
from tests.expected import expected
from tests.gptcore.tiny_glue import TEXT, save_model, tokenizer

WORDS = tokenizer()


def encoded(*rows: Any) -> list[bytes]:
    return [(json.dumps(row) + "\n").encode() for row in rows]


def own_names(spec: TaskSpec, number: int) -> dict[str, Any]:
    """A row that is named as the dataset names its columns."""
    columns = [*spec.text_columns, *spec.choices]
    return {column: " ".join(TEXT.split()[at : at + 2 + number]) for at, column in enumerate(columns)}


def friendly(spec: TaskSpec, row: dict[str, Any]) -> dict[str, Any]:
    """A dataset's row with its fields named after Figure 1."""
    texts = [row[field] if isinstance(field, str) else " ".join(row[part] for part in field) for field in spec.fields]
    named: dict[str, Any] = dict(zip(form_of(spec).names_of(spec), texts, strict=False))
    return {**named, "answers": [row[column] for column in spec.choices]} if spec.choices else named


NAMES = {
    "sst2": ("negative", "positive"),
    "cola": ("unacceptable", "acceptable"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
}
"""What GLUE's card calls the labels that its files count."""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, TaskModel]:
    folder = tmp_path_factory.mktemp("models")
    return {task: TaskModel(save_model(task, WORDS, folder / task), WORDS) for task in REGISTRY}


@pytest.mark.parametrize("task", REGISTRY)
def test_both_namings_give_one_answer_a_row(task, models):
    spec = task_spec(task)
    rows = [own_names(spec, number) for number in range(3)]
    found = list(predict_jsonl(models[task], encoded(*rows)))
    assert found == list(predict_jsonl(models[task], encoded(*(friendly(spec, row) for row in rows))))
    assert [answer["line"] for answer in found] == [1, 2, 3]
    for answer in found:
        if task == "stsb":
            assert set(answer) == {"line", "score"}
            assert 0 <= answer["score"] <= 5
        else:
            shares = answer["probabilities"]
            assert tuple(shares) == NAMES.get(task, spec.labels)
            assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
            assert answer["label"] == max(shares, key=shares.get)
    assert json.dumps(found)


def test_probabilities_are_the_softmax_of_the_models_logits(models):
    rows = encoded(*({"premise": "the cat", "hypothesis": text} for text in TEXT.split()))
    logits = list(models["mnli"].logits(read_own_rows(models["mnli"].spec, rows)))
    expected = torch.softmax(torch.from_numpy(np.stack(logits)), dim=1).numpy()
    found = [list(answer["probabilities"].values()) for answer in predict_jsonl(models["mnli"], rows)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len({tuple(shares) for shares in found}) > 5


@pytest.mark.parametrize(
    ("fields", "form", "row", "found"),
    [
        (("question", "passage"), "choices", {"document": "d", "question": "q"}, ("d", "q")),
        (("hypothesis", "evidence"), "pair", {"premise": "p", "hypothesis": "h"}, ("p", "h")),
        (("hypothesis", "evidence"), "pair", {"hypothesis": "h"}, "expected the field 'evidence' or 'hypothesis'"),
        (("a", "b"), "pair", {"premise": "p", "b": "h"}, ("p", "h")),
    ],
)
def test_no_text_fills_two_fields(fields, form, row, found):
    choices = {"choices": ("x", "y"), "labels": ("0", "1")} if form == "choices" else {}
    spec = replace(REGISTRY["mnli"], fields=fields, form=form, **choices)
    record = Record("rows", "1", {**row, "answers": ["one", "two"]})
    if isinstance(found, tuple):
        assert own_example(spec, record).fields == found
    else:
        with pytest.raises(InputError, match=found):
            own_example(spec, record)


def test_other_fields_are_left_alone_and_the_columns_own_name_comes_first():
    row = {"id": 7, "label": "neutral", "sentence1": "a cat", "premise": "a bird", "hypothesis": "a mat"}
    (example,) = read_own_rows(task_spec("mnli"), encoded(row))
    assert example == Example(("a cat", "a mat"), (), None, "", "standard input:1")


MENTIONED = {
    "fewrel": (
        {"tokens": ["Ann", "met", "Bo", "."], "h": ["bo", "Q1", [[2]]], "t": ["ann", "Q2", [[0]]]},
        "tail Ann tail met head Bo head .",
    ),
    "openentity": (
        {"left_context_token": ["The"], "mention_span": "old king", "right_context_token": ["slept"]},
        "The mention old king mention slept",
    ),
}


@pytest.mark.parametrize("task", MENTIONED)
def test_rows_about_mentions_are_as_their_files_have_them_or_marked(task):
    spec, (row, text) = task_spec(task), MENTIONED[task]
    column = spec.text_columns[0]
    found = list(read_own_rows(spec, encoded(row, {"text": text}, {column: text})))
    assert [example.fields for example in found] == [(text,)] * 3
    assert own_example(spec, Record("a", "1", {column: example_text(spec, column)})).fields[0].count("NAME")
    with pytest.raises(InputError, match=r"line 1, column 'text': found 'Ann met Bo', expected a sentence with marks"):
        list(read_own_rows(spec, encoded({"text": "Ann met Bo"})))
    empty = " ".join(word for word in text.split() if word in ("head", "tail", "mention"))
    with pytest.raises(InputError, match=f"found '{empty}', expected a sentence with marks"):
        list(read_own_rows(spec, encoded({"text": empty})))
    without = {name: value for name, value in row.items() if name not in ("t", "right_context_token")}
    with pytest.raises(InputError, match=r"column '(t|right_context_token)': found only the columns"):
        list(read_own_rows(spec, encoded(without)))
    with pytest.raises(InputError, match=f"expected the field '{column}' or 'text'"):
        list(read_own_rows(spec, encoded({"other": text})))


def test_rows_are_answered_as_they_come(models):
    asked = []

    def endless() -> Any:
        while True:
            asked.append(1)
            yield b'{"text": "the cat"}\n'

    answers = predict_jsonl(models["sst2"], endless())
    for _ in range(3):
        next(answers)
    assert len(asked) < 100


@pytest.mark.parametrize(
    ("task", "line", "message"), expected(__file__, "test_a_broken_row_is_an_error_that_names_line_and_field")
)  # a byte of the line is a character there
def test_a_broken_row_is_an_error_that_names_line_and_field(models, task, line, message):
    spec = task_spec(task)
    first = b'{"premise": "a", "hypothesis": "b"}' if task == "mnli" else encoded(own_names(spec, 0))[0].strip()
    rows = read_own_rows(spec, [first, line.encode("latin-1")])
    next(rows)
    with pytest.raises(InputError, match="^standard input, " + ".*" + re.escape(message)):
        next(rows)


# --- what people have: plain lines, tables ---


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("race", "x", 'a line: {"document": "...", "question": "...", "answers": ["...", "...", "...", "..."]}'),
        (
            "sst2",
            "id,text,label",
            "found the names of columns, 'id,text,label', expected the rows of a table in a file",
        ),
        ("rte", 'index\t"premise"\thypothesis', "gptmill predict rte FILE.csv"),
        ("fewrel", "a head b head and tail c tail", "found 'a head b head and tail c tail', expected one JSON object"),
    ],
)
def test_a_line_that_is_no_row_says_what_a_row_looks_like(task, line, message):
    with pytest.raises(InputError, match=f"^standard input, line 1: .*{re.escape(message)}"):
        next(read_own_rows(task_spec(task), [line.encode()]))


def test_a_plain_line_is_a_row_where_a_row_is_one_text(models):
    asked = encoded({"text": "the cat"}, {"text": '"a" film, text'})
    assert list(predict_jsonl(models["sst2"], [b"the cat\r\n", b'"a" film, text\n'])) == list(
        predict_jsonl(models["sst2"], asked)
    )


TABLES = {
    "rows.csv": lambda table, path: table.to_csv(path, index=False),
    "rows.CSV.gz": lambda table, path: table.to_csv(path, index=False, compression="gzip"),
    "rows.tsv": lambda table, path: path.write_text("\n".join("\t".join(row) for row in [table, *table.values]) + "\n"),
    "rows.jsonl": lambda table, path: table.to_json(path, orient="records", lines=True),
    "rows.parquet": lambda table, path: table.to_parquet(path),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_any_format_is_answered_as_its_lines_and_scored_by_its_labels(name, models, tmp_path):
    """More rows than are held at a time; pandas writes the one table and reads the other."""
    texts, right = [f'"{word}" was, {other}' for word in TEXT.split() for other in TEXT.split()] * 9, ["0", "positive"]
    rows = {"no": list(map(str, range(len(texts)))), "sentence": texts, "label": (right * len(texts))[: len(texts)]}
    path, model = tmp_path / name, models["sst2"]
    TABLES[name](pd.DataFrame(rows), path)
    expected = list(predict_jsonl(model, encoded(*({"text": text} for text in texts))))
    out = path.with_name(f"out{path.name[4:]}")
    assert len(texts) > 1024
    assert write_table(out, predict_records(model, own_table(model.spec, str(path)))) == len(texts)
    read = {
        "csv": pd.read_csv,
        "gz": pd.read_csv,
        "jsonl": partial(pd.read_json, lines=True),
        "parquet": pd.read_parquet,
    }
    read["tsv"] = partial(pd.read_csv, sep="\t", quoting=csv.QUOTE_NONE)
    found = read[name.rpartition(".")[2]](out)
    assert list(found) == ["no", "sentence", "label", "prediction", "probability"]
    assert (list(found["sentence"]), list(found["label"])) == (texts, rows["label"])
    assert list(found["prediction"]) == [answer["label"] for answer in expected]
    np.testing.assert_allclose(found["probability"], [max(each["probabilities"].values()) for each in expected])
    hits = sum(answer["label"] == ("negative", "positive")[row % 2] for row, answer in enumerate(expected))
    scores = model.scored(labelled_rows(model.spec, own_table(model.spec, str(path))))
    assert scores == {"accuracy": hits / len(texts), "score": hits / len(texts), "rows": len(texts)}


def test_a_table_may_lack_the_names_of_columns_where_the_tasks_files_do(tmp_path):
    rows = [("clc95", "0", "*", "In which way ?"), ("gj04", "1", "", '"They" ran.')]
    given, named = tmp_path / "dev.tsv", tmp_path / "named.tsv"
    given.write_text("".join("\t".join(row) + "\n" for row in rows))
    named.write_text("a\tacceptable\tb\ttext\n" + given.read_text())
    for table in (given, named):
        found = list(labelled_rows(task_spec("cola"), own_table(task_spec("cola"), str(table))))
        assert [(row.fields, row.label) for row in found] == [(("In which way ?",), 0.0), (('"They" ran.',), 1.0)]


def test_nothing_is_left_of_answers_that_break_off_or_that_a_format_cannot_hold(models, tmp_path):
    path, sst2 = tmp_path / "rows.jsonl", models["sst2"]
    for rows, name, message in (
        ([{"text": "a"}] * 2000 + [{"text": 3}], "a.csv", f"{path}, line 2001, column 'text': found 3, expected text"),
        ([{"text": "a\tb"}], "a.tsv", "row 1: found .*, expected a .jsonl file"),
        ([{"text": "a", "x": 1}] * 1024 + [{"text": "b", "x": "c"}], "a.parquet", "columns that parquet cannot hold"),
        ([{"text": "a", "x": {}}], "a.parquet", "columns that parquet cannot hold .*, expected a .jsonl file"),
        ([{"text": "a", "x": 10**30}], "a.parquet", "columns that parquet cannot hold"),
        ([{"text": "a\rb"}], "a.tsv", "row 1: found .*, expected a .jsonl file"),
        ([{"text": "a", "x": ["\ud800"]}], "a.csv", rf"{path}, line 1, column 'x': found \['\\ud800'\], expected text"),
        ([], "a.parquet", "a.parquet: found no row"),
        ([{"text": "a", "prediction": 1}], "a.jsonl", "column 'prediction': found this column, expected none"),
    ):
        path.write_bytes(b"".join(encoded(*rows)))
        with pytest.raises(InputError, match=message):
            write_table(tmp_path / name, predict_records(sst2, own_table(sst2.spec, str(path))))
        assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "rows.csv").write_text("text,text\na,b\n")
    pq.write_table(pa.table([["a"]] * 3, names=["text", "x", "x"]), tmp_path / "two.parquet")
    for table, message in (
        ("rows.csv", "'text': found 2 times in the header"),
        ("none.csv", "none.csv: found no such file, expected a table"),
        ("two.parquet", r"two.parquet, column 'x': found 2 times among \['text', 'x', 'x'\], expected once"),
        ("two.parquet.gz", "found no format, expected a name"),
        ("rows.xls", r"expected a name that ends in \.csv, \.tsv, \.jsonl, \.json, \.parquet, \.arrow, \.xlsx"),
    ):
        with pytest.raises(InputError, match=message):
            next(own_table(sst2.spec, str(tmp_path / table)))


ODD = ["a\rb", '"', "\r\n", "a,b\tc", ""]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(ODD)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@given(rows=st.lists(st.fixed_dictionaries({"text": TEXTS, "x": TEXTS, "p": st.just("no")}), min_size=1, max_size=4))
def test_a_table_is_read_back_as_it_was_written(kind, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / f"a.{kind}"
    if kind == "tsv" and any(end in cell for row in rows for cell in row.values() for end in "\t\r\n"):
        with pytest.raises(InputError, match=r"expected a .jsonl file"):
            write_table(path, rows)
        return
    assert write_table(path, rows) == len(rows)
    assume(kind != "tsv" or '""' not in path.read_text(encoding="utf-8"))  # which may be a program's quotes
    assert [dict(row.columns) for row in own_table(task_spec("sst2"), str(path))] == rows


def test_a_table_is_what_it_begins_with_whatever_its_name(tmp_path):
    rows = pd.DataFrame({"id": [1, 2], "sentence": ["a", "b"]})
    writers = {"a.csv": rows.to_parquet, "b.csv": partial(rows.to_excel, engine="openpyxl"), "c.txt": rows.to_csv}
    for name, write in writers.items():
        with (tmp_path / name).open("wb") as file:
            write(file, index=False)
        found = own_table(task_spec("sst2"), str(tmp_path / name))
        assert [row.columns["sentence"] for row in found] == ["a", "b"]


def test_a_table_of_json_lines_has_what_every_row_has(tmp_path):
    """A column's type may be known, and a key may be there, only behind the rows that are held at a time."""
    write_table(tmp_path / "a.csv", [{"text": "a"}, {"text": "b", "x": 1}, {"x": 2, "new": "c"}])
    assert (tmp_path / "a.csv").read_text() == "text,x,new\na,,\nb,1,\n,2,c\n"
    rows = [{"text": "a", "x": 1, "n": None, "s": {"a": 1}}] * 1024 + [{"x": 3.75, "n": 3, "s": {"b": [2]}, "new": "b"}]
    write_table(tmp_path / "a.parquet", rows)
    found = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert found[0] == {"text": "a", "x": 1, "n": None, "s": {"a": 1, "b": None}, "new": None}
    assert found[1024] == {"text": None, "x": 3.75, "n": 3, "s": {"a": None, "b": [2]}, "new": "b"}


BLANK = "column 'sentence': found '', expected text that is not empty"
LONG = " ".join(TEXT.split()[:3] * 20)
CUT = "48 of 62 tokens were read"


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv.gz", "rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("first", [0, 1, 1500])
def test_a_row_without_a_text_or_too_long_harms_no_other_and_has_a_note(name, first, models, tmp_path):
    """Wherever it stands; where there is none, what is written has no such column."""
    texts = ['a "cat"', "the bird"] * 1000
    plain, noted = tmp_path / f"plain-{name}", tmp_path / name
    columns = {"id": [str(number) for number in range(2000)], "sentence": texts}
    kind = name.partition(".")[2]
    write_table(plain, (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)))
    texts[first], texts[-1] = "", LONG
    write_table(noted, (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)))
    model, found = models["sst2"], []
    for table, ends in ((plain, False), (noted, True)):
        tally, out = Tally(), tmp_path / f"out-{table.name}"
        write_table(out, predict_records(model, own_table(model.spec, str(table)), tally), str(table))
        assert bool(str(tally)) == ends
        found.append([row.columns for row in own_table(model.spec, str(out))])
    assert str(tally) == "2,000 rows: 1 not answered, 1 too long, of which on average 77% was read; each has a note"
    before, after = found
    assert all("note" not in row for row in before)
    notes = {number: note for number, row in enumerate(after) if (note := row.get("note"))}
    assert notes == {first: BLANK, 1999: CUT}
    assert after[first]["prediction"] in (None, "")
    assert [row["id"] for row in after] == columns["id"]
    others = [number for number in range(1999) if number != first]
    assert [after[number]["prediction"] for number in others] == [before[number]["prediction"] for number in others]
    assert after[-1]["prediction"] in model.spec.told_labels
    assert kind != "jsonl" or [number for number, row in enumerate(after) if "note" in row] == [*notes]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{out}{which}{name}" for out in ("", "out-") for which in ("", "plain-")
    )


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("mnli", {"premise": None, "hypothesis": "a cat"}),
        ("stsb", {"text1": "a cat", "text2": " "}),
        ("race", {"document": "a cat", "question": "who ?", "answers": ["a", "b", "", "d"]}),
        ("qqp", {"text1": float("nan"), "text2": ""}),
    ],
)
def test_a_blank_answer_has_the_columns_of_the_others(task, row, models):
    model = models[task]
    good = own_names(model.spec, 0)
    answers = list(predict_jsonl(model, encoded({**good, "id": 7}, row)))
    assert (answers[0]["line"], answers[0]["id"], "note" in answers[0]) == (1, 7, False)
    assert {value for name, value in answers[1].items() if name not in ("line", "note", "id")} == {None}
    records = (Record("rows", str(n), columns) for n, columns in enumerate((good, row), start=1))
    told, blank = predict_records(model, records)
    assert [*blank][-1] == "note"
    assert [name for name in blank if name not in row] == [*(name for name in told if name not in good), "note"]
    with pytest.raises(InputError, match=r"^standard input, line 1, column .*; found no row that can be answered"):
        list(predict_jsonl(model, encoded(row)))


def test_a_column_called_note_stays_and_nan_is_null(models):
    rows = [{"text": "a", "note": "mine", "x": math.nan}, {"text": "", "note": "too", "x": [math.inf]}]
    told = [*predict_records(models["sst2"], (Record("r", "1", row) for row in rows))]
    assert [row["note"] for row in told] == ["mine", "too"]
    assert "prediction note" in told[1]
    assert '"x": null' in json_line(told[0])
    assert '"x": ["inf"]' in json_line(told[1])


BROKEN = {
    "rows.csv": ("id,text\n1,a cat\n2,a,b\n3\nid,text\n5,\n6,a bird\n", [2, 3, 4, 5]),
    "rows.tsv": ("text\tid\na cat\t1\na\na bird\t3\n", [2]),
    "rows.jsonl": (
        '{"text": "a"}\n{"text": "a\n{"text": 3}\n\n[1]\n{"x": 1}\n{"text": "b \\ud83d"}\n{"text": "b"}\n',
        [2, 3, 4, 5, 6, 7],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_any_broken_row_may_be_passed_over(name, models, tmp_path):
    path, model, (text, broken) = tmp_path / name, models["sst2"], BROKEN[name]
    path.write_text(text)
    with pytest.raises(InputError, match=name):
        list(predict_records(model, own_table(model.spec, str(path))))
    tally = Tally(skip=True)
    told = list(predict_records(model, own_table(model.spec, str(path), skip=True), tally))
    assert [number for number, row in enumerate(told, start=1) if row["prediction"] is None] == broken
    assert [number for number, row in enumerate(told, start=1) if "note" in row] == broken
    assert (tally.rows, tally.shares) == (len(told), [0.0] * len(broken))
    if name == "rows.csv":
        assert [row["note"] for row in told if "note" in row] == [
            "number of columns: found 3, expected 2 (id, text)",
            "number of columns: found 1, expected 2 (id, text)",
            "the names of the columns again, expected a row",
            "column 'text': found '', expected text that is not empty",
        ]
    out = tmp_path / f"out-{name}"
    assert write_table(out, predict_records(model, own_table(model.spec, str(path), skip=True), tally)) == len(told)


def test_lines_that_are_broken_may_be_passed_over_and_an_empty_one_among_texts_is(models):
    told = list(predict_jsonl(models["sst2"], [b"a cat\n", b"\n", b"a bird\n"]))
    assert [row["label"] is None for row in told] == [False, True, False]
    lines = [b"[1]\n", b'{"premise": "a", "hypothesis": "b", "id": 2}\n', b'{"premise": 3}\n']
    tally = Tally(skip=True)
    told = list(predict_jsonl(models["mnli"], lines, tally))
    assert [row["label"] is None for row in told] == [True, False, True]
    assert told[1]["id"] == 2
    assert told[0]["note"].startswith("found '[1]', expected one JSON object a line")
    assert str(tally) == "3 rows: 2 not answered; each has a note"
    with pytest.raises(InputError, match=r"line 1, .*; found no row that can be answered"):
        list(predict_jsonl(models["mnli"], lines[:1], tally := Tally(skip=True)))


def test_rows_of_any_kind_go_with_their_answers_and_few_are_read_before_the_first(models):
    words = TEXT.split()
    rows = iter([(number, words[number % len(words)]) for number in range(2500)])
    answers = models["sst2"].answered(rows, lambda row: Example((row[1],), (), None, "", ""))
    first = next(answers)
    assert (first[0], length_hint(rows)) == ((0, words[0]), 2500 - 1024)
    told = [first, *answers]
    assert [number for (number, _), _ in told] == list(range(2500))
    alone = {word: answer["probabilities"]["positive"] for (_, word), answer in told[:50]}
    assert all(answer["probabilities"]["positive"] == pytest.approx(alone[word]) for (_, word), answer in told)
    assert len(set(alone.values())) > 5


def test_columns_of_parquet_stay_as_they_are_beside_their_answers(models, tmp_path):
    size, path, out = 1500, tmp_path / "rows.parquet", tmp_path / "out.parquet"
    table = pa.table(
        {
            "text": pa.array(["a cat", "the bird"] * (size // 2)).dictionary_encode(),
            "n": pa.array([None] * (size - 1) + [3], pa.int32()),
            "tags": pa.array([[]] * (size - 1) + [["a"]], pa.list_(pa.string())),
            "u": pa.array([2**64 - 1] * size, pa.uint64()),
            "ns": pa.array([1577840523000000001] * size, pa.timestamp("ns")),
            "f": pa.array([0.1] * size, pa.float32()),
            "m": pa.array([[("k", 1)]] * size, pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, path, row_group_size=700)
    rows = list(predict_records(models["sst2"], own_table(models["sst2"].spec, str(path))))
    assert write_table(out, rows, str(path)) == size
    found = pq.read_table(out)
    assert found.column_names == [*table.column_names, "prediction", "probability"]
    assert found.select(table.column_names).equals(pq.read_table(path), check_metadata=True)
    assert found["prediction"].to_pylist() == [row["prediction"] for row in rows]
    np.testing.assert_array_equal(found["probability"], [row["probability"] for row in rows])


# --- the perplexity of a text ---

PROSE = "The cat sat on the mat.\r\n\nWho said that a bird runs?\nIt was tired because it sat. Yes and no.\n"


def language_models() -> list[Any]:
    torch.manual_seed(3)
    sizes = {"n_vocab": WORDS.n_vocab, "n_embd": 16, "init_std": 0.3}
    return [
        GPT(ModelConfig(n_ctx=8, n_layer=2, n_head=2, n_inner=32, **sizes)).eval(),
        GPT(ModelConfig(n_ctx=500, n_layer=1, n_head=2, n_inner=32, n_special=3, **sizes)).eval(),
        LSTM(LSTMConfig(n_ctx=8, n_units=24, **sizes)).eval(),
    ]


@pytest.mark.parametrize("model", language_models(), ids=["gpt", "one window", "lstm"])
@pytest.mark.parametrize("batch_tokens", [8, 8192])
def test_a_texts_perplexity_agrees_with_one_token_at_a_time(model, batch_tokens, monkeypatch):
    monkeypatch.setattr("gptcore.evaluation.inference._BATCH_TOKENS", batch_tokens)
    text = PROSE * 3
    found = text_perplexity(model, WORDS, text.encode().splitlines(keepends=True))
    ids, n_ctx = WORDS.encode(text), model.config.n_ctx
    nats = 0.0
    for at in range(1, len(ids)):
        window = ids[(at - 1) // n_ctx * n_ctx : at]  # the whole windows before it are forgotten
        with torch.no_grad():
            nats -= torch.log_softmax(model(torch.tensor([window]))[0, -1].double(), -1)[ids[at]].item()
    n_words, n_bytes = len(text.split()), len(text.encode())
    assert (found["tokens"], found["words"]) == (len(ids) - 1, n_words)
    assert found["nats_per_token"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nats / (len(ids) - 1)), rel=1e-4)
    nats += math.log(WORDS.n_vocab)  # of the first, which nothing predicts
    assert found["word_perplexity"] == pytest.approx(math.exp(nats / n_words), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-4)


def test_a_text_of_one_token_or_of_no_utf8_is_refused():
    model = language_models()[0]
    for text, tokens in ((b"", 0), (b" \n\n", 0), (b".\n", 1)):
        with pytest.raises(InputError, match=f"standard input: found {tokens} tokens, expected two or more"):
            text_perplexity(model, WORDS, [text])
    with pytest.raises(InputError, match="line 2, byte offset 4: found byte 0xff"):
        text_perplexity(model, WORDS, [b"cat\n", b"\xff\n"])
    with pytest.raises(InputError, match="expected the tokenizer's"):
        text_perplexity(model, WordTokenizer.train(["a b c"], 1), [b"a b"])


def test_a_line_that_is_cut_off_is_named_by_its_own_number(models):
    lines = [*encoded({"sentence": "a cat"}), b'{"sentence": "a"\n']
    with pytest.raises(InputError, match=r"standard input, line 2, column 17: found .*, expected a comma, or the end"):
        list(predict_jsonl(models["sst2"], lines))
    with pytest.raises(InputError, match=r"line 1: found '', expected one JSON object a line: {\"text\": \"...\"}"):
        list(predict_jsonl(models["sst2"], [b"\n", *lines[:1]]))


def test_blank_lines_at_the_end_are_no_rows(models):
    assert len(list(predict_jsonl(models["sst2"], [*encoded({"sentence": "a cat"}), b"\n", b" \r\n"]))) == 1
