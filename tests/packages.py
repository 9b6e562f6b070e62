"""Packages of somebody else that add a part to ours, and commands that are run where these are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def naming(*words: str) -> list[Path]:
    """The files of the product that name any of some words."""
    rooms = ("gptcore", "tasks", "flows", "infra")
    product = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".toml")]
    assert len(product) > 200
    named = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)
    return [path for path in product if named.search(path.read_text(encoding="utf-8"))]


def install(folder: Path, group: str, name: str, path: str) -> None:
    """What pip leaves of a package with an entry point, beside its code."""
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {path}\n", encoding="utf-8")


def runner(folder: Path, prefect_server: Path) -> Callable[..., str]:
    """Runs Python in a fresh home, with what is installed in ``folder / "site"``; gives all that it prints.

    :param prefect_server: a home whose Prefect database has its tables, as making these is tested elsewhere.
    """
    (folder / "home" / "prefect").mkdir(parents=True)
    shutil.copy(prefect_server, folder / "home" / "prefect" / "prefect.db")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    environment |= {"PYTHONPATH": f"{ROOT}:{folder / 'site'}", "GPTMILL_HOME": str(folder / "home")}

    def run(*command: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            input=given,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            check=False,
        )
        assert done.returncode == code, done.stderr[-2000:]
        return done.stdout + done.stderr

    return run
