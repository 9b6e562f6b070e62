"""Where the Hugging Face hub keeps the same datasets, and how its parquet files spell them.

Columns have other names there and labels are numbers, counted in an order of the set's own. Both are as published with
the sets (their ClassLabel features), and stated here so that a file which says otherwise is an error. Sources: the
dataset cards of nyu-mll/glue, stanfordnlp/snli, allenai/scitail and ehovy/race. Story Cloze may not be passed on, so
nobody's parquet is public; its names are those of the loading script LSDSem/story_cloze.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gptcore.base.tables import read_table


@dataclass(frozen=True)
class HubSet:
    """One dataset in parquet."""

    repo: str
    """``owner/name`` on the hub."""
    files: Mapping[str, str]
    """The public file that holds a split, as in the registry -> ``config/split`` in the repository."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The registry's name of a column -> its name here, where that differs."""
    classes: tuple[str, ...] = ()
    """What the label's numbers 0, 1, ... mean, as published; a file's own features must agree."""
    labels: Mapping[int | str, str] = field(default_factory=dict)
    """Label here -> the registry's; empty: the same text or number."""
    options: str = ""
    """A column with the list of all choices, in the place of one column each."""


HUB: dict[str, tuple[HubSet, ...]] = {
    folder: tuple(HubSet(**{**entry, "labels": dict(entry.get("labels", ()))}) for entry in entries)
    for folder, entries in read_table(__file__, "hub.toml").items()
}
"""A dataset's folder -> its sets on the hub, the better one first."""
