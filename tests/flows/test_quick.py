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
from tests.expected import expected

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
        env={**os.environ, "GPTMILL_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=home.parent,
    )
    return [(code, said, heavy) for code, said, heavy in json.loads(done.stdout)]


BAD = expected(__file__, "BAD")


def test_bad_usage_of_any_command_is_one_line_said_at_once(tmp_path: Path) -> None:
    for folder in ("empty", "books", "data/RTE"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in {
        "books/a.txt": "A book.\n" * 50,
        "file": "= no toml",
        "unknown.toml": "[finetune]\nrate = 1\n",
        "misspelt.toml": "[finetune]\nbatchsize = 1\n",
        "type.toml": '[finetune]\nepochs = "three"\n',
        "section.toml": "[fine]\ntune = 1\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    commands = [[part.format(tmp=tmp_path) for part in arguments] for arguments, _ in BAD.values()]
    for (case, (_, words)), (code, said, heavy) in zip(BAD.items(), answers(commands, tmp_path / "home"), strict=True):
        assert code == 2, (case, said)
        (line,) = (line for line in said.splitlines() if line.startswith("gptmill") and "error: " in line)
        assert words.format(tmp=tmp_path) in line, case
        assert "Traceback" not in said, case
        assert "overrides" not in line, "a user of the command line knows of no such thing"
        assert heavy == [], case
    left = [path for path in tmp_path.rglob("*") if path.is_file() and not {".locks", "home"} & {*path.parts}]
    assert sorted(left) == before, "nothing is half-written"
    assert not (tmp_path / "store").exists()


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
