"""What may go of a store and what stays, marked and swept on a local store and on one behind fsspec."""

from __future__ import annotations

import multiprocessing
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest

from gptcore.base.errors import InputError
from tasks.store import garbage, presence
from tasks.store.artifact import Artifact, Recipe
from tasks.store.garbage import Plan, Referred, Rules, inventory, plan, sweep
from tasks.store.locks import exclusive_now, lock_file
from tasks.store.manifest import MANIFEST
from tasks.store.store import Store
from tasks.tracking.registry import referred, register
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import ABSTRACTS, LEADERBOARD, PRETRAIN, SWEEPS
from tests.tasks.stores import forget, verify
from tests.tasks.test_registry import entry

RULES = Rules(measures=("score",), tracked=("model",), worlds="world", young=timedelta(0))
STAGES = ("world", "corpus", "words", "model", "tuned", "score")
LATER = timedelta(days=1)


def make(store: Store, stage: str, name: str = "", counts: dict[str, Any] | None = None, **inputs: Any) -> Artifact:
    def produce(out: Path) -> dict[str, Any]:
        (out / "folder").mkdir()
        (out / "folder" / "file").write_text(f"{stage} {name}", encoding="utf-8")
        return counts or {}

    return store.build(Recipe(stage, 1, {"name": name}, inputs), produce).artifact


def planned(store: Store, *named: Artifact, heard: Any = None, rules: Rules = RULES, at: timedelta = LATER) -> Plan:
    """The plan where ``named`` are in rows of a tracker that has heard of everything, or of ``heard``."""
    items = inventory(store, STAGES)
    known = {item.digest for item in items} if heard is None else {artifact.digest for artifact in heard}
    with presence.noted(store.scratch) as leased:
        referred = Referred({artifact.digest: "rows" for artifact in named}, known)
        return plan(items, referred, leased, rules, datetime.now(UTC) + at)


def gone(found: Plan) -> list[tuple[str, str]]:
    return [(item.kind, item.stage) for item in found.dropped]


def collect(store: Store, *named: Artifact) -> list[tuple[str, str]]:
    found = planned(store, *named)
    return [(item.kind, item.stage) for item in sweep(store, found.dropped, inventory(store, STAGES))]


def test_a_kept_model_keeps_what_it_was_made_from_and_nothing_else(store: Store) -> None:
    books, others = make(store, "corpus", "books"), make(store, "corpus", "others")
    words = make(store, "words", corpus=books)
    checkpoint = make(store, "model", "kept", corpus=books, words=words)
    tuned = make(store, "tuned", checkpoint=checkpoint, data="ab" * 32)
    unloved = make(store, "model", "unloved", corpus=others)
    scores = [make(store, "score", model=model) for model in (tuned, unloved)]
    forget()
    local = store.url.startswith("/")
    kinds = ["artifact"] if local else ["artifact", "copy"]
    expected = [(kind, stage) for stage in ("score", "model", "corpus") for kind in kinds]
    assert sorted(collect(store, tuned)) == sorted(expected)
    for artifact in (books, words, checkpoint, tuned, scores[0]):
        verify(store, artifact)
    for artifact in (others, unloved, scores[1]):
        assert store.find(artifact.stage, artifact.digest) is None
    assert gone(planned(store, tuned)) == []


def test_dependents_go_before_what_they_were_made_from(store: Store) -> None:
    corpus = make(store, "corpus")
    make(store, "model", corpus=corpus)
    forget()
    found = planned(store)
    assert [stage for kind, stage in gone(found) if kind == "artifact"] == ["model", "corpus"]
    swept = sweep(store, found.dropped, inventory(store, STAGES))
    assert {next(swept).stage for kind, stage in gone(found) if stage == "model"} == {"model"}
    swept.close()  # type: ignore[attr-defined]  # a generator
    assert [item.stage for item in inventory(store, STAGES) if item.kind == "artifact"] == ["corpus"]


def test_a_manifest_goes_first_of_copies_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, "model")
    forget()
    removed: list[str] = []
    monkeypatch.setattr(garbage, "remove", lambda fs, path: removed.append(path))
    gone = list(sweep(store, planned(store).dropped, inventory(store, STAGES)))
    assert removed == [path for item in gone for path in (f"{item.path}/{MANIFEST}", item.path)]
    assert {item.kind for item in gone} == ({"artifact"} if store.url.startswith("/") else {"artifact", "copy"})


def test_an_interrupted_deletion_leaves_nothing_that_is_trusted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = make(store, "model")
    forget()
    fs, _ = fsspec.core.url_to_fs(store.url)
    remove = type(fs).rm

    def breaks(self: Any, path: str, *args: Any, **kwargs: Any) -> None:
        if not str(path).endswith(MANIFEST):
            raise OSError("the wire was cut")
        remove(self, path, *args, **kwargs)

    found = [item for item in planned(store).dropped if item.kind == "artifact"]
    items = inventory(store, STAGES)
    monkeypatch.setattr(type(fs), "rm", breaks)
    with pytest.raises(OSError, match="the wire"):
        list(sweep(store, found, items))
    monkeypatch.setattr(type(fs), "rm", remove)
    assert store.find("model", artifact.digest) is None
    assert ("remains", "model") in gone(planned(store))
    again = make(store, "model")
    verify(store, again)


def test_the_young_the_unheard_of_and_the_unreadable_stay(store: Store) -> None:
    corpus = make(store, "corpus")
    theirs = make(store, "model", "theirs", corpus=corpus)
    forget()
    young = replace(RULES, young=timedelta(hours=6))
    assert gone(planned(store, rules=young, at=timedelta(hours=5))) == []
    assert gone(planned(store, heard=[corpus])) == []
    assert {reason for _, reason in planned(store, heard=[corpus]).kept} == {"no run here"}
    every = replace(RULES, unknown=True)
    assert ("artifact", "model") in gone(planned(store, heard=[], rules=every))
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.pipe_file(f"{base}/model/{theirs.digest}/{MANIFEST}", b"\xff{")
    found = planned(store)
    reasons = {item.name: (reason, item.problem[:10]) for item, reason in found.kept if item.kind == "artifact"}
    assert reasons[f"model/{theirs.digest}"] == ("unreadable", "unreadable")
    assert reasons[f"corpus/{corpus.digest}"] == ("behind unreadable", "")
    assert [item for item in found.dropped if item.kind == "artifact"] == []


def test_generated_data_stays_with_what_was_made_from_it(store: Store) -> None:
    make(store, "world", "old")
    world = make(store, "world", "new")
    corpus = make(store, "corpus", counts={"synthetic": True})
    forget()
    kept = [item.name for item, _ in planned(store, corpus).kept if item.kind == "artifact"]
    assert sorted(kept) == sorted([f"corpus/{corpus.digest}", f"world/{world.digest}"])
    assert len([stage for kind, stage in gone(planned(store)) if (kind, stage) == ("artifact", "world")]) == 2


def test_unfinished_work_stays_while_it_is_young_and_keeps_what_it_reads(store: Store, tmp_path: Path) -> None:
    corpus = make(store, "corpus")
    recipe = Recipe("model", 1, {}, {"corpus": corpus})

    def dies(workspace: Path) -> dict[str, Any]:
        (workspace / "checkpoint").write_text("hours of work", encoding="utf-8")
        store.sync_partial(recipe, workspace)
        raise RuntimeError("the host is gone")

    with pytest.raises(RuntimeError, match="gone"):
        store.build(recipe, dies)
    forget()
    young = replace(RULES, young=timedelta(hours=6))
    assert gone(planned(store, rules=young, at=timedelta(hours=5))) == []
    found = planned(store, rules=young, at=timedelta(hours=7))
    kinds = {"unfinished"} if store.url.startswith("/") else {"unfinished", "mirror"}
    assert {kind for kind, stage in gone(found) if stage == "model"} == kinds
    assert ("artifact", "corpus") in gone(found)
    named = Referred({recipe.digest: "rows"}, [corpus.digest])
    assert plan(inventory(store, STAGES), named, [], young, datetime.now(UTC) + LATER).dropped == []
    early = planned(store, rules=young, at=timedelta(hours=5))
    assert {(item.kind, reason) for item, reason in early.kept if item.kind != "copy"} == {
        *((kind, "young") for kind in kinds),
        ("artifact", "unfinished work"),
    }
    if "mirror" in kinds:
        alone = [item for item in inventory(store, STAGES) if item.kind != "unfinished"]
        assert plan(alone, named, [], young, datetime.now(UTC) + LATER).dropped == []
    list(sweep(store, found.dropped, inventory(store, STAGES)))
    assert inventory_or_nothing(store) == []


def test_files_of_an_attempt_that_no_manifest_names_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    store = Store(f"memory://attempts-{uuid.uuid4().hex}")
    artifact = make(store, "model")
    forget()
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.pipe_file(f"{base}/model/{artifact.digest}/files-0123/weights", b"of a host that was second")
    fs.pipe_file(f"{base}/model/{'0' * 64}/files-4567/weights", b"of a host that is gone")
    fs.pipe_file(f"{base}/model/notes.txt", b"somebody's own")
    fs.pipe_file(f"{base}/Letters/{'0' * 64}/mine", b"somebody's own")
    with exclusive_now(lock_file(store.scratch, "model", "0" * 64)) as free:  # as another host that is still writing
        assert free
        assert [item.digest for item in planned(store, artifact).dropped] == [artifact.digest]
    assert collect(store, artifact) == [("remains", "model")] * 2
    verify(store, artifact)
    assert fs.exists(f"{base}/model/notes.txt")
    assert fs.exists(f"{base}/Letters/{'0' * 64}/mine")


def test_an_artifacts_size_is_that_of_its_files_and_its_manifest(store: Store) -> None:
    artifact = make(store, "model")
    forget()
    fs, base = fsspec.core.url_to_fs(store.url)
    found = fs.find(f"{base}/model/{artifact.digest}", detail=True)
    assert len(found) == 2
    (item,) = (item for item in inventory(store, STAGES) if item.kind == "artifact")
    assert item.size == sum(entry["size"] for entry in found.values())
    assert item.size > len("model ")


def test_what_a_record_names_stays_without_its_manifest(store: Store) -> None:
    other, corpus = make(store, "corpus", "other"), make(store, "corpus")
    checkpoint = make(store, "model", corpus=corpus)
    tuned = make(store, "tuned", checkpoint=checkpoint)
    unloved = make(store, "tuned", "unloved", checkpoint=checkpoint)
    forget()
    fs, base = fsspec.core.url_to_fs(store.url)

    def lose(artifact: Artifact) -> None:
        fs.rm(f"{base}/{artifact.stage}/{artifact.digest}/{MANIFEST}")

    lose(unloved)
    lose(tuned)
    found = planned(store, tuned)
    assert {item.digest for item in found.dropped} == {unloved.digest}, "also this host's copy of the other stays"
    kept = {item.name: (reason, item.problem) for item, reason in found.kept if item.kind != "copy"}
    assert kept[f"tuned/{tuned.digest}"] == ("rows", f"found no {MANIFEST}, expected one: needed by rows")
    assert {kept[name][0] for name in kept if name != f"tuned/{tuned.digest}"} == {"behind unreadable"}
    lose(checkpoint)  # nobody names it, but a measurement that stays was made from it
    score = make(store, "score", model=store.artifact("model", checkpoint.digest))
    forget()
    names = {item.name for item, _ in planned(store, score).kept}
    assert {f"model/{checkpoint.digest}", f"corpus/{corpus.digest}", f"corpus/{other.digest}"} <= names


def test_folders_that_are_not_ours_are_neither_taken_nor_walked_through(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = make(store, "novelty", corpus=make(store, "corpus"))  # of a stage that only a later version knows
    forget()
    fs, base = fsspec.core.url_to_fs(store.url)
    for number, (name, data) in enumerate({"layer.tar": b"x", MANIFEST: b"{}", f"sub/{MANIFEST}": b"{}"}.items()):
        path = f"{base}/layers/{number}{'a' * 63}/{name}"
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(path, data)
    walked: list[str] = []
    find = type(fs).find
    monkeypatch.setattr(type(fs), "find", lambda self, path, **kw: walked.append(path) or find(self, path, **kw))
    items = [item for item in inventory(store, STAGES) if item.kind != "copy"]
    assert sorted((item.kind, item.stage) for item in items) == [("artifact", "corpus"), ("artifact", "novelty")]
    assert all(item.reads for item in items if item.digest == newer.digest)
    assert [path for path in walked if path in (f"{base}/layers", f"{base}/novelty")] == []


def _works_with(url: str, home: str, digest: str, ready: Any, end: Any) -> None:
    import os

    os.environ["GPTMILL_HOME"] = home
    store = Store(url)
    corpus = store.artifact("corpus", digest)
    store.build(Recipe("tuned", 1, {}, {"corpus": corpus}), lambda out: {})
    ready.set()
    end.wait(60)


def test_what_a_living_process_works_with_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "store")
    corpus, other = make(store, "corpus"), make(store, "corpus", "other")
    forget()
    before = planned(store)
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    process = context.Process(
        target=_works_with, args=(store.url, str(tmp_path / "home"), corpus.digest, ready, end), daemon=True
    )
    process.start()
    assert ready.wait(60)
    assert [item.digest for item in planned(store).dropped] == [other.digest]
    assert [item.digest for item in sweep(store, before.dropped, inventory(store, STAGES))] == [other.digest]
    end.set()
    process.join(60)
    assert {stage for _, stage in gone(planned(store))} == {"corpus", "tuned"}


def test_a_build_under_way_stays(store: Store) -> None:
    corpus = make(store, "corpus")
    found = {}

    def looks(workspace: Path) -> dict[str, Any]:
        (workspace / "half").write_text("x", encoding="utf-8")
        forget()  # also where nobody knows of this process: the build's lock says it
        found["during"] = planned(store)
        return {}

    store.build(Recipe("model", 1, {}, {"corpus": corpus}), looks)
    assert gone(found["during"]) == []
    assert {reason for item, reason in found["during"].kept if item.kind != "copy"} == {"in use now"}


def test_a_place_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found nothing there, expected a store"):
        inventory(Store(tmp_path / "nowhere"), STAGES)


def inventory_or_nothing(store: Store) -> list[Any]:
    try:
        return inventory(store, STAGES)
    except InputError:
        return []


# --- what MLflow refers to: rows and their fine-tunes, analyses, runs under way, aliases; and what it has heard of


_digests = (f"{number:064x}" for number in count(0xFEED << 200))


def test_rows_their_fine_tunes_and_analyses_keep_what_they_mention(shared_tracker: Tracker) -> None:
    names = ("checkpoint", "tuned", "data", "lost", "its fine-tune", "analysed", "pretrained", "adapted")
    names = (*names, "swept", "trial", "under way", "elsewhere")
    digest = {name: next(_digests) for name in names}

    def done(experiment: str, name: str, settings: dict, tags: dict, parent: Run | None = None) -> Run:
        parent_id = parent.run_id if parent else None
        with shared_tracker.open(experiment, name, f"{digest[name]}/x", tags, settings, parent=parent_id) as run:
            return run

    kept = done(LEADERBOARD, "checkpoint", {"models": {"one": digest["checkpoint"]}}, {"kind": "ours"})
    done(LEADERBOARD, "tuned", {}, {"model": f"s3://x/finetune/{digest['tuned']}", "d": digest["data"]}, kept)
    gone = done(LEADERBOARD, "lost", {}, {})
    child = done(LEADERBOARD, "its fine-tune", {}, {}, gone)
    assert child.run_id != gone.run_id
    shared_tracker.client.delete_run(gone.run_id)
    done(SWEEPS, "trial", {}, {}, done(SWEEPS, "swept", {}, {}))
    done("gptmill/analysis", "analysed", {}, {})
    done(PRETRAIN, "pretrained", {}, {})
    done(ABSTRACTS, "adapted", {}, {})
    done("somebody else's", "elsewhere", {}, {})
    with shared_tracker.open(PRETRAIN, "under way", digest["under way"], {}, {}):
        found = referred(shared_tracker)
    said = {name: found.named.get(value) for name, value in digest.items()}
    assert said == {
        **dict.fromkeys(("checkpoint", "tuned", "data"), "rows"),
        **{"analysed": "analyses", "swept": "sweeps", "under way": "runs under way"},
        **dict.fromkeys(("lost", "its fine-tune", "pretrained", "adapted", "trial", "elsewhere")),
    }
    assert [name for name, value in digest.items() if value not in found.heard] == ["elsewhere"]


def test_versions_with_an_alias_are_kept_and_the_others_known(shared_tracker: Tracker) -> None:
    digests = [next(_digests) for _ in range(3)]
    with shared_tracker.open("models", "a model", digests[0], {}, {}) as run:
        for number, digest in enumerate(digests):  # the last one is the newest, the first one the best
            artifact = Artifact("pretrain", digest, f"/store/pretrain/{digest}")
            register(run, replace(entry("referred", float(-number), number + 1), artifact=artifact))
    found = referred(shared_tracker)
    assert [found.named.get(digest) for digest in digests] == ["aliases", None, "aliases"]
    assert set(digests) <= set(found.heard)
