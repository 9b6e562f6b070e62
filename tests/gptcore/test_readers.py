"""Readers: real rows where they are, generated rows always; every kind of broken input names its place."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

from gptcore.base.errors import InputError
from gptcore.nlu import REGISTRY, available, load_task
from gptcore.nlu.readers import iterate, labelled_splits, source_files
from gptcore.nlu.registry import TaskSpec
from tests.expected import expected
from tests.gptcore import datasets as written
from tests.gptcore.datasets import Row
from tests.realdata import real_data

REAL_ROWS = {
    (task, split): rows for task, splits in expected(__file__, "REAL_ROWS").items() for split, rows in splits.items()
}
"""Rows of the public files as their folder's README counts them, independently of this code."""

# Lines of the public files end at LF. Everything else that some library takes for a line end belongs to the text.
NASTY = st.sampled_from(
    ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", '"', '""', "'", "\\", "\ufeff", "\0", ","]
)
LINE_TEXT = st.lists(
    st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=8) | NASTY, min_size=1
).map("".join)
CELL = LINE_TEXT.filter(lambda text: bool(text.strip()) and not text.startswith("\ufeff"))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize(("task", "split"), REAL_ROWS)
def test_real_rows_are_all_read(task: str, split: str) -> None:
    examples = load_task(task, str(real_data()), split)
    spec = REGISTRY[task]
    assert len(examples) == REAL_ROWS[task, split]
    assert {len(example.fields) for example in examples} == {len(spec.fields)}
    assert {len(example.choices) for example in examples} == {len(spec.choices)}
    labels = {example.label for example in examples}
    assert labels == set(range(len(spec.labels))) if spec.labels else min(labels) == 0 and max(labels) == 5
    assert len({example.row for example in examples}) == len(examples)


def test_real_splits_that_are_published_in_full() -> None:
    root = str(real_data())
    full = {(task, split) for task, split in REAL_ROWS if len(load_task(task, root, split)) == _published(task, split)}
    partial = {("qnli", "train"), ("qqp", "train"), ("qqp", "dev"), ("mnli", "train"), ("mnli", "dev")}
    assert full == set(REAL_ROWS) - partial - {("snli", "train"), ("scitail", "train")}


def _published(task: str, split: str) -> int:
    return REGISTRY[task].published_rows(split)


def test_real_quotes_are_text() -> None:
    first = load_task("mrpc", str(real_data()), "dev")[0]
    assert first.fields[1] == '" The foodservice pie business does not fit our long-term growth strategy .'
    assert first.row == "MRPC/dev.tsv:2"


def test_real_subsets() -> None:
    root = str(real_data())
    assert Counter(example.subset for example in load_task("race", root)) == {"race_m": 1436, "race_h": 3451}
    assert Counter(example.subset for example in load_task("mnli", root)) == {"mnli_m": 9815, "mnli_mm": 1000}


def _split_by_sklearn(rows: int, n_dev: int) -> dict[str, list[int]]:
    train, dev = train_test_split(range(2, rows + 2), test_size=n_dev, random_state=3535999445)  # line 1 is the header
    return {"train": train, "dev": dev}


def _story_lines(root: str) -> dict[str, list[int]]:
    rows = {split: load_task("storycloze", root, split) for split in ("train", "dev")}
    return {split: [int(example.row.rsplit(":", 1)[1]) for example in rows[split]] for split in rows}


def test_real_story_cloze_split_is_the_original_one() -> None:
    assert _story_lines(str(real_data())) == _split_by_sklearn(1871, 374)


@pytest.mark.parametrize(("rows", "n_dev"), [(1871, 374), (800, 160), (7, 1), (2, 1)])
def test_story_cloze_files_of_any_size_are_cut_alike(rows: int, n_dev: int, tmp_path: Path) -> None:
    written.write_task(str(tmp_path), REGISTRY["storycloze"], rows=rows)
    assert _story_lines(str(tmp_path)) == _split_by_sklearn(rows, n_dev)


@pytest.mark.parametrize(("file", "rows", "undecided"), [("dev", 1289, 16), ("test", 1277, 23)])
def test_real_snli_rows_without_a_gold_label_are_dropped_and_counted(
    file: str, rows: int, undecided: int, tmp_path: Path
) -> None:
    head = real_data("SNLI", "original_format_head", f"snli_1.0_{file}.head.jsonl")
    (tmp_path / "SNLI").mkdir()
    (tmp_path / "SNLI" / "snli_1.0_dev.jsonl").write_bytes(head.read_bytes())
    dropped = Counter[str]()
    assert len(list(iterate(REGISTRY["snli"], str(tmp_path), "dev", dropped))) == rows - undecided
    assert dropped == {"label -": undecided}


@pytest.mark.parametrize("task", REGISTRY)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_generated_rows_of_every_task_read_back(task: str, place: str, tmp_path: Path) -> None:
    spec = REGISTRY[task]
    root = str(tmp_path / "data sets") if place == "local" else f"memory://rows-{task}"
    written.write_task(root, spec, rows=12)
    assert available(root) == [task]
    assert labelled_splits(spec, root) == list(spec.splits)
    for split, sources in spec.splits.items():
        examples = load_task(task, root, split)
        if spec.holdout and split != "test":
            assert len(examples) == {"train": 10, "dev": 2}[split]  # 374 of 1871 is a fifth
        else:
            assert len(examples) == 12 * len(sources)
            expected = [written.plain_row(spec, number) for number in range(12)] * len(sources)
            assert [example.fields for example in examples] == [_fields(spec, row) for row in expected]
            assert [example.choices for example in examples] == [row.choices for row in expected]
            labels = [float(row.label) if spec.score_range else spec.labels.index(row.label) for row in expected]
            assert [example.label for example in examples] == labels


def _fields(spec: TaskSpec, row: Row) -> tuple[str, ...]:
    return row.texts if spec.name != "storycloze" else (" ".join(row.texts),)


TEXTS = {
    **dict.fromkeys(("mrpc", "qnli", "scitail", "stsb"), st.tuples(CELL, CELL)),
    "cola": st.tuples(CELL),
    "snli": st.tuples(ANY_TEXT, ANY_TEXT),
    "storycloze": st.tuples(*[ANY_TEXT] * 6),
}
"""What may stand in the texts of a row, and in its choices behind them, by what each format can hold."""


@pytest.mark.parametrize("task", TEXTS)
@settings(max_examples=80)
@given(data=st.data(), end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans(), last_end=st.booleans())
def test_text_of_any_kind_survives(task: str, data: st.DataObject, end: str, bom: bool, last_end: bool) -> None:
    """Cells between tabs, a text in the last column, JSON lines, and quoted cells with line breaks in them."""
    spec, split = REGISTRY[task], "test" if task == "storycloze" else "dev"
    n_texts, label = len(spec.text_columns), spec.labels[-1] if spec.labels else "2.5"
    drawn = data.draw(st.lists(TEXTS[task], min_size=1, max_size=4))
    rows = [Row(texts[:n_texts], label, texts[n_texts:]) for texts in drawn]
    url = written.source_url("memory://any", spec, spec.splits[split][0])
    written.write_bytes(url, written.encode_file(spec, rows, end=end, bom=bom, last_end=last_end))
    examples = load_task(task, "memory://any", split)
    assert [(example.fields, example.choices) for example in examples] == [
        (_fields(spec, row), row.choices) for row in rows
    ]


@settings(max_examples=100)
@given(article=ANY_TEXT, asked=st.lists(st.tuples(*[ANY_TEXT] * 5, st.sampled_from("ABCD")), min_size=1, max_size=4))
def test_race_text_survives(article: str, asked: list[tuple[str, ...]]) -> None:
    rows = [Row((article, question), answer, tuple(options)) for question, *options, answer in asked]
    for level in ("middle", "high"):
        written.write_bytes(f"memory://race/RACE/dev/{level}/1.txt", written.encode_passage(rows))
    examples = load_task("race", "memory://race")
    assert [(example.fields, example.choices) for example in examples] == [(row.texts, row.choices) for row in rows] * 2
    assert [example.label for example in examples] == ["ABCD".index(row.label) for row in rows] * 2
    assert [example.subset for example in examples] == ["race_m"] * len(rows) + ["race_h"] * len(rows)


BROKEN = {
    **expected(__file__, "BROKEN"),  # a byte of the file is a character there
    "JSON nested without end": ("snli", "SNLI/snli_1.0_dev.jsonl", "[" * 100_000, "snli_1.0_dev.jsonl, line 1: found"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_input_names_its_place(case: str, tmp_path: Path) -> None:
    task, file, data, message = BROKEN[case]
    written.write_task(str(tmp_path), REGISTRY[task], rows=3)
    written.write_bytes(f"{tmp_path}/{file}", data.encode("latin-1"))
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        load_task(task, str(tmp_path))
    assert str(raised.value).startswith(f"{tmp_path}/")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("score", ["5.1", "-0.5", "nan", "inf", "", "five", "1_0", "1,500", "٣", "0x1"])
def test_a_score_must_be_a_number_from_0_to_5(score: str, tmp_path: Path) -> None:
    written.write_bytes(f"{tmp_path}/STS-B/dev.tsv", f"sentence1\tsentence2\tscore\na\tb\t{score}\n".encode())
    message = f"line 2, column 'score': found {score!r}, expected a number from 0 to 5"
    with pytest.raises(InputError, match=re.escape(message)):
        load_task("stsb", str(tmp_path))


@pytest.mark.parametrize("task", REGISTRY)
def test_a_missing_file_is_named(task: str, tmp_path: Path) -> None:
    spec = REGISTRY[task]
    (tmp_path / spec.folder).mkdir(parents=True)
    assert available(str(tmp_path)) == [task]
    assert "test" not in labelled_splits(spec, str(tmp_path))
    message = f"{tmp_path}/{spec.folder}/{spec.splits['dev'][0].path}: found nothing there"
    with pytest.raises(InputError, match=re.escape(message)):
        load_task(task, str(tmp_path))


def test_a_folder_of_passages_without_passages(tmp_path: Path) -> None:
    (tmp_path / "RACE" / "dev" / "middle").mkdir(parents=True)
    with pytest.raises(InputError, match=r"dev/middle: found no \.txt file, expected one for each passage"):
        load_task("race", str(tmp_path))


def test_half_a_test_split_is_an_error(tmp_path: Path) -> None:
    spec, root = REGISTRY["race"], str(tmp_path)
    written.write_task(root, spec, rows=2)
    for passage in (tmp_path / "RACE" / "test" / "high").iterdir():
        passage.unlink()
    assert "test" in labelled_splits(spec, root)
    with pytest.raises(InputError, match=r"RACE/test/high: found no \.txt file"):
        load_task("race", root, "test")


def test_a_file_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "MRPC" / "dev.tsv").mkdir(parents=True)
    with pytest.raises(InputError, match=r"MRPC/dev\.tsv: found a folder"):
        load_task("mrpc", str(tmp_path))


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"task: found 'mnly', did you mean mnli\? expected one of "):
        load_task("mnly", str(tmp_path))
    with pytest.raises(InputError, match=r"split: found 'test', expected one of train, dev"):
        load_task("mnli", str(tmp_path), "test")
    with pytest.raises(InputError, match="no such folder"):
        available(str(tmp_path / "nowhere"))


def test_too_few_stories_to_split(tmp_path: Path) -> None:
    spec = REGISTRY["storycloze"]
    written.write_task(str(tmp_path), spec, rows=1)
    with pytest.raises(InputError, match="found 1 rows, expected enough for 1 dev rows and a train row"):
        load_task("storycloze", str(tmp_path))


def test_files_of_a_task(tmp_path: Path) -> None:
    root = str(tmp_path)
    written.write_task(root, REGISTRY["storycloze"], rows=3)
    assert len(source_files(REGISTRY["storycloze"], root)) == 2  # train and dev are one file
    written.write_task(root, REGISTRY["race"], rows=3)
    assert len(source_files(REGISTRY["race"], root)) == 3 * 6


def test_a_thirteenth_dataset_is_one_entry(tmp_path: Path) -> None:
    spec = written.thirteenth()
    written.write_task(str(tmp_path), spec, rows=4)
    assert [example.label for example in iterate(spec, str(tmp_path), "dev")] == [0, 1, 0, 1]
