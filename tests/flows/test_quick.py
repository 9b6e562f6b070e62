"""What is wrong with a command is said before anything heavy is imported, and whoever only looks starts no server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.report.leaderboard import Cell, Row
from tasks.report.suites import kept_leaderboard
from tasks.tracking.tracker import Tracker

HEAVY = ("prefect", "torch", "mlflow", "pandas", "sklearn", "matplotlib", "spacy", "transformers")

_SCRIPT = """
import contextlib, io, json, sys
from flows.cli.main import main

answers = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    answers.append([code, said.getvalue(), [name for name in json.loads(sys.argv[1]) if name in sys.modules]])
print(json.dumps(answers))
"""


def answers(commands: list[list[str]], home: Path) -> list[tuple[int, str, list[str]]]:
    """Exit code, what was printed and heavy modules imported so far, for each command in turn, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(HEAVY)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GPTMILL_HOME": str(home)},
    )
    return [(code, said, heavy) for code, said, heavy in json.loads(done.stdout)]


def test_bad_usage_of_any_command_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "not.toml").write_text("= no toml", encoding="utf-8")
    (tmp_path / "unknown.toml").write_text("[finetune]\nrate = 1\n", encoding="utf-8")
    nowhere = str(tmp_path / "nowhere")
    cases = {
        "unknown preset": ["pipeline", "--preset", "huge"],
        "unknown task": ["analysis", "table5", "--tasks", "sst3"],
        "negative": ["pipeline", "--seeds", "-1"],
        "no TOML": ["finetune-all", "--config", str(tmp_path / "not.toml")],
        "unknown setting": ["pipeline", "--config", str(tmp_path / "unknown.toml")],
        "no sweep": ["sweep", str(tmp_path / "not.toml")],
        "no corpus": ["pipeline", "--corpus", nowhere],
        "no datasets": ["pipeline", "--datasets", str(tmp_path / "empty")],
        "no shards": ["pretrain", "--store", nowhere],
        "no store": ["finetune", "rte", "--store", nowhere],
        "task of finetune": ["finetune", "rta"],
        "task of evaluate": ["evaluate", "rta", "--model", "best"],
        "no model": ["evaluate", "rte", "--model", "best", "--store", nowhere],
        "zero-shot task": ["zero-shot", "--tasks", "rte"],
        "zero-shot rows": ["zero-shot", "--max-rows", "-1"],
        "no checkpoint": ["zero-shot", "--store", nowhere],
        "task of predict": ["predict", "rta", "--model", "best"],
        "predict without a model": ["predict", "rte", "--model", "best", "--store", nowhere],
        "perplexity without a model": ["perplexity", "--model", "feed", "--store", nowhere],
        "generate out of range": ["generate", "--model", "latest", "--prompt", "x", "--top-k", "-1"],
        "generate without a model": ["generate", "--model", "latest", "--prompt", "x", "--store", nowhere],
        "submission without a checkpoint": ["submission", "--store", nowhere, "--out", f"{nowhere}.zip"],
        "export to what is there": ["export", "--model", "latest", "--out", str(tmp_path / "empty")],
        "unknown format": ["leaderboard", "--format", "yaml"],
        "no port": ["up", "--prefect-port", "-1"],
        "no tokenizer": ["encode", "--tokenizer", nowhere],
    }
    for case, (code, said, heavy) in zip(cases, answers(list(cases.values()), tmp_path), strict=True):
        assert code == 2, (case, said)
        assert "error: " in said, case
        assert "Traceback" not in said, case
        assert heavy == [], case
    assert not Path(nowhere).exists()


def test_help_imports_nothing(tmp_path: Path) -> None:
    commands = [["--help"], *([name, "--help"] for name in ("pipeline", "finetune", "leaderboard", "generate"))]
    assert all(code == 0 and heavy == [] for code, _, heavy in answers(commands, tmp_path))


def test_a_leaderboard_that_was_read_before_needs_no_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(b"the database as it was")
    row = Row("mine 123456", "ours", "dev", {"rte": 61.25}, {"rte": Cell("dev", 1, 61.25, 61.25, 2.0)}, suite="1")
    monkeypatch.setattr("tasks.report.suites.read_rows", lambda _: [row])
    monkeypatch.setattr("tasks.report.suites.leaderboard_line", lambda _: "MLflow: its page")
    kept_leaderboard(Tracker())
    ((code, said, heavy),) = answers([["leaderboard"]], tmp_path)
    assert (code, heavy) == (0, [])
    assert "61.2±2.0" in said
    assert "MLflow: its page" in said


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"prefect_url": "http://127.0.0.1:1"}'])
def test_a_broken_record_of_the_stack_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(text, encoding="utf-8")
    ((code, said, _),) = answers([["status"]], tmp_path)
    assert code == 2
    assert "stack.json" in said
    assert said.count("\n") == 1
