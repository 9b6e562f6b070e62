"""The files at the root: what they say about paths, versions and Pythons is so."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import gptcore
from flows.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_PATH = re.compile(r"`((?:flows|tasks|gptcore|infra|tests|\.ci)/[\w./-]*)`")
_PLACEHOLDER = "NAME"


def test_the_paths_that_a_contributor_is_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = {*_PATH.findall(text), *re.findall(r"\]\(([\w./-]+)\)", text)}
    assert len(paths) > 30
    assert sorted(path for path in paths if _PLACEHOLDER not in path and not (ROOT / path).exists()) == []
    folders = {path.partition(_PLACEHOLDER)[0].rpartition("/")[0] for path in paths if _PLACEHOLDER in path}
    assert sorted(folder for folder in folders if not (ROOT / folder).is_dir()) == []


def test_one_version_stands_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    released = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == gptcore.__version__
    assert released == sorted(released, key=lambda text: tuple(map(int, text.split("."))), reverse=True)
    assert "version" in PROJECT["dynamic"], "taken from gptcore"
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"gptmill {gptcore.__version__}\n")


def test_ci_runs_the_pythons_that_the_package_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["ci"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tested == {"python": named, "torch": ["cpu", "cuda"]}
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_githubs_schema_takes_the_workflow() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [*command, str(ROOT / ".github/workflows/ci.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_another_python_gets_no_environment_that_is_there_for_one(tmp_path: Path) -> None:
    fake = tmp_path / "venv" / "bin" / "python"
    fake.parent.mkdir(parents=True)
    fake.write_text("#!/bin/sh\necho 3.9\n", encoding="utf-8")
    fake.chmod(0o755)
    command = ["make", "--dry-run", "help", f"VENV={fake.parents[1]}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "venv holds Python 3.9, and" in done.stderr
    fake.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
