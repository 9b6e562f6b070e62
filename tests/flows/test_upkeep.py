"""What upkeep does and says of a home: the nightly flow's parts, ages and amounts of what goes, what was read."""

from __future__ import annotations

import io
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.main import main
from flows.forms.parameters import UpkeepParameters
from flows.upkeep import flow as nightly
from flows.upkeep import garbage, place, restore, retention, verify
from gptcore.base.errors import InputError
from tasks.store.artifact import Recipe
from tasks.store.garbage import Item, Plan
from tasks.store.store import Store
from tests.flows.homes import began, filled


def test_a_night_does_what_its_form_asks_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []
    for name in ("backup", "gc", "verify"):
        monkeypatch.setattr(nightly, name, lambda *given, name=name, **more: calls.append((name, *given, more)))
    monkeypatch.setattr(nightly, "forget", lambda days: calls.append(("forget", days)) or iter(["one", "two"]))
    monkeypatch.setattr(nightly.signals, "listen", lambda: None)
    store, saved = str(tmp_path), str(tmp_path / "saved")
    nightly.upkeep.fn(UpkeepParameters(store=store))
    assert calls == [("forget", 90)]
    assert capsys.readouterr().out == "one\ntwo\n"
    calls.clear()
    nightly.upkeep.fn(UpkeepParameters(store=store, backup_to=saved, keep=3, history=7, artifacts=True, verify=True))
    assert calls == [
        ("backup", saved, store, "", 3, {}),
        ("gc", store, True, 24.0, False, 7, {}),
        ("verify", store, {"repair": False}),
    ]


def test_nothing_is_over_for_so_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(nightly, "forget", lambda _: iter(()))
    monkeypatch.setattr(nightly.signals, "listen", lambda: None)
    nightly.upkeep.fn(UpkeepParameters())
    assert capsys.readouterr().out == "nothing is over for so long\n"


@pytest.mark.parametrize(
    ("hours", "days", "message"),
    [
        (0, 1, ""),
        (1_000_000, 36_500, ""),
        (-1, 90, "--older-than: found -1, expected hours, 0 to 1,000,000"),
        (1_000_001, 90, "--older-than: found 1e+06, expected hours, 0 to 1,000,000"),
        (1, 0, "--history: found 0, expected days, 1 to 36,500"),
        (1, 36_501, "--history: found 36501, expected days, 1 to 36,500"),
    ],
)
def test_ages_that_gc_takes(hours: float, days: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(garbage, "_collect", lambda *given: calls.append(given))
    monkeypatch.setattr(retention, "forget", lambda given: calls.append((given,)) or iter(["gone"]))
    if message:
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            garbage.gc("store", True, hours, False, days)
        assert calls == []
    else:
        garbage.gc("store", False, hours, True, days)
        assert calls == [("store", False, hours, True)], "what is over goes with what was confirmed beforehand alone"
        garbage.gc("store", True, hours, False, days)
        assert calls[1:] == [("store", True, hours, False), (days,)]


def item(stage: str, size: int, kind: Any = "artifact") -> Item:
    return Item(kind, stage, "ab" * 32, "root", f"{stage}/x", size, datetime(2026, 3, 1, 9, 5, tzinfo=UTC))


def test_what_stays_and_goes_in_a_table() -> None:
    planned = Plan(
        kept=[(item("pretrain", 1500), "rows"), (item("pretrain", 500), "rows"), (item("corpus", 10), "young")],
        dropped=[item("pretrain", 7000), item("pretrain", 3, "mirror"), item("corpus", 4, "arriving")],
    )
    assert garbage._table(planned) == [
        "                         kept        to delete  kept because of",
        "remains                     -       1, 4 bytes",
        "corpus            1, 10 bytes                -  young 1",
        "pretrain            2, 2.0 kB        1, 7.0 kB  rows 2",
        "mirrors                     -       1, 3 bytes",
        "all                 3, 2.0 kB        3, 7.0 kB",
    ]
    lines = [garbage._line(item("pretrain", 7000)), garbage._line(item("pretrain", 3, "mirror"))]
    assert lines == [
        "  pretrain                 abababababab     7.0 kB  2026-03-01 09:05",
        "  mirrors of pretrain      abababababab    3 bytes  2026-03-01 09:05",
    ]
    gone = Item("artifact", "pretrain", "ab" * 32, "root", "x", 3, None)
    assert garbage._line(gone) == "  pretrain                 abababababab    3 bytes  "


def test_a_word_is_typed_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, terminal, typed in (
        ("delete\n", True, True),
        ("delete\n", False, False),
        ("del\n", True, False),
        ("", True, False),
    ):
        given = io.StringIO(text)
        monkeypatch.setattr(given, "isatty", lambda terminal=terminal: terminal, raising=False)
        monkeypatch.setattr("sys.stdin", given)
        assert garbage._typed([item("pretrain", 7000)]) is typed
        asked = "\nType delete to delete 1, 7.0 kB: " if terminal else ""
        assert capsys.readouterr().out == asked


def test_what_was_read_and_what_is_damaged_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Artifacts by number, bytes of all that was read; what is repaired is no damage any more."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    found = [(item("corpus", 1500), ""), (item("pretrain", 500), "half is gone"), (item("corpus", 70, "mirror"), "bad")]
    monkeypatch.setattr(verify, "verified", lambda *_: iter(found))

    class Opened:
        made_by = staticmethod(lambda stage, _: f"a {stage}")

        def __init__(self, url: str) -> None:
            self.url = url

    monkeypatch.setattr(verify, "Store", Opened)
    with pytest.raises(verify.Damaged, match=r"^2 artifacts of there; `gptmill verify --repair` sets them aside$"):
        verify.verify("there", repair=False)
    name = "ab" * 32
    assert capsys.readouterr().out.splitlines() == [
        f"pretrain/{name}: half is gone",
        f"corpus/{name}: bad",
        "2 artifacts read, 2.1 kB",
    ]
    monkeypatch.setattr(verify, "set_aside", lambda _, one: "aside" if one.kind == "artifact" else "")
    with pytest.raises(verify.Damaged, match=r"^1 artifacts of there; they are gone, or being made right now$"):
        verify.verify("there", repair=True)
    assert "  set aside in aside; made again by a pretrain\n" in capsys.readouterr().out
    monkeypatch.setattr(verify, "set_aside", lambda *_: "aside")
    verify.verify("there", repair=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(verify.Damaged, match=r"^1 of the databases; `gptmill restore` into another GPTMILL_HOME"):
        verify.verify("there", repair=True)


def test_logs_are_begun_anew_beyond_ten_megabytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    for name, size in (("a", 10_000_000), ("b", 10_000_001)):
        with open(tmp_path / "logs" / f"{name}.log", "wb") as file:
            file.truncate(size)
    assert retention._logs() == f"{tmp_path}/logs: b.log begun anew"
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sizes == {"a.log": 10_000_000, "b.log": 0, "b.log.1": 10_000_001}
    assert retention._logs() == ""


def test_keep_wants_one_or_more_and_zero_is_no_number_of_backups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    Store(tmp_path / "store").build(Recipe("corpus", 1, {}), lambda _: {})
    command = ["backup", "--to", str(tmp_path / "saved"), "--store", str(tmp_path / "store"), "--keep"]
    for number in ("0", "-1"):
        assert main([*command, number]) == 2
        assert f"--keep: found {number}, expected 1 or more" in capsys.readouterr().err
    assert not (tmp_path / "saved").exists()


def test_a_database_is_as_a_backup_has_it_where_nobody_has_written_to_it(tmp_path: Path) -> None:
    """Nor to the log beside it, which SQLite has yet to read."""
    file, log = tmp_path / "mlflow.db", tmp_path / "mlflow.db-wal"
    sha256 = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # of the letter a
    about: Any = SimpleNamespace(databases={"mlflow.db": SimpleNamespace(sha256=sha256)})
    assert restore._is_as(about, "mlflow.db", file), "it is not there"
    file.write_text("b")
    assert not restore._is_as(about, "mlflow.db", file)
    file.write_text("a")
    assert restore._is_as(about, "mlflow.db", file)
    assert not restore._is_as(about, "prefect/prefect.db", file)
    log.touch()
    assert not restore._is_as(about, "mlflow.db", file)


def test_a_backup_that_is_none_is_told_with_the_five_newest(tmp_path: Path) -> None:
    backups = tmp_path / "saved" / ("ab" * 6) / "backups"
    backups.mkdir(parents=True)
    for number in range(1, 8):
        (backups / f"{number:06}-20260301T000000.000000Z.json").touch()
    names = [f"{'ab' * 6}/{number:06}-20260301T000000.000000Z" for number in range(3, 8)]
    message = f"--at nosuch: found no such backup, expected one of {', '.join(names)}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        place.chosen(str(tmp_path / "saved"), "nosuch")
    for at in ("", "ab" * 6, names[-1], names[-1].partition("/")[2]):
        own, name = place.chosen(str(tmp_path / "saved"), at)
        assert f"{own.home}/{name}" == names[-1]


def test_a_restored_home_knows_its_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    filled(began(tmp_path / "a", monkeypatch), "one")
    words = ["backup", "--to", str(tmp_path / "saved"), "--store", str(tmp_path / "a" / "store")]
    assert main(words) == 0
    noted = list[str]()
    monkeypatch.setattr(restore, "note_store", noted.append)
    began(tmp_path / "b", monkeypatch)
    assert main(["restore", str(tmp_path / "saved"), "--store", str(tmp_path / "b" / "store")]) == 0
    assert noted == [str(tmp_path / "b" / "store")]


def test_a_database_is_busy_while_another_connection_may_write_to_it(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as other:
        assert retention._write_lock(file) is None
        other.execute("BEGIN IMMEDIATE")
        assert str(retention._write_lock(file)) == "database is locked"
        other.rollback()
        assert retention._write_lock(file) is None


@pytest.mark.parametrize(("looks", "waits"), [(0, 0), (3, 2), (1000, 51)])
def test_databases_are_waited_for_five_seconds_in_all(
    looks: int, waits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tenths of a second, of which a float needs one more; the second database is not waited for once they are over."""
    first, second = tmp_path / "prefect.db", tmp_path / "mlflow.db"
    first.touch()
    second.touch()
    slept, left = list[float](), {first: looks, second: looks}

    def busy(file: Path) -> sqlite3.OperationalError | None:
        if not left[file]:
            return None
        left[file] -= 1
        return sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(retention, "_prefect_file", lambda: first)
    monkeypatch.setattr(retention, "_mlflow_file", lambda: second if looks > 3 else None)
    monkeypatch.setattr(retention, "_write_lock", busy)
    monkeypatch.setattr(retention, "apart", lambda clean: f"cleaned {clean.args}")
    monkeypatch.setattr(retention, "_logs", lambda: "")
    monkeypatch.setattr(retention, "_digests", lambda days: f"digests of {days} days")
    monkeypatch.setattr(retention.time, "sleep", slept.append)
    said = [f"waiting for {first}, which another process writes to"] * bool(looks)
    if looks > 3:
        said += [f"{file}: left as it is (database is locked)" for file in (first, second)]
    else:
        said += [f"cleaned {(first, 7)}"]
    assert list(retention.forget(7)) == [*said, "digests of 7 days"]
    assert slept == [0.1] * waits


def test_a_place_with_a_password_in_its_address_is_refused() -> None:
    with pytest.raises(InputError, match=r"^ftp://127.0.0.1/x: found a password") as told:
        place.Backups("ftp://user:s3cret@127.0.0.1/x", "", "--to")
    assert "s3cret" not in str(told.value)
    with pytest.raises(InputError, match=r"^--to: found nothing, expected a folder or an address$"):
        place.Backups("", "", "--to")
