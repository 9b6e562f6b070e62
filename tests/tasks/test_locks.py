"""Records of a lock that hosts hold one after the other, in one process: who is believed, and what is left of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tasks.store import locks


def test_who_has_taken_a_lock_over_leaves_no_record_of_those_before(tmp_path: Path) -> None:
    """Two hosts died one after the other: of three records none is left, so that the next one begins a new chain."""
    lock = tmp_path / "lock"
    lock.touch()

    def silent(record: Path, host: str) -> Path:
        record.write_text(f"{host} 1 {host}", encoding="utf-8")
        os.utime(record, (0, 0))
        return record

    first = silent(tmp_path / "lock.holder", "gone")
    second = silent(locks._successor(lock, first, first.read_text()), "gone too")
    (tmp_path / "lock.holder-of-another-lock").write_text("x", encoding="utf-8")
    with locks.exclusive_now(lock) as held:
        assert held
        assert [path for path, _ in locks._chain(lock)][:2] == [first, second]
        assert len([*locks._chain(lock)]) == 3
        assert not second.samefile(first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "lock.holder-of-another-lock"]
    with locks.exclusive_now(lock) as held:
        assert held
        assert [path for path, _ in locks._chain(lock)] == [first]


def test_a_record_of_another_host_is_believed_until_it_is_silent(tmp_path: Path) -> None:
    lock, now = tmp_path / "lock", time.time()
    lock.touch()
    record = tmp_path / "lock.holder"
    record.write_text("another 1 x", encoding="utf-8")
    for age, lives in ((0, True), (locks.SILENT_SECONDS - 20, True), (locks.SILENT_SECONDS + 20, False)):
        os.utime(record, (now - age, now - age))
        assert locks.is_locked(lock) == lives
        if lives:
            with locks.exclusive_now(lock) as held:
                assert not held
            assert record.read_text() == "another 1 x"


def test_who_was_overtaken_leaves_the_records_of_who_holds_the_lock_now(tmp_path: Path) -> None:
    lock, first = tmp_path / "lock", tmp_path / "lock.holder"
    with locks.exclusive_now(lock) as held:
        assert held
        mine = first.read_text(encoding="utf-8")
        theirs = locks._successor(lock, first, mine)
        theirs.write_text("another 2 y", encoding="utf-8")
    assert (first.read_text(encoding="utf-8"), theirs.read_text(encoding="utf-8")) == (mine, "another 2 y")
    for record in (first, theirs):
        record.unlink()
    with locks.exclusive_now(lock) as held:
        assert held
        first.unlink()  # somebody has tidied up
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
