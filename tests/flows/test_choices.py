"""The lists that forms offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.forms import choices
from gptcore.base.settings import recorded
from gptcore.config import ModelConfig
from tasks.store.artifact import Artifact, Recipe
from tasks.store.references import checkpoint_label
from tasks.store.store import Store


def pretrained(store: Store, seed: int) -> Artifact:
    config = {"seed": seed, "model": recorded(ModelConfig(n_layer=1))}
    return store.build(
        Recipe("pretrain", 1, config), lambda _: {"validation/perplexity": 2.5, "tokens_seen": 1_000}
    ).artifact


def test_the_newest_checkpoints_are_listed_and_incomplete_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    models = [pretrained(store, seed) for seed in range(4)]
    monkeypatch.setattr(choices, "_LISTED", 2)
    (Path(models[3].url) / "manifest.json").write_bytes(b"{")
    assert choices.checkpoints_of(store) == ["latest", *(checkpoint_label(store, models[seed]) for seed in (2, 1))]


def test_a_stores_checkpoints_are_read_once_for_all_of_its_deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, updated, reads = Store(tmp_path / "store"), [], []
    schema = {"definitions": {"Form": {"properties": {"checkpoint": {"type": "string"}}}}}

    def deployment(number: int, url: str) -> Any:
        form = {"parameters": {"store": url}}
        return SimpleNamespace(id=number, parameters=form, parameter_openapi_schema=schema)

    there = [*(deployment(number, store.url) for number in range(15)), deployment(15, "/another")]
    client = SimpleNamespace(
        read_deployments=lambda **_: there, update_deployment=lambda number, _: updated.append(number)
    )

    @contextmanager
    def connected(sync_client: bool) -> Iterator[Any]:
        yield client

    def read(found: Store) -> list[str]:
        reads.append(found.url)
        return ["latest"]

    monkeypatch.setattr(choices, "get_client", connected)
    monkeypatch.setattr(choices, "checkpoints_of", read)
    choices.list_checkpoints(store)
    assert (updated, reads) == (list(range(15)), [store.url])
    reads.clear()
    choices.list_checkpoints(Store(tmp_path / "unknown"))
    assert reads == [], "no form asks for it"
