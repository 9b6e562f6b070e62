"""Screenshots: each page as a check has left it, in two widths, and afterwards once more in a dark browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, HttpCredentials, Page

WIDTHS = (1280, 1920)
_DARK = "localStorage.setItem('databricks-dark-mode-pref', 'dark')"  # MLflow's own switch; Prefect's UI asks the system
_LOADED = 4000.0  # milliseconds
_taken: dict[str, str] = {}  # name -> address


def shot(page: Page, folder: Path, name: str, settle: float, address: str = "") -> None:
    """A page as it is, and at both widths in light; its address is kept for :func:`again_in_dark`.

    :param settle: milliseconds: the pages draw after they load.
    :param address: where the page's own leads to less than it shows, as MLflow's does of a saved view.
    """
    page.wait_for_timeout(settle)
    page.screenshot(path=folder / f"{name}.png")
    size = page.viewport_size
    assert size is not None
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": size["height"]})
        page.wait_for_timeout(settle / 2)
        page.screenshot(path=folder / f"{name}-{width}-light.png")
    page.set_viewport_size(size)
    _taken[name] = address or page.url


def again_in_dark(browser: Browser, folder: Path, login: HttpCredentials | None) -> list[str]:
    """Every page that was shot, opened by a browser of somebody who likes it dark; which these are."""
    context = browser.new_context(color_scheme="dark", http_credentials=login)
    context.add_init_script(_DARK)
    for name, address in _taken.items():
        page = context.new_page()
        page.goto(address)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(_LOADED)
            page.screenshot(path=folder / f"{name}-{width}-dark.png")
        page.close()
    context.close()
    return list(_taken)
