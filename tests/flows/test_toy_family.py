"""A family of another package, told of by an entry point alone, goes the whole way: form, pre-training, leaderboard.

Its network, its objective and its inputs are in one file, and no file of the product knows of it: that is its cost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.test_kill import toml
from tests.flows.world import OVERRIDES, small_world
from tests.toy_family.windowed import FAMILY

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path) -> None:
    """What pip leaves of a package with an entry point, beside its code."""
    information = folder / "windowed-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: windowed\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(
        "[gptmill.families]\nwindowed = tests.toy_family.windowed:FAMILY\n", encoding="utf-8"
    )


def test_a_family_with_its_own_objective_costs_no_file_of_the_product() -> None:
    """Its network, objective and inputs are its own, and no file of the product names them or the family."""
    parts = (FAMILY.config, FAMILY.network, FAMILY.objective, FAMILY.inputs)
    assert {part.partition(":")[0] for part in parts} == {"tests.toy_family.windowed"}
    rooms = ("gptcore", "tasks", "flows", "infra")
    product = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".toml")]
    assert len(product) > 200
    named = re.compile(r"\b(windowed|toy_family)\b", re.IGNORECASE)
    assert [path for path in product if named.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.timeout(300)
def test_a_family_from_outside_goes_the_whole_way(tmp_path: Path, prefect_server: Path) -> None:
    install(tmp_path / "site")
    (tmp_path / "home" / "prefect").mkdir(parents=True)
    shutil.copy(prefect_server, tmp_path / "home" / "prefect" / "prefect.db")  # making its tables is tested elsewhere
    books, datasets = small_world(tmp_path / "world")
    settings = {**OVERRIDES, "model": {"n_ctx": 32, "n_embd": 16}}
    (tmp_path / "settings.toml").write_text(toml(settings), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    environment |= {"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}", "GPTMILL_HOME": str(tmp_path / "home")}

    def run(*command: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            input=given,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert done.returncode == code, done.stderr[-2000:]
        return done.stdout + done.stderr

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
