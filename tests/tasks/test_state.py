"""The state folder: who may read it, and databases of every size of page that were cut short."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from tasks.store import sqlite
from tasks.store.state import make_private


def test_nobody_else_reads_or_enters_what_the_state_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("GPTMILL_HOME", str(home))
    make_private()
    assert home.stat().st_mode & 0o777 == 0o700
    (home / "prefect").mkdir(mode=0o755)
    (home / "mlflow.db").touch(mode=0o644)
    (home / "prefect" / "prefect.db").touch(mode=0o664)
    home.chmod(0o755)
    make_private()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
    assert modes == {"home": 0o700, "prefect": 0o700, "mlflow.db": 0o600, "prefect.db": 0o600}


@pytest.mark.parametrize("page", [512, 4096, 32_768, 65_536])
def test_a_database_that_lacks_its_last_byte_is_cut_short(page: int, tmp_path: Path) -> None:
    """A page of 65,536 bytes is written as a 1, as two bytes hold no more."""
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute("CREATE TABLE t (x)")
        database.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 100)
    sqlite._check_whole(file)
    whole = file.read_bytes()
    assert len(whole) % page == 0
    file.write_bytes(whole + b"more")
    sqlite._check_whole(file)
    file.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=rf"cut short: found {len(whole) - 1:,} bytes, expected {len(whole):,}"):
        sqlite._check_whole(file)
    file.write_bytes(whole[:99])
    with pytest.raises(InputError, match="expected an SQLite database"):
        sqlite._check_whole(file)
