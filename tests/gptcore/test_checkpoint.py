"""Checkpoints are complete or not seen; random states come back bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gptcore.base.files import read_json
from gptcore.machine import rng
from gptcore.training import checkpoint


def write(root: Path, step: int, keep: int = 3) -> Path:
    groups = {"model": {"w": torch.full((3,), float(step))}, "optimizer": {"w/step": torch.tensor(1.0)}}
    return checkpoint.save(root, step, groups, {"note": f"at {step}"}, keep=keep)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, 7)
    found = checkpoint.newest_valid(tmp_path)
    assert found is not None
    assert (found.folder, found.step, found.state["note"]) == (folder, 7, "at 7")
    assert torch.equal(found.tensors("model")["w"], torch.full((3,), 7.0))
    assert set(read_json(folder / "manifest.json")["files"]) == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }


def test_nothing_there(tmp_path: Path) -> None:
    assert checkpoint.newest_valid(tmp_path / "absent") is None
    (tmp_path / "step-notanumber").mkdir()
    assert checkpoint.newest_valid(tmp_path) is None


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "model.safetensors"),
        lambda folder: (folder / "optimizer.safetensors").unlink(),
        lambda folder: (folder / "state.json").write_text("{}"),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("[1"),
        lambda folder: (folder / "manifest.json").write_text('{"format": 99}'),
        lambda folder: (folder / "manifest.json").write_text("[]"),
    ],
    ids=["flipped bit", "missing file", "other state", "no manifest", "cut manifest", "other format", "other JSON"],
)
def test_a_broken_checkpoint_is_passed_over(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    write(tmp_path, 9)
    damage(write(tmp_path, 10))  # 9 and 10: names sort as numbers
    found = checkpoint.newest_valid(tmp_path)
    assert found is not None
    assert found.step == 9


def test_only_the_newest_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    leftover = tmp_path / ".step-00000002.4242.tmp"
    leftover.mkdir()
    for step in (1, 2, 3, 12):
        write(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000012"]


def test_the_same_step_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 5)
    checkpoint.save(tmp_path, 5, {"model": {"w": torch.zeros(1)}}, {"note": "again"}, keep=1)
    found = checkpoint.newest_valid(tmp_path)
    assert found is not None
    assert found.state["note"] == "again"


def test_random_states_come_back(tmp_path: Path) -> None:
    rng.seed_everything(11)
    np.random.normal()  # leaves a cached second value behind: part of the state
    checkpoint.save(tmp_path, 1, {}, {"rng": rng.capture()}, keep=1)

    def draws() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.normal()), torch.rand(()).item()]

    expected = draws()
    found = checkpoint.newest_valid(tmp_path)
    assert found is not None
    rng.restore(found.state["rng"])
    assert draws() == expected


def test_seeds_belong_to_their_names() -> None:
    seeds = {rng.derive_seed(1, "a"), rng.derive_seed(1, "b"), rng.derive_seed(2, "a"), rng.derive_seed(1, "a", 0)}
    assert len(seeds) == 4
    assert rng.derive_seed(1, "a") == rng.derive_seed(1, "a")
