"""Tasks of real rows that the registry does not know, as `tests.trials.pages` fills them into the form."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from tests.realdata import real_data
from tests.trials.pages.real_tasks import REAL_TASKS, write_real_tasks


def test_three_formats_and_kinds_of_label_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_REAL_DATA", str(real_data()))
    files = write_real_tasks(tmp_path / "tasks")
    specs = {name: read_own_task(file, "").spec for name, file in files.items()}
    rows = {name: {s: list(iterate(spec, "", s)) for s in ("train", "dev")} for name, spec in specs.items()}
    assert {name: spec.format for name, spec in specs.items()} == {
        "wnli": "jsonl",
        "news-relations": "csv",
        "arxiv-years": "tsv",
    }
    assert (len(rows["wnli"]["train"]), len(rows["wnli"]["dev"])) == (635, 71)
    assert len(specs["news-relations"].labels) == 20
    assert (len(rows["news-relations"]["train"]), len(rows["news-relations"]["dev"])) == (1600, 400)
    years = {row.label for found in rows["arxiv-years"].values() for row in found}
    assert years <= {float(year) for year in range(1990, 2020)}
    assert any('"' in row.fields[0] for found in rows["arxiv-years"].values() for row in found), "quotes stay text"


def test_without_real_rows_it_says_what_it_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", str(tmp_path)):
        monkeypatch.setenv("GPTMILL_REAL_DATA", value)
        with pytest.raises(InputError, match=rf"GPTMILL_REAL_DATA: found no {REAL_TASKS['wnli']} there"):
            write_real_tasks(tmp_path / "tasks")
    assert not (tmp_path / "tasks").exists()
