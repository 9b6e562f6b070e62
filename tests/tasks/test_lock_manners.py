"""Two hosts on one shared folder, under each manner that shared file systems have of locks: real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.files import sha256_json
from tasks.store import locks, presence
from tasks.store.locks import exclusive, exclusive_now, is_locked, lock_file
from tasks.store.store import Store
from tasks.tracking.owners import dead_owners
from tests.tasks.lock_host import RECIPE, URI
from tests.tasks.stores import forget, verify
from tests.trials.locks import MANNERS, MANNERS_SOURCE, NO_LOCKS, variables
from tests.trials.scenarios import compile_shim, wait

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")]
ROOT = Path(__file__).resolve().parents[2]
BEAT, SILENT = 0.05, 1.0


class Host:
    """A process on another host, which does what it is told."""

    def __init__(self, name: str, environment: dict[str, str], store: Path, silent: float) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tasks.lock_host", str(store), str(BEAT), str(silent)],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, expression: str) -> None:
        assert self.process.stdin is not None
        print(expression, file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.name} ended with {self.process.wait()}"
        return eval(line)

    def says(self, expression: str) -> Any:
        self.begin(expression)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(MANNERS_SOURCE, tmp_path_factory.mktemp("manners"))


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is one host more, with all locks that the kernel has."""
    monkeypatch.setattr(locks, "BEAT_SECONDS", BEAT)
    monkeypatch.setattr(locks, "SILENT_SECONDS", SILENT)
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    yield
    forget()


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Starts a process on a host, under a manner of locks."""
    started = []

    def one(name: str, manner: str, silent: float = SILENT) -> Host:
        environment = dict(variables(library, tmp_path / "hosts", manner, name))
        started.append(Host(name, environment, tmp_path / "shared" / "store", silent))
        return started[-1]

    (tmp_path / "shared").mkdir()
    yield one
    for host in started:
        host.kill()


Start = Callable[..., Host]


until = partial(wait, what="what another host does", seconds=20.0, pause=0.01)


def log(shared: Path) -> list[str]:
    """What the builders wrote into the artifact, which is whole."""
    store = Store(shared / "store")
    artifact = store.find(RECIPE)
    assert artifact is not None
    verify(store, artifact)
    assert not list((shared / "store" / ".work").glob("*/*"))
    until(lambda: not list((shared / "store" / ".locks").glob("*.holder*")))
    return store.read(artifact, "log").decode().splitlines()


@pytest.mark.parametrize("manner", MANNERS)
def test_of_two_hosts_one_builds_and_the_other_waits_for_it(manner: str, start: Start, tmp_path: Path) -> None:
    hosts, shared = [start(name, manner) for name in "ab"], tmp_path / "shared"
    for host in hosts:
        host.begin("self.build()")
    until(lambda: list(shared.glob("*.works")))
    time.sleep(1.2 * SILENT)  # a living builder may take its time
    store = Store(shared / "store")
    assert is_locked(lock_file(store.scratch, RECIPE.stage, RECIPE.digest))
    with exclusive_now(lock_file(store.scratch, RECIPE.stage, RECIPE.digest)) as free:
        assert not free
    (shared / "go").touch()
    assert sorted(host.answer() for host in hosts) == [False, True]
    [builder] = [path.stem for path in shared.glob("*.works")]
    assert log(shared) == [f"{builder} begins", f"{builder} ends"]


@pytest.mark.parametrize("manner", MANNERS)
def test_the_work_of_a_killed_host_is_taken_over(manner: str, start: Start, tmp_path: Path) -> None:
    dies, shared = start("a", manner), tmp_path / "shared"
    dies.begin("self.build()")
    until((shared / "a.works").exists)
    others = [start(name, manner) for name in ("bc" if manner == "node" else "b")]
    for host in others:
        host.begin("self.build()")
    dies.kill()
    (shared / "go").touch()
    assert sorted(host.answer() for host in others) == [False, True][: len(others)]
    said = log(shared)
    assert said[0] == "a begins"
    assert said[1:] in ([f"{name} begins", f"{name} ends"] for name in "bc")


@pytest.mark.parametrize("manner", ["cluster", "node"])
def test_on_the_same_host_a_killed_builder_is_not_waited_for(manner: str, start: Start, tmp_path: Path) -> None:
    dies, other, shared = start("a", manner), start("b", manner, 1e6), tmp_path / "shared"
    dies.begin("self.build()")
    until((shared / "a.works").exists)
    other.begin("self.build()")
    dies.kill()
    (shared / "go").touch()
    assert not start("a", manner, 1e6).says("self.build()")
    assert other.answer() is True
    assert log(shared) == ["a begins", "a begins", "a ends"]


def test_who_was_silent_for_too_long_ends_and_spoils_nothing(start: Start, tmp_path: Path) -> None:
    sleeps, other, shared = start("a", "node"), start("b", "node"), tmp_path / "shared"
    sleeps.begin("self.build()")
    until((shared / "a.works").exists)
    os.kill(sleeps.process.pid, signal.SIGSTOP)
    other.begin("self.build()")
    until((shared / "b.works").exists)
    os.kill(sleeps.process.pid, signal.SIGCONT)
    assert sleeps.process.wait(20) == -signal.SIGTERM
    (shared / "b.go").touch()
    assert other.answer() is False
    assert log(shared) == ["a begins", "b begins", "b ends"]


@pytest.mark.parametrize("manner", MANNERS)
def test_runs_and_leases_of_another_host_live_as_long_as_it_does(manner: str, start: Start) -> None:
    host, other = start("a", manner), start("b", manner)
    host.says("(self.shared / 'go').touch(), self.build(), owners.note(URI, 'line')")
    time.sleep(1.2 * SILENT)
    assert other.says("self.left()") == ([], 0, {f"stage/{RECIPE.digest}"})
    host.kill()
    if manner == "node":
        assert other.says("self.left()")[:2] == ([], 0), "only its own host knows at once"
    found: list[tuple[list[list[str]], int, set[str]]] = []
    until(lambda: found.append(other.says("self.left()")) or (found[-1][1] and any(dead for dead, _, _ in found)))
    assert found[-1][1:] == (1, set())
    assert [lines for dead, _, _ in found for lines in dead] == [["line"]]


def test_on_the_same_host_a_dead_owner_is_known_at_once(start: Start) -> None:
    host, same = start("a", "node"), start("a", "node", 1e6)
    name = host.says("owners.note(URI, 'line'), owners.owner_name(URI)")[1]
    assert same.says("self.dead()") == {}
    host.kill()
    assert same.says("self.dead()") == {name: ["line"]}


def test_an_owner_of_a_version_without_heartbeats(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "owners" / sha256_json(URI)[:12]
    folder.mkdir(parents=True)
    ours, theirs, old = (folder / f"{name}-77-0123abcd" for name in (os.uname().nodename, "elsewhere", "long-ago"))
    for path in (ours, theirs, old):
        path.write_text("line\n")
    week = time.time() - 8 * 24 * 3600
    os.utime(old, (week, week))
    with dead_owners(URI) as dead:
        assert dead == {ours.name: ["line"], old.name: ["line"]}
    assert theirs.exists()


def test_a_clock_that_is_wrong_kills_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    host = start("a", "node")
    host.says("owners.owner_name(URI)")
    monkeypatch.setattr(time, "time", lambda: 1e12)
    with dead_owners(URI) as dead:
        assert not dead


def test_each_host_has_a_first_gpu(start: Start, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    for host in [start(name, "cluster") for name in "ab"]:
        host.says(f"self.machine({str(tmp_path)!r})")
        assert [host.says("self.take()") for _ in range(2)] == [["0"], None]


def device(folder: Path, number: int, uuid: str) -> None:
    """A GPU's files in a container."""
    (folder / "dev").mkdir(parents=True, exist_ok=True)
    (folder / "dev" / f"nvidia{number}").touch()
    information = folder / "driver" / f"0000:{number:02}:00.0" / "information"
    information.parent.mkdir(parents=True)
    information.write_text(f"Model: \t\t X\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")


def test_containers_of_one_host_know_a_gpu_by_its_uuid(start: Start, tmp_path: Path) -> None:
    device(tmp_path / "first", 0, "GPU-aa")
    device(tmp_path / "first", 1, "GPU-bb")
    device(tmp_path / "second", 1, "GPU-bb")
    first, second = start("a", "cluster"), start("a", "cluster")
    first.says(f"self.machine({str(tmp_path / 'first')!r})")
    second.says(f"self.machine({str(tmp_path / 'second')!r})")
    names = first.says("[devices.lease_name(gpu) for gpu in ('0', '1', 'GPU-b', 'MIG-x')]")
    assert names == ["GPU-aa", "GPU-bb", "GPU-bb", "MIG-x"]
    assert second.says("self.take()") == ["0"]
    assert first.says("self.take(2)") is None
    assert second.says("self.take()") is None, "it waits behind the other container's job"
    assert first.says("self.leases[-1].release()") is None
    assert first.says("self.take()") == ["0"], "the other container's is its second"


def test_a_file_system_without_locks_is_refused_in_one_line(start: Start, tmp_path: Path) -> None:
    host, shared = start("a", NO_LOCKS), tmp_path / "shared"
    line = host.says("self.build()")
    assert line.startswith(f"{shared / 'store' / '.locks'}")
    assert "without locks (No locks available), expected" in line
    assert not (shared / "a.works").exists()


def test_a_forked_child_holds_and_says_nothing_for_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
from tasks.store import locks, presence
from tasks.tracking import owners
lock = locks.exclusive(Path({str(tmp_path / "lock")!r}), "work")
lock.__enter__()
presence.note(Path({str(tmp_path)!r}), ["stage/x"])
name = owners.owner_name("uri")
locks.BEAT_SECONDS = 0.05
if os.fork() == 0:
    same = owners.owner_name("uri") == name
    print(same, flush=True)
    sys.stdin.read()
    sys.exit()
os._exit(0)
"""
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "False\n"
    assert parent.wait(10) == 0
    with presence.noted(tmp_path) as leased:
        assert leased == set(), "its parent has ended"
    assert not is_locked(tmp_path / "lock")
    with dead_owners(URI) as dead:
        assert len(dead) == 1, "the child lives"
    parent.communicate()  # the child ends with its standard input


def test_a_heartbeat_keeps_no_process(tmp_path: Path) -> None:
    program = (
        f"from tasks.store import presence; from pathlib import Path; presence.note(Path({str(tmp_path)!r}), ['s/x'])"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=20)
    assert [path.name for path in (tmp_path / ".locks" / "processes").iterdir()] == [".lock"]


def test_a_heartbeat_that_comes_as_a_lock_is_released_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: ended.append(number))
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.0)  # one after the other, so that some come at every moment
    for _ in range(300):
        with exclusive(tmp_path / "lock", "nothing"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    with exclusive(tmp_path / "folder" / "lock", "nothing"):
        (tmp_path / "folder").rename(tmp_path / "gone")
        time.sleep(0.1)
    assert not ended
