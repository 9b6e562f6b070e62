"""From what fine-tunes reached to the card on the page of the flow run that was started for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from tasks.report.card import from_task_note, shown, start_note, synthetic_note
from tasks.report.comparison import contenders
from tasks.report.entries import task_model
from tasks.report.leaderboard import Leaderboard
from tasks.report.result_card import ResultCard
from tasks.report.score import Score, dataset_origin
from tasks.store.artifact import Artifact
from tasks.store.references import checkpoint_label
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import leaderboard_link

_PAPER = recorded(FinetuneConfig())


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
    found: FineTuned,
    sections: Mapping[str, str],
) -> ResultCard:
    """The card of a flow's fine-tunes.

    :param datasets: task -> its encoded rows: the tasks that were run.
    :param checkpoint: where the first row starts from.
    :param settings: task -> the first row's settings.
    :param sections: heading -> Markdown of what else the card shows.
    """
    names, tracker = list(datasets), Tracker()
    chosen = {"checkpoint": checkpoint_label(store, checkpoint), "store": store.url, "datasets": datasets_url}
    others = []
    if len(names) == 1:
        name = names[0]
        chosen |= _against_the_paper(settings[name])
        data = found.data.get(name) or dataset_origin(store.manifest(datasets[name]))["data"]
        others = contenders(tracker, name, data, found.board.rows[0].suite)
    links = {"MLflow: this row": found.page, "MLflow: the leaderboard": leaderboard_link(tracker)}
    for name, dataset in datasets.items() if len(names) == 1 else ():
        model = task_model(name, store.manifest(dataset)["counts"].get("synthetic", False))
        links[f"models:/{model}"] = f"{tracker.ui}/#/models/{model}"
    if found.table:
        links["every published row"] = found.table
    notes = [note for dataset in datasets.values() for note in synthetic_note(store.manifest(dataset))]
    notes += start_note(store.manifest(checkpoint))
    for name, config in settings.items():
        if note := from_task_note(recorded(config)):
            notes.append(note if len(names) == 1 else f"{name}: {note[0].lower()}{note[1:]}")
    return ResultCard(
        found.board,
        names,
        found.scores,
        others,
        settings=chosen,
        links=links,
        notes=list(dict.fromkeys(notes)),
        sections=sections,
    )


def _against_the_paper(config: FinetuneConfig) -> dict[str, str]:
    """Every setting of a fine-tune; where it is not the paper's, the paper's beside it."""
    found = {name: value for name, value in recorded(config).items() if name != "seed"}
    return {
        name: str(shown(value)) + ("" if value == _PAPER.get(name) else f" (paper: {shown(_PAPER.get(name))})")
        for name, value in found.items()
    }
