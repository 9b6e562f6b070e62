"""A small world and an empty store, shared by the tests of one module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.flows.world import small_world


@pytest.fixture(scope="session")
def _generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a world that no test changes."""
    folder = tmp_path_factory.mktemp("generated")
    small_world(folder)
    return folder


@pytest.fixture(scope="module")
def world(_generated: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A module's own folders of (books, datasets)."""
    folder = shutil.copytree(_generated, tmp_path_factory.mktemp("worlds") / "world")
    return str(folder / "books"), str(folder / "datasets")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where this module's flows keep their artifacts."""
    return str(tmp_path_factory.mktemp("store"))
