"""Trainings side by side: equal ones once, what needs another after it, and what a failure does to the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from flows.trainings.train import Policy, run_all
from tasks.stages.training import Training
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tests.flows.toy_training import Toy

pytestmark = pytest.mark.usefixtures("prefect_server")
TWO = Policy(by_deployment=False, at_once=2, beside=2)


@flow
def together(requests: list[Any], **how: Any) -> dict[str, Any]:
    return {"results": run_all(requests, TWO, **how)}


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., Toy]:
    """A training that makes its artifact, and says so; one whose name begins with "bad" fails."""
    store = Store(str(tmp_path))

    def makes(request: Toy) -> None:
        (tmp_path / "order.txt").open("a").write(f"{request.name}\n")
        if request.name.startswith("bad"):
            raise ArithmeticError(request.name)
        store.build(request.recipe, lambda _: {})

    def made(name: str, *after: Training[Any]) -> Toy:
        return Toy(store, name, makes, after=tuple(each.artifact for each in after))

    return made


def order(folder: Path) -> list[str]:
    return (folder / "order.txt").read_text().split()


def test_what_another_is_made_from_comes_first_and_once(toy: Callable[..., Toy], tmp_path: Path) -> None:
    first = toy("first")
    results = together([toy("second", first), first, toy("first")], stage="toys")["results"]
    assert all(isinstance(found, Artifact) for found in results)
    assert results[1] == results[2]
    assert order(tmp_path) == ["first", "second"]


def test_a_failure_is_its_own_and_that_of_what_was_to_be_made_from_it(toy: Callable[..., Toy], tmp_path: Path) -> None:
    bad = toy("bad")
    error, alone, after = together([bad, toy("alone"), toy("after", bad)])["results"]
    assert isinstance(error, ArithmeticError)
    assert after is error
    assert isinstance(alone, Artifact)
    assert sorted(order(tmp_path)) == ["alone", "bad"]


def test_a_failure_of_a_kind_that_ends_all_lets_no_other_begin(toy: Callable[..., Toy], tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="bad"):
        together([toy("bad"), toy("beside"), toy("later")], ends_all=ArithmeticError)
    assert "later" not in order(tmp_path)
