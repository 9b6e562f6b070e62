"""Tables on Prefect's pages: only columns that hold something, and no cell that the page would take for Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from prefect.artifacts import create_table_artifact

_NOTHING = ("", "-")


def filled(records: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The records without the columns that are empty in all of them; an empty cell is empty, not a dash.

    A dash alone is a list to Markdown, which the pages draw as a bullet.
    """
    columns = (
        [name for name in records[0] if any(record[name] not in _NOTHING for record in records)] if records else []
    )
    return [{name: "" if record[name] in _NOTHING else record[name] for name in columns} for record in records]


def publish_table(records: Sequence[Mapping[str, str]], key: str, description: str) -> UUID:
    """Show a table on the Prefect run's Artifacts page; its id there. ``key``: letters, digits and dashes."""
    return cast(UUID, create_table_artifact(table=filled(records), key=key, description=description))
