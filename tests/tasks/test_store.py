"""The store's promises: one name per recipe, nothing half-done ever found, damage noticed, races end well."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_file
from tasks.store import state
from tasks.store.artifact import Artifact, Recipe, canonical
from tasks.store.manifest import MANIFEST, CorruptArtifact
from tasks.store.store import Store
from tests.tasks.stores import files_of, never, verify, writes

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("own_home")


def recipe(**config: Any) -> Recipe:
    return Recipe("stage", 1, config)


# --- digests


def test_a_digest_does_not_depend_on_how_a_setting_was_typed() -> None:
    one = recipe(epochs=100, lr=1e-3, sizes=(1, 2), nested={"b": 0, "a": True})
    same = recipe(nested={"a": True, "b": -0.0}, sizes=[1.0, 2], lr=0.001, epochs=100.0)
    assert one.digest == same.digest


def test_the_digest_of_a_recipe_never_changes() -> None:
    """Written down from a first run: another value here means that every store in the world is recomputed."""
    whole = Recipe("stage", 3, {"lr": 2.5e-4, "tasks": ["mrpc"], "none": None}, {"a": "ab" * 32, "b": "é"})
    assert whole.digest == "ed5bcd88e9e3d9095f64b2e4508456029d564ba4dffc7d992d99cfd617e91acb"


@pytest.mark.parametrize(
    "other",
    [
        *(recipe(a=value) for value in (True, "1", None, [1])),
        recipe(b=1),
        Recipe("stage", 2, {"a": 1}),
        Recipe("other", 1, {"a": 1}),
        Recipe("stage", 1, {"a": 1}, {"x": "0"}),
    ],
)
def test_different_recipes_have_different_digests(other: Recipe) -> None:
    assert other.digest != recipe(a=1).digest


def test_inputs_count_by_digest_not_by_place() -> None:
    here, there = Artifact("corpus", "ab" * 32, "/here/corpus/x"), Artifact("corpus", "ab" * 32, "s3://there/corpus/x")
    digests = {Recipe("stage", 1, {}, {"corpus": item}).digest for item in (here, there, "ab" * 32)}
    assert len(digests) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_the_canonical_form_survives_json(value: Any) -> None:
    """A manifest's config, read back, must give the digest that it lies under."""
    form = canonical(value)
    assert canonical(json.loads(json.dumps(form))) == form
    assert form == value or isinstance(value, float)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "a.b[1]: found nan"),
        (float("inf"), "finite"),
        (Path("x"), "PosixPath"),
        ({1: 2}, "the key 1"),
        ("\ud800", "UTF-8"),
    ],
)
def test_a_config_that_json_cannot_name_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("[", r"\[").replace("]", r"\]")):
        _ = recipe(a={"b": [0, value]}).digest


# --- building and finding


def test_the_second_build_computes_nothing(store: Store) -> None:
    first = store.build(recipe(a=1), writes(x="X", sub__y="Y"))
    second = Store(store.url).build(recipe(a=1), never)
    assert (first.cached, second.cached) == (False, True)
    assert first.artifact == second.artifact == store.find(recipe(a=1))
    assert files_of(store, second.artifact) == {"x": "X", "sub/y": "Y"}
    manifest = store.manifest(first.artifact)
    assert manifest["counts"] == {"files": 2}
    assert manifest["config"] == {"a": 1}
    assert [file["path"] for file in manifest["files"]] == ["sub/y", "x"]
    verify(store, first.artifact)


def test_nothing_is_found_where_nothing_was_built(store: Store) -> None:
    assert store.find(recipe(a=1)) is None
    assert store.list("stage") == []
    with pytest.raises(InputError, match="found no complete artifact"):
        store.manifest(store.artifact("stage", recipe(a=1).digest))


def test_a_manifest_states_the_lineage(store: Store) -> None:
    parent = store.build(recipe(a=1), writes(x="X")).artifact
    child = store.build(Recipe("child", 1, {}, {"parent": parent, "files": "cd" * 32}), writes(z="Z"))
    assert child.manifest["inputs"] == {
        "parent": {"stage": "stage", "digest": parent.digest},
        "files": {"digest": "cd" * 32},
    }
    assert len(child.manifest["code"]["git"]) == 40


def test_names_with_a_dot_are_scratch_and_nan_is_null(store: Store) -> None:
    def produce(workspace: Path) -> dict[str, Any]:
        (workspace / ".lock").touch()
        (workspace / ".tmp").mkdir()
        (workspace / ".tmp" / "half").write_text("h")
        (workspace / "whole").write_text("w")
        return {"loss": float("nan"), "of": [1.5, float("inf")]}

    built = store.build(recipe(a=1), produce)
    assert files_of(store, built.artifact) == {"whole": "w"}
    assert built.manifest["counts"] == {"loss": None, "of": [1.5, None]}


def test_an_empty_artifact_is_an_artifact(store: Store) -> None:
    built = store.build(recipe(a=1), lambda workspace: {"score": 0.5})
    assert store.build(recipe(a=1), never).manifest["counts"] == {"score": 0.5}
    assert files_of(store, built.artifact) == {}


def test_a_symbolic_link_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("o")
    with pytest.raises(ValueError, match="symbolic link"):
        store.build(recipe(a=1), lambda workspace: (workspace / "x").symlink_to(tmp_path / "outside") or {})
    assert store.find(recipe(a=1)) is None


def test_bad_input_leaves_nothing_new_but_spares_older_work(store: Store) -> None:
    def refuses(workspace: Path) -> dict[str, Any]:
        (workspace / "half").write_text("h")
        raise InputError("bad row")

    with pytest.raises(InputError, match="bad row"):
        store.build(recipe(a=1), refuses)
    assert not store.workspace(recipe(a=1)).exists()
    store.workspace(recipe(a=1)).mkdir(parents=True)
    (store.workspace(recipe(a=1)) / "checkpoint").write_text("hours of work")
    with pytest.raises(InputError, match="bad row"):
        store.build(recipe(a=1), refuses)
    assert (store.workspace(recipe(a=1)) / "checkpoint").exists()


@pytest.mark.parametrize("damage", ["", "not json", '{"stage": "stage"}', "changed file"])
def test_a_run_killed_between_sealing_and_publishing_computes_nothing_again_unless_its_seal_is_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(store._shelf), "publish", lambda *_: (_ for _ in ()).throw(SystemExit(137)))
        with pytest.raises(SystemExit):
            store.build(recipe(a=1), writes(x="X"))
    assert store.find(recipe(a=1)) is None
    if damage:
        (store.workspace(recipe(a=1)) / ("x" if damage == "changed file" else MANIFEST)).write_text(damage)
    built = store.build(recipe(a=1), writes(x="again") if damage else never)
    assert files_of(store, built.artifact) == {"x": "again" if damage else "X"}


# --- people's words for artifacts


def test_resolve(store: Store, tmp_path: Path) -> None:
    old = store.build(recipe(a=1), writes(x="1")).artifact
    new = store.build(recipe(a=2), writes(x="2")).artifact
    assert store.list("stage") == [new, old]
    assert store.resolve("latest", "stage") == new
    assert store.resolve(old.short, "stage") == old
    assert store.resolve(old.digest.upper(), "stage") == old
    elsewhere = Store(tmp_path / "elsewhere")
    assert elsewhere.resolve(old.url, "stage") == old
    assert files_of(elsewhere, old) == {"x": "1"}


@pytest.mark.parametrize("ref", ["latest", "abc", "", "stage", "/nowhere", "/nowhere/stage/abc", "../x"])
def test_a_reference_to_nothing_is_bad_input(store: Store, ref: str) -> None:
    with pytest.raises(InputError, match="stage"):
        store.resolve(ref, "stage")


def test_an_ambiguous_reference_names_the_candidates(store: Store) -> None:
    digests = [store.build(recipe(a=number), writes(x="x")).artifact.digest for number in range(17)]
    first = next(digest for digest in digests if sum(other[0] == digest[0] for other in digests) > 1)[0]
    with pytest.raises(InputError, match="expected a longer digest"):
        store.resolve(first, "stage")


def test_odd_neighbours_do_not_disturb(store: Store) -> None:
    artifact = store.build(recipe(a=1), writes(x="X")).artifact
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.pipe_file(f"{base}/stage/.DS_Store", b"")
    fs.makedirs(f"{base}/stage/{'0' * 64}", exist_ok=True)
    assert store.list("stage") == [artifact]


def test_records_cross_processes(store: Store) -> None:
    artifact = store.build(recipe(a=1), writes(x="X")).artifact
    assert pickle.loads(pickle.dumps(store)).find(recipe(a=1)) == artifact
    with pytest.raises(InputError, match="64 hexadecimal"):
        store.artifact("stage", "../..")


def test_bad_addresses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url in (str(tmp_path / "file"), "nosuch://x", "local://x"):
        with pytest.raises(InputError, match="--store"):
            Store(url)
    with pytest.raises(InputError, match=r"--store .* cannot write"):
        Store(tmp_path / "file" / "below").build(recipe(a=1), writes(x="X"))
    assert Store(f"file://{tmp_path}/a/").url == str(tmp_path / "a")


# --- several builders


BUILDER = """
import os, sys, time
from pathlib import Path
from tasks.store.artifact import Recipe
from tasks.store.store import Store

def produce(workspace):
    log = Path(sys.argv[2])
    with open(log, "a") as file:
        file.write(f"start {os.getpid()}\\n")
    saved = workspace / "checkpoints" / "step"
    saved.parent.mkdir(exist_ok=True)
    step = int(saved.read_text()) if saved.exists() else 0
    while step < int(sys.argv[3]):
        step += 1
        (workspace / "big").write_bytes(os.urandom(1 << 16))
        (workspace / ".step").write_text(str(step))
        os.rename(workspace / ".step", saved)
        time.sleep(0.002)
    (workspace / "big").write_bytes(b"done" * 1000)
    return {"step": step}

built = Store(sys.argv[1]).build(Recipe("stage", 1, {"a": 1}), produce, ("checkpoints",))
print("cached" if built.cached else "built")
"""


def builder(store: Path, log: Path, steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(store), str(log), str(steps)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_processes_that_build_one_digest_at_once_all_end_well(tmp_path: Path) -> None:
    processes = [builder(tmp_path / "store", tmp_path / "log", 200) for _ in range(3)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
    assert said == ["built", "cached", "cached"]
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    verify(Store(tmp_path / "store"), Store(tmp_path / "store").resolve("latest", "stage"))


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_nothing_or_a_valid_artifact(tmp_path: Path) -> None:
    store, finished = Store(tmp_path / "store"), False
    for attempt in range(12):
        process = builder(tmp_path / "store", tmp_path / "log", 60)
        while process.poll() is None and not (tmp_path / "log").exists():
            time.sleep(0.005)
        time.sleep(0.02 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        if artifact := store.find(recipe(a=1)):
            verify(store, artifact)
            assert sorted(path.name for path in store.local(artifact).iterdir()) == ["big", MANIFEST]
            finished = True
        (tmp_path / "log").unlink(missing_ok=True)
    last = builder(tmp_path / "store", tmp_path / "log", 60)
    assert last.communicate(timeout=30)[0].strip() in ({"cached"} if finished else {"built", "cached"})
    verify(store, store.resolve("latest", "stage"))
    assert store.manifest(store.resolve("latest", "stage"))["counts"] == {"step": 60}


def test_threads_of_one_process_take_turns(store: Store) -> None:
    running, overlaps = [], []

    def produce(workspace: Path) -> dict[str, Any]:
        running.append(1)
        overlaps.append(len(running))
        time.sleep(0.1)
        running.pop()
        return {}

    with ThreadPoolExecutor(4) as pool:
        cached = list(pool.map(lambda _: store.build(recipe(a=1), produce).cached, range(4)))
    assert sorted(cached) == [False, True, True, True]
    assert overlaps == [1]


@pytest.mark.parametrize("refusal", [None, OSError(22, "precondition failed")], ids=["memory", "s3fs"])
def test_two_hosts_that_finish_at_once_agree_on_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError | None
) -> None:
    url = f"memory://race-{uuid.uuid4().hex}"
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "slow"))
    slow = Store(url)
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "fast"))
    fast = Store(url)

    def produce(workspace: Path) -> dict[str, Any]:
        fast.build(recipe(a=1), writes(x="fast"))  # the other host finishes while this one works
        (workspace / "x").write_text("slow")
        if refusal is not None:  # clients differ in how they say that the object is there already
            monkeypatch.setattr(slow._shelf._fs, "pipe_file", lambda *_, **__: (_ for _ in ()).throw(refusal))  # type: ignore[attr-defined]
        return {"host": "slow"}

    built = slow.build(recipe(a=1), produce)
    assert built.manifest == fast.manifest(built.artifact)
    assert files_of(slow, built.artifact) == files_of(fast, built.artifact) == {"x": "fast"}
    fs, base = fsspec.core.url_to_fs(built.artifact.url)
    assert len(fs.ls(base)) == 2  # one manifest, one folder: the loser took its files away again


# --- another host goes on


def test_another_host_goes_on_from_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"memory://mirror-{uuid.uuid4().hex}")

    def dies(workspace: Path) -> dict[str, Any]:
        (workspace / "step-1").mkdir(exist_ok=True)
        (workspace / "step-1" / "weights").write_text("one")
        (workspace / ".lock").touch()
        store.sync_partial(recipe(a=1), workspace)
        (workspace / "step-1" / "weights").unlink()
        (workspace / "step-2").write_text("two")
        store.sync_partial(recipe(a=1), workspace)
        raise RuntimeError("the host is gone")

    with pytest.raises(RuntimeError, match="gone"):
        store.build(recipe(a=1), dies)
    fs, base = fsspec.core.url_to_fs(f"{store.url}/.partial/stage/{recipe(a=1).digest}")
    assert len(fs.ls(f"{base}/blobs")) == 1  # what no index names any more is not kept
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "other host"))
    other = Store(store.url)
    built = other.build(recipe(a=1), lambda workspace: {"found": sorted(p.name for p in workspace.iterdir())})
    assert built.manifest["counts"] == {"found": ["step-2"]}
    assert not fs.exists(base)


@pytest.mark.parametrize("damage", ["bytes", "missing", "path", "index"])
def test_a_damaged_mirror_means_a_fresh_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    store = Store(f"memory://damaged-{uuid.uuid4().hex}")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a").write_text("a")
    store.sync_partial(recipe(a=1), workspace)
    fs, base = fsspec.core.url_to_fs(f"{store.url}/.partial/stage/{recipe(a=1).digest}")
    blob = fs.ls(f"{base}/blobs", detail=False)[0]
    if damage == "bytes":
        fs.pipe_file(blob, b"b")
    elif damage == "missing":
        fs.rm(blob)
    else:
        name = blob.rpartition("/")[2]
        fs.pipe_file(f"{base}/index.json", json.dumps({"../../a": name}).encode() if damage == "path" else b"{")
    built = store.build(recipe(a=1), lambda folder: {"found": [p.name for p in folder.iterdir()]})
    assert built.manifest["counts"] == {"found": []}


def test_a_mirror_that_cannot_be_reached_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(f"memory://unreachable-{uuid.uuid4().hex}")
    monkeypatch.setattr(store._shelf, "save_partial", lambda *_: (_ for _ in ()).throw(ConnectionError("no route")))
    store.sync_partial(recipe(a=1), tmp_path)
    assert "no route" in caplog.text


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("pipe_file", PermissionError("AccessDenied"), r"permission denied .AccessDenied"),
        ("cat_file", PermissionError("AccessDenied"), r"permission denied .AccessDenied"),
        ("pipe_file", FileNotFoundError("NoSuchBucket"), r"cannot be written .NoSuchBucket"),
    ],
)
def test_a_store_that_refuses_says_so_before_any_work(
    monkeypatch: pytest.MonkeyPatch, call: str, error: OSError, words: str
) -> None:
    store = Store(f"memory://readonly-{uuid.uuid4().hex}")
    monkeypatch.setattr(store._shelf._fs, call, lambda *_, **__: (_ for _ in ()).throw(error))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=words):
        store.build(recipe(a=1), never)


# --- parts of what is known ------------------------------------------------------------------------------------------


def test_one_file_is_read_without_the_others_and_checked(store: Store) -> None:
    artifact = store.build(recipe(a=1), writes(small="index", large="text")).artifact
    assert store.read(artifact, "small") == b"index"
    with pytest.raises(InputError, match="found no file other"):
        store.read(artifact, "other")
    path = store.local(artifact) / "small"
    path.write_text("xedni")
    if "://" in store.url:  # only this host's copy is damaged: it is fetched again
        assert store.read(artifact, "small") == b"index"
    else:
        with pytest.raises(CorruptArtifact, match="small has the SHA-256"):
            store.read(artifact, "small")


def test_a_file_is_hashed_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(path: str) -> str:
        read.append(path)
        return sha256_file(path)

    def known() -> str:
        with state.FileDigests() as memory:
            return memory.sha256(str(book))

    monkeypatch.setattr(state, "sha256_file", counting)
    book = tmp_path / "book.txt"
    book.write_text("one")
    assert known() == known() == sha256_file(book)
    assert len(read) == 2  # too young: it may change once more within the grain of the file system's clock
    monkeypatch.setattr(state, "_SETTLED", -1.0)
    assert known() == known() == known()
    assert len(read) == 3
    times = book.stat().st_mtime_ns
    book.write_text("two")
    os.utime(book, ns=(times, times))  # as long, and as old, as before
    assert known() == sha256_file(book)
    (memo,) = (tmp_path / "home" / "digests").iterdir()
    memo.write_text("broken")
    assert known() == sha256_file(book)
