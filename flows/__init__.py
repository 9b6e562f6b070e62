"""What runs, and in which order: Prefect flows, the forms that they are told by, the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

FORMER = {
    "flows.abstracts": "flows.papers.abstracts.flow",
    "flows.analysis": "flows.papers.analyses",
    "flows.analysis.entities": "flows.papers.graphs.entities",
    "flows.analysis.overlap": "flows.papers.prompting.overlap",
    "flows.analysis.students": "flows.papers.students.analyses",
    "flows.distil": "flows.papers.students.flow",
    "flows.few_shot": "flows.papers.prompting.flow",
    "flows.knowledge": "flows.papers.graphs.flow",
    "flows.knowledge.flow": "flows.papers.graphs.flow",
    "flows.knowledge.reason": "flows.papers.graphs.reason",
    "flows.leaderboard": "flows.trainings.leaderboard",
    "flows.reason": "flows.papers.graphs.reason",
    "flows.sweep": "flows.papers.sweep.flow",
    "flows.sweep.flow": "flows.papers.sweep.flow",
    "flows.train": "flows.trainings.train",
}
"""Modules by which deployments of former versions, on a Prefect server, name their flows -> where these are now."""


class _Former:
    """Finds and loads a former module: one that has what is in its successor.

    It has the methods of `MetaPathFinder` and `Loader` without being one: importing these costs `gptmill --help` 20 ms.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = fullname in FORMER or fullname.rpartition(".")[0] in FORMER
        return ModuleSpec(fullname, cast(Any, self), is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> None:
        """A plain module will do."""

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.rpartition(".")
        successor = FORMER.get(module.__name__) or f"{FORMER[package]}.{name}"

        def attribute(name: str) -> Any:
            return getattr(import_module(successor), name)

        vars(module)["__getattr__"] = attribute


sys.meta_path.append(_Former())
