"""Each paper's room can be taken out of a copy of the packages: what is left is imported, listed, and runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("flows", "tasks", "gptcore")
ROOMS = sorted({path.parent.name for layer in LAYERS for path in (ROOT / layer / "papers").glob("*/__init__.py")})

# The checkout is installed as editable, and what installs it so would find a room there that the copy lacks.
_COPY_ALONE = """\
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
"""
_LISTED = """\
import importlib
import pkgutil
import sys

import flows, gptcore, tasks
from flows.analyses import analyses
from flows.cli.main import parser
from flows.cli.options import read_commands
from flows.deployments.catalog import OFFERS
from gptcore.families import FAMILIES
from tasks.stages.table import STAGES

for package in (flows, gptcore, tasks):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".papers." not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for family in FAMILIES.values():
    for part in ("tokenizer", "config", "network", "inputs", "head"):
        family.part(part)
for command in read_commands():
    try:
        parser().parse_args([command.name, "--help"])
    except SystemExit:
        pass
print(len(OFFERS), len(analyses()), len(STAGES), file=sys.stderr)
"""


def copied_without(rooms: Collection[str], target: Path) -> dict[str, str]:
    """A copy of packages and tests without some rooms; the environment in which nothing but the copy is found."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        gone = set(rooms) if Path(folder).name == "papers" else set()
        return gone.union(name for name in names if name in ("__pycache__", "_build"))

    for package in (*LAYERS, "infra", "tests"):
        shutil.copytree(ROOT / package, target / package, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", target)
    (target / "sitecustomize.py").write_text(_COPY_ALONE, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(target)}


def run(words: list[str], where: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=where, env=environment, capture_output=True, text=True, check=False
    )


def test_the_rooms_are_those_that_the_layers_have() -> None:
    assert {
        "abstracts",
        "analyses",
        "auto",
        "electra",
        "gptbert",
        "graphs",
        "llama",
        "modernbert",
        "prompting",
        "roberta",
        "storyworld",
        "students",
        "sweep",
    } == set(ROOMS)


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_the_core_is_whole_without_a_room(room: str, tmp_path: Path) -> None:
    environment = copied_without([room], tmp_path)
    gone = run(
        ["-c", f"import importlib.util as u; print(u.find_spec('gptcore.papers.{room}'))"], tmp_path, environment
    )
    assert gone.stdout == "None\n", "the copy alone is looked at"
    done = run(["-c", _LISTED], tmp_path, environment)
    assert done.returncode == 0, done.stderr


SUITE = (
    "tests/flows/test_pipeline.py::test_a_first_run_fills_every_row",
    "tests/flows/test_pipeline.py::test_a_second_run_makes_nothing_and_says_the_same",
    "tests/flows/test_pipeline.py::test_one_task_alone_fills_the_row_of_its_suite",
    "tests/gptcore/test_parity.py",
    "tests/gptcore/test_losses.py",
)
"""What of the core's suite is run where no paper is: a pipeline from books to the leaderboard, networks and losses."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_core_works_without_any_paper_but_the_world_of_its_tests(tmp_path: Path) -> None:
    environment = copied_without([room for room in ROOMS if room != "storyworld"], tmp_path)
    done = run(["-m", "pytest", "-n0", "-m", "not slow", "-p", "no:cacheprovider", *SUITE], tmp_path, environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
