"""A form of rows of another package, told of by an entry point alone, goes the whole way: check, fine-tune, answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.test_kill import toml
from tests.flows.world import OVERRIDES, small_world
from tests.packages import install, naming, runner

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
