"""Places of backups: homes that share one, clocks that go wrong, lists of strangers, disks that take nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from flows.cli.main import main
from flows.upkeep.place import Backups, Listing, all_in
from gptcore.base.files import sha256_json
from tasks.store.store import Store
from tests.flows.homes import began, contents, filled, notes
from tests.tasks.stores import bucket, forget
from tests.trials.unwritable import disk

ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk, which root alone may do")


@contextmanager
def clock(days: int) -> Iterator[None]:
    """A block in which backups are named by a clock that is so many days ahead."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=days)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.upkeep.place.datetime", Wrong)
        yield


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder to which nothing can be written while a block lasts, by nobody."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def saved_of(home: Path, saved: Path, *options: str) -> int:
    return main(["backup", "--to", str(saved), "--store", f"{home.parent}/store", *options])


def restored(folder: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[list[str], list[str]]:
    """What a backup comes to on an empty machine: its notes, its artifacts."""
    home = began(folder, monkeypatch)
    assert main(["restore", str(saved), "--store", f"{folder}/store", *options]) == 0
    return notes(home), contents(Store(f"{folder}/store"))


def test_homes_that_share_a_place_keep_their_own_backups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Restore asks which home is meant; a moved home goes on with its backups, and a copied one begins its own."""
    saved, names = tmp_path / "saved", dict[str, str]()
    for _ in range(2):
        for home in ("a", "b", "c"):
            filled(began(tmp_path / home, monkeypatch), home)
            assert saved_of(tmp_path / home / "home", saved, "--keep", "1") == 0
            names[home] = capsys.readouterr().out.partition(": backup ")[0].rpartition("/")[2]
    began(tmp_path / "new", monkeypatch)
    assert main(["restore", str(saved)]) == 2
    error = capsys.readouterr().err
    assert f"{saved}: found backups of 3 homes, expected --at with one of " in error
    assert all(f"{names[home]} ({tmp_path}/{home}/home on {gethostname()}, 000002-" in error for home in "abc")
    for home in "abc":
        assert restored(tmp_path / f"{home}2", saved, monkeypatch, "--at", names[home]) == ([home, home], [home])

    shutil.copytree(tmp_path / "a", tmp_path / "copied")
    shutil.move(tmp_path / "a", tmp_path / "moved")
    for folder, options in (("moved", ["--keep", "2"]), ("copied", ["--keep", "1"])):
        filled(began(tmp_path / folder, monkeypatch), folder)
        assert saved_of(tmp_path / folder / "home", saved, *options) == 0
    assert len(list(saved.glob(f"{names['a']}/backups/*.json"))) == 2
    assert len(list(saved.glob("*/backups/*.json"))) == 2 + 1 + 1 + 1
    assert restored(tmp_path / "a3", saved, monkeypatch, "--at", names["a"])[1] == ["a", "moved"]


def test_a_place_holds_what_its_backups_have_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each night one artifact is new and the former one gone: two backups have two, one has one; each comes back."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"

    def night(word: str, *options: str) -> tuple[list[str], int, set[str]]:
        """The numbers of the lists that are there then, how many files, and the artifacts' texts."""
        began(tmp_path / "a", monkeypatch)
        for artifact in Store(f"{tmp_path}/a/store").list("corpus"):
            shutil.rmtree(artifact.url)
        forget()
        filled(home, word)
        assert saved_of(home, saved, *options) == 0
        (own,) = saved.iterdir()
        lists = sorted(path.name.partition("-")[0] for path in own.glob("backups/*"))
        return lists, len([*own.glob("blobs/*/*")]), {*contents(Store(f"{own}/store"))}

    # A database and a card each night; the checkpoint under way is the same.
    assert night("one") == (["000001"], 3, {"one"})
    assert night("two") == (["000001", "000002"], 5, {"one", "two"})
    assert night("three", "--keep", "2") == (["000002", "000003"], 5, {"two", "three"})
    found = [
        restored(tmp_path / name[:6], saved, monkeypatch, "--at", name)
        for name in all_in(str(saved), "--to")[0].names()
    ]
    assert found == [(["one", "two"], ["two"]), (["one", "two", "three"], ["three"])]
    assert night("four", "--keep", "1") == (["000004"], 3, {"four"})
    assert night("five", "--keep", "2") == (["000004", "000005"], 5, {"four", "five"})
    capsys.readouterr()
    assert restored(tmp_path / "b", saved, monkeypatch)[1] == ["five"]
    assert "store: 1 of 1 artifacts in " in capsys.readouterr().out


def test_what_is_lacking_of_a_backup_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is gone or cut short, and an artifact, unless these are kept by reference."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    store = filled(home, "one")
    assert saved_of(home, saved) == 0
    (backups,) = all_in(str(saved), "--to")
    about = backups.read(backups.names()[0])
    assert backups.lacking(about) == []
    card = "files/mlflow-artifacts/r1/artifacts/card.md"
    blob = Path(backups._blob(about.entries[card].sha256))
    blob.write_text("card of on")
    (artifact,) = store.list("corpus")
    shutil.rmtree(f"{backups.store}/corpus/{artifact.digest}")
    assert backups.lacking(about) == [card, f"corpus/{artifact.digest}"]
    blob.unlink()
    assert backups.lacking(about) == [card, f"corpus/{artifact.digest}"]
    kept = about.store.model_copy(update={"whole": False})
    assert backups.lacking(about.model_copy(update={"store": kept})) == [card]


def test_a_clock_that_was_ahead_costs_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    for number, days in enumerate((0, 400, 0, -400, 0)):
        filled(home, str(number))
        with clock(days):
            assert saved_of(home, saved, "--keep", "1") == 0
        said = capsys.readouterr().out
        assert ("its time is still to come" in said) == (number in (2, 3))
    assert restored(tmp_path / "b", saved, monkeypatch)[0] == ["0", "1", "2", "3", "4"]


def test_a_place_behind_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two homes in a bucket, whose folders appear with what is in them."""
    with bucket() as url:
        for number in range(3):
            for name in "ab":
                filled(began(tmp_path / name, monkeypatch), f"{name}{number}")
                words = ["backup", "--to", f"{url}/saved", "--store", f"{tmp_path}/{name}/store", "--keep", "2"]
                assert main(words) == 0
        kept = {own.home: own.names() for own in all_in(f"{url}/saved", "--to")}
        assert [len(names) for names in kept.values()] == [2, 2]
        found = []
        for number, (home, names) in enumerate(kept.items()):
            new = began(tmp_path / f"new{number}", monkeypatch)
            words = ["restore", f"{url}/saved", "--at", f"{home}/{names[0]}", "--store", f"{new.parent}/store"]
            assert main(words) == 0
            found.append(notes(new))
        assert sorted(found) == [["a0", "a1"], ["b0", "b1"]]


def test_what_is_put_beside_a_homes_backups_keeps_none_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of format 1, one of a number beyond six digits; one that is damaged is told, and nothing goes for it."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    assert saved_of(home, saved) == 0
    (listed,) = saved.glob("*/backups/*")
    about = json.loads(listed.read_text())
    del about["checksum"]
    listed.with_name("20260101T000000.000000Z.json").write_text(json.dumps({**about, "format": 1}))
    listed.rename(listed.with_name("999999-20260101T000000.000000Z.json"))
    filled(home, "two")
    assert saved_of(home, saved, "--keep", "2") == 0
    names = sorted(path.name.partition("-")[0] for path in listed.parent.iterdir())
    assert names == ["1000000", "999999"]
    assert restored(tmp_path / "b", saved, monkeypatch)[0] == ["one", "two"]
    (newest,) = listed.parent.glob("1000000-*")
    newest.write_text("{")
    began(tmp_path / "a", monkeypatch)
    capsys.readouterr()
    assert saved_of(home, saved, "--keep", "2") == 1
    error = capsys.readouterr().err
    assert "is made, and no other was deleted: " in error
    assert f"{newest.name}: not JSON" in error
    assert len(list(listed.parent.iterdir())) == 3


@ROOT_ALONE
def test_a_home_that_took_anothers_path_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy in the place of what was renamed; and one that lies under the same path on another disk."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    assert saved_of(home, saved) == 0
    home.rename(home.with_name("old"))
    shutil.copytree(home.with_name("old"), home)
    assert saved_of(home, saved, "--keep", "1") == 0
    with disk(tmp_path / "x", "64m"):
        shutil.copytree(home, tmp_path / "x" / "home")
        subprocess.run(["mount", "--bind", str(tmp_path / "x" / "home"), str(home)], check=True)
        try:
            assert saved_of(home, saved, "--keep", "1") == 0
        finally:
            subprocess.run(["umount", "--lazy", str(home)], check=True)
    assert len({path.parents[1] for path in saved.glob("*/backups/*.json")}) == 3


def test_what_a_former_version_saved_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Format 1: in the place itself, named by time alone, without a checksum; and no new backup deletes it."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "former")
    assert saved_of(home, saved) == 0
    (own,) = saved.iterdir()
    for path in own.iterdir():
        path.rename(saved / path.name)
    own.rmdir()
    (listed,) = (saved / "backups").iterdir()
    about = json.loads(listed.read_text())
    for field in ("checksum", "home"):
        del about[field]
    listed.unlink()
    (saved / "backups" / "20260101T000000.000000Z.json").write_text(json.dumps({**about, "format": 1}))
    assert restored(tmp_path / "b", saved, monkeypatch) == (["former"], ["former"])
    filled(began(tmp_path / "a", monkeypatch), "new")
    assert saved_of(home, saved, "--keep", "1") == 0
    at = ("--at", "20260101T000000.000000Z")
    assert restored(tmp_path / "c", saved, monkeypatch, *at) == (["former"], ["former"])


def _without(*fields: str) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        for field in fields:
            del about[field]

    return change


def _with(part: str, name: str, **entry: Any) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        about[part][name] = {**about["databases"]["mlflow.db"], **entry}

    return change


FOREIGN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "the stack's record": (_with("files", "stack.json"), "files.stack.json"),
    "passwords": (_with("files", "credentials"), "files.credentials"),
    "code": (_with("files", "compiled/a.so"), "files.compiled/a.so"),
    "a folder above": (_with("files", "mlflow-artifacts/../../evil"), "files.mlflow-artifacts/../../evil"),
    "an absolute path": (_with("files", "/etc/cron.d/evil"), "files./etc/cron.d/evil"),
    "another database": (_with("databases", "users.db"), "databases.users.db"),
    "work of no stage": (_with("work", "../.ssh/authorized_keys"), "work.../.ssh/authorized_keys"),
    "a blob elsewhere": (_with("files", "deploy.toml", sha256="../../../etc/passwd"), "files.deploy.toml.sha256"),
    "a size in words": (_with("files", "deploy.toml", size="much"), "files.deploy.toml.size"),
    "no store": (_without("store"), "store"),
    "no work": (_without("work"), "work"),
    "artifacts in a list": (lambda about: about["store"].update(artifacts=["a"]), "store.artifacts"),
    "a digest that is a path": (lambda about: about["store"].update(artifacts={"corpus": ["../x"]}), "store.artifacts"),
    "a number for a version": (lambda about: about["versions"].update(gptmill=2), "versions.gptmill"),
    "what steers a terminal": (lambda about: about.update(created="\x1b[31mred"), "created"),
    "a word for yes": (lambda about: about.update(full="yes"), "full"),
    "a full stack without its databases": (lambda about: about.update(full=True), "backup 000001-"),
    "files in a list": (lambda about: about.update(files=[]), "files"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_list_of_somebody_else_gets_nothing_in(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However right its checksum is: it names what `gptmill backup` saves, or is refused before anything is fetched."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    assert saved_of(home, saved) == 0
    (listed,) = saved.glob("*/backups/*")
    about = json.loads(listed.read_text())
    del about["checksum"]
    change, place = FOREIGN[name]
    change(about)
    listed.write_text(json.dumps({**about, "checksum": sha256_json(about)}))
    moved = began(tmp_path / "b", monkeypatch)
    capsys.readouterr()
    assert main(["restore", str(saved), "--store", f"{tmp_path}/b/store"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith((f"gptmill: error: {listed}: {place}", f"gptmill: error: {listed.parents[1]}: {place}"))
    assert not list(moved.glob("[!p]*"))  # but for `prefect`, which each command makes
    assert not (tmp_path / "b" / "store").exists()


def test_a_backup_that_somebody_deleted_from_meanwhile_is_not_called_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    found = Backups.seal

    def sealed(self: Backups, name: str, about: Listing) -> None:
        found(self, name, about)
        for blob in saved.glob("*/blobs/*/*"):
            blob.unlink()

    monkeypatch.setattr(Backups, "seal", sealed)
    assert saved_of(home, saved, "--keep", "1") == 1
    assert (
        "has lost files/mlflow-artifacts/r1/artifacts/card.md while it was made; repeat it" in capsys.readouterr().err
    )


def test_a_backup_is_its_owners_alone_whatever_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    saved.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        assert saved_of(home, saved, "--keep", "1") == 0
        (own,) = saved.iterdir()
        assert {path.stat().st_mode & 0o777 for path in (own, *own.rglob("*"))} == {0o700, 0o600}
        own.chmod(0o755)
        assert saved_of(home, saved) == 0
        assert own.stat().st_mode & 0o777 == 0o700  # nobody else enters
        (tmp_path / "new").mkdir()
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755  # what comes after is as it would have been
    finally:
        os.umask(before)


@ROOT_ALONE
def test_a_read_only_home_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Saved, with a log (WAL) that a killed server left; its leaderboard is shown, and not a byte of it changes."""
    from tasks.tracking.tracker import Tracker

    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    home.mkdir(parents=True)
    assert Tracker().client.search_experiments()
    filled(home, "one")
    server = "import os, sqlite3; d = sqlite3.connect('prefect.db'); d.execute('PRAGMA journal_mode = WAL');"
    server += "d.execute('CREATE TABLE runs (name)'); d.commit(); os.kill(os.getpid(), 9)"
    (home / "prefect").mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", server], cwd=home / "prefect", check=False)
    assert (home / "prefect" / "prefect.db-wal").stat().st_size
    with read_only(home):
        before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
        for _ in range(2):
            assert saved_of(home, saved, "--keep", "1") == 0
        assert main(["leaderboard"]) == 0
        assert "average: over 12 tasks" in capsys.readouterr().out
        assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
    moved = began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(saved), "--store", f"{tmp_path}/b/store"]) == 0
    assert notes(moved) == ["one"]
    import sqlite3

    with sqlite3.connect(moved / "prefect" / "prefect.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (0,)


@ROOT_ALONE
def test_the_store_may_come_to_lie_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    filled(home, "one")
    assert saved_of(home, saved) == 0
    with disk(tmp_path / "b" / "store", "64m"):
        assert restored(tmp_path / "b", saved, monkeypatch) == (["one"], ["one"])
        assert [path.read_text() for path in (tmp_path / "b" / "store" / ".work").rglob("state")] == ["half-way"]


@ROOT_ALONE
@pytest.mark.parametrize("full", ["place", "home", "store"])
def test_the_disk_that_is_full_is_named(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of the place while a backup is made; the disk of the home or of the store where it is put back."""
    home, saved = began(tmp_path / "a", monkeypatch), tmp_path / "saved"
    store = filled(home, "one")
    work = store.scratch / ".work" / "pretrain" / ("0" * 64)
    (work if full == "store" else home / "mlflow-artifacts" / "r1").joinpath("big").write_bytes(os.urandom(6_000_000))
    moved = tmp_path / "b"
    small = {"place": saved, "home": moved / "home", "store": moved / "store"}[full]
    if full != "place":
        assert saved_of(home, saved) == 0
        began(moved, monkeypatch)
    command = ["restore", str(saved), "--store", f"{moved}/store"]
    if full == "place":
        command = ["backup", "--to", str(saved), "--store", store.url]
    capsys.readouterr()
    with disk(small, "4m"):
        assert main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"gptmill: failed: no space left on the disk of {small}"), line
        assert "MB free, 32 MB or more needed" in line
