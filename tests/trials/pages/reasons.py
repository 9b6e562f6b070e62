"""Why a question was answered so: KagNET's form, the page of its run, and the picture among MLflow's files."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tasks.report.analysis import EXPERIMENT
from tasks.tracking.tracker import Tracker
from tests.trials.pages import mlflow, prefect
from tests.trials.pages.prefect import call, opened_tile, submitted


def check_reasons(page: Page, prefect_url: str, shots: Path, store: str) -> list[str]:
    """Ask the generated world's questions of its graph from the form, and read why on both sites.

    :param store: as the form takes it; holds a model fine-tuned on `commonsenseqa`.
    :return: what was seen, a line each.
    :raises AssertionError: something is not there.
    """
    deployments = {item["name"]: item["id"] for item in call(f"{prefect_url}/api/deployments/filter", {})}
    page.goto(f"{prefect_url}/v2/deployments/deployment/{deployments['reason']}/run")
    prefect.field(page, "Store").locator("input, textarea").first.fill(store)
    run = submitted(page, prefect_url, shots, deployments["reason"], "reason-form")
    opened_tile(page, prefect_url, run, "KagNET on commonsenseqa")
    body = page.get_by_test_id("markdown-display")
    for words in ("the text alone", "KagNET, 1 seed(s)", "difference", "a path leads to"):
        expect(body).to_contain_text(words)
    prefect.shot(page, shots, "reason")
    tracker = Tracker()
    why = next(
        found
        for found in tracker.search(EXPERIMENT, {"kind": "analysis", "analysis": "kagnet-why-1"})
        if found.info.status == "FINISHED"
    )
    text = Path(tracker.client.download_artifacts(why.info.run_id, "kagnet-why-1.md")).read_text(encoding="utf-8")
    question = text.splitlines()[0].removeprefix("# ")
    opened_tile(page, prefect_url, run, question)
    for words in (question, "(right)", "--", "the weightiest paths"):
        expect(body).to_contain_text(words)
    picture = body.locator("img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") > 0, "the picture of paths does not load"
    prefect.shot(page, shots, "reason-why")
    page.goto(f"{tracker.ui}/#/experiments/{why.info.experiment_id}/runs/{why.info.run_id}/artifacts/kagnet-why-1.png")
    expect(page.locator("img[src*='kagnet-why-1.png'], img[src^='blob:']").first).to_be_visible()
    mlflow.shot(page, shots, "reason-why")
    return [str(run["name"]), f"why: {question}"]
