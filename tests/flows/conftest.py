"""A small world and an empty store, shared by the tests of one module."""

from __future__ import annotations

import pytest

from tests.flows.world import small_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folders of (books, datasets)."""
    return small_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where this module's flows keep their artifacts."""
    return str(tmp_path_factory.mktemp("store"))
