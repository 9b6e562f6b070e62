"""A result on the page of the flow run that was started for it: the card, its table, a line in the log, its name.

:func:`result_card` makes the card from what a flow's fine-tunes reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from tasks.report.card import from_task_note, publish_table, shown, start_note, synthetic_note
from tasks.report.entries import task_model
from tasks.report.leaderboard import Leaderboard
from tasks.report.result_card import ResultCard, contenders
from tasks.report.rows import label_of
from tasks.report.score import Score, dataset_origin
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts
from tasks.store.references import checkpoint_label
from tasks.store.store import Store
from tasks.tracking.logs import logger
from tasks.tracking.provenance import artifact_page
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import leaderboard_link

_NEWEST = 4  # of our rows: as many columns as a page is wide
_PAPER = recorded(FinetuneConfig())


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
        others = {label_of(row): row for row in reversed(board.rows) if row.kind == "baseline"}
        published = [row for row in board.rows if row.kind == "published"]
        newest = Leaderboard((*ours[:_NEWEST], *others.values(), *published))
        notes = [f"The newest {len(ours[:_NEWEST])} of {len(ours)} rows; all of them are in the table and in MLflow."]
        card = ResultCard(newest, newest.tasks, notes=notes)
        create_markdown_artifact(card.markdown(), description=card.summary())


@dataclass(frozen=True)
class FineTuned:
    """What the fine-tunes of a flow reached; of their first row also each seed, its data, and where it is kept."""

    board: Leaderboard
    scores: list[Score]
    data: Mapping[str, str]
    """Task -> fingerprint of its files, of each of the twelve that is there."""
    page: str
    """MLflow's page of the row."""
    table: str | None
    """Prefect's page of the same tasks in every published row; None on the ephemeral server, which has no pages."""
    failures: Mapping[str, Exception] = field(default_factory=dict)
    """The tasks without a result in one of the rows."""


def result_card(
    store: Store,
    datasets_url: str,
    datasets: Mapping[str, Artifact],
    checkpoint: Artifact,
    settings: Mapping[str, FinetuneConfig],
    origin: str,
    reached: FineTuned,
    sections: Mapping[str, str],
) -> ResultCard:
    """The card of a flow's fine-tunes.

    :param datasets: task -> its encoded rows: the tasks that were run.
    :param checkpoint: where the first row starts from.
    :param settings: task -> the first row's settings, ``origin``: whose these are, in words.
    :param sections: heading -> Markdown of what else the card shows.
    """
    names, tracker = list(datasets), Tracker()
    chosen = {"checkpoint": checkpoint_label(store, checkpoint), "settings of": origin}
    chosen |= {"store": store.url, "datasets": datasets_url}
    others = []
    if len(names) == 1:
        name = names[0]
        chosen |= _against_the_paper(settings[name])
        data = reached.data.get(name) or dataset_origin(store.manifest(datasets[name]))["data"]
        others = contenders(tracker, name, data, reached.board.rows[0].suite)
    links = {"MLflow: this row": reached.page, "MLflow: the leaderboard": leaderboard_link(tracker)}
    for name, dataset in datasets.items() if len(names) == 1 else ():
        model = task_model(name, DatasetCounts.of(store, dataset).synthetic)
        links[f"models:/{model}"] = f"{tracker.ui}/#/models/{model}"
    if reached.table:
        links["every published row"] = reached.table
    notes = [note for dataset in datasets.values() for note in synthetic_note(store.manifest(dataset))]
    notes += start_note(store.manifest(checkpoint))
    for name, config in settings.items():
        if note := from_task_note(recorded(config)):
            notes.append(note if len(names) == 1 else f"{name}: {note[0].lower()}{note[1:]}")
    one = len(names) == 1
    notes += [score.selected if one else f"{score.task}: {score.selected}" for score in reached.scores]
    return ResultCard(
        reached.board,
        names,
        reached.scores,
        others,
        settings=chosen,
        links=links,
        notes=list(dict.fromkeys(notes)),
        sections=sections,
    )


def _against_the_paper(config: FinetuneConfig) -> dict[str, str]:
    """Every setting of a fine-tune; where it is not the paper's, the paper's beside it."""
    return {
        name: str(shown(value)) + ("" if value == _PAPER.get(name) else f" (paper: {shown(_PAPER.get(name))})")
        for name, value in recorded(config).items()
        if name != "seed"
    }
