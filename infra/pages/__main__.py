"""What a person sees on both sites, asserted in a headless Chromium: a form, its run's result, the leaderboard.

    make demo && make up          # or make full, with a pipeline on its store
    python -m infra.pages --shots shots
    python -m infra.pages --shots shots --abstracts runs/demo    # after `gptmill abstracts`, or it takes as long

Starts a fine-tune from Prefect's form, reads score, baselines and the paper's number on the page of that run, then
opens MLflow's pages. Leaves screenshots to look at. Exit code 1 where something is missing. Needs Chromium (Debian:
`apt-get install chromium`) and `pip install gptmill[dev]`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from flows.servers.environment import prepare, read_stack
from gptcore.errors import InputError
from gptcore.nlu.registry import task_spec
from infra.pages.login import check_refusals, log_in_to_prefect, new_page
from infra.pages.mlflow import check_mlflow
from infra.pages.prefect import check_abstracts, check_prefect

_PATIENCE_SECONDS = 60  # a page of a server that trains beside it
_TITLE = "Neural Architecture Search without Training"
_CHROMIUM = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def main() -> int:
    """Run every check; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="rte", help="the task to fine-tune (%(default)s)")
    parser.add_argument("--lr", type=float, default=5e-4, help="its learning rate (%(default)s)")
    parser.add_argument("--abstracts", metavar="STORE", help="also drive the forms of abstracts and prompts there")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder for the screenshots (%(default)s)")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    prepare()
    stack = read_stack()
    if stack is None:
        raise InputError("the sites are not running; start them first: gptmill up")
    prefect_url, mlflow_url = stack["prefect_url"], stack["mlflow_url"]
    if stack["layout"]["full"]:
        print("\n".join(check_refusals(prefect_url, mlflow_url)))
    paper = next(score for score in task_spec(options.task).paper.values() if score is not None)
    expect.set_options(timeout=1000 * _PATIENCE_SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_CHROMIUM)
        page = new_page(browser)
        log_in_to_prefect(page, prefect_url)
        settings = {"Lr": options.lr, "Seeds": 2, "Epochs": 1}
        run = check_prefect(page, prefect_url, options.shots, options.task, paper, **settings)
        print(f"Prefect: {run['name']}")
        if options.abstracts:
            for name in check_abstracts(page, prefect_url, options.shots, options.abstracts, _TITLE):
                print(f"Prefect: {name}")
        for line in check_mlflow(page, mlflow_url, options.shots):
            print(f"MLflow: {line}")
        browser.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"infra.pages: error: {error}", file=sys.stderr)
        sys.exit(2)
