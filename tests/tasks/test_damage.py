"""Damage is noticed by whoever reads, looks up or verifies, told once, and made good."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.files import sha256_file
from tasks.store import state
from tasks.store.artifact import Recipe
from tasks.store.manifest import MANIFEST, CorruptArtifact, is_safe, problem_of
from tasks.store.store import Store
from tasks.store.verify import set_aside, verified
from tests.expected import expected
from tests.tasks.stores import files_of, never, overwrite, verify, writes

pytestmark = pytest.mark.usefixtures("own_home")


def recipe(**config: Any) -> Recipe:
    return Recipe("stage", 1, config)


def test_a_truncated_file_is_noticed_and_rebuilt(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    artifact = store.build(recipe(a=1), writes(x="whole")).artifact
    overwrite(store, artifact, "x", "wh")
    assert store.find(recipe(a=1)) is None
    assert "x has 2 bytes, expected 5" in caplog.text
    rebuilt = store.build(recipe(a=1), writes(x="whole"))
    assert not rebuilt.cached
    verify(store, rebuilt.artifact)
    assert files_of(store, rebuilt.artifact) == {"x": "whole"}


def test_changed_bytes_are_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    artifact = store.build(recipe(a=1), writes(x="whole")).artifact
    assert files_of(store, artifact) == {"x": "whole"}
    overwrite(store, artifact, "x", "WHOLE")
    with pytest.raises(CorruptArtifact, match=rf"{artifact.digest}: x has the SHA-256 .* delete this folder"):
        store.local(artifact)
    overwrite(store, artifact, "x", "whole")
    assert files_of(store, artifact) == {"x": "whole"}


def test_a_run_makes_again_what_has_other_bytes_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit, which leaves the size as it is; what is whole is not read again by the next run."""
    store, read = Store(tmp_path / "store"), []
    monkeypatch.setattr(state, "sha256_file", lambda path: read.append(Path(path).name) or sha256_file(path))
    artifact = store.build(recipe(a=1), writes(x="whole", y="y")).artifact
    long_ago = time.time() - 60
    for name in ("x", "y"):
        os.utime(Path(artifact.url, name), (long_ago, long_ago))
    monkeypatch.setattr(state, "_SETTLED", 0.0)
    for _ in range(3):
        assert store.build(recipe(a=1), never).cached
    assert sorted(read) == ["x", "y"]
    overwrite(store, artifact, "x", "whoLe")
    assert store.find(recipe(a=1)) is None
    again = store.build(recipe(a=1), writes(x="whole", y="y"))
    assert not again.cached
    assert files_of(store, again.artifact) == {"x": "whole", "y": "y"}
    assert caplog.text.count("is not used: x has the SHA-256 ") == 1


def test_a_manifest_in_which_a_number_was_changed_is_not_trusted(store: Store) -> None:
    artifact = store.build(recipe(a=1), writes(x="X")).artifact
    manifest = store.manifest(artifact)
    overwrite(store, artifact, MANIFEST, json.dumps({**manifest, "counts": {"files": 2}}))
    assert store.find(recipe(a=1)) is None
    former = {name: value for name, value in manifest.items() if name != "checksum"}
    overwrite(store, artifact, MANIFEST, json.dumps(former))
    assert store.find(recipe(a=1)) == artifact, "those of former versions state none"


def test_verify_reads_every_byte_and_sets_aside_what_is_damaged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Damage of the bytes alone is seen, too: a disk's fault changes no time, and S3's list has sizes alone."""
    good, flipped, gone, counts = (
        store.build(recipe(a=number), writes(x="X", m__y="Y")).artifact for number in range(4)
    )
    fs, base = fsspec.core.url_to_fs(store.url)
    overwrite(store, flipped, "m/y", "y")
    overwrite(store, counts, MANIFEST, json.dumps({**store.manifest(counts), "counts": {"files": 3}}))
    fs.rm("/".join(filter(None, (base, "stage", gone.digest, store.manifest(gone).get("root"), "x"))))
    problems = {item.digest: (item, problem) for item, problem in verified(store, ["stage"]) if problem}
    assert problems.keys() == {flipped.digest, gone.digest, counts.digest}
    assert problems[gone.digest][1] == "x is missing"
    assert problems[flipped.digest][1].startswith("m/y has the SHA-256 ")
    assert problems[counts.digest][1].startswith("its own content has the SHA-256 ")
    for number, artifact in enumerate((flipped, gone, counts), start=1):
        aside = set_aside(store, problems[artifact.digest][0])
        assert f"{store.url}/.damaged/stage/{artifact.digest}-" in aside
        assert fs.find(fsspec.core.url_to_fs(aside)[1])
        assert not fs.find(f"{base}/stage/{artifact.digest}")
        verify(store, store.build(recipe(a=number), writes(x="X", m__y="Y")).artifact)
    assert not any(problem for _, problem in verified(store, ["stage"]))
    assert store.find("stage", good.digest) == good
    assert not caplog.text, "nobody came upon the damage but who looked for it"


def test_verify_finds_what_should_be_an_artifact_and_is_none(store: Store) -> None:
    """A folder without its manifest, and what others were made from; what another store has is no loss of this one."""
    elsewhere = Store(f"memory://elsewhere-{uuid.uuid4().hex}").build(
        Recipe("corpus", 1, {"of": "another"}), writes(x="X")
    )
    bare, gone = (store.build(Recipe("corpus", 1, {"a": number}), writes(x="X")).artifact for number in range(2))
    model = store.build(Recipe("model", 1, {}, {"one": gone, "two": elsewhere.artifact}), writes(y="Y")).artifact
    known = ["corpus", "model"]
    assert not any(problem for _, problem in verified(store, known))
    fs, base = fsspec.core.url_to_fs(store.url)
    fs.rm(f"{base}/corpus/{bare.digest}/{MANIFEST}")
    fs.rm(f"{base}/corpus/{gone.digest}", recursive=True)
    work = store.workspace(Recipe("corpus", 1, {"a": 3}))
    work.mkdir(parents=True)
    (work / "x").write_text("unfinished")
    fs.makedirs(f"{base}/layers/{'a' * 64}", exist_ok=True)
    fs.pipe_file(f"{base}/layers/{'a' * 64}/layer.tar", b"somebody else's")
    if store.url.startswith("memory"):  # another host's upload, which goes on or was cut off
        fs.pipe_file(f"{base}/corpus/{'b' * 64}/files-{'c' * 12}/x", b"X")
    found = {item.digest: (item, problem) for item, problem in verified(store, known) if problem}
    assert {digest: problem for digest, (_, problem) in found.items()} == {
        bare.digest: f"found no {MANIFEST}, expected one",
        gone.digest: f"gone, but model/{model.short} was made from it",
    }
    assert set_aside(store, found[gone.digest][0]) == ""
    assert f"/.damaged/corpus/{bare.digest}-" in set_aside(store, found[bare.digest][0])
    for number in range(2):
        store.build(Recipe("corpus", 1, {"a": number}), writes(x="X"))
    assert not any(problem for _, problem in verified(store, known))


def test_a_download_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"memory://download-{uuid.uuid4().hex}")
    fs, both = store._shelf._fs, threading.Barrier(2, timeout=30)  # type: ignore[attr-defined]  # of a remote one
    put = fs.put_file
    with monkeypatch.context() as patch:
        patch.setattr(fs, "put_file", lambda *paths: (both.wait(), put(*paths)))  # neither is sent before the other is
        artifact = store.build(recipe(a=1), writes(x="whole", y="y")).artifact
    empty = store.build(recipe(a=2), lambda out: {}).artifact
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "other host"))
    other = Store(store.url)
    assert files_of(other, artifact) == {"x": "whole", "y": "y"}
    overwrite(store, artifact, "x", "WHOLE")
    assert files_of(other, artifact)["x"] == "whole"  # its copy was good when it came
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "third host"))
    assert files_of(Store(store.url), empty) == {}
    with pytest.raises(CorruptArtifact, match="x has the SHA-256"):
        Store(store.url).local(artifact)


@pytest.mark.parametrize(("change", "words"), expected(__file__, "test_a_manifest_that_lies_is_not_trusted"))
def test_a_manifest_that_lies_is_not_trusted(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    artifact = store.build(recipe(a=1), writes(x="X")).artifact
    manifest = {**store.manifest(artifact), **change}
    assert words in str(problem_of(manifest, "stage", artifact.digest))
    overwrite(store, artifact, MANIFEST, json.dumps(manifest))
    assert store.find(recipe(a=1)) is None


@pytest.mark.parametrize("text", ["", "[]", '"text"', '{"stage":', "null"])
def test_a_manifest_that_is_none_is_not_trusted(store: Store, text: str) -> None:
    artifact = store.build(recipe(a=1), writes(x="X")).artifact
    overwrite(store, artifact, MANIFEST, text)
    assert store.find(recipe(a=1)) is None
    assert files_of(store, store.build(recipe(a=1), writes(x="again")).artifact) == {"x": "again"}


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "\\", "\0"]), min_size=1, max_size=5).map("/".join))
def test_only_paths_inside_are_safe(path: str) -> None:
    safe = is_safe(path)
    inside = os.path.normpath(f"/artifact/{path}") == f"/artifact/{path}" and "\\" not in path and "\0" not in path
    assert safe == inside
