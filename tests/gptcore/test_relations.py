"""FewRel's files: what is read of them, and what is refused."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu import load_task
from tests.expected import expected
from tests.realdata import real_data

ROW: dict[str, Any] = {
    "tokens": ["Ann", "Low", ",", "a", "child", "of", "Bo", "."],
    "h": ["bo", "Q1", [[6], [7]]],
    "t": ["ann low", "Q2", [[0, 1]]],
}


def written(folder: Path, whole: Any) -> str:
    (folder / "FewRel").mkdir(exist_ok=True)
    (folder / "FewRel" / "val_wiki.json").write_text(json.dumps(whole))
    return str(folder)


def test_the_first_mentions_are_marked_and_relations_have_their_names(tmp_path: Path) -> None:
    url = written(tmp_path, {"P40": [ROW] * 6, "P26": [ROW]})
    rows = [*load_task("fewrel", url, "train"), *load_task("fewrel", url, "dev")]
    assert {row.fields for row in rows} == {("tail Ann Low tail , a child of head Bo head .",)}
    assert sorted(row.label for row in rows if row.label is not None) == [10.0, *[14.0] * 6]  # spouse, child
    assert len({row.row for row in rows}) == 7


def test_rows_of_one_group_are_in_one_split(tmp_path: Path) -> None:
    url = written(tmp_path, {"P40": [{**ROW, "group": f"g{number // 5}"} for number in range(50)]})
    train, dev = ({row.group for row in load_task("fewrel", url, split)} for split in ("train", "dev"))
    assert len(train | dev) == 10
    assert dev
    assert not train & dev


@pytest.mark.parametrize(
    ("field", "value", "words"),
    expected(__file__, "test_a_broken_row_names_its_place"),
)
def test_a_broken_row_names_its_place(tmp_path: Path, field: str, value: Any, words: str) -> None:
    broken = {**copy.deepcopy(ROW), field: value}
    with pytest.raises(InputError, match=re.escape(words)) as error:
        load_task("fewrel", written(tmp_path, {"P26": [ROW, broken]}), "train")
    assert "val_wiki.json" in str(error.value)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"P999": [ROW]}, "found the relation 'P999', expected one of P177"),
        ({"P26": {}}, "relation P26: found {}, expected a list of rows"),
        ({"P26": [3]}, "relation P26, row 1: found 3, expected an object"),
        ([ROW], "expected an object with rows by their relation"),
    ],
)
def test_another_structure_is_refused(tmp_path: Path, whole: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        load_task("fewrel", written(tmp_path, whole), "train")


def test_the_real_file_is_read_whole() -> None:
    folder = str(real_data("FewRel").parent)
    sizes = {split: len(load_task("fewrel", folder, split)) for split in ("train", "dev")}
    assert sizes == {"train": 9600, "dev": 1600}
