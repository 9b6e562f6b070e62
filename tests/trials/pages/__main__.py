"""What a person sees on both sites, asserted in a headless Chromium: a form, its run's result, the leaderboard.

    make demo && make up          # or make full, with a pipeline on its store
    python -m tests.trials.pages --shots shots
    python -m tests.trials.pages --shots shots --abstracts runs/demo    # after `gptmill abstracts`, or it takes as long
    python -m tests.trials.pages --shots shots --reason runs/demo       # after `gptmill finetune commonsenseqa` there
    python -m tests.trials.pages --shots shots --own-task ./my-task.toml
    GPTMILL_REAL_DATA=... python -m tests.trials.pages --shots shots --own-task wnli news-relations arxiv-years

Starts a fine-tune from Prefect's form, reads score, baselines and the paper's number on the page of that run, then
opens MLflow's pages. With `--own-task` only what belongs to tasks of somebody's own: `gptmill deploy --task` lists
each in the form, its score is on the run's page and in a column of MLflow's leaderboard; the three of real rows are
made in a folder that is gone at the end. Leaves screenshots to look at: as each page was read, at 1280 and 1920 pixels,
and both once more in dark. Exit code 1 where something is missing. Needs Chromium (Debian: `apt-get install chromium`)
and `pip install gptmill[dev]`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from flows.servers.environment import prepare, read_stack
from gptcore.base.errors import InputError
from gptcore.nlu.own_task import own_task_name
from gptcore.nlu.registry import task_spec
from tasks.report.analysis import EXPERIMENT
from tasks.tracking.tracker import Tracker
from tests.trials import scenarios
from tests.trials.pages import CHROMIUM, mlflow, prefect
from tests.trials.pages.mlflow import check_greeting, check_mlflow, check_own_column
from tests.trials.pages.prefect import (
    check_abstracts,
    check_deployments,
    check_failure,
    check_prefect,
    check_refusals,
    log_in_of,
    log_in_to_prefect,
    new_page,
    opened_tile,
    submitted,
)
from tests.trials.pages.real_tasks import REAL_TASKS, write_real_tasks
from tests.trials.pages.shots import again_in_dark

_PATIENCE_SECONDS = 60  # a page of a server that trains beside it
_TITLE = "Neural Architecture Search without Training"


def main() -> int:
    """Run every check; 0 if all hold."""
    parser = scenarios.options(__doc__)
    parser.add_argument("--task", default="rte", help="the task to fine-tune (%(default)s)")
    parser.add_argument("--lr", type=float, default=5e-4, help="its learning rate (%(default)s)")
    parser.add_argument("--abstracts", metavar="STORE", help="also drive the forms of abstracts and prompts there")
    parser.add_argument("--reason", metavar="STORE", help="only KagNET's form and pages, on the models there")
    parser.add_argument(
        "--own-task",
        metavar="FILE",
        nargs="+",
        help=f"only these tasks' pages; also {', '.join(REAL_TASKS)}, of real rows",
    )
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
    expect.set_options(timeout=1000 * _PATIENCE_SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        page = new_page(browser)
        log_in_to_prefect(page, prefect_url)
        if options.reason:
            check_greeting(page, mlflow_url)
            page.set_viewport_size({"width": 1100, "height": 900})
            for line in _check_reasons(page, prefect_url, options.shots, options.reason):
                print(f"reason: {line}")
        elif options.own_task:
            _check_own_tasks(page, prefect_url, mlflow_url, options)
        else:
            _check_all(page, prefect_url, mlflow_url, options, stack["layout"]["full"])
        again_in_dark(browser, options.shots, log_in_of())
        browser.close()
    return 0


def _check_all(page: Page, prefect_url: str, mlflow_url: str, options: argparse.Namespace, full: bool) -> None:
    paper = next(score for score in task_spec(options.task).paper.values() if score is not None)
    settings = {"Lr": options.lr, "Seeds": 2, "Epochs": 1}
    run = check_prefect(page, prefect_url, options.shots, options.task, paper, **settings)
    print(f"Prefect: {run['name']}")
    for check in (check_deployments, check_failure):
        print(f"Prefect: {check(page, prefect_url, options.shots)}")
    if options.abstracts:
        for name in check_abstracts(page, prefect_url, options.shots, options.abstracts, _TITLE):
            print(f"Prefect: {name}")
    for line in check_mlflow(page, mlflow_url, options.shots, schema=not full):
        print(f"MLflow: {line}")


def _check_reasons(page: Page, prefect_url: str, shots: Path, store: str) -> list[str]:
    """Ask the generated world's questions of its graph from the form, and read why on both sites.

    :param store: as the form takes it; holds a model fine-tuned on `commonsenseqa`.
    :return: what was seen, a line each.
    :raises AssertionError: something is not there.
    """
    deployment = prefect.form_page(page, prefect_url, "reason")
    prefect.field(page, "Store").locator("input, textarea").first.fill(store)
    run = submitted(page, prefect_url, shots, deployment, "reason-form")
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


def _check_own_tasks(page: Page, prefect_url: str, mlflow_url: str, options: argparse.Namespace) -> None:
    """Each in the form, on its run's page, and on the leaderboard's page in MLflow."""
    check_greeting(page, mlflow_url)
    with tempfile.TemporaryDirectory(prefix="gptmill-tasks-") as folder:
        made = write_real_tasks(Path(folder)) if set(REAL_TASKS) & set(options.own_task) else {}
        files = [made.get(name) or str(Path(name).absolute()) for name in options.own_task]
        try:
            for line in _deploy(*(word for file in files for word in ("--task", file))):
                print(f"gptmill deploy: {line}")
            for file in files:
                name = own_task_name(file)
                page.set_viewport_size({"width": 1100, "height": 900})
                run = check_prefect(
                    page, prefect_url, options.shots, name, None, f"own-{name}-", Lr=options.lr, Seeds=1, Epochs=3
                )
                print(f"Prefect: {run['name']} ({run['total_run_time']:.0f} s)")
                number = run["name"].partition(" → ")[2].split("±")[0].split()[0].strip("*")
                print(f"MLflow: {check_own_column(page, mlflow_url, options.shots, name, number)}")
        finally:
            for file in made.values():
                Path(file).unlink()
            if made:  # a task whose file is gone is taken off the form
                _deploy()


def _deploy(*arguments: str) -> list[str]:
    """What `gptmill deploy` says of users' own tasks."""
    said = scenarios.output_of("flows.cli", "deploy", *arguments).splitlines()
    return [" ".join(line.split()) for line in said if line.startswith("own tasks")]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"tests.trials.pages: error: {error}", file=sys.stderr)
        sys.exit(2)
