"""Where the datasets come from: address, licence, and what an archive holds of a dataset; one entry each.

Beside the registry and not in it, as reading a dataset needs none of this and a dataset of one's own has no address.
The table itself is ``origins.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gptcore.base.errors import InputError, nearest
from gptcore.base.tables import read_table
from gptcore.nlu.blimp import BLIMP, FOLDER, PAIRS, PARADIGMS

_BLIMP = "https://raw.githubusercontent.com/alexwarstadt/blimp/master/data/"


@dataclass(frozen=True)
class Download:
    """One file to fetch."""

    url: str
    take: str
    """The members of an archive to keep, as a pattern without its first part; else the name to keep the file by."""
    size: int = 0
    """Bytes of the file; 0 where they are not known."""
    sha256: str = ""
    """The file's SHA-256; empty where no source that can be cited has one."""

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Origin:
    """Where one dataset comes from."""

    name: str
    """The dataset's name in commands: a task's, or one of a set that some other command uses."""
    folder: str
    """The sub-folder of the folder of datasets that it becomes."""
    licence: str
    """In the authors' words, shortened."""
    page: str
    """The authors' page, where the terms stand."""
    downloads: tuple[Download, ...] = ()
    request: str = ""
    """How to get it where nobody may fetch it."""
    note: str = ""
    """What to know of the fetched files."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows published, of a set that neither the registry nor the table of submissions counts."""

    @property
    def size(self) -> int:
        """Bytes to fetch; 0 where they are not known."""
        sizes = [download.size for download in self.downloads]
        return sum(sizes) if all(sizes) else 0


_OF_BLIMP = Origin(
    BLIMP,
    FOLDER,
    "none stated in the repository",
    "https://github.com/alexwarstadt/blimp",
    tuple(Download(f"{_BLIMP}{name}.jsonl", f"{name}.jsonl") for name in PARADIGMS),
    rows={"test": PAIRS * len(PARADIGMS)},
)

ORIGINS: dict[str, Origin] = {
    entry["name"]: Origin(**{**entry, "downloads": tuple(Download(**file) for file in entry.get("downloads", ()))})
    for entry in read_table(__file__, "origins.toml")["dataset"]
} | {BLIMP: _OF_BLIMP}
"""Name -> entry: the twelve tasks in the registry's order, then what other commands read."""


def origins_named(names: list[str]) -> list[Origin]:
    """The entries of these names, in the table's order; ``all``: every one.

    :raises InputError: a name that is none.
    """
    for name in names:
        if name not in ORIGINS and name != "all":
            raise InputError(f"dataset: found {name!r}, {nearest(name, [*ORIGINS, 'all'])}")
    return [origin for origin in ORIGINS.values() if origin.name in names or "all" in names]
