"""Parts of artifacts: what a reader fetches and compares, and what a training leaves out once it is done."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_file
from tasks.store import manifest as manifests
from tasks.store import store as stores
from tasks.store.artifact import Artifact, Recipe
from tasks.store.garbage import Item, inventory, sweep
from tasks.store.lineage import model_files, model_folder, snapshot_scores, snapshots
from tasks.store.manifest import MANIFEST, CorruptArtifact
from tasks.store.store import Store
from tests.expected import expected
from tests.tasks.stores import files_in, never, overwrite, verify, writes

pytestmark = pytest.mark.usefixtures("own_home")

FILES = expected(__file__, "FILES")
MODEL = ["model/config.json", "model/model.safetensors"]


def recipe(**config: Any) -> Recipe:
    return Recipe("pretrain", 1, config)


class Hosts:
    """Machines that share a remote store, each with copies of its own; what is fetched is noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.fetched = f"memory://parts-{uuid.uuid4().hex}", []
        self._folder, self._monkeypatch = folder, monkeypatch

    fetched: list[str]
    """Paths in the artifact, in order."""

    def host(self, name: str) -> Store:
        """The store as a fresh process of that machine sees it."""
        self._monkeypatch.setenv("GPTMILL_HOME", str(self._folder / name))
        store = Store(self.url)
        fs = store._shelf._fs  # type: ignore[attr-defined]  # of a remote one
        plain = type(fs).get_file

        def noted(remote: str, *arguments: Any, **options: Any) -> None:
            self.fetched.append(remote.partition("/files-")[2].partition("/")[2])
            plain(fs, remote, *arguments, **options)

        self._monkeypatch.setattr(fs, "get_file", noted)
        return store

    def taken(self) -> list[str]:
        """What was fetched since the last question."""
        found, self.fetched = sorted(self.fetched), []
        return found


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(tmp_path, monkeypatch)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are read for their SHA-256 from now on; what was read before counts, however young a file is."""
    read: list[Path] = []
    monkeypatch.setattr("tasks.store.state._SETTLED", -1.0)
    monkeypatch.setattr("tasks.store.state.sha256_file", lambda path: (read.append(Path(path)), sha256_file(path))[1])
    return read


@pytest.fixture
def trained(hosts: Hosts) -> Artifact:
    """What a host has made, of which others have nothing yet."""
    return hosts.host("trainer").build(recipe(), writes(**FILES)).artifact


# --- what is fetched and compared


def test_a_host_reads_its_copy_once_to_compare_it(
    hosts: Hosts, trained: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reads(monkeypatch)
    folder = model_folder(hosts.host("tuner"), trained, None)  # compares what arrives
    for again in [Path(name).name for name in MODEL], [], []:
        read.clear()
        model_folder(hosts.host("tuner"), trained, None)
        assert sorted(path.name for path in read) == again
    (folder / "config.json").write_bytes((folder / "config.json").read_bytes()[::-1])
    model_folder(hosts.host("tuner"), trained, None)
    assert folder / "config.json" in read, "it has been written to"


def test_a_host_that_fine_tunes_fetches_the_model_alone(hosts: Hosts, trained: Artifact) -> None:
    here = hosts.host("tuner")
    folder = model_folder(here, trained, None)
    assert hosts.taken() == MODEL
    assert files_in(folder) == {"model.safetensors": "final weights", "config.json": "{}"}
    assert files_in(folder.parent).keys() == set(MODEL)
    assert model_folder(hosts.host("tuner"), trained, None) == folder  # another process of that machine
    assert snapshots(here, trained) == [5, 20]
    assert snapshot_scores(here, trained, 5) == {"validation/perplexity": 9.5}
    assert hosts.taken() == []
    assert model_folder(here, trained, 20).name == "step-0000020"
    assert hosts.taken() == ["snapshots/step-0000020/model.safetensors"]
    with pytest.raises(InputError, match=r"after 7 updates, expected one of \[5, 20\]"):
        model_folder(here, trained, 7)


def test_who_uses_a_model_fetches_it_and_its_tokenizer(hosts: Hosts) -> None:
    trainer = hosts.host("trainer")
    words = trainer.build(Recipe("tokenizer", 1, {}), writes(**{"vocab.json": "{}"})).artifact
    artifact = trainer.build(Recipe("pretrain", 1, {}, {"tokenizer": words}), writes(**FILES)).artifact
    hosts.host("server")
    folder, tokenizer = model_files(artifact)
    assert hosts.taken() == [*MODEL, "vocab.json"]
    assert (files_in(folder)["config.json"], files_in(tokenizer)) == ("{}", {"vocab.json": "{}"})


def test_a_partial_copy_is_completed_later(hosts: Hosts, trained: Artifact) -> None:
    here = hosts.host("other")
    assert here.local(trained, "metrics.jsonl").read_text() == "curve"
    assert hosts.taken() == ["metrics.jsonl"]
    assert here.read(trained, "metrics.jsonl") == b"curve"
    assert here.read(trained, "model/config.json") == b"{}"  # not in the copy: read where it lies
    assert files_in(here.local(trained)) == FILES
    assert hosts.taken() == sorted(FILES.keys() - {"metrics.jsonl"})
    again = hosts.host("other")
    assert again.local(trained, "model") == here.local(trained) / "model"
    assert hosts.taken() == []


def test_a_part_that_no_file_lies_below_is_bad_input(store: Store) -> None:
    artifact = store.build(recipe(), writes(**FILES)).artifact
    for part in ("mod", "model/", "model/config.json/x", "..", "/etc", "snapshots/step-0000007"):
        with pytest.raises(InputError, match=rf"found no {part} in its manifest"):
            store.local(artifact, part)


def test_in_a_local_store_only_the_part_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Store(tmp_path / "store")
    artifact = here.build(recipe(), writes(**FILES)).artifact
    read = reads(monkeypatch)
    assert here.local(artifact, "model") == Path(artifact.url, "model")
    assert sorted(read) == [Path(artifact.url, name) for name in MODEL]
    here.local(artifact)
    assert sorted(read) == sorted(Path(artifact.url, name) for name in FILES)  # each file once
    here.local(artifact, "snapshots")
    assert len(read) == len(FILES)


# --- damage


def test_damage_in_the_part_is_noticed_and_elsewhere_is_not_fetched(hosts: Hosts) -> None:
    trainer = hosts.host("trainer")
    artifact = trainer.build(recipe(), writes(**FILES)).artifact
    overwrite(trainer, artifact, "metrics.jsonl", "CURVE")
    here = hosts.host("other")
    assert files_in(here.local(artifact, "model"))["config.json"] == "{}"
    with pytest.raises(CorruptArtifact, match=r"metrics\.jsonl has the SHA-256"):
        here.local(artifact, "metrics.jsonl")
    with pytest.raises(CorruptArtifact, match=r"metrics\.jsonl has the SHA-256"):
        here.local(artifact)
    assert files_in(here.local(artifact, "model").parent).keys() == set(MODEL)  # nothing unproved came in


def test_damage_in_a_local_store_is_noticed_in_the_part_alone(tmp_path: Path) -> None:
    here = Store(tmp_path / "store")
    artifact = here.build(recipe(), writes(**FILES)).artifact
    overwrite(here, artifact, "metrics.jsonl", "CURVE")
    assert here.local(artifact, "model").is_dir()
    with pytest.raises(CorruptArtifact, match=r"metrics\.jsonl has the SHA-256"):
        here.local(artifact)


@pytest.mark.parametrize("broken", ["fin", "FINAL WEIGHTS", None], ids=["shorter", "other bytes", "lost"])
def test_a_broken_file_of_a_copy_is_fetched_again_alone(hosts: Hosts, trained: Artifact, broken: str | None) -> None:
    here = hosts.host("other")
    weights = here.local(trained, "model") / "model.safetensors"
    hosts.taken()
    weights.unlink() if broken is None else weights.write_text(broken)
    assert here.local(trained, "model/config.json").read_text() == "{}"
    assert hosts.taken() == []
    assert files_in(here.local(trained, "model"))["model.safetensors"] == "final weights"
    assert hosts.taken() == ["model/model.safetensors"]


def test_a_copy_never_mixes_two_attempts(hosts: Hosts) -> None:
    """The artifact was deleted and made again, with other bytes, while a host had a part of the first one."""
    trainer = hosts.host("trainer")
    artifact = trainer.build(recipe(), writes(**FILES)).artifact
    hosts.host("other").local(artifact, "model")
    fs, base = fsspec.core.url_to_fs(artifact.url)
    fs.rm(base, recursive=True)
    second = {name: f"{text}, again" for name, text in FILES.items()}
    hosts.host("trainer").build(recipe(), writes(**second))
    here = hosts.host("other")
    assert here.local(artifact, "metrics.jsonl").read_text() == "curve, again"
    assert (here.local(artifact, "model") / "config.json").read_text() == "{}, again"
    assert files_in(here.local(artifact)) == second


def _fetches(url: str, stored: dict[str, bytes], artifact: Artifact, part: str, together: Any, found: Any) -> None:
    """In a process of its own: fetch a part, slowly, and say how many files came and what it then holds."""
    fs = fsspec.filesystem("memory")
    for path, data in stored.items():
        fs.pipe_file(path, data)
    plain, came = fs.get_file, []
    here = Store(url)
    fs.get_file = lambda *arguments, **_: (came.append(arguments), time.sleep(0.05), plain(*arguments))
    together.wait(60)
    path = here.local(artifact, part)
    found.put((part, len(came), files_in(path) if path.is_dir() else {"": path.read_text()}))


def test_processes_that_fetch_parts_at_once_all_end_well(hosts: Hosts) -> None:
    trainer = hosts.host("trainer")
    artifact = trainer.build(recipe(), writes(**FILES)).artifact
    fs, base = fsspec.core.url_to_fs(trainer.url)
    stored = {path: fs.cat_file(path) for path in fs.find(base)}
    hosts.host("other")
    parts = ["model", "", "model", "metrics.jsonl"]
    context = multiprocessing.get_context("spawn")
    found, together = context.Queue(), context.Barrier(len(parts))
    arguments = [(trainer.url, stored, artifact, part, together, found) for part in parts]
    processes = [context.Process(target=_fetches, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    got = [found.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert sum(came for _, came, _ in got) == len(FILES)  # each file once, whoever was first
    model = {name.removeprefix("model/"): text for name, text in FILES.items() if name in MODEL}
    seen = {part: files for part, _, files in got}
    assert seen == {"model": model, "": FILES, "metrics.jsonl": {"": "curve"}}


def test_a_partial_copy_is_listed_with_what_it_holds_and_goes_as_a_whole(hosts: Hosts, trained: Artifact) -> None:
    here = hosts.host("other")
    folder = here.local(trained, "model").parent
    (copy,) = _copies(here)
    assert copy.size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert list(sweep(here, [copy], [])) == [copy]
    assert not folder.exists()
    assert files_in(here.local(trained, "model").parent).keys() == set(MODEL)
    (folder / MANIFEST).unlink()  # as if the sweep had been killed behind it
    assert here.local(trained, "metrics.jsonl").read_text() == "curve"
    assert files_in(folder).keys() == {"metrics.jsonl"}


def _copies(here: Store) -> list[Item]:
    return [item for item in inventory(here, ("pretrain",)) if item.kind == "copy"]


# --- what only unfinished work needs

TRAINED = {"model/weights": "w", "checkpoints/step-1/optimizer": "o", "model/checkpoints": "a file of the model"}
LEFT = {name: text for name, text in TRAINED.items() if not name.startswith("checkpoints/")}
TRANSIENT = ("checkpoints",)


def test_a_finished_artifact_keeps_no_checkpoints(store: Store) -> None:
    built = store.build(recipe(), writes(**TRAINED, **{".scratch/x": "x", "empty/.y": "y"}), TRANSIENT)
    assert files_in(store.local(built.artifact)) == LEFT
    assert sorted(path.name for path in store.local(built.artifact).iterdir()) == [MANIFEST, "model"]
    verify(store, built.artifact)


def test_work_that_dies_before_its_end_goes_on_from_its_checkpoints(store: Store) -> None:
    def dies(workspace: Path) -> dict[str, Any]:
        writes(**TRAINED)(workspace)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        store.build(recipe(), dies, TRANSIENT)
    assert store.find(recipe()) is None
    found = store.build(recipe(), lambda workspace: {"found": files_in(workspace)}, TRANSIENT)
    assert found.manifest["counts"] == {"found": TRAINED}


def test_a_kill_while_the_result_is_hashed_spares_the_checkpoints(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(manifests, "write_json_atomic", lambda *_: (_ for _ in ()).throw(SystemExit(137)))
        with pytest.raises(SystemExit):
            store.build(recipe(), writes(**TRAINED), TRANSIENT)
    found = store.build(recipe(), lambda workspace: {"found": sorted(files_in(workspace))}, TRANSIENT)
    assert found.manifest["counts"] == {"found": sorted(TRAINED)}


def test_a_kill_behind_the_seal_computes_nothing_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything was dropped, or half-way; whoever comes next need not know which names are transient."""

    def half(workspace: Path, manifest: dict[str, Any]) -> None:
        shutil.rmtree(workspace / "checkpoints" / "step-1")
        raise SystemExit(137)

    for number, killed in enumerate((lambda *_: (_ for _ in ()).throw(SystemExit(137)), half)):
        with monkeypatch.context() as patched:
            patched.setattr(stores, "drop_unlisted", killed)
            with pytest.raises(SystemExit):
                store.build(recipe(number=number), writes(**TRAINED), TRANSIENT)
        assert (store.workspace(recipe(number=number)) / "checkpoints").is_dir()
        built = store.build(recipe(number=number), never)
        assert files_in(store.local(built.artifact)) == LEFT


def test_checkpoints_are_mirrored_while_the_work_goes_on_and_never_uploaded(hosts: Hosts) -> None:
    trainer = hosts.host("trainer")

    def mirrors(workspace: Path) -> dict[str, Any]:
        writes(**TRAINED)(workspace)
        trainer.sync_partial(recipe(), workspace)
        fs, base = fsspec.core.url_to_fs(f"{trainer.url}/.partial/pretrain/{recipe().digest}")
        return {"mirrored": sorted(json.loads(fs.cat_file(f"{base}/index.json")))}

    built = trainer.build(recipe(), mirrors, TRANSIENT)
    assert built.manifest["counts"] == {"mirrored": sorted(TRAINED)}
    fs, base = fsspec.core.url_to_fs(trainer.url)
    stored = [
        path.partition("/files-")[2].partition("/")[2] for path in fs.find(f"{base}/pretrain") if MANIFEST not in path
    ]
    assert sorted(stored) == sorted(LEFT)


def test_links_in_what_is_dropped_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")

    def produce(workspace: Path) -> dict[str, Any]:
        writes(**TRAINED)(workspace)
        (workspace / "checkpoints" / "latest").symlink_to(outside)
        (workspace / ".scratch").symlink_to(outside)
        return {}

    here = Store(tmp_path / "store")
    built = here.build(recipe(), produce, TRANSIENT)
    assert files_in(here.local(built.artifact)) == LEFT
    assert (outside / "precious").read_text() == "p"
