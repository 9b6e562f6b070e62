"""Backups: what is in them, that a killed one is none, that damage is told, that old ones go."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.cli.main import main
from flows.upkeep.place import Backups
from tasks.store.state import note_store
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.flows.homes import began, contents, filled, notes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with an artifact in its store, a file of a run, and work that goes on."""
    monkeypatch.chdir(tmp_path)
    return began(tmp_path / "a", monkeypatch)


def refused(capsys: pytest.CaptureFixture[str], *command: str, code: int = 2) -> str:
    assert main(list(command)) == code
    return capsys.readouterr().err


def of_one(saved: Path) -> Path:
    """The folder of the only home that has backups in a place."""
    (folder,) = saved.iterdir()
    return folder


def test_a_backup_comes_back_elsewhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one", "two"), tmp_path / "saved"
    save = ("backup", "--to", str(saved), "--store", store.url)
    assert main([*save]) == 0
    assert (of_one(saved).stat().st_mode & 0o777, len(list(saved.rglob("manifest.json")))) == (0o700, 2)
    sent = {path: path.stat().st_mtime_ns for path in [*saved.glob("*/blobs/*/*"), *saved.glob("*/store/corpus/*/*")]}
    filled(home, "three")
    assert main([*save]) == 0
    assert all(path.stat().st_mtime_ns == when for path, when in sent.items())  # nothing is sent twice
    first, _ = sorted(path.stem for path in saved.glob("*/backups/*"))
    moved = began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(saved), "--store", str(moved.parent / "store"), "--at", first]) == 0
    assert notes(moved) == ["one", "two"]
    assert (moved / "mlflow-artifacts/r1/artifacts/card.md").read_text() == "card of two"
    there = Store(str(moved.parent / "store"))
    assert contents(there) == ["one", "two"]
    assert (there.scratch / ".work/pretrain" / ("0" * 64) / "checkpoints/step-1/state").read_text() == "half-way"
    error = refused(capsys, "restore", str(saved))
    assert f"{moved}/mlflow.db: is there already; restore into another GPTMILL_HOME, or move it away" in error
    home = began(tmp_path / "a", monkeypatch)
    assert main([*save, "--keep", "1"]) == 0
    assert first not in "".join(path.stem for path in saved.glob("*/backups/*"))
    moved = began(tmp_path / "c", monkeypatch)
    assert main(["restore", str(saved), "--store", str(moved.parent / "store")]) == 0
    assert (notes(moved), contents(Store(str(moved.parent / "store")))) == (notes(home), ["one", "three", "two"])


def test_a_database_that_is_written_to_is_saved_as_of_one_moment(home: Path, tmp_path: Path) -> None:
    """A writer adds rows in pairs, each pair in one transaction: no copy has half of one."""
    from tasks.store.sqlite import copy_database

    filled(home, "one")
    done = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(home / "mlflow.db", timeout=60)) as database:
            while not done.is_set():
                with database:
                    database.executemany("INSERT INTO notes VALUES (?)", [("pair" * 100,)] * 2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        counts = []
        for number in range(10):
            copy_database(home / "mlflow.db", tmp_path / f"copy{number}" / "mlflow.db")
            counts.append(len(notes(tmp_path / f"copy{number}")))
    finally:
        done.set()
        writer.join()
    assert all(count % 2 for count in counts)
    assert counts[-1] > counts[0]


def test_what_is_no_whole_backup_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one"), tmp_path / "saved"
    began(tmp_path / "b", monkeypatch)
    assert f"{saved}: found no backup, expected what `gptmill backup --to` has made" in refused(
        capsys, "restore", str(saved)
    )
    began(tmp_path / "a", monkeypatch)
    with monkeypatch.context() as patch:  # a kill before the list is written
        patch.setattr("flows.upkeep.place.Backups.seal", lambda *_: 1 / 0)
        assert "ZeroDivisionError" in refused(capsys, "backup", "--to", str(saved), "--store", store.url, code=1)
    moved = began(tmp_path / "b", monkeypatch)
    assert "found no backup" in refused(capsys, "restore", str(saved))
    began(tmp_path / "a", monkeypatch)
    assert main(["backup", "--to", str(saved), "--store", store.url]) == 0
    (about,) = saved.glob("*/backups/*")
    whole = json.loads(about.read_text())
    began(tmp_path / "b", monkeypatch)
    about.write_text(json.dumps({**whole, "format": 3, "versions": {"gptmill": "9.0.0"}}))
    error = refused(capsys, "restore", str(saved))
    assert "made by gptmill '9.0.0' (format 3), this is 0.2.0 (format 2)" in error
    about.write_text(json.dumps({**whole, "created": "later"}))
    assert f"{about}: is damaged: found other fields than its checksum is of" in refused(capsys, "restore", str(saved))
    about.write_text(json.dumps(whole))
    damaged = of_one(saved) / "blobs" / (blob := whole["databases"]["mlflow.db"]["sha256"])[:2] / blob
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    assert f"{blob}: has the SHA-256 " in refused(capsys, "restore", str(saved))
    assert not (moved / "mlflow.db").exists()
    assert not (moved / ".restoring").exists()


def test_a_damaged_artifact_does_not_keep_the_others_from_being_saved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one", "two"), tmp_path / "saved"
    path = next(Path(store.url).glob("corpus/*/books"))
    path.write_text({"one": "oen", "two": "tow"}[path.read_text()])
    error = refused(capsys, "backup", "--to", str(saved), "--store", store.url, code=1)
    assert "1 damaged artifacts are not in the backup" in error
    moved = began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(saved), "--store", str(moved.parent / "store")]) == 0
    assert len(contents(Store(str(moved.parent / "store")))) == 1


def test_an_address_with_artifacts_by_reference(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one"), tmp_path / "saved"
    assert main(["backup", "--to", str(saved), "--store", store.url, "--store-as", "reference"]) == 0
    assert not list(saved.rglob("manifest.json"))
    moved = began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(saved)]) == 0
    assert f"1 of 1 artifacts in {store.url}" in capsys.readouterr().out
    assert not list(moved.parent.rglob("manifest.json"))
    assert Tracker().uri == f"sqlite:///{moved}/mlflow.db"


def test_what_cannot_be_saved_replaces_no_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one"), tmp_path / "saved"
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.executemany("INSERT INTO notes VALUES (?)", [("words " * 100,)] * 200)
    left = home / ".backup-killed"
    left.mkdir()
    save = ("backup", "--to", str(saved), "--keep", "1", "--store")
    assert main([*save, store.url]) == 0
    assert not left.exists()
    capsys.readouterr()
    whole = sorted(saved.rglob("*"))
    assert "--store nosuch: found nothing there, expected a store" in refused(capsys, *save, "nosuch")
    (tmp_path / "file").touch()
    assert f"--to {tmp_path}/file: cannot be made" in refused(
        capsys, "backup", "--to", f"{tmp_path}/file", "--store", store.url
    )
    with (home / "mlflow.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 64)
    assert f"{home}/mlflow.db: " in refused(capsys, *save, store.url)
    began(tmp_path / "mistyped", monkeypatch)
    assert f"{tmp_path}/mistyped/home: found no database in it" in refused(capsys, *save, store.url)
    assert sorted(saved.rglob("*")) == whole


def test_a_file_that_was_changed_in_a_backup_is_sent_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its size says, and whether this machine has read it there before or not."""
    store, saved = filled(home, "one"), tmp_path / "saved"
    for _ in range(2):
        assert main(["backup", "--to", str(saved), "--store", store.url]) == 0
        (card,) = (path for path in saved.glob("*/blobs/*/*") if path.read_bytes() == b"card of one")
        card.write_text("card of two")
    moved = began(tmp_path / "b", monkeypatch)
    assert f"{card}: has the SHA-256 " in refused(capsys, "restore", str(saved))
    began(tmp_path / "a", monkeypatch)
    assert main(["backup", "--to", str(saved), "--store", store.url]) == 0
    moved = began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(saved), "--store", str(moved.parent / "store")]) == 0
    assert (moved / "mlflow-artifacts/r1/artifacts/card.md").read_text() == "card of one"


def test_what_is_damaged_in_a_backup_is_left_out_of_what_comes_back(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, saved = filled(home, "one", "two", "three"), tmp_path / "saved"
    assert main(["backup", "--to", str(saved), "--store", store.url]) == 0
    first, second, _ = sorted(saved.glob("*/store/corpus/*"))
    (first / "books").write_text("eno")
    shutil.rmtree(second)
    moved = began(tmp_path / "b", monkeypatch)
    capsys.readouterr()
    line = refused(capsys, "restore", str(saved), "--store", str(moved.parent / "store"), code=1)
    assert "2 artifacts are damaged in the backup, and were left out: " in line
    assert notes(moved) == ["one", "two", "three"]
    assert len(contents(Store(str(moved.parent / "store")))) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_a_restore_that_ended_at_any_step_goes_on(
    killed: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before each file that is fetched or moved, each artifact, the note of the store; the last one: after all of it.

    A kill cleans nothing up. What others have written to meanwhile is refused.
    """
    store, saved = filled(home, "one", "two"), tmp_path / "saved"
    (home / "prefect").mkdir()
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database, database:
        database.execute("CREATE TABLE runs (name)")
    assert main(["backup", "--to", str(saved), "--store", store.url]) == 0

    def restored(moved: Path, steps: int) -> int:
        """The exit code of a restore that comes as far as that."""
        left = iter(range(steps))

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object) -> object:
                if next(left, None) is None:
                    raise RuntimeError("ended here")
                return function(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name, found in {"Backups.get": Backups.get, "note_store": note_store, "print": print}.items():
                patch.setattr(f"flows.upkeep.restore.{name}", counted(found), raising=False)
            clean = (lambda *_, **__: None) if killed else shutil.rmtree
            files = SimpleNamespace(move=counted(shutil.move), rmtree=clean)
            patch.setattr("flows.upkeep.restore.shutil", files)
            patch.setattr("flows.upkeep.backup.Store.adopt", counted(Store.adopt))
            return main(["restore", str(saved), "--store", str(moved.parent / "store")])

    codes = list[int]()
    while not codes or codes[-1]:
        assert len(codes) < 50
        moved = began(tmp_path / f"b{len(codes)}", monkeypatch)
        codes.append(restored(moved, len(codes)))
        assert main(["restore", str(saved), "--store", str(moved.parent / "store")]) == 0, len(codes)
        assert (notes(moved), (moved / "prefect" / "prefect.db").exists()) == (["one", "two"], True)
        assert contents(Store(str(moved.parent / "store"))) == ["one", "two"]
        assert not (moved / ".restoring").exists()
    assert len(codes) == 4 + 4 + 2 + 1 + 2 + 1  # fetched, moved, artifacts, the note, lines
    with closing(sqlite3.connect(moved / "prefect" / "prefect.db")) as database, database:
        database.execute("INSERT INTO runs VALUES ('new')")
    (moved / "mlflow.db").unlink()
    assert "prefect.db: is there already" in refused(capsys, "restore", str(saved))
