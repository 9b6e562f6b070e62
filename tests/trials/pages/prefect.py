"""Prefect's pages: log in, fill a form, start the run, read its result on the page of that run."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, HttpCredentials, Locator, Page, expect

from flows.servers.environment import deployments_page
from flows.servers.pools import START
from tests.trials.pages.shots import shot as taken
from tests.trials.scenarios import call, wait

_RUN_SECONDS = 600.0
_SETTLE = 3000.0
_NOWHERE = "/nowhere/at/all"
_ASKED = "recall"
_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """The server's answer to whoever has the password of the environment."""
    return call(url, body, os.environ.get("PREFECT_API_AUTH_STRING", ""))


def form_page(page: Page, prefect_url: str, deployment: str) -> str:
    """Open the form of a deployment; the deployment's id."""
    deployments = {item["name"]: item["id"] for item in ask(f"{prefect_url}/api/deployments/filter", {})}
    page.goto(f"{prefect_url}/v2/deployments/deployment/{deployments[deployment]}/run")
    return str(deployments[deployment])


def check_prefect(
    page: Page,
    prefect_url: str,
    shots: Path,
    task: str = "rte",
    paper: float | None = 56.0,
    prefix: str = "",
    **settings: Any,
) -> dict[str, Any]:
    """Start a fine-tune from its form and find score, baselines and the paper's number on the page of that very run.

    :param prefect_url: the server's address, ``http://127.0.0.1:4200``.
    :param shots: a folder for screenshots.
    :param task: as the form's drop-down has it: a name, or the file of somebody's own task.
    :param paper: the paper's number for the task, in per cent; None: it has none.
    :param prefix: of the screenshots' names.
    :param settings: the form's numbers by the start of their labels: ``Lr=0.0005, Seeds=1, Epochs=1``.
    :return: the flow run, as Prefect's API describes it.
    :raises AssertionError: something is not there.
    """
    deployment = form_page(page, prefect_url, "finetune")
    _choose(page, "Task", task)
    checkpoint = field(page, "Checkpoint")
    expect(checkpoint.get_by_role("tab", name="choose")).to_have_attribute("data-state", "active")
    offered = _offered(page, checkpoint)
    assert offered[0] == "latest", f"the form offers {offered}, expected latest first"
    assert len(offered) > 1, f"the form offers {offered}, expected the store's checkpoints"
    page.get_by_role("option", name=offered[1]).click()
    for label, value in settings.items():
        field(page, label).get_by_role("spinbutton").fill(str(value))
    run = submitted(page, prefect_url, shots, deployment, f"{prefix}form")
    chosen = run["parameters"]["parameters"]
    assert chosen["checkpoint"] == offered[1], f"the run got the checkpoint {chosen['checkpoint']}"

    page.goto(f"{prefect_url}/v2/runs/flow-run/{run['id']}")  # as a list of runs leads there: no tab is chosen
    score = run["name"].partition(" → ")[2].partition(" ")[0]
    assert score[:1].isdigit() or score.startswith("-"), f"the run is called {run['name']!r}, expected its score there"
    expect(page.get_by_text(run["name"]).first).to_be_visible()
    shot(page, shots, f"{prefix}run")
    page.get_by_role("tab", name="Artifacts").click()
    tile = page.get_by_test_id("flow-run-artifacts-grid").locator("a").filter(has_text="bag of words")
    number = score.partition("±")[0].strip("*")
    published = [] if paper is None else [f"{paper:.1f}"]
    for words in (number, "bag of words", "best constant", *(["paper"] if published else []), *published):
        expect(tile).to_contain_text(words)
    shot(page, shots, f"{prefix}tile")
    tile.click()
    card = page.get_by_test_id("markdown-display")
    if published:
        published.append("the paper (test rows)")
    for words in (score, "bag of words", "best constant", *published, "Each seed", "Rank ", "gptmill predict"):
        expect(card).to_contain_text(words)
    shot(page, shots, f"{prefix}card")
    return run


def check_deployments(page: Page, prefect_url: str, shots: Path) -> str:
    """The address that `gptmill up` prints shows the two to begin with, of all that there are."""
    page.goto(deployments_page(prefect_url, START))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    names = [row.get_by_role("link").first.inner_text() for row in rows.all()]
    assert sorted(names) == ["finetune", "pipeline"], f"the page of deployments begins with {names}"
    shot(page, shots, "deployments")
    return f"deployments: {' and '.join(names)} to begin with"


def check_failure(page: Page, prefect_url: str, shots: Path) -> str:
    """The page of a run that failed begins with the reason, and has no traceback."""
    deployments = {item["name"]: item for item in ask(f"{prefect_url}/api/deployments/filter", {})}
    there = deployments["finetune"]
    form = {**there["parameters"]["parameters"], "task": "rte", "datasets": _NOWHERE}
    before = _newest(prefect_url, there["id"])
    ask(f"{prefect_url}/api/deployments/{there['id']}/create_flow_run", {"parameters": {"parameters": form}})
    run = _ended(prefect_url, there["id"], before)
    reason = f"{_NOWHERE}: found no such folder, expected one with a sub-folder for each dataset"
    assert run["state_type"] == "FAILED", run["state_name"]
    assert f" → failed: {reason}" in run["name"], run["name"]
    page.goto(f"{prefect_url}/v2/runs/flow-run/{run['id']}")
    expect(page.get_by_text(run["name"]).first).to_be_visible()
    expect(page.locator("p, span, div").filter(has_text=re.compile(f"^{re.escape(reason)}")).first).to_be_visible()
    expect(page.get_by_text("Traceback")).to_have_count(0)
    shot(page, shots, "failed")
    return f"a failed run: {run['name']}"


def check_abstracts(page: Page, prefect_url: str, shots: Path, store: str, title: str) -> list[str]:
    """Fine-tune on abstracts, write one under a title, ask a model by prompts: a form each; their pages show what came.

    :param store: as the forms take it.
    :return: the names of the two runs.
    :raises AssertionError: something is not there.
    """
    names = []
    for form, tile, expected in (
        ("abstracts", "Table 8: loss and perplexity", ("pre-trained", "from scratch", "published 82M")),
        ("abstracts-generate", "Abstracts under your titles", (title,)),
        ("few-shot", "Few-shot: scores over examples in the prompt", (_ASKED, "found room")),
    ):
        deployment = form_page(page, prefect_url, form)
        field(page, "Store").locator("input, textarea").first.fill(store)
        if form == "abstracts-generate":
            titles = field(page, "Titles")
            titles.get_by_role("button").last.click()
            titles.locator("input, textarea").first.fill(title)
        if form == "few-shot":
            checkpoints = field(page, "Checkpoints")
            checkpoints.get_by_role("button").last.click()
            checkpoints.locator("input, textarea").first.fill("latest")
            tasks = field(page, "Tasks")
            tasks.get_by_role("button").last.click()
            _offered(page, tasks)
            # a long list, which moves under the pointer
            page.get_by_role("option", name=_ASKED, exact=True).dispatch_event("click")
            field(page, "Max Rows").get_by_role("spinbutton").fill("20")
        run = submitted(page, prefect_url, shots, deployment, f"{form}-form")
        opened_tile(page, prefect_url, run, tile)
        for words in expected:
            expect(page.get_by_test_id("markdown-display")).to_contain_text(words)
        shot(page, shots, form)
        names.append(str(run["name"]))
    return names


def opened_tile(page: Page, prefect_url: str, run: Mapping[str, Any], tile: str) -> None:
    """Open the page that a run left under a title."""
    page.goto(f"{prefect_url}/v2/runs/flow-run/{run['id']}")
    page.get_by_role("tab", name="Artifacts").click()
    tiles = page.get_by_test_id("flow-run-artifacts-grid").locator("a").filter(has_text="MARKDOWN")
    tiles.filter(has_text=tile).click()
    page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()  # of its versions the newest


def submitted(page: Page, prefect_url: str, shots: Path, deployment: str, name: str) -> dict[str, Any]:
    """The run of a filled form, once it has ended well; ``name``: of the form's screenshot."""
    shot(page, shots, name)
    before = _newest(prefect_url, deployment)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(lambda address: not address.endswith("/run"), timeout=1000 * _RUN_SECONDS / 5)
    run = _ended(prefect_url, deployment, before)
    assert run["state_type"] == "COMPLETED", f"the run ended as {run['state_name']}"
    return run


def field(page: Page, label: str) -> Locator:
    """A field of the form with its label, description and controls."""
    named = page.get_by_text(label, exact=True).or_(page.get_by_text(f"{label} (Optional)", exact=True)).first
    named.wait_for()
    return named.locator("xpath=ancestor::div[contains(@class, 'group')][1]")


def _offered(page: Page, field: Locator) -> list[str]:
    """What a drop-down offers; it stays open."""
    field.locator("fieldset button[aria-haspopup=listbox]").click()
    options = page.get_by_role("option")
    options.first.wait_for()
    return options.all_inner_texts()


def _choose(page: Page, label: str, value: str) -> None:
    _offered(page, field(page, label))
    page.get_by_role("option", name=value, exact=True).click()


def _ended(prefect_url: str, deployment: str, before: dict[str, Any]) -> dict[str, Any]:
    """The run of a deployment that came after ``before``, once it has ended."""

    def ended() -> bool:
        run = _newest(prefect_url, deployment)
        return bool(run) and run["id"] != before.get("id") and run["state_type"] in _ENDED

    wait(ended, "the end of a new run of the deployment", _RUN_SECONDS, pause=2)
    return _newest(prefect_url, deployment)


def _newest(prefect_url: str, deployment: str) -> dict[str, Any]:
    """The newest run of a deployment; empty where there is none."""
    query = {"sort": "EXPECTED_START_TIME_DESC", "deployments": {"id": {"any_": [deployment]}}, "limit": 1}
    runs: list[dict[str, Any]] = ask(f"{prefect_url}/api/flow_runs/filter", query)
    return runs[0] if runs else {}


def shot(page: Page, shots: Path, name: str) -> None:
    """Screenshots of a page of Prefect's."""
    taken(page, shots, f"prefect-{name}", _SETTLE)


# --- the log-ins of the full stack; the light one asks for none


def status_without_password(url: str) -> int:
    """The HTTP status of a GET by somebody who has no password."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # our own servers
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def check_refusals(prefect_url: str, mlflow_url: str) -> list[str]:
    """Neither server tells a stranger anything.

    :raises AssertionError: naming the page that is open.
    """
    pages = [f"{prefect_url}/api/admin/version", f"{prefect_url}/api/deployments/get_scheduled_flow_runs"]
    pages += [f"{mlflow_url}/", f"{mlflow_url}/api/2.0/mlflow/experiments/search?max_results=1"]
    for url in pages:
        status = status_without_password(url)
        assert status == 401, f"{url}: found status {status} without a password, expected 401"
    return [f"{url}: 401 without a password" for url in pages]


def log_in_of() -> HttpCredentials | None:
    """MLflow's user and password, as one who has typed them in."""
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    return HttpCredentials(username=user, password=password) if user and password else None


def new_page(browser: Browser) -> Page:
    """A page whose browser knows them."""
    return browser.new_page(viewport={"width": 1100, "height": 900}, http_credentials=log_in_of())


def log_in_to_prefect(page: Page, prefect_url: str) -> None:
    """Type the log-in where Prefect's UI asks for it."""
    login = os.environ.get("PREFECT_API_AUTH_STRING")
    if not login:
        return
    page.goto(f"{prefect_url}/v2/")
    field = page.locator("input[type=password]")
    expect(field).to_be_visible(timeout=60_000)
    field.fill(login)
    page.keyboard.press("Enter")
    expect(field).to_have_count(0, timeout=60_000)
