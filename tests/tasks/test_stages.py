"""Stages by their names: ours, those of papers beside the core, and those of other packages."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tasks.stages.table as table
from gptcore.base.errors import InputError
from gptcore.base.named import Named, named_part
from gptcore.config import preset_named
from tasks.stages.corpus import generate_world
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.stage import recipe_of
from tasks.store.artifact import Recipe
from tasks.store.store import Store
from tests.packages import install


def test_what_a_stage_names_is_there() -> None:
    for stage in table.STAGES.values():
        assert not stage.task or named_part(stage.task).name == stage.name
        assert not stage.job or find_spec(stage.job)


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


def test_a_network_has_the_sizes_that_its_mentions_count(tmp_path: Path) -> None:
    store, sizes = Store(str(tmp_path)), {"n_entities": 5, "n_embd_entities": 12, "n_names": 7, "n_name_pieces": 9}
    counts = {"n_vocab": 40, "tokenizer_digest": "t"}
    shards = store.build(Recipe("shards", 1, {}), lambda _: counts).artifact
    mentions = store.build(Recipe("mentions", 1, {}), lambda _: {**sizes, "splits": {}}).artifact
    preset = preset_named("demo", {"family": "ernie"})
    request = PretrainRequest(store, shards, preset.model, preset.pretrain, mentions=mentions)
    assert vars(request.network) == {**vars(preset.model), "n_vocab": 40, **sizes}
    with pytest.raises(InputError, match=r"expected a graph \(--graph\)"):
        PretrainRequest(store, shards, preset.model, preset.pretrain)
