"""What people mistype, each as a process of its own: one line that says what to type instead, before anything heavy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.artifact import Recipe
from tasks.store.state import SERVED
from tasks.store.store import Store
from tests.expected import expected

ROOT = Path(__file__).parents[2]
WRONG = expected(__file__, "WRONG")
"""Case -> what is typed, and words of the one line that answers it."""
HEAVY = ("torch", "prefect", "mlflow", "pandas", "sklearn", "spacy", "transformers")
TASK = """
name = "films"
format = "csv"
form = "single"
fields = ["text"]
label = "label"
train = "{train}"
"""
HELD_OUT = "holdout = 0.25\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, tasks with one mistake each, books, and packages of the heavy names that end a process."""
    made = tmp_path_factory.mktemp("wrong")
    for name in HEAVY:
        package = made / "heavy" / f"{name}.py"
        package.parent.mkdir(exist_ok=True)
        package.write_text(f"raise SystemExit('{name} was imported')\n", encoding="utf-8")
    rows = "text,label\ngood film,pos\nbad film,neg\nfine film,pos\npoor film,neg\n"
    good = TASK.format(train="rows.csv")
    for name, text in {
        "rows.csv": rows,
        "empty.csv": "",
        "header.csv": "text,label\n",
        "films.toml": good + HELD_OUT,
        "empty.toml": TASK.format(train="empty.csv") + HELD_OUT,
        "header.toml": TASK.format(train="header.csv") + HELD_OUT,
        "misnamed.toml": good.replace('"text"', '"txet"') + HELD_OUT,
        "labels.toml": good + HELD_OUT + 'labels = ["pos", "nag"]\n',
        "neither.toml": good,
        "both.toml": good + HELD_OUT + 'dev = "rows.csv"\n',
        "file.toml": TASK.format(train="row.csv") + HELD_OUT,
        "books/a.txt": "A book.\n",
        "pairs.csv": "premise,hypothesys\nIt sat.,It stood.\n",
        "pairs.jsonl": '{"premise": "It sat."}\n',
        "python3.10": "#!/bin/sh\necho 3.10\n",
    }.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text, encoding="utf-8")
    (made / "python3.10").chmod(0o755)
    store = Store(made / "store")
    checkpoint = store.build(Recipe("pretrain", 1, {}, {}), lambda _: {}).artifact
    rte = Recipe("finetune", 1, {"task": "rte", "finetune": {"seed": 0}}, {"checkpoint": checkpoint})
    store.build(rte, lambda _: {"dev/score": 0.5})
    return made


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """One that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


@pytest.mark.parametrize("case", WRONG)
def test_one_line_says_what_to_type_instead(case: str, folder: Path, port: int, tmp_path: Path) -> None:
    typed, words = WRONG[case]
    elsewhere = {name: its for name, its in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", SERVED)}
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *(part.replace("{port}", str(port)) for part in typed)],
        cwd=folder,
        env={
            **elsewhere,
            "GPTMILL_HOME": str(tmp_path),
            "PYTHONPATH": f"{folder / 'heavy'}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",  # nor by the server that is begun beside the command
        },
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("model: "))  # which one was chosen
    assert line.startswith("gptmill: error: ")
    assert all(word.replace("{port}", str(port)) in line for word in words), line
    assert sorted(folder.rglob("*")) == before, "nothing is half-written"


@pytest.mark.parametrize(("python", "found"), [("python3.10", "3.10 (python3.10)"), ("python4", "none (python4)")])
def test_a_python_that_is_too_old_is_told_before_an_environment_is_made(folder: Path, python: str, found: str) -> None:
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "demo", f"PYTHON={python}", f"VENV={folder / 'none'}"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert f"Python 3.11 to 3.14 is needed, found {found}: make demo PYTHON=python3.1" in line
    assert done.returncode == 2
    assert not (folder / "none").exists()
