"""A result on the page of the flow run that was started for it: the card, its table, a line in the log, its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.report.leaderboard import Leaderboard
from tasks.report.result_card import ResultCard
from tasks.report.tables import publish_table
from tasks.tracking.logs import logger
from tasks.tracking.provenance import artifact_page

_NEWEST = 4  # of our rows: as many columns as a page is wide


def publish_table_of(board: Leaderboard, tasks: Sequence[str]) -> UUID:
    """The leaderboard's columns of these tasks as a table to sort, on the Prefect run's page; its id there."""
    records = [
        {name: text for name, text in record.items() if name != "average" or len(tasks) > 1}
        for record in board.only(tasks).records()
    ]
    return publish_table(records, "leaderboard", "Scores x 100; published rows: test, dev where they say so")


def publish_result(card: ResultCard) -> None:
    """Show a result on the calling flow run's page, where nothing else should be, as Prefect sorts by random ids.

    It has no key: a tile with a key leads to the history of that key, one without to the card.
    """
    created = cast(UUID, create_markdown_artifact(card.markdown(), description=card.summary()))
    logger().info("%s: %s", ", ".join(card.tasks), card.headline)
    if page := artifact_page(created):
        logger().info("the card: %s", page)
    show_in_name(card.headline)


def show_in_name(headline: str) -> None:
    """Put the result into the flow run's name: at the head of its page, and in every list of runs."""
    if flow_run.id:
        with get_client(sync_client=True) as client:
            client.set_flow_run_name(UUID(str(flow_run.id)), with_result(str(flow_run.name), headline))


def with_result(name: str, headline: str) -> str:
    """A run's name with its result behind what was run, before the settings: a page cuts a name at its end."""
    what, _, settings = name.partition(", ")
    return f"{what} → {headline}" + (f"; {settings}" if settings else "")


def show_leaderboard(board: Leaderboard) -> None:
    """The leaderboard on the Prefect run's Artifacts page: as a table to sort, and the best of each task as a card."""
    publish_table_of(board, board.tasks)
    ours = [row for row in board.rows if row.kind == "ours"]
    if ours:
        others = {row.name.rpartition(" ")[0]: row for row in reversed(board.rows) if row.kind == "baseline"}
        published = [row for row in board.rows if row.kind == "published"]
        newest = Leaderboard((*ours[:_NEWEST], *others.values(), *published))
        notes = [f"The newest {len(ours[:_NEWEST])} of {len(ours)} rows; all of them are in the table and in MLflow."]
        card = ResultCard(newest, newest.tasks, notes=notes)
        create_markdown_artifact(card.markdown(), description=card.summary())
