"""What runs, and in which order: Prefect flows, the forms that they are told by, the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

FORMER = {
    "flows.leaderboard": "flows.trainings.leaderboard",
    "flows.train": "flows.trainings.train",
}
"""Modules by which deployments of former versions, on a Prefect server, name their flows -> where these are now.

Those that became a paper's stand in the table of its room.
"""


class _Former:
    """Finds and loads a former module: one that has what is in its successor.

    It has the methods of `MetaPathFinder` and `Loader` without being one: importing these costs `gptmill --help` 20 ms.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("flows."):
            return None
        from flows.plugins import added  # not for `--help`

        former = FORMER | added("former")
        package, _, name = fullname.rpartition(".")
        if successor := former.get(fullname) or (f"{former[package]}.{name}" if package in former else None):
            return ModuleSpec(fullname, cast(Any, self), loader_state=successor, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """A plain module will do."""

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "find_spec() made it"
        successor: str = module.__spec__.loader_state

        def attribute(name: str) -> Any:
            return getattr(import_module(successor), name)

        vars(module)["__getattr__"] = attribute


sys.meta_path.append(_Former())
