"""Who made a run, and how to walk from it to its twin: tags for MLflow, links for the card."""

from __future__ import annotations

import getpass
import os
from uuid import UUID

from prefect.runtime import flow_run
from prefect.settings import PREFECT_UI_URL

from tasks.store.artifact import Artifact
from tasks.store.manifest import code_version
from tasks.tracking.tracker import Run
from tasks.tracking.views import leaderboard_link


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
        tags["mlflow.note.content"] = f"Prefect run: [{flow_run.name}]({page})"
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
