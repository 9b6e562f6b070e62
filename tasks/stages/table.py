"""The stages, found by their names: the version of each one's code, and where its parts live.

The file `stages.toml` in this folder lists the core's, the one in each room of papers that paper's. A stage of another
package is an entry point of the group ``gptmill.stages`` that leads to its :class:`Stage`. Nothing of a stage is
imported until it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gptcore.base.named import Named
from gptcore.base.tables import read_table

ENTRY_POINTS = "gptmill.stages"
_FILE = "stages.toml"


@dataclass(frozen=True)
class Stage:
    """A kind of artifact, and what makes it."""

    name: str
    version: int
    """Raised by hand when the stage's code starts to give different output for the same settings."""
    task: str = ""
    """The Prefect task that makes an artifact of it, as ``package.module:name``, where others reach it by name."""
    job: str = ""
    """The module that its child process runs; empty: its task works in its own process."""


def _ours() -> list[Stage]:
    core = Path(__file__).with_name(_FILE)
    papers = sorted(core.parents[1].glob(f"papers/*/{_FILE}"))
    return [Stage(name, **fields) for file in (core, *papers) for name, fields in read_table(str(file), _FILE).items()]


STAGES: Mapping[str, Stage] = Named(ENTRY_POINTS, _ours)


class Versions(Mapping[str, int]):
    """Stage -> the version of its code, of every stage of :data:`STAGES`."""

    def __getitem__(self, stage: str) -> int:
        return STAGES[stage].version

    def __iter__(self) -> Iterator[str]:
        return iter(STAGES)

    def __len__(self) -> int:
        return len(STAGES)
