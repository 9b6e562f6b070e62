"""A user's own task: every format is read alike, what is left out follows from the rows, a wrong file is one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gptcore.base.errors import InputError
from gptcore.config import preset_named
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import Task, own_task_name, read_own_task
from gptcore.nlu.readers import Example, iterate
from gptcore.nlu.registry import Holdout, recorded_task, task_settings
from tests.expected import expected

ROWS = [
    {
        "premise": f"a cat sat on mat {n}",
        "hypothesis": f'it\tsat, "{n}"' if n % 2 else f"nobody sat {n}",
        "label": n % 3,
    }
    for n in range(30)
]
LABELS = ("contradiction", "entailment", "neutral")
BASE = {
    "name": "anli",
    "format": "jsonl",
    "form": "pair",
    "fields": ["premise", "hypothesis"],
    "label": "label",
    "train": "train.jsonl",
    "dev": "dev.jsonl",
}


def toml(values: dict[str, Any]) -> str:
    """A flat TOML file; tables come last."""
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    plain = [f"{name} = {json.dumps(value)}" for name, value in values.items() if name not in tables]
    return "\n".join([*plain, *(f"[{name}]\n{toml(value)}" for name, value in tables.items()), ""])


def write_rows(path: Path, rows: list[dict[str, Any]], separator: str = "") -> None:
    """Rows in the format that the file's ending says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, list(rows[0])).writeheader()
            csv.DictWriter(file, list(rows[0])).writerows(rows)
    else:
        lines = [list(rows[0]), *([str(value).replace("\t", " ") for value in row.values()] for row in rows)]
        path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def put(folder: Path, changes: dict[str, Any] | None = None, rows: list[dict[str, Any]] | None = None) -> str:
    """A task's file beside its rows; its path. A change to None leaves the field out."""
    values = {name: value for name, value in {**BASE, **(changes or {})}.items() if value is not None}
    rows = [{**row, "label": LABELS[row["label"]]} for row in ROWS] if rows is None else rows
    for split, part in (("train", rows), ("dev", rows[:9])):
        if (name := values.get(split)) and not (folder / name).exists():
            write_rows(folder / name, part)
    (folder / "task.toml").write_text(toml(values), encoding="utf-8")
    return str(folder / "task.toml")


def read(task: Task, split: str) -> list[Example]:
    return list(iterate(task.spec, "", split))


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, format: str) -> None:
    rows = [{**row, "hypothesis": row["hypothesis"].replace("\t", " "), "label": LABELS[row["label"]]} for row in ROWS]
    files = {"train": f"train.{format}", "dev": f"dev.{format}", "test": f"dev.{format}"}
    task = read_own_task(put(tmp_path, {"format": format, **files}, rows))
    assert task.spec.labels == LABELS, "of the training rows, sorted"
    assert [(*row.fields, task.spec.labels[int(row.label or 0)]) for row in read(task, "train")] == [
        tuple(row.values()) for row in rows
    ]
    assert len(read(task, "dev")) == 9
    assert read(task, "dev")[0].row.startswith("dev.")
    assert read(task, "test") == read(task, "dev")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([10, 2, 1], ("1", "2", "10")),
        ([True, False, True], ("false", "true")),
        ([0.5, -1.5, 0.5], ("-1.5", "0.5")),
        (["b", "B", "a"], ("B", "a", "b")),
    ],
    ids=["numbers by value", "truth", "fractions", "words"],
)
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_labels_are_those_of_the_training_rows(
    tmp_path: Path, values: list[Any], labels: tuple[str, ...], format: str
) -> None:
    rows = [{"premise": "a b", "hypothesis": "c", "label": values[n % 3]} for n in range(9)]
    changes = {"format": format, "train": f"train.{format}", "dev": f"dev.{format}"}
    task = read_own_task(put(tmp_path, changes, rows))
    assert task.spec.labels == labels
    names = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    assert [row.label for row in read(task, "train")[:3]] == [labels.index(name) for name in names]


def test_the_order_of_labels_can_be_pinned_and_some_dropped(tmp_path: Path) -> None:
    order = ["neutral", "entailment"]
    task = read_own_task(put(tmp_path, {"labels": order, "dropped_labels": ["contradiction"]}))
    assert task.spec.labels == tuple(order)
    assert len(read(task, "train")) == 20
    with pytest.raises(
        InputError, match=r"train\.jsonl, line 1, column 'label': found 'contradiction', expected one of"
    ):
        list(iterate(read_own_task(put(tmp_path, {"labels": order})).spec, "", "train"))


def test_a_share_is_held_out_by_its_seed(tmp_path: Path) -> None:
    def split(**changes: Any) -> tuple[list[str], list[str]]:
        task = read_own_task(put(tmp_path, {"dev": None, "holdout": 0.2, **changes}))
        train, dev = ([row.row for row in read(task, name)] for name in ("train", "dev"))
        return train, dev

    train, dev = split()
    assert (len(train), len(dev)) == (24, 6)
    assert not set(train) & set(dev)
    assert split() == (train, dev)
    assert split(holdout_seed=1)[1] != dev


def test_choices_name_the_right_one_in_the_ways_that_sets_do(tmp_path: Path) -> None:
    for answers in (["0", "1", "0"], ["1", "2", "2"], ["A", "B", "A"], ["one", "two", "one"]):
        rows = [{"story": f"s {n}", "one": "x", "two": "y", "label": answers[n % 3]} for n in range(9)]
        changes = {"form": "choices", "fields": ["story"], "choices": ["one", "two"], "train": f"{answers[0]}.jsonl"}
        task = read_own_task(put(tmp_path, {**changes, "dev": f"{answers[0]}.jsonl"}, rows))
        assert form_of(task.spec).n_outputs(task.spec) == 1
        assert [row.label for row in read(task, "train")[:2]] == [0, 1]
        assert read(task, "dev")[0].choices == ("x", "y")


def test_a_graded_score_has_its_range(tmp_path: Path) -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": score} for score in (-1, 0.25, 3, 2.5)]
    task = read_own_task(put(tmp_path, {"score_range": [-1, 3], "symmetric": True}, rows))
    assert task.spec.metrics == ("pearson", "spearman")
    assert (form_of(task.spec).n_outputs(task.spec), task.spec.context) == (5, None)
    assert [row.label for row in read(task, "train")] == [-1, 0.25, 3, 2.5]


def test_the_widest_range_the_largest_share_and_the_longest_name(tmp_path: Path) -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": score} for score in (0, 100)]
    spec = read_own_task(
        put(tmp_path, {"score_range": [0, 100], "dev": None, "holdout": 0.5, "name": "a" * 32}, rows)
    ).spec
    assert (spec.score_range, form_of(spec).n_outputs(spec), spec.holdout) == ((0, 100), 101, Holdout(5000, 10_000, 0))


def test_files_without_a_header_have_their_columns_named(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("1\tgood film\n0\tbad film\n", encoding="utf-8")
    changes = {"format": "tsv", "form": "single", "fields": ["text"], "columns": ["label", "text"]}
    task = read_own_task(put(tmp_path, {**changes, "train": "rows.tsv", "dev": "rows.tsv"}))
    assert [row.fields for row in read(task, "dev")] == [("good film",), ("bad film",)]
    assert task.spec.metrics == ("accuracy",)


def test_a_folder_is_beside_the_file_or_among_the_datasets(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    data = tmp_path / "datasets" / "ANLI"
    data.mkdir(parents=True)
    put(data)
    file = put(tmp_path / "own", {"folder": "ANLI"}, [])
    for name in ("train.jsonl", "dev.jsonl"):
        (tmp_path / "own" / name).unlink()
    assert len(read(read_own_task(file, str(tmp_path / "datasets")), "train")) == 30
    with pytest.raises(InputError, match=r"folder = 'ANLI': found no train\.jsonl in \S+/own/ANLI$"):
        read_own_task(file)


def test_what_is_recorded_reads_back_and_says_no_place(tmp_path: Path) -> None:
    changes = {"holdout": 0.1, "dev": None, "seeds": 3, "note": "by hand", "prompt": {"question": "{0} {1}:"}}
    spec = read_own_task(put(tmp_path, changes)).spec
    settings = json.loads(json.dumps(task_settings(spec)))
    assert str(tmp_path) not in json.dumps(settings)
    back = recorded_task(settings)
    assert task_settings(back) == task_settings(spec)
    assert (back.labels, back.fields, back.holdout, form_of(back).n_outputs(back)) == (
        spec.labels,
        spec.fields,
        spec.holdout,
        3,
    )
    assert back.own
    (tmp_path / "moved").mkdir()
    moved = read_own_task(put(tmp_path / "moved", changes)).spec
    assert dataset_fingerprint(moved, "") == dataset_fingerprint(spec, "")
    (tmp_path / "moved" / "train.jsonl").write_text(json.dumps({**ROWS[0], "label": "neutral"}) + "\n")
    assert dataset_fingerprint(moved, "") != dataset_fingerprint(spec, "")


def test_its_settings_stand_before_a_presets_and_some_are_for_small_models(tmp_path: Path) -> None:
    task = read_own_task(put(tmp_path, {"finetune": {"lr": 1e-4}, "small": {"lr": 1e-2, "epochs": 7, "ngrams": 3}}))
    overrides = {"finetune": {"epochs": 2, "batch_size": 8}}
    for name, epochs, ngrams in (("demo", 7, 3), ("best", 7, 3), ("paper", 2, None), ("imported", 2, None)):
        config = task.settings(preset_named(name, overrides))
        assert (config.lr, config.epochs, config.batch_size, config.ngrams) == (1e-4, epochs, 8, ngrams)
    with pytest.raises(InputError, match=r"small\.epochs = 0: expected more than 0"):
        read_own_task(put(tmp_path, {"small": {"epochs": 0}}))
    grades = {"labels": None, "score_range": [0, 5], "metrics": None}
    with pytest.raises(
        InputError, match=r"class_weights = 'balanced': found the task .*, expected a task each of whose rows has one"
    ):
        read_own_task(put(tmp_path, {**grades, "small": {"class_weights": "balanced"}}))


BROKEN: dict[str, tuple[dict[str, Any], str]] = expected(__file__, "BROKEN")


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_file_is_one_line_with_the_field(tmp_path: Path, case: str) -> None:
    changes, message = BROKEN[case]
    file = put(tmp_path, changes) if case != "no rows" else put_without_rows(tmp_path, changes)
    with pytest.raises(InputError, match=message) as caught:
        read_own_task(file)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_metrics_that_an_error_names_fit_the_labels(tmp_path: Path) -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": n % 2} for n in range(4)]
    for changes, named in (
        ({"score_range": [0, 1]}, r"pearson, spearman, which a graded score can have"),
        ({}, "accuracy, f1, matthews, macro_f1, which 2 labels can have"),
    ):
        with pytest.raises(InputError, match=rf"metrics = \['bleu'\], expected some of {named}$"):
            read_own_task(put(tmp_path, {**changes, "metrics": ["bleu"]}, rows))


def put_without_rows(folder: Path, changes: dict[str, Any]) -> str:
    put(folder)
    (folder / "task.toml").write_text(toml({**BASE, **changes}), encoding="utf-8")
    return str(folder / "task.toml")


def test_one_label_is_none(tmp_path: Path) -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": "x"}] * 3
    with pytest.raises(InputError, match=r"labels: found 1 \(\['x'\]\), expected 2 to 1000"):
        read_own_task(put(tmp_path, rows=rows))


@pytest.mark.parametrize("text", ["name = ", "\xff\xfe", "[" * 3000], ids=["no value", "no UTF-8", "deep"])
def test_what_is_no_toml_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "task.toml").write_bytes(text.encode("latin-1"))
    for reader in (read_own_task, own_task_name):
        with pytest.raises(InputError, match=r"task\.toml.*: found no TOML \("):
            reader(str(tmp_path / "task.toml"))
    with pytest.raises(InputError, match=r"gone\.toml: found nothing there, expected a task's file"):
        read_own_task(str(tmp_path / "gone.toml"))
