"""A trial of the two web pages, as a researcher uses them: fill the form in Prefect, find the row in MLflow.

    gptmill up --store runs/demo
    python -m infra.ui_trial --task rte --lr 0.0005 --shots shots

Drives a real headless Chromium (Debian: `apt-get install chromium`) and leaves screenshots to look at. Exits 1 unless
the run completes and its row is in MLflow with the chosen learning rate.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from flows.environment import stack_file
from gptcore.files import read_json

_CHROMIUM = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_RUN_SECONDS = 600.0


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    """GET, or POST with a JSON body, and parse the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310  # our own servers
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # as above
        return json.load(response)


def field_below(page: Page, words: str) -> Any:
    """The first control after a field's description: the form's labels are not tied to their controls."""
    control = "*[self::button or self::input or self::textarea]"
    return page.locator(f"xpath=//div[starts-with(normalize-space(text()), '{words}')]/following::{control}[1]")


def main() -> int:
    """Run the trial; 0 if the row came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="rte")
    parser.add_argument("--lr", default="0.0005")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder for the screenshots (%(default)s)")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    stack = read_json(stack_file())
    prefect, mlflow = stack["prefect_url"], stack["mlflow_url"]
    deployments = {d["name"]: d["id"] for d in call(f"{prefect}/api/deployments/filter", {})}

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_CHROMIUM)
        page = browser.new_page(viewport={"width": 1400, "height": 1500})

        def shot(name: str) -> None:
            page.wait_for_timeout(4000)  # the pages draw after they load
            page.screenshot(path=options.shots / f"{name}.png")

        page.goto(f"{prefect}/deployments/deployment/{deployments['finetune']}/run")
        page.get_by_text("Lr (Optional)").wait_for(timeout=60_000)
        field_below(page, "Which of the twelve datasets.").click()
        page.wait_for_timeout(500)
        page.keyboard.press("ArrowDown")
        shot("1-form-drop-down")
        page.get_by_role("option", name=options.task).or_(page.get_by_text(options.task, exact=True)).first.click()
        field_below(page, "Maximum learning rate").fill(options.lr)
        shot("2-form-filled")
        page.get_by_role("button", name="Submit").click()
        page.wait_for_timeout(3000)

        run = _await_run(prefect, deployments["finetune"])
        print(f"Prefect: {run['name']} {run['state_name']}, parameters {run['parameters']['parameters']}")
        page.goto(f"{prefect}/runs/flow-run/{run['id']}")
        shot("3-prefect-run")
        page.get_by_text("Artifacts", exact=True).first.click()
        shot("4-prefect-artifacts")

        name = urllib.parse.quote("gptmill/leaderboard")
        found = call(f"{mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}")
        experiment = found["experiment"]["experiment_id"]
        page.set_viewport_size({"width": 2000, "height": 1100})
        page.goto(f"{mlflow}/#/experiments/{experiment}/runs?searchFilter=tags.kind%20!%3D%20'finetune'")
        shot("5-mlflow-leaderboard")
        rows = _newest_finetune(mlflow, experiment)
        for row in rows:
            page.goto(f"{mlflow}/#/experiments/{experiment}/runs/{row['info']['run_id']}")
            shot("6-mlflow-run")
            print(f"MLflow: {row['info']['run_name']} {row['info']['status']}")
        browser.close()
    rates = {p["value"] for row in rows for p in row["data"]["params"] if p["key"] == "finetune.lr"}
    return 0 if run["state_type"] == "COMPLETED" and {float(rate) for rate in rates} == {float(options.lr)} else 1


def _await_run(prefect: str, deployment: str) -> dict[str, Any]:
    """The newest run of the deployment, once it has ended."""
    deadline = time.monotonic() + _RUN_SECONDS
    query = {"sort": "EXPECTED_START_TIME_DESC", "deployments": {"id": {"any_": [deployment]}}, "limit": 1}
    while time.monotonic() < deadline:
        runs = call(f"{prefect}/api/flow_runs/filter", query)
        if runs and runs[0]["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            newest: dict[str, Any] = runs[0]
            return newest
        time.sleep(2)
    raise TimeoutError(f"no run of the deployment ended within {_RUN_SECONDS:.0f} s")


def _newest_finetune(mlflow: str, experiment: str) -> list[dict[str, Any]]:
    """The newest fine-tune of the experiment, as a list of one; empty where there is none."""
    query = {"experiment_ids": [experiment], "filter": "tags.kind = 'finetune'", "max_results": 1}
    runs: list[dict[str, Any]] = call(f"{mlflow}/api/2.0/mlflow/runs/search", query).get("runs", [])
    return runs


if __name__ == "__main__":
    sys.exit(main())
