"""Artifacts of another store, taken over: whole, the same digest, no younger, found by what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.artifact import Recipe
from tasks.store.lineage import own_tokenizer, tokenizer_of
from tasks.store.manifest import CorruptArtifact
from tasks.store.store import Store
from tests.tasks.stores import bucket, files_of, verify, writes

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(params=["local to local", "local to remote", "remote to local"])
def two_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Where it is, and where it is wanted."""
    there, _, here = request.param.partition(" to ")
    with bucket() as remote:
        kept = {"local": str(tmp_path / "there"), "remote": remote}[there]
        yield Store(kept), Store({"local": str(tmp_path / "here"), "remote": remote}[here])


def test_a_copy_is_the_same_artifact_and_as_old(two_stores: tuple[Store, Store]) -> None:
    there, here = two_stores
    corpus = there.build(Recipe("corpus", 1, {"n": 1}, {"files": "0" * 64}), writes(a="text")).artifact
    words = there.build(Recipe("tokenizer", 2, {"n": 3}, {"corpus": corpus}), writes(b="1", deep__c="2")).artifact
    young = here.build(Recipe("tokenizer", 1, {"own": True}), writes(d="4")).artifact
    copy = here.adopt(words)
    assert (copy.digest, copy.url) == (words.digest, f"{here.url}/tokenizer/{words.digest}")
    assert files_of(here, copy) == files_of(there, words) == {"b": "1", "deep/c": "2"}
    verify(here, copy)
    manifest, original = here.manifest(copy), there.manifest(words)
    assert {**manifest, "root": None} == {**original, "root": None}
    assert here.resolve("latest", "tokenizer") == young, "what was made here last"
    assert here.adopt(words) == copy
    assert not list(here.scratch.glob(".work/tokenizer/*"))


def test_what_is_made_of_a_foreign_model_finds_its_tokenizer(two_stores: tuple[Store, Store]) -> None:
    there, here = two_stores
    pinned = there.build(Recipe("tokenizer", 1, {"imported": True}, {"pieces": "1" * 64}), writes(b="1")).artifact
    shards = there.build(Recipe("shards", 1, {}, {"tokenizer": pinned}), writes(s="2")).artifact
    model = there.build(Recipe("pretrain", 1, {}, {"shards": shards}), writes(m="3")).artifact
    words = own_tokenizer(here, model)
    dataset = here.build(Recipe("dataset", 1, {}, {"tokenizer": words}), writes(d="4")).artifact
    tuned = here.build(Recipe("finetune", 1, {}, {"dataset": dataset, "checkpoint": model}), writes(f="5")).artifact
    assert tokenizer_of(here, tuned) == words
    assert own_tokenizer(here, tuned) == words
    assert not here.list("pretrain")


def test_a_damaged_original_is_not_taken_over(tmp_path: Path) -> None:
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    words = there.build(Recipe("tokenizer", 1, {}), writes(b="1")).artifact
    Path(words.url, "b").write_text("2")
    with pytest.raises(CorruptArtifact, match="b has the SHA-256"):
        here.adopt(words)
    assert not here.list("tokenizer")
