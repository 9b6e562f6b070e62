"""Who made a run, from which data, and how to walk to its twin: tags and inputs for MLflow, links for the card."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from prefect.runtime import flow_run
from prefect.settings import PREFECT_UI_URL

from tasks.store.artifact import Artifact
from tasks.store.manifest import code_version
from tasks.tracking.tracker import NOTE, Run
from tasks.tracking.views import leaderboard_link

_INPUTS_TAG = "inputs"  # of a run: how many datasets it has
_DIGEST_LENGTH = 36  # MLflow's limit; the whole digest is in the source


def run_tags(**digests: str) -> dict[str, str]:
    """Tags of every MLflow run: digests, git commit, Prefect flow run and its page; and those of the UI's columns."""
    version = code_version()
    commit = str(version["git"] or "")
    tags = {"git_commit": commit, "gptmill": str(version["package"]), **digests}
    tags |= {"mlflow.user": _user(), "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": commit}
    tags["mlflow.source.name"] = f"gptmill {flow_run.flow_name}" if flow_run.id else "gptmill"
    if flow_run.id:
        tags["prefect_flow_run_id"] = str(flow_run.id)
    if page := prefect_page():
        tags["prefect_url"] = page
        tags[NOTE] = f"Prefect run: [{flow_run.name}]({page})"
    return tags


def _user() -> str:
    """Who runs this; its number where it has no name, as in many a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def prefect_page() -> str | None:
    """The page of the run that a person started, opened where its card is; None on the ephemeral server (no pages).

    Not of the flow run at hand, which may be a part of that one.
    """
    if not _has_pages():
        return None
    return f"{PREFECT_UI_URL.value()}/runs/flow-run/{flow_run.root_flow_run_id}?tab=Artifacts"


def artifact_page(artifact: UUID) -> str | None:
    """The page of a Prefect artifact; None on the ephemeral server."""
    return f"{PREFECT_UI_URL.value()}/artifacts/artifact/{artifact}" if _has_pages() else None


def _has_pages() -> bool:
    return bool(os.environ.get("PREFECT_API_URL") and PREFECT_UI_URL.value() and flow_run.id)


def cross_links(run: Run, artifact: Artifact) -> dict[str, str]:
    """Words -> address: the MLflow run's curves, the leaderboard, the Prefect run, the artifact's folder."""
    page = prefect_page()
    later = "" if run.tracker.served else " (after `gptmill up`)"
    board = leaderboard_link(run.tracker)
    links = {f"MLflow run{later}": run.charts, f"leaderboard{later}": board, "artifact": artifact.url}
    return {**links, "Prefect run": page} if page else links


@dataclass(frozen=True)
class Data:
    """One set of rows or documents."""

    name: str
    digest: str
    url: str
    rows: Mapping[str, int]
    """Split -> rows."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Sizes besides the rows: words, tokens."""


def has_inputs(run: Run) -> bool:
    """Whether the run's data is recorded; costs nothing, as the run says so itself."""
    return _INPUTS_TAG in run.opened_tags


def log_inputs(run: Run, inputs: Sequence[Data]) -> None:
    """Record the data that a run reads."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    entities = [
        DatasetInput(
            Dataset(
                data.name,
                data.digest[:_DIGEST_LENGTH],
                source_type=data.url.partition("://")[0] if "://" in data.url else "local",
                source=json.dumps({"uri": data.url, "sha256": data.digest}),
                profile=json.dumps({"num_rows": sum(data.rows.values()), **data.rows, **data.more}),
            ),
            [InputTag("mlflow.data.context", ", ".join(data.rows))],
        )
        for data in inputs
    ]
    run.tracker.client.log_inputs(run.run_id, entities)
    run.set_tags({_INPUTS_TAG: str(len(entities))})
