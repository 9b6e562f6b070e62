"""Who made a run, and how to walk from it to its twin: tags for MLflow, links for the card."""

from __future__ import annotations

import getpass
import os

from prefect.runtime import flow_run

from tasks.store.artifact import Artifact
from tasks.store.manifest import code_version
from tasks.tracking.tracker import Run
from tasks.tracking.views import leaderboard_link


def run_tags(**digests: str) -> dict[str, str]:
    """Tags of every MLflow run: digests, git commit, Prefect flow run and its page; and those of the UI's columns."""
    version = code_version()
    commit = str(version["git"] or "")
    tags = {"git_commit": commit, "gptmill": str(version["package"]), **digests}
    tags |= {"mlflow.user": getpass.getuser(), "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": commit}
    tags["mlflow.source.name"] = f"gptmill {flow_run.flow_name}" if flow_run.id else "gptmill"
    if flow_run.id:
        tags["prefect_flow_run_id"] = str(flow_run.id)
    if page := prefect_page():
        tags["prefect_url"] = page
        tags["mlflow.note.content"] = f"Prefect run: [{flow_run.name}]({page})"
    return tags


def prefect_page() -> str | None:
    """The flow run's page in the Prefect UI; None on the ephemeral server, which has no pages."""
    if not os.environ.get("PREFECT_API_URL") or not flow_run.id:
        return None
    return str(flow_run.ui_url) if flow_run.ui_url else None


def cross_links(run: Run, artifact: Artifact) -> dict[str, str]:
    """Words -> address: the MLflow run's curves, the leaderboard, the Prefect run, the artifact's folder."""
    page = prefect_page()
    later = "" if run.tracker.served else " (after `gptmill up`)"
    board = leaderboard_link(run.tracker)
    links = {f"MLflow run{later}": run.charts, f"leaderboard{later}": board, "artifact": artifact.url}
    return {**links, "Prefect run": page} if page else links
