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
from hypothesis import HealthCheck, Phase, settings
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
DAYS = st.sampled_from([0, 0, 1, -1, 400, -400])
"""By how much the clock is ahead that a backup is made by."""
END = st.tuples(
    st.sampled_from(["done", "done", "killed", "full", "read-only"]), st.sampled_from([1, 1, 2, 2, 3, 4, 5, 6, 8])
)
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
        left = iter(range(step - 1 if end != "done" else 1 << 30))

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                if next(left, None) is None:
                    if function.__name__ in ("put_file", "get_file"):  # half of it is there
                        Path(arguments[2]).write_bytes(Path(arguments[1]).read_bytes()[:-1])
                    if end == "killed":
                        os.kill(os.getpid(), signal.SIGKILL)
                    paths = [argument for argument in arguments if isinstance(argument, str)] or [arguments[0].url]
                    raise OSError(FAULTS[end], os.strerror(FAULTS[end]), paths[-1])
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
            said = os.open(home.parent / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os._exit(main(words))
    finally:
        os._exit(99)


class SharedPlace(RuleBasedStateMachine):
    """What each home's backups in the place have to be."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gptmill-states-"))
        self.place = self.root / "saved"  # of all three
        self.texts = iter(range(1 << 30))
        self.names = dict[str, str]()
        self.saved: dict[str, dict[str, Saved]] = {home: {} for home in "abc"}
        for home in "abc":
            self.train(home, goes=False)
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
            forked(new / "home", words, 0, end, step)
        assert forked(new / "home", words) == 0
        assert (notes(new / "home"), contents(Store(f"{new}/store"))) == self.saved[home][name]
        forget()
        shutil.rmtree(new)

    @rule(home=HOMES, draws=st.data())
    def step(self, home: str, draws: st.DataObject) -> None:
        """One rule for all, as Hypothesis leaves whole rules out of most runs."""
        what = draws.draw(st.sampled_from(["train", "back up", "back up", "put back"]))
        if what == "train":
            self.train(home, goes=draws.draw(st.booleans()))
        elif what == "back up":
            self.back_up(home, draws.draw(KEEP), draws.draw(DAYS), draws.draw(END))
        else:
            self.put_back(home, draws.draw(st.integers(0, 9)), draws.draw(END))

    def train(self, home: str, goes: bool) -> None:
        """There is something new, and the oldest artifact may go, as with `gptmill gc`."""
        store = filled(self.home(home), f"{home}{next(self.texts)}")
        if goes:
            shutil.rmtree(store.list("corpus")[-1].url)
        forget()

    def back_up(self, home: str, keep: int, days: int, end: tuple[str, int]) -> None:
        """However it ends: what is listed is whole, and what goes is older than what stays."""
        before, held = self.listed(home), self.held(home)
        code = forked(self.home(home), self.words(home, keep), days, *end)
        after = self.listed(home)
        new = [name for name in after if name not in before]
        assert len(new) <= 1
        whole = [*before, *new]
        assert after == whole[len(whole) - len(after) :]
        if code == 0:
            assert len(new) == 1
            assert len(after) == (min(keep, len(whole)) if keep else len(whole))
        else:
            assert code in (1, -signal.SIGKILL), (self.home(home).parent / "said.txt").read_text()
            assert end[0] != "done"
            assert len(after) >= (min(keep, len(whole)) if keep else len(whole))
        self.saved[home] = {name: self.saved[home].get(name, held) for name in after}

    def put_back(self, home: str, nth: int, end: tuple[str, int]) -> None:
        names = self.listed(home)
        self.check(home, names[nth % len(names)], *end)
        assert forked(self.home(home), ["verify", "--store", f"{self.place}/{self.names[home]}/store"]) == 0

    @invariant()
    def nobody_touches_anothers(self) -> None:
        if hasattr(self, "saved"):
            assert all(self.listed(home) == sorted(self.saved[home]) for home in self.names)


def steps(count: int, examples: int) -> settings:
    """Runs of so many steps, the same each time; one that fails is told as it is, as a shorter one takes minutes."""
    given = settings(max_examples=examples, stateful_step_count=count, derandomize=True, deadline=None)
    return settings(given, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


def test_a_place_that_three_homes_share() -> None:
    run_state_machine_as_test(SharedPlace, settings=steps(12, examples=3))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_place_that_three_homes_share_for_long() -> None:
    run_state_machine_as_test(SharedPlace, settings=steps(200, examples=3))
