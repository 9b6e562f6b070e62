"""Three homes, one place: whatever happens between them, a backup that said done comes back whole."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from flows.cli.main import main
from flows.upkeep import place, restore  # noqa: F401 - before processes are forked, which then have them
from tasks.store.store import Store
from tests.flows.homes import contents, filled, notes
from tests.tasks.stores import forget

HOMES = st.sampled_from("abc")
KEEP = st.sampled_from([0, 1, 2, 3])
"""Backups of `--keep`; 0: all stay."""
END = st.tuples(st.sampled_from(["done", "done", "killed", "full", "read-only"]), st.integers(1, 12))
"""What befalls a command, and at which of its steps."""
FAULTS = {"full": errno.ENOSPC, "read-only": errno.EROFS}
Saved = tuple[list[str], list[str]]
"""What a home holds: notes in its database, texts of its artifacts."""


def forked(home: Path, words: list[str], days: int = 0, end: str = "done", step: int = 0) -> int:
    """The exit code of a command in a process of its own (-9: killed).

    :param days: by how much its clock is ahead.
    :param end: what befalls it when it comes to its ``step``-th write to the place, or to what it restores.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        forget()
        os.environ["GPTMILL_HOME"] = str(home)
        left = iter(range(step if end != "done" else 1 << 30))

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                if next(left, None) is None:
                    if function in (LocalFileSystem.put_file, LocalFileSystem.get_file):
                        Path(arguments[2]).write_bytes(Path(arguments[1]).read_bytes()[:-1])
                    if end == "killed":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise OSError(FAULTS[end], os.strerror(FAULTS[end]), str(arguments[-1]))
                return function(*arguments, **more)

            return call

        steps = [(LocalFileSystem, "put_file"), (LocalFileSystem, "get_file"), (LocalFileSystem, "rm_file")]
        steps += [(LocalFileSystem, "rm"), (Store, "adopt"), (place, "write_bytes_atomic")]

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(days=days)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, "datetime", Clock)
            for owner, name in steps:
                patch.setattr(owner, name, counted(getattr(owner, name)))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            os._exit(main(words))
    finally:
        os._exit(99)


class SharedPlace(RuleBasedStateMachine):
    """What each home's backups in the place have to be."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gptmill-states-"))
        self.place = self.root / "saved"  # of all three
        self.days = 0
        self.texts = iter(range(1 << 30))
        self.names = dict[str, str]()
        self.saved: dict[str, dict[str, Saved]] = {home: {} for home in "abc"}
        for home in "abc":
            self.train(home)
            assert forked(self.home(home), self.words(home, 0)) == 0
            (self.names[home],) = {path.name for path in self.place.iterdir()} - {*self.names.values()}
            (name,) = self.listed(home)
            self.saved[home] = {name: self.held(home)}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for home, saved in self.saved.items():
                for name in saved:
                    self.check(home, name)
            shutil.rmtree(self.root)

    def home(self, home: str) -> Path:
        return self.root / home / "home"

    def words(self, home: str, keep: int) -> list[str]:
        words = ["backup", "--to", str(self.place), "--store", f"{self.root}/{home}/store"]
        return words + (["--keep", str(keep)] if keep else [])

    def held(self, home: str) -> Saved:
        return notes(self.home(home)), contents(Store(f"{self.root}/{home}/store"))

    def listed(self, home: str) -> list[str]:
        return sorted(path.stem for path in (self.place / self.names[home]).glob("backups/*.json"))

    def check(self, home: str, name: str, end: str = "done", step: int = 0) -> None:
        """Restore a backup on an empty machine, at the second try where something befalls the first."""
        new = Path(tempfile.mkdtemp(prefix="new-", dir=self.root))
        words = ["restore", str(self.place), "--store", f"{new}/store", "--at", f"{self.names[home]}/{name}"]
        if end != "done":
            forked(new / "home", words, self.days, end, step)
        assert forked(new / "home", words, self.days) == 0
        assert (notes(new / "home"), contents(Store(f"{new}/store"))) == self.saved[home][name]
        forget()
        shutil.rmtree(new)

    @rule(home=HOMES)
    def train(self, home: str) -> None:
        filled(self.home(home), f"{home}{next(self.texts)}")
        forget()

    @rule(home=HOMES)
    def delete(self, home: str) -> None:
        """The oldest artifact goes, as `gptmill gc` would have it."""
        store = Store(f"{self.root}/{home}/store")
        if len(found := store.list("corpus")) > 1:
            shutil.rmtree(found[-1].url)
        forget()

    @rule(days=st.sampled_from([-400, -1, 0, 1, 400]))
    def set_clock(self, days: int) -> None:
        self.days = days

    @rule(home=HOMES, keep=KEEP, end=END)
    def back_up(self, home: str, keep: int, end: tuple[str, int]) -> None:
        """However it ends: what is listed is whole, and what goes is older than what stays."""
        before, held = self.listed(home), self.held(home)
        code = forked(self.home(home), self.words(home, keep), self.days, *end)
        after = self.listed(home)
        new = [name for name in after if name not in before]
        assert len(new) <= 1
        whole = [*before, *new]
        assert after == whole[len(whole) - len(after) :]
        if code == 0:
            assert len(new) == 1
            assert len(after) == (min(keep, len(whole)) if keep else len(whole))
        else:
            assert code in (1, -signal.SIGKILL)
            assert end[0] != "done"
            assert len(after) >= (min(keep, len(whole)) if keep else len(whole))
        self.saved[home] = {name: self.saved[home].get(name, held) for name in after}

    @rule(home=HOMES, nth=st.integers(0, 9), end=END)
    def put_back(self, home: str, nth: int, end: tuple[str, int]) -> None:
        names = self.listed(home)
        self.check(home, names[nth % len(names)], *end)

    @rule(home=HOMES)
    def verify(self, home: str) -> None:
        assert forked(self.home(home), ["verify", "--store", f"{self.place}/{self.names[home]}/store"]) == 0

    @invariant()
    def nobody_touches_anothers(self) -> None:
        if hasattr(self, "saved"):
            assert all(self.listed(home) == sorted(self.saved[home]) for home in self.names)


def steps(count: int, examples: int) -> settings:
    """Runs of so many steps, the same each time."""
    given = settings(max_examples=examples, stateful_step_count=count, derandomize=True, deadline=None)
    return settings(given, suppress_health_check=list(HealthCheck))


def test_a_place_that_three_homes_share() -> None:
    run_state_machine_as_test(SharedPlace, settings=steps(12, examples=2))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_place_that_three_homes_share_for_long() -> None:
    run_state_machine_as_test(SharedPlace, settings=steps(200, examples=3))
