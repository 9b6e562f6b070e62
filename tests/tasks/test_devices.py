"""One job, one GPU: which there are, and that no two jobs have the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.jobs import devices
from tasks.jobs.devices import GpuLease, visible_gpus
from tasks.jobs.placement import PLACE_VARIABLE, processes_and_threads, slots, slots_and_threads
from tests.expected import expected
from tests.tasks.test_launch import ROOT, in_thread, run, stop_jobs, wait_for
from tests.tasks.test_launch import _quick as _quick  # the fixture


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with GPUs 0, 1, 2."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_DEVICES", tmp_path / "dev")
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "driver")
    monkeypatch.setattr(devices, "_of_smi", list)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    return tmp_path / "dev"


@pytest.mark.parametrize(("listed", "found"), expected(__file__, "test_what_may_be_used"))
def test_what_may_be_used(listed: str | None, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert visible_gpus() == found
    assert processes_and_threads(0)[0] == (len(found) or 1)
    assert processes_and_threads(5)[0] == 5
    assert slots_and_threads(0)[0] == (len(found) or os.cpu_count())
    assert slots_and_threads(7)[0] == 7
    assert slots() == (len(found) or 1)


def test_no_two_have_the_same() -> None:
    leases = [GpuLease(1) for _ in range(4)]
    assert [lease.take() for lease in leases] == [True, True, True, False]
    assert [lease.environment() for lease in leases] == [{"CUDA_VISIBLE_DEVICES": str(n)} for n in range(3)] + [{}]
    leases[1].release()
    assert leases[3].take()
    assert leases[3].gpus == ["1"]
    assert leases[3].take()  # asked again, it has them still


def test_who_wants_all_is_not_overtaken_and_two_of_them_do_not_wait_for_each_other() -> None:
    small = [GpuLease(1), GpuLease(1)]
    assert all(lease.take() for lease in small)
    large, other, late = GpuLease(3), GpuLease(8), GpuLease(1)
    assert not large.take()
    assert not other.take()
    small[0].release()
    assert not late.take()
    assert not large.take()
    small[1].release()
    assert large.take()
    assert sorted(large.gpus) == ["0", "1", "2"]
    assert not other.take()
    large.release()
    assert other.take()  # as many as there are
    other.release()
    assert late.take()


def test_who_gives_up_waiting_is_in_nobodys_way() -> None:
    first, second = GpuLease(2), GpuLease(3)
    assert first.take()
    assert not second.take()
    second.release()
    assert GpuLease(1).take()


def test_a_killed_process_has_none() -> None:
    holder = "from tasks.jobs.devices import GpuLease; lease = GpuLease(3); print(lease.take(), flush=True); input()"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    process = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    lease = GpuLease(1)
    assert not lease.take()
    process.kill()
    process.communicate()
    assert lease.take()


def test_without_a_gpu_nobody_waits(machine: Path) -> None:
    for path in machine.iterdir():
        path.unlink()
    leases = [GpuLease(1) for _ in range(3)]
    assert all(lease.take() and lease.environment() == {} for lease in leases)


def test_a_job_sees_its_own_gpu_and_waits_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    folders = [tmp_path / name for name in "ab"]
    threads = [in_thread(lambda folder=folder: run(folder, seconds=60)) for folder in folders]  # type: ignore[misc]
    for folder in folders:
        wait_for(folder / "job.pid")
    seen = {_variable(folder / "job.pid") for folder in folders}
    assert seen == {"4", "6"}
    waits: list[str] = []
    threads.append(in_thread(lambda: run(tmp_path / "c", on_waiting=waits.append, seconds=60)))
    while not waits:
        assert threads[2][0].is_alive()
    assert waits[0] == "waiting for a GPU"
    stop_jobs()
    for thread, _ in threads:
        thread.join(20)
    assert not (tmp_path / "c" / "job.pid").exists()
    assert GpuLease(2).take()


def _variable(pid: Path) -> str:
    entries = Path(f"/proc/{pid.read_text()}/environ").read_bytes().split(b"\0")
    return next(entry.decode().partition("=")[2] for entry in entries if entry.startswith(b"CUDA_VISIBLE_DEVICES="))


def test_pre_trainings_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLACE_VARIABLE, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert processes_and_threads(1) == (1, 8)
    assert processes_and_threads(1, beside=3) == (1, 2)
    assert processes_and_threads(2, beside=3) == (2, 1)
    assert processes_and_threads(1, beside=9) == (1, 1)
