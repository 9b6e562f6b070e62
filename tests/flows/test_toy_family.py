"""A family and a form of rows of other packages, told of by entry points alone, go the whole way.

Its network, its objective and its inputs are in one file, and no file of the product knows of it: that is its cost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gptcore.families import offered
from tests.flows.world import OVERRIDES, small_world
from tests.packages import install, naming, runner
from tests.toy_family.family import FAMILY
from tests.trials.scenarios import toml


def test_a_family_with_its_own_network_and_objective_costs_no_file_of_the_product() -> None:
    """The toy has a network, objective and inputs of its own, and no file of the product names them or the family."""
    parts = (FAMILY.config, FAMILY.network, FAMILY.objective, FAMILY.inputs)
    assert all(part.startswith("tests.toy_family.") for part in parts)
    assert naming("toyllama", "toy_family") == []


@pytest.mark.timeout(300)
def test_a_family_from_outside_goes_the_whole_way(tmp_path: Path, prefect_server: Path) -> None:
    install(tmp_path / "site", "gptmill.families", "toyllama", "tests.toy_family.family:FAMILY")
    run = runner(tmp_path, prefect_server)
    books, datasets = small_world(tmp_path / "world")
    (tmp_path / "settings.toml").write_text(toml(OVERRIDES), encoding="utf-8")
    form = (
        "import sys; from flows.forms.parameters import PipelineParameters as form; print(form.model_json_schema()); "
        "form(family='toyllama').check(); assert 'torch' not in sys.modules"
    )
    schema = run("-c", form)
    assert f"'enum': {[*offered(), 'toyllama']}" in schema
    assert "toyllama (the next token)" in schema
    store = ("--store", str(tmp_path / "store"))
    (tmp_path / "uneven.toml").write_text("[model]\nn_head_keys = 3\n", encoding="utf-8")
    chain = ("--family", "toyllama", "--tasks", "mrpc,race", "--corpus", books, "--datasets", datasets, *store)
    (line,) = run("-m", "flows.cli", "pipeline", *chain, "--config", "uneven.toml", code=2).splitlines()
    assert line == "gptmill: error: --config uneven.toml: model.n_head = 4 is not a multiple of model.n_head_keys = 3"
    board = run("-m", "flows.cli", "pipeline", *chain, "--config", str(tmp_path / "settings.toml"))
    assert "ToyLlama" in board
    scores = next(line for line in board.splitlines() if line.startswith("mrpc")).split()
    assert len(scores) == 6, "pre-trained, from scratch, the best floor and the paper"
    (model,) = (tmp_path / "store/pretrain").iterdir()
    manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["model"]["family"] == manifest["counts"]["family"] == "toyllama"
    assert manifest["config"]["model"]["n_head_keys"] == 1
    assert manifest["counts"]["validation/later_loss"] > 0, "of its own objective"
    assert "# ToyLlama, pre-trained" in (model / "model/README.md").read_text(encoding="utf-8")
    (tuned, *_) = (tmp_path / "store/finetune").iterdir()
    recorded = json.loads((tuned / "model/config.json").read_text(encoding="utf-8"))
    assert (recorded["model"]["family"], recorded["model"]["n_special"]) == ("toyllama", 1)
    row = '{"text1": "a", "text2": "b"}'
    answer = run("-m", "flows.cli", "predict", "mrpc", "--model", "best", *store, given=row)
    assert '"label"' in answer
    text = run("-m", "flows.cli", "generate", "--model", "latest", *store, "--prompt", "the", "--max-tokens", "5")
    assert text.startswith("the ")


# --- a form of rows of another package: check, fine-tune, answer


LEVELS = ("low", "middle", "high")


def write_task(folder: Path) -> None:
    for split in ("train", "dev"):
        rows = ({"remark": f"the water is {LEVELS[n % 3]} {n}", "level": LEVELS[n % 3]} for n in range(30))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "tides.toml").write_text(
        'name = "tides"\nformat = "jsonl"\nform = "levels"\nfields = ["remark"]\nlabel = "level"\n'
        'labels = ["low", "middle", "high"]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\n',
        encoding="utf-8",
    )


def test_a_form_costs_no_file_of_the_product() -> None:
    assert naming("toy_form", "ordinal regression") == []


@pytest.mark.timeout(300)
def test_a_form_from_outside_goes_the_whole_way(tmp_path: Path, prefect_server: Path) -> None:
    install(tmp_path / "site", "gptmill.forms", "levels", "tests.toy_form.levels:FORM")
    run = runner(tmp_path, prefect_server)
    write_task(tmp_path)
    checked = run("-m", "flows.cli", "datasets", "check", "tides.toml")
    assert "tides: levels, 3 labels, scored by accuracy" in checked
    assert "level = low" in checked
    books, datasets = small_world(tmp_path / "world")
    (tmp_path / "settings.toml").write_text(toml(OVERRIDES), encoding="utf-8")
    store = ("--store", str(tmp_path / "store"))
    chain = ("--tasks", "tides.toml", "--corpus", books, "--datasets", datasets, *store)
    board = run("-m", "flows.cli", "pipeline", *chain, "--config", str(tmp_path / "settings.toml"))
    assert any(line.startswith("tides") for line in board.splitlines())
    (tuned, *_) = (tmp_path / "store/finetune").iterdir()
    config = json.loads((tuned / "model/config.json").read_text(encoding="utf-8"))
    assert (config["head"]["form"], config["head"]["n_outputs"], config["spec"]["form"]) == ("levels", 2, "levels")
    predicted = json.loads((tuned / "predictions/dev.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert predicted["label"] == "low"
    assert predicted["prediction"] in LEVELS
    assert "tides" in run("-m", "flows.cli", "leaderboard")
    answer = run("-m", "flows.cli", "predict", "tides.toml", "--model", "best", *store, given='{"text": "low water"}')
    told = json.loads(next(line for line in answer.splitlines() if line.startswith("{")))
    assert told["level"] in LEVELS
    assert len(told["beyond"]) == 2
