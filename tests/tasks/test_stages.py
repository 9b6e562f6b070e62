"""Stages by their names: ours, those of papers beside the core, and those of other packages."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tasks.stages.table as table
from gptcore.base.errors import InputError
from gptcore.base.named import Named
from tasks.stages.corpus import generate_world
from tasks.stages.stage import recipe_of
from tasks.store.store import Store
from tests.packages import install


def test_what_a_stage_names_is_there() -> None:
    for stage in table.STAGES.values():
        assert not stage.task or stage.part("task").name == stage.name
        assert not stage.job or find_spec(stage.job)
    with pytest.raises(InputError, match=r"^stage corpus: found no task, expected another stage$"):
        table.STAGES["corpus"].part("task")


def test_without_papers_the_core_has_its_stages_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(table.__file__).parent, tmp_path / "stages")
    monkeypatch.setattr(table, "__file__", str(tmp_path / "stages" / "table.py"))
    monkeypatch.setattr("tasks.stages.corpus.STAGES", found := Named(table.ENTRY_POINTS, table._ours))
    assert found.keys() < table.STAGES.keys()
    assert {"corpus", "pretrain", "finetune"} < found.keys()
    with pytest.raises(InputError, match="found no stage `storyworld`"):
        generate_world(Store(str(tmp_path)))


def test_another_package_brings_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_stage.py").write_text("from tasks.stages.table import Stage\nSTAGE = Stage('own', 7)\n")
    install(tmp_path, table.ENTRY_POINTS, "own", "own_stage:STAGE")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(table, "STAGES", Named(table.ENTRY_POINTS, table._ours))
    assert recipe_of("own", {}, {}).version == 7
