"""A small world and an empty store, shared by the tests of one module."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptcore.papers.storyworld.web import archive
from tasks.store.store import Store
from tests.flows.world import small_world


@pytest.fixture
def environment() -> Iterator[None]:
    """What a server or a stack that is started here puts into the environment is taken out of it again."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


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


@pytest.fixture(scope="module")
def shelf(store: str) -> Store:
    """The store at ``store``, opened."""
    return Store(store)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of an arXiv Archive with sixty papers."""
    folder = tmp_path_factory.mktemp("arxiv")
    (folder / "sw.tsv").write_text(archive(3, 60), encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def deployed(prefect_server: None) -> None:
    """The deployment of trainings, as `gptmill deploy` makes it, is on the server."""
    from prefect.client.orchestration import get_client

    from flows.deployments.catalog import OFFERS
    from flows.servers.pools import INTERNAL, TRAINING

    (offer,) = (offer for offer in OFFERS if offer.internal)
    assert offer.tags == [INTERNAL, TRAINING]
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name(offer.flow.name)
        schema = offer.schema
        client.create_deployment(flow_id, offer.name, parameter_openapi_schema=schema, tags=offer.tags)
