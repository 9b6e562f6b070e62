"""Both sites' log-ins, with the passwords of the full stack; the light one asks for none."""

from __future__ import annotations

import base64
import os
import urllib.error
import urllib.request

from playwright.sync_api import Browser, HttpCredentials, Page, expect


def authorization(variable: str) -> dict[str, str]:
    """The header of basic authentication for ``user:password`` in ``variable``; none where it is not set."""
    login = os.environ.get(variable)
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}


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


def new_page(browser: Browser) -> Page:
    """A page whose browser knows MLflow's user and password, as one who has typed them in."""
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    login = HttpCredentials(username=user, password=password) if user and password else None
    return browser.new_page(viewport={"width": 1100, "height": 900}, http_credentials=login)


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
