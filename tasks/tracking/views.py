"""Saved views of an experiment's run list, as the "Views" menu of MLflow's UI keeps them, written by a program.

The UI (3.17) keeps a view in the experiment's tag `mlflow.sharedViewState.<key>`, and an address with
`viewStateShareKey=<key>` opens it. The tag is JSON: name, createdAt and updatedAt in milliseconds, and the state, which
is JSON as text (the UI deflates its own and reads both). What a state leaves out is as the UI has it at first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.tracking.tracker import NOTE, TRAINING, Tracker

LEADERBOARD = "gptmill/leaderboard"
PRETRAIN = "gptmill/pretrain"
SWEEPS = "gptmill/sweeps"
ABSTRACTS = "gptmill/abstracts"
LEADERBOARD_VIEW = "leaderboard"
_TAG = "mlflow.sharedViewState."
_NAME, _CREATED, _DURATION = "attributes.`Run Name`", "runDateAndNestInfo", "duration"  # columns that always show
_CHART_HEIGHT = 480  # pixels
_FIRST_WIDTHS = {_NAME: 190, _CREATED: 42, _DURATION: 80}  # pixels; of "Created" the status alone


@dataclass(frozen=True)
class View:
    """Which runs of an experiment a page shows, in which order and with which columns."""

    key: str
    title: str
    where: str
    """MLflow's filter expression; empty: every run."""
    order_by: str
    """A column, highest first unless ``ascending``."""
    columns: Mapping[str, int]
    """Column -> its width in pixels, left to right; see :func:`metric` and :func:`tag`."""
    ascending: bool = False
    parallel: tuple[Sequence[str], Sequence[str]] | None = None
    """Params and metrics of a chart of parallel coordinates, on the page's chart side; None: the UI's own charts."""

    @property
    def state(self) -> dict[str, Any]:
        """The UI's own description of such a page."""
        return {
            **({} if self.parallel is None else _parallel_chart(*self.parallel)),
            "searchFilter": self.where,
            "orderByKey": self.order_by,
            "orderByAsc": self.ascending,
            "selectedColumns": list(self.columns),
            "columnOrder": [_NAME, _CREATED, *self.columns, _DURATION],
            "columnWidths": {**_FIRST_WIDTHS, **self.columns},
        }


def _parallel_chart(params: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """One chart, in a section of its own, as the UI keeps what somebody adds by hand."""
    section = {"uuid": "parallel", "name": "Parallel coordinates", "display": True, "isReordered": False}
    section |= {"columns": 1, "cardHeight": _CHART_HEIGHT}
    chart = {
        "uuid": "parallel-1",
        "type": "PARALLEL",
        "metricSectionId": "parallel",
        "selectedParams": list(params),
        "selectedMetrics": list(metrics),
        "showAllRuns": True,
    }
    kept = {"deleted": False, "isGenerated": False}
    return {"compareRunCharts": [{**chart, **kept}], "compareRunSections": [{**section, **kept}]}


def metric(name: str) -> str:
    """The UI's name for a metric's column."""
    return f"metrics.`{name}`"


def tag(name: str) -> str:
    """The UI's name for a tag's column."""
    return f"tags.`{name}`"


def save_views(tracker: Tracker, experiment: str, views: Sequence[View], note: str = "") -> None:
    """Keep views and a description (Markdown) with an experiment; what it has already is not written again."""
    wanted = {NOTE: note} if note else {}
    experiment_id = tracker.experiment(experiment)
    there: Mapping[str, str] = tracker.client.get_experiment(experiment_id).tags
    for view in views:
        state, now = json.dumps(view.state), int(time.time() * 1000)
        kept = json.loads(there.get(_TAG + view.key, "{}"))
        if (kept.get("name"), kept.get("state")) != (view.title, state):
            envelope = {"name": view.title, "createdAt": kept.get("createdAt", now), "updatedAt": now, "state": state}
            wanted[_TAG + view.key] = json.dumps(envelope)
    for key, value in wanted.items():
        if there.get(key) != value:
            tracker.client.set_experiment_tag(experiment_id, key, value)


def view_link(tracker: Tracker, experiment: str, key: str) -> str:
    """Address of a saved view."""
    return f"{tracker.ui}/{view_path(tracker.experiment(experiment), key)}"


def view_path(experiment_id: str, key: str) -> str:
    """The address without the server: a link between pages of MLflow, whatever the address it is served at."""
    return f"#/experiments/{experiment_id}/runs{TRAINING}&viewStateShareKey={key}"


def leaderboard_link(tracker: Tracker) -> str:
    """Address of the page with the leaderboard's scores; without a server, the one that `gptmill up` would serve."""
    return view_link(tracker, LEADERBOARD, LEADERBOARD_VIEW)


def leaderboard_line(tracker: Tracker) -> str:
    """The address in words, for a terminal; where no server answers there, what opens it."""
    return f"MLflow: {leaderboard_link(tracker)}" if tracker.served else "MLflow: `gptmill up` opens its pages"
