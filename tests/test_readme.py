"""The README's table and pictures of the demo are of one run, of which `.readme/demo.json` keeps the numbers."""

from __future__ import annotations

import json
import re

import pytest

from tests.trials.pages.readme import BEGIN, END, FOLDER, PICTURES, ROOT, sha256, table_of, with_table

DEMO = json.loads((FOLDER / "demo.json").read_text(encoding="utf-8"))


def test_the_table_has_the_numbers_of_the_run_that_the_pictures_show() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition(BEGIN)[2].partition(END)[0]
    *heads, task_line = [line for line in table.partition("\n    mnli_m ")[0].splitlines() if line.strip()]
    assert task_line.split()[:2] == ["task", "rows"]
    digests = [word for word in task_line.split()[2:] if re.fullmatch(r"[0-9a-f]{6}", word)]
    (paper,) = (row for name, row in DEMO["rows"].items() if name.endswith("[published]"))
    by_digest = {name.rpartition(" ")[2]: row for name, row in DEMO["rows"].items() if row is not paper}
    assert sorted(digests) == sorted(by_digest), "the same suites and floors"
    shown = [by_digest[digest] for digest in digests] + [paper]
    found = {cells[0]: cells for line in table.splitlines() if (cells := line.replace("°", "").split())}
    assert set(found) >= set(paper["cells"])
    for column in paper["cells"]:
        assert found[column][2:] == [row["cells"][column] for row in shown], column
    assert found["average"][1:] == [row["average"] for row in shown]
    assert any("pre-trained" in line for line in heads)


def test_the_pictures_are_those_that_the_run_left() -> None:
    assert DEMO["pictures"] == {name: sha256(name) for name in PICTURES}


@pytest.mark.parametrize("page", ["README.md", "infra/docs/tutorials/first-hour.md"])
def test_pictures_of_another_run_than_the_table_say_so(page: str) -> None:
    in_the_table = sorted(row["suite"][:6] for row in DEMO["rows"].values() if row["suite"])
    text = (ROOT / page).read_text(encoding="utf-8")
    assert ("pictures are of an earlier run" in text) == (DEMO["pictured"] != in_the_table)


def test_the_table_is_cut_from_what_the_terminal_prints() -> None:
    readme = f"before\n{BEGIN}old\n{END}\nafter"
    printed = "task  rows  a\nrte   dev   1\n\naverage     2\nglue        3\nseeds       4\n\nnotes"
    new = with_table(readme, table_of(printed))
    assert new == f"before\n{BEGIN}    task  rows  a\n    rte   dev   1\n\n    average     2\n{END}\nafter"
