"""A family of another package, told of by an entry point alone, goes the whole way: form, pre-training, leaderboard.

Its network, its objective and its inputs are in one file, and no file of the product knows of it: that is its cost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.test_kill import toml
from tests.flows.world import OVERRIDES, small_world
from tests.packages import install, naming, runner
from tests.toy_family.windowed import FAMILY


def test_a_family_with_its_own_objective_costs_no_file_of_the_product() -> None:
    """Its network, objective and inputs are its own, and no file of the product names them or the family."""
    parts = (FAMILY.config, FAMILY.network, FAMILY.objective, FAMILY.inputs)
    assert {part.partition(":")[0] for part in parts} == {"tests.toy_family.windowed"}
    assert naming("windowed", "toy_family") == []


@pytest.mark.timeout(300)
def test_a_family_from_outside_goes_the_whole_way(tmp_path: Path, prefect_server: Path) -> None:
    install(tmp_path / "site", "gptmill.families", "windowed", "tests.toy_family.windowed:FAMILY")
    run = runner(tmp_path, prefect_server)
    books, datasets = small_world(tmp_path / "world")
    settings = {**OVERRIDES, "model": {"n_ctx": 32, "n_embd": 16}}
    (tmp_path / "settings.toml").write_text(toml(settings), encoding="utf-8")
    form = "from flows.forms.parameters import PipelineParameters as form; print(form.model_json_schema())"
    assert (
        "'enum': ['gpt', 'albert', 'bert', 'distilbert', 'electra', 'ernie', 'gpt2', 'gptbert', 'tinybert', 'windowed']"
        in run("-c", form)
    )
    store = ("--store", str(tmp_path / "store"))
    chain = ("--family", "windowed", "--tasks", "mrpc,race", "--corpus", books, "--datasets", datasets, *store)
    board = run("-m", "flows.cli", "pipeline", *chain, "--config", str(tmp_path / "settings.toml"))
    assert "Windowed" in board
    scores = next(line for line in board.splitlines() if line.startswith("mrpc")).split()
    assert len(scores) == 7, "pre-trained, from scratch, both baselines and the paper"
    (model,) = (tmp_path / "store/pretrain").iterdir()
    manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["model"]["family"] == manifest["counts"]["family"] == "windowed"
    assert manifest["counts"]["validation/later_loss"] > 0, "of its own objective"
    assert "# Windowed, pre-trained" in (model / "model/README.md").read_text(encoding="utf-8")
    (tuned, *_) = (tmp_path / "store/finetune").iterdir()
    recorded = json.loads((tuned / "model/config.json").read_text(encoding="utf-8"))
    assert (recorded["model"]["family"], recorded["model"]["n_special"]) == ("windowed", 1)
    row = '{"text1": "a", "text2": "b"}'
    answer = run("-m", "flows.cli", "predict", "mrpc", "--model", "best", *store, given=row)
    assert '"label"' in answer
    refused = run("-m", "flows.cli", "generate", "--model", "latest", *store, "--prompt", "a", code=2)
    assert "expected one that generates text" in refused
