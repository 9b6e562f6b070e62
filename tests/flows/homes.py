"""Homes that backups are made of: a state folder, a store, a file of a run, and work that goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tasks.store.artifact import Recipe
from tasks.store.store import Store


def began(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own, which need not be there."""
    monkeypatch.setenv("GPTMILL_HOME", str(folder / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder / "home"


def filled(home: Path, *names: str) -> Store:
    """A home's store, which gets an artifact of each name, and its database a note."""
    store = Store(str(home.parent / "store"))
    for name in names:
        store.build(Recipe("corpus", 1, {"name": name}), lambda at, name=name: (at / "books").write_text(name) and {})
    file = home / "mlflow-artifacts" / "r1" / "artifacts" / "card.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"card of {names[-1]}")
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS notes (text)")
        database.executemany("INSERT INTO notes VALUES (?)", [(name,) for name in names])
    work = store.scratch / ".work" / "pretrain" / ("0" * 64) / "checkpoints" / "step-1"
    work.mkdir(parents=True, exist_ok=True)
    (work / "state").write_text("half-way")
    return store


def notes(home: Path) -> list[str]:
    """What the database says."""
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        return [text for (text,) in database.execute("SELECT text FROM notes")]


def contents(store: Store) -> list[str]:
    """What the artifacts hold."""
    return sorted(store.read(artifact, "books").decode() for artifact in store.list("corpus"))
