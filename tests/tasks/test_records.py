"""Look-ups in stores of many artifacts: how many requests they take, and what is kept of manifests between them."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from gptcore.base.errors import InputError
from tasks.store import records
from tasks.store import store as making
from tasks.store.artifact import Artifact, Recipe
from tasks.store.garbage import inventory, sweep
from tasks.store.manifest import MANIFEST
from tasks.store.references import best_models, fine_tuned_model, fine_tuned_tasks, pretrained_model
from tasks.store.store import Store
from tests.tasks.stores import forget

_CALLS = ("ls", "find", "cat_file", "pipe_file", "info", "exists")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    return Store(f"memory://records-{uuid.uuid4().hex}")


@pytest.fixture
def elsewhere(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as another host, with a home of its own, uses it."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "elsewhere"))
    return Store(store.url)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Counter[str]]:
    """What a call asks of the file system, by the kind of request."""
    counted: Counter[str] = Counter()
    fs = fsspec.get_filesystem_class("memory")
    inside = threading.local()  # folders are listed side by side

    def counting(name: str, patched: pytest.MonkeyPatch) -> None:
        plain = getattr(fs, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if outermost := not getattr(inside, "a_call", False):  # in memory one of them is made of others
                counted[name] += 1
                inside.a_call = True
            try:
                return plain(self, *args, **kwargs)
            finally:
                inside.a_call = not outermost

        patched.setattr(fs, name, call)

    def count(work: Callable[[], Any]) -> Counter[str]:
        counted.clear()
        with monkeypatch.context() as patched:
            for name in _CALLS:
                counting(name, patched)
            work()
        return +counted

    return count


def put(
    store: Store, stage: str, config: dict[str, Any], counts: dict[str, Any] | None = None, **inputs: Any
) -> Artifact:
    def produce(out: Path) -> dict[str, Any]:
        (out / "file").write_text("x", encoding="utf-8")
        return counts or {}

    return store.build(Recipe(stage, 1, config, inputs), produce).artifact


def tuned(store: Store, number: int, score: float, **inputs: Any) -> Artifact:
    config = {"task": "rte" if number % 2 else "cola", "seed": number}
    return put(store, "finetune", config, {"dev/score": score, "rows": {"dev": 9}}, **inputs)


@pytest.mark.parametrize("number", [2, 40])
def test_requests_of_a_look_up_do_not_grow_with_the_store(
    store: Store, requests: Any, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MANY", 30)
    rows = put(store, "dataset", {}, files="ab" * 32)
    model = put(store, "pretrain", {"model": {"n_layer": 1}})
    models = [tuned(store, one, one / 100, dataset=rows, checkpoint=model) for one in range(number)]
    looked_at = Counter({"cat_file": 1, "find": 1})  # an artifact: its manifest, the sizes of its files
    whole, start = models[0].digest, models[0].digest[:12]
    assert requests(lambda: store.resolve(whole, "finetune")) == looked_at
    assert requests(lambda: store.resolve(start, "finetune")) == looked_at + Counter({"ls": 1})
    assert fine_tuned_model(store, "best", "rte") == models[-1], "so all of them have been read by now"
    listed = Counter({"ls": 2})
    assert requests(lambda: store.resolve("latest", "finetune")) == listed + looked_at
    assert requests(lambda: fine_tuned_model(store, "latest", "cola")) == listed + looked_at
    best = listed + Counter({"cat_file": 3, "find": 3})  # the newest, its rows, the best
    assert requests(lambda: fine_tuned_model(store, "best", "rte")) == best
    assert requests(lambda: fine_tuned_tasks(store)) == listed + Counter({"cat_file": 2, "find": 2})
    assert requests(lambda: best_models(store, model, False)) == listed + Counter({"cat_file": 5, "find": 5})
    assert requests(lambda: pretrained_model(store, model.digest)) == looked_at
    assert fine_tuned_tasks(store) == {"rte", "cola"}


def test_an_artifact_of_another_stage_is_told_as_such(store: Store, requests: Any) -> None:
    rows = put(store, "dataset", {}, files="ab" * 32)
    for number in range(40):
        put(store, "pretrain", {"number": number})
        tuned(store, number, 0.5, dataset=rows)
    expected = "an artifact of the stage dataset, expected finetune$"

    def look_up(ref: str) -> None:
        with pytest.raises(InputError, match=f"^{ref}: {expected}"):
            store.resolve(ref, "finetune")

    listed, looked_at = Counter({"ls": 1}), Counter({"cat_file": 1, "find": 1})
    absent = Counter({"cat_file": 2})  # among the fine-tunes, which were asked for, and among the pre-trained models
    assert requests(lambda: look_up(rows.digest)) == listed + looked_at + absent
    assert requests(lambda: look_up(rows.short)) == listed + looked_at + Counter({"ls": 3})
    with pytest.raises(InputError, match=f"^{rows.short}: an artifact of the stage dataset, expected pretrain or"):
        raise store.missing(rows.short, "pretrain", "finetune")


def test_another_host_reads_a_new_manifest_alone(store: Store, elsewhere: Store, requests: Any) -> None:
    for number in range(5):
        tuned(store, number, 0.5)
    assert requests(lambda: elsewhere.records("finetune")) == Counter({"ls": 2, "cat_file": 5})
    newest = tuned(store, 6, 0.5)
    assert requests(lambda: elsewhere.records("finetune")) == Counter({"ls": 2, "cat_file": 1})
    assert elsewhere.resolve("latest", "finetune") == newest


def remade(store: Store, artifact: Artifact, seed: int) -> Artifact:
    fs, base = fsspec.core.url_to_fs(artifact.url)
    fs.rm(base, recursive=True)  # as the message about a damaged one says
    return tuned(store, seed, 0.9)


def test_what_was_deleted_and_made_again_is_read_again(store: Store, elsewhere: Store) -> None:
    first, second = tuned(store, 1, 0.1), tuned(store, 3, 0.2)
    assert [record.artifact for record in elsewhere.records("finetune")] == [second, first]
    assert remade(store, first, 1) == first
    assert [record.artifact for record in elsewhere.records("finetune")] == [first, second]
    assert elsewhere.records("finetune")[0].manifest["counts"]["dev/score"] == 0.9


def test_what_is_kept_is_no_proof_that_an_artifact_is_there(store: Store, elsewhere: Store) -> None:
    first, second, third = (tuned(store, number, 0.1) for number in (1, 3, 5))
    assert elsewhere.resolve("latest", "finetune") == third
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.rm(f"{base}/finetune/{third.digest}/{MANIFEST}")  # a deletion that was cut off
    fs.rm(f"{base}/finetune/{second.digest}", recursive=True)
    assert elsewhere.resolve("latest", "finetune") == first
    assert elsewhere.list("finetune") == [first]
    forget()
    assert {item.kind for item in sweep(store, inventory(store, ["finetune"]), [])} == {"artifact", "remains", "copy"}
    assert elsewhere.records("finetune") == []
    left = [path for path in fs.find(f"{base}/.manifests") if first.digest in path]
    assert left == [], "the mark goes with its artifact"


def test_a_file_of_what_was_kept_that_is_damaged_or_of_another_version_is_no_matter(
    store: Store, requests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tuned(store, 1, 0.1)
    store.records("finetune")
    (file,) = (store.scratch / ".manifests").iterdir()
    good = file.read_bytes()
    assert made.digest in json.loads(good)["manifests"]
    for bad in (b"", b"\xff{", b"[]", b'{"version": "0"}', good[:-20], good.replace(b'"version":"', b'"version":"9')):
        file.write_bytes(bad)
        assert requests(lambda: store.records("finetune")) == Counter({"ls": 2, "cat_file": 1})
        assert file.read_bytes() == good
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("no folder", encoding="utf-8")
    assert [record.artifact for record in store.records("finetune")] == [made]


def test_a_new_host_takes_what_another_has_packed(
    store: Store, elsewhere: Store, requests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MANY", 3)
    models = [tuned(store, number, 0.1) for number in range(6)]
    assert len(store.records("finetune")) == 6
    remade(store, models[0], 0)
    assert [record.artifact for record in elsewhere.records("finetune")] == [models[0], *reversed(models[1:])]
    fs, base = fsspec.core.url_to_fs(store.url)
    pack = f"{base}/.manifests/finetune.json.gz"
    for bad in (fs.cat_file(pack)[:-9], b"no gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\3damaged"):
        fs.pipe_file(pack, bad)
        (elsewhere.scratch / ".manifests" / "finetune.json").unlink()
        assert len(elsewhere.records("finetune")) == 6


@pytest.mark.parametrize(
    "spoilt",
    [
        {"counts": ["no object"]},
        {"config": {"task": "rte", "seed": 99}},
        {"stage": "pretrain"},
        {"digest": "f" * 64},
        {"root": "../../elsewhere"},
        {"created": 1},
        {"inputs": None},
    ],
)
def test_an_entry_of_a_pack_that_can_be_no_manifest_is_read_anew(
    store: Store, elsewhere: Store, spoilt: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write to the bucket may have packed it; the others of the same pack are believed."""
    monkeypatch.setattr(records, "_MANY", 3)
    models = [tuned(store, number, 0.1) for number in range(6)]
    right = {record.artifact: record.manifest for record in store.records("finetune")}
    fs, base = fsspec.core.url_to_fs(store.url)
    pack = f"{base}/.manifests/finetune.json.gz"
    packed = json.loads(gzip.decompress(fs.cat_file(pack)))
    packed["manifests"][models[1].digest][1] |= spoilt
    packed["manifests"][models[2].digest][1]["counts"] = {"dev/score": 0.9}
    fs.pipe_file(pack, gzip.compress(json.dumps(packed).encode()))
    found = {record.artifact: record.manifest for record in elsewhere.records("finetune")}
    assert found.keys() == right.keys()
    for part in ("counts", "config", "stage", "digest", "root", "created", "inputs"):
        assert found[models[1]][part] == right[models[1]][part]
    assert found[models[2]]["counts"] == {"dev/score": 0.9}, "a pack that is well formed is taken at its word"


@pytest.mark.parametrize(("number", "packed"), [(3, False), (4, True)])
def test_who_had_to_read_more_than_many_packs_them(
    number: int, packed: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MANY", 3)
    monkeypatch.setattr(records, "_ONE_IN", 1 << 62)
    models = [tuned(store, each, 0.1) for each in range(number)]
    assert len(store.records("finetune")) == len(models)
    fs, base = fsspec.core.url_to_fs(store.url)
    assert fs.exists(f"{base}/.manifests/finetune.json.gz") == packed
    assert records.published(fs, base, "finetune") == {model.digest for model in models}


def test_who_publishes_packs_for_hosts_that_come_new(
    store: Store, elsewhere: Store, requests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then; the pack may go at any time, and to write it may fail."""
    monkeypatch.setattr(records, "_MANY", 0)
    monkeypatch.setattr(records, "_ONE_IN", 1)
    fs, base = fsspec.core.url_to_fs(store.url)
    models = [tuned(store, number, 0.1) for number in range(6)]
    assert fs.exists(f"{base}/.manifests/finetune.json.gz")
    monkeypatch.setattr(records, "_ONE_IN", 1 << 62)
    models.append(tuned(store, 6, 0.1))
    assert requests(lambda: elsewhere.records("finetune"))["cat_file"] == 2, "the pack, and what it lacks"
    assert [record.artifact for record in elsewhere.records("finetune")] == [*reversed(models)]
    fs.rm(f"{base}/.manifests", recursive=True)
    monkeypatch.setattr(records, "_ONE_IN", 1)
    monkeypatch.setattr(records, "_to_pack", lambda *_: (_ for _ in ()).throw(RuntimeError("no route")))
    models.append(tuned(store, 7, 0.1))
    assert [record.artifact for record in store.records("finetune")] == [*reversed(models)]


def test_a_damaged_manifest_is_warned_of_once_in_every_process(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = tuned(store, 1, 0.1), tuned(store, 3, 0.1)
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.pipe_file(f"{base}/finetune/{bad.digest}/{MANIFEST}", b"{")
    for _ in range(2):
        making._warn_once.cache_clear()  # as in a process that starts
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert store.resolve("latest", "finetune") == good
        assert caplog.text.count(f"{bad.url} is not used: ") == 1
    with pytest.raises(InputError, match=rf"finetune 'ffff': found no such artifact in .*, which has {good.short}$"):
        store.resolve("ffff", "finetune")


@pytest.mark.parametrize("fails", [False, True])
def test_work_is_seen_by_other_hosts_as_long_as_it_lasts(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """However long that is: what it reads is as young for `gc` as the note that it goes on."""
    monkeypatch.setattr(making, "_REFRESH_SECONDS", 0.01)
    corpus = put(store, "corpus", {})
    recipe = Recipe("model", 1, {}, {"corpus": corpus})
    fs, base = fsspec.core.url_to_fs(store.url)
    note = f"{base}/.partial/model/{recipe.digest}/started"

    def mirror() -> Any:
        (found,) = (item for item in inventory(store, ["model", "corpus"]) if item.kind == "mirror")
        return found

    def works(out: Path) -> dict[str, Any]:
        first = mirror().changed
        if fails:
            with monkeypatch.context() as cut:
                cut.setattr(fs, "pipe_file", lambda *_, **__: (_ for _ in ()).throw(OSError("no route")))
                while "no route" not in caplog.text:
                    time.sleep(0.01)
        while mirror().changed == first:
            time.sleep(0.01)
        assert mirror().reads == (f"corpus/{corpus.digest}",)
        return {}

    store.build(recipe, works)
    assert not fs.exists(note), "and not any more once it is finished"
