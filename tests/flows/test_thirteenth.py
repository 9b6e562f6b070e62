"""A thirteenth, made-up dataset takes one registry entry: a copy of the sources that has it runs end to end."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.test_kill import toml
from tests.flows.world import OVERRIDES, small_world

ROOT = Path(__file__).resolve().parents[2]
ENTRY = """\
    TaskSpec(
        name="weather",
        folder="Weather",
        format="jsonl",
        form="pair",
        splits={"train": (Source("train.jsonl", 60),), "dev": (Source("dev.jsonl", 30),)},
        fields=("forecast", "claim"),
        label="verdict",
        labels=("false", "true"),
        metrics=("accuracy", "f1"),
        table=2,
        paper={"weather": None},
        note="made up",
    ),
"""


@pytest.mark.timeout(300)
def test_a_thirteenth_dataset_takes_one_entry(tmp_path: Path) -> None:
    assert ENTRY.count("\n") <= 25
    for package in ("gptcore", "tasks", "flows"):
        shutil.copytree(ROOT / package, tmp_path / "src" / package, ignore=shutil.ignore_patterns("__pycache__"))
    registry = tmp_path / "src/gptcore/nlu/registry.py"
    text = registry.read_text(encoding="utf-8")
    assert text.count("\n)\n\nREGISTRY") == 1
    registry.write_text(text.replace("\n)\n\nREGISTRY", f"\n{ENTRY})\n\nREGISTRY"), encoding="utf-8")

    books, datasets = small_world(tmp_path / "world")
    write_weather(Path(datasets) / "Weather")
    (tmp_path / "settings.toml").write_text("scratch = false\n" + toml(OVERRIDES), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    environment |= {"PYTHONPATH": str(tmp_path / "src"), "GPTMILL_HOME": str(tmp_path / "home")}

    def gptmill(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments],
            input=given,
            capture_output=True,
            text=True,
            cwd=tmp_path / "src",
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    store = ("--store", str(tmp_path / "store"))
    command = ("pipeline", "--tasks", "weather,rte", "--corpus", books, "--datasets", datasets, *store)
    board = gptmill(*command, "--config", str(tmp_path / "settings.toml")).splitlines()
    scores = next(line for line in board if line.startswith("weather")).split()
    assert scores[1] == "dev"
    assert len(scores) == 6, "a number of each of our rows, and none of the paper's"
    assert "rte, weather" in "\n".join(board), "the average counts it"
    answer = gptmill("predict", "weather", "--model", "best", *store, given='{"forecast": "rain", "claim": "wet"}\n')
    assert '"label"' in answer
    assert any(word in answer for word in ('"true"', '"false"'))


def write_weather(folder: Path) -> None:
    """Claims that follow from a forecast, or do not."""
    draws = random.Random(0)
    folder.mkdir()
    for split, rows in (("train", 60), ("dev", 30)):
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(rows):
                sky, claim = draws.choice(("rain", "sun")), draws.choice(("wet", "dry"))
                verdict = "true" if (sky, claim) in (("rain", "wet"), ("sun", "dry")) else "false"
                file.write(f'{{"forecast": "{sky} today", "claim": "it is {claim}", "verdict": "{verdict}"}}\n')
