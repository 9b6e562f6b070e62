"""Prefect's pages: fill a form, start the run, read its result on the page of that run."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.trials.pages.login import authorization

_RUN_SECONDS = 600.0
_ASKED = "recall"
_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    """GET, or POST with a JSON body, and parse the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **authorization("PREFECT_API_AUTH_STRING")}
    request = urllib.request.Request(url, data, headers)  # our own servers
    with urllib.request.urlopen(request, timeout=30) as response:  # as above
        return json.load(response)


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
    deployments = {item["name"]: item["id"] for item in call(f"{prefect_url}/api/deployments/filter", {})}
    page.goto(f"{prefect_url}/v2/deployments/deployment/{deployments['finetune']}/run")
    _choose(page, "Task", task)
    checkpoint = field(page, "Checkpoint")
    expect(checkpoint.get_by_role("tab", name="choose")).to_have_attribute("data-state", "active")
    offered = _offered(page, checkpoint)
    assert offered[0] == "latest", f"the form offers {offered}, expected latest first"
    assert len(offered) > 1, f"the form offers {offered}, expected the store's checkpoints"
    page.get_by_role("option", name=offered[1]).click()
    for label, value in settings.items():
        field(page, label).get_by_role("spinbutton").fill(str(value))
    run = submitted(page, prefect_url, shots, deployments["finetune"], f"{prefix}form")
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
    for words in (number, "bag of words", "majority class", *(["paper"] if published else []), *published):
        expect(tile).to_contain_text(words)
    shot(page, shots, f"{prefix}tile")
    tile.click()
    card = page.get_by_test_id("markdown-display")
    if published:
        published.append("the paper (test rows)")
    for words in (score, "bag of words", "majority class", *published, "Each seed", "Rank ", "gptmill predict"):
        expect(card).to_contain_text(words)
    shot(page, shots, f"{prefix}card")
    return run


def check_abstracts(page: Page, prefect_url: str, shots: Path, store: str, title: str) -> list[str]:
    """Fine-tune on abstracts, write one under a title, ask a model by prompts: a form each; their pages show what came.

    :param store: as the forms take it.
    :return: the names of the two runs.
    :raises AssertionError: something is not there.
    """
    deployments = {item["name"]: item["id"] for item in call(f"{prefect_url}/api/deployments/filter", {})}
    names = []
    for form, tile, expected in (
        ("abstracts", "Table 8: loss and perplexity", ("pre-trained", "from scratch", "published 82M")),
        ("generate", "Abstracts under your titles", (title,)),
        ("few-shot", "Few-shot: scores over examples in the prompt", (_ASKED, "found room")),
    ):
        page.goto(f"{prefect_url}/v2/deployments/deployment/{deployments[form]}/run")
        field(page, "Store").locator("input, textarea").first.fill(store)
        if form == "generate":
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
        run = submitted(page, prefect_url, shots, deployments[form], f"{form}-form")
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
    page.wait_for_url(lambda address: not address.endswith("/run"), timeout=30_000)
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
    deadline = time.monotonic() + _RUN_SECONDS
    while time.monotonic() < deadline:
        run = _newest(prefect_url, deployment)
        if run and run["id"] != before.get("id") and run["state_type"] in _ENDED:
            return run
        time.sleep(2)
    raise TimeoutError(f"no new run of the deployment ended within {_RUN_SECONDS:.0f} s")


def _newest(prefect_url: str, deployment: str) -> dict[str, Any]:
    """The newest run of a deployment; empty where there is none."""
    query = {"sort": "EXPECTED_START_TIME_DESC", "deployments": {"id": {"any_": [deployment]}}, "limit": 1}
    runs: list[dict[str, Any]] = call(f"{prefect_url}/api/flow_runs/filter", query)
    return runs[0] if runs else {}


def shot(page: Page, shots: Path, name: str) -> None:
    """A screenshot of a page of Prefect's."""
    page.wait_for_timeout(3000)  # the pages draw after they load
    page.screenshot(path=shots / f"prefect-{name}.png")
