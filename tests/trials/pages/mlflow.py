"""MLflow's pages: the leaderboard shows scores without a click, the registry its champions, a run its curves."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from gptcore.nlu.registry import REGISTRY, task_spec
from tasks.report.entries import PRETRAINED, task_model
from tasks.report.experiments import PUBLISHED_PAGE, SCORES
from tasks.report.suites import BESIDE, EXPERIMENT, PUBLISHED_EXPERIMENT, read_leaderboard
from tasks.stages.pretrain import EXPERIMENT as PRETRAIN_EXPERIMENT
from tasks.tracking.registry import CHAMPION, NEWEST
from tasks.tracking.tracker import TRAINING, Tracker
from tasks.tracking.views import leaderboard_link, metric, view_link
from tests.trials.pages.shots import shot as taken

_VIEWPORT = {"width": 1440, "height": 900}
_PATIENCE = 60_000.0  # milliseconds: a server that has just started answers slowly
_SETTLE = 1500.0
_OWN_COLUMN = 120  # pixels
_ROWS = ".ag-center-cols-container .ag-row"


def check_mlflow(page: Page, mlflow_url: str, shots: Path, schema: bool = True) -> list[str]:
    """Open every page of ours and assert on what it shows, in a browser that was never there before.

    :param shots: a folder for the screenshots `mlflow-*.png`.
    :param schema: whether a version's page has its columns under *Schema*, too. MLflow 3.17 leaves them out where its
        server keeps files behind its own proxy, as on the full stack: it cannot read a version's there.
    :return: a line for each thing found.
    :raises AssertionError: naming what a page lacks.
    """
    tracker = Tracker(mlflow_url)
    shots.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": _VIEWPORT["width"], "height": _VIEWPORT["height"]})
    check_greeting(page, mlflow_url)
    return [
        check_leaderboard(page, tracker, shots),
        _check_suite(page, tracker, shots),
        _check_published(page, tracker, shots),
        _check_description(page, tracker, shots),
        *_check_registry(page, tracker, shots, schema),
        _check_curves(page, tracker, shots),
    ]


def check_own_column(page: Page, mlflow_url: str, shots: Path, name: str, number: str) -> str:
    """A column of somebody's own task on the leaderboard's page, with the score of its fine-tune.

    :param number: the score, in per cent, as the run's page has it.
    :raises AssertionError: naming what the page lacks.
    """
    tracker = Tracker(mlflow_url)
    columns = len(read_leaderboard(tracker).own_tasks)
    page.set_viewport_size({"width": _VIEWPORT["width"] + _OWN_COLUMN * columns, "height": _VIEWPORT["height"]})
    page.goto(leaderboard_link(tracker))
    page.reload()  # a view that another page of the same address has loaded is kept
    _await_rows(page)
    cells = page.locator(f"{_ROWS} [col-id='{metric(name)}']")
    shown = [cell.inner_text().strip() for cell in cells.all() if _inside(page, cell)]
    assert _as_number(number) in map(_as_number, shown), f"leaderboard, {name}: found {shown}, expected {number}"
    shot(page, shots, f"own-{name}", leaderboard_link(tracker))
    return f"leaderboard: {number} in the column {name}"


def check_greeting(page: Page, mlflow_url: str) -> None:
    """The bare address opens on the experiments, in a fresh browser, too: no assistant, no notice on telemetry."""
    page.goto(mlflow_url)
    expect(page.get_by_role("link", name="gptmill/leaderboard")).to_be_visible(timeout=_PATIENCE)
    expect(page.locator("[data-component-id='mlflow.assistant.chat_panel.close']")).to_have_count(0)
    expect(page.get_by_text("telemetry")).to_have_count(0)


def _check_suite(page: Page, tracker: Tracker, shots: Path) -> str:
    """A row's own page: its scores beside floor and paper as description, its report and its numbers as files."""
    best = max(
        (run for run in tracker.search(EXPERIMENT, {"kind": "ours"}) if "average" in run.data.metrics),
        key=lambda run: run.data.metrics["average"],
    )
    page.goto(tracker.page(best.info.experiment_id, best.info.run_id))
    said = page.get_by_test_id("note-view-outer-container").first
    average = f"{best.data.metrics['average']:.1f}"
    for words in (f"On average: {best.info.run_name} {average}", "best floor", "the paper 76.7", "mnli_m"):
        expect(said).to_contain_text(words, timeout=_PATIENCE)
    expect(said.locator("img")).to_have_js_property("naturalWidth", 1280, timeout=_PATIENCE)
    shot(page, shots, "suite")
    address = page.url.replace("?", "/artifacts/report.html?")
    page.goto(address)
    for file in ("report.html", "scores.csv", "scores.png"):
        expect(page.get_by_text(file).first).to_be_visible(timeout=_PATIENCE)
    report = page.frame_locator("iframe").first
    expect(report.get_by_role("heading", name="Leaderboard of gptmill")).to_be_visible(timeout=_PATIENCE)
    expect(report.locator("tr.total", has_text="average")).to_contain_text(average)
    shot(page, shots, "suite-report")
    return f"suite: {best.info.run_name} says {average} on average, and has its report"


def check_leaderboard(page: Page, tracker: Tracker, shots: Path) -> str:
    """Our rows and the baselines with the average and thirteen scores, best first, no fine-tune and no click."""
    board = read_leaderboard(tracker)
    ours = [row for row in board.rows if row.kind != "published"]
    page.set_viewport_size({"width": _VIEWPORT["width"], "height": _VIEWPORT["height"]})
    page.goto(leaderboard_link(tracker))
    _await_rows(page)
    names = _run_names(page)
    beside = {run.info.run_name for run in tracker.search(EXPERIMENT, {"kind": BESIDE})}
    assert beside & {*names}, f"leaderboard: found the runs {names}, expected the paper and the best floor beside ours"
    assert {*names} <= {row.name for row in ours} | beside, f"leaderboard: found {names}, expected only its rows"
    for row in ours:
        if row.name in names:
            shown = _shown_scores(page, names.index(row.name))
            expected = {column: f"{value:.1f}" for column, value in row.percent.items() if column in SCORES}
            wrong = {c: (shown.get(c), v) for c, v in expected.items() if _as_number(shown.get(c)) != float(v)}
            assert not wrong, f"leaderboard: {row.name}: shown and expected differ: {wrong}"
    averages = [_as_number(_shown_scores(page, place)["average"]) for place in range(len(names))]
    known = [value for value in averages if value is not None]
    assert known, f"leaderboard: no row shows an average, only {averages}"
    assert known == sorted(known, reverse=True), f"leaderboard: the averages {averages} are not best first"
    shot(page, shots, "leaderboard", leaderboard_link(tracker))
    return f"leaderboard: {len(names)} rows, averages {averages}, {len(SCORES)} scores in sight"


def _check_published(page: Page, tracker: Tracker, shots: Path) -> str:
    """The published methods in an experiment of their own."""
    page.goto(view_link(tracker, PUBLISHED_EXPERIMENT, PUBLISHED_PAGE.key))
    _await_rows(page)
    names = _run_names(page)
    assert all(name.endswith("[published]") for name in names), f"published: found {names}"
    first = _shown_scores(page, 0)
    assert _as_number(first["average"]) is not None, f"published: the first row shows {first}"
    shot(page, shots, "published", view_link(tracker, PUBLISHED_EXPERIMENT, PUBLISHED_PAGE.key))
    return f"published: {names[0]} first with {first['average']}"


def _check_description(page: Page, tracker: Tracker, shots: Path) -> str:
    """The experiment's description: a link and numbers in its first line, the table when it is unfolded."""
    page.goto(leaderboard_link(tracker))
    link = page.get_by_role("link", name="Open the leaderboard")
    expect(link).to_be_visible(timeout=_PATIENCE)
    page.locator("[data-component-id='mlflow.experiment.metadata_editor.expand_button']").click()
    table = page.locator("table", has_text="storycloze").first
    expect(table).to_be_visible()
    for column in ("average", *SCORES):
        expect(table.get_by_role("columnheader", name=column, exact=True)).to_be_visible()
    shot(page, shots, "description")
    return f"description: a table of {table.get_by_role('row').count() - 1} rows"


def _check_registry(page: Page, tracker: Tracker, shots: Path, schema: bool) -> list[str]:
    """A registered model for every task with its aliases, and one for pre-trained models."""
    models = tracker.client.search_registered_models()
    assert models, "registry: found no registered model"
    bare = [model.name for model in models if list(model.aliases) != [CHAMPION] or NEWEST not in model.tags]
    assert not bare, f"registry: {', '.join(bare)} without the alias {CHAMPION} alone and the tag {NEWEST}"
    page.goto(f"{tracker.ui}/#/models{TRAINING}")
    for model in models[:10]:  # the page's first ten
        expect(page.get_by_role("link", name=model.name, exact=True).first).to_be_visible(timeout=_PATIENCE)
        expect(page.get_by_role("row").filter(has_text=model.name).get_by_text("@ champion").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)  # an introduction that is shown once
    shot(page, shots, "models")
    twelve = {task_model(task, synthetic) for task in REGISTRY for synthetic in (False, True)}
    name = next(model.name for model in models if model.name in twelve)
    page.goto(f"{tracker.ui}/#/models/{name}{TRAINING}")
    expect(page.get_by_text(CHAMPION).first).to_be_visible(timeout=_PATIENCE)
    shot(page, shots, "model")
    lines = [f"registry: {len(models)} models, each with a {CHAMPION}", f"registry: {name} shows its {CHAMPION}"]
    pretrained = next(model.name for model in models if model.name.startswith(PRETRAINED))
    return [*lines, *(_check_version(page, tracker, shots, model, schema) for model in (name, pretrained))]


def _check_version(page: Page, tracker: Tracker, shots: Path, name: str, schema: bool) -> str:
    """The champion's own page: its result, data and call in the description, its columns under *Schema*."""
    version = tracker.client.get_model_version_by_alias(name, CHAMPION)
    page.goto(f"{tracker.ui}/#/models/{name}/versions/{version.version}{TRAINING}")
    said = page.get_by_test_id("note-view-outer-container").first
    call = f'mlflow.pyfunc.load_model("models:/{name}/{version.version}").predict(table)'
    number = version.tags["result"].rpartition(" ")[2]
    if name.startswith(PRETRAINED):
        about, inputs, outputs = ("Held-out perplexity", " tokens of "), ["prompt"], ["continuation"]
    else:
        spec = task_spec(version.tags["task"])
        about, inputs = ("Dev score", f" rows of {spec.name}"), [*spec.text_columns, *spec.choices]
        outputs = ["score"] if spec.score_range else ["label", *(f"probability {label}" for label in spec.labels)]
    for words in (*about, number, call, "gptmill serve", "mlflow models serve", *inputs, outputs[0]):
        expect(said).to_contain_text(words, timeout=_PATIENCE)
    shot(page, shots, f"version-{name}")
    line = f"registry: {name}/{version.version} shows {number}, its data, its call and the columns {', '.join(inputs)}"
    if not schema:
        return f"{line}; not looked for under Schema, where MLflow has none on this stack"
    for side in ("Inputs", "Outputs"):
        page.get_by_text(re.compile(rf"^{side} \([1-9]\d*\)$")).click()  # none until the file has come
    for column in (*inputs, *outputs):
        cell = page.get_by_role("cell", name=re.compile(rf"^{re.escape(column)} \((optional|required)\)$"))
        cell.scroll_into_view_if_needed()
        expect(cell).to_be_visible()
    shot(page, shots, f"schema-{name}")
    return line


def _check_curves(page: Page, tracker: Tracker, shots: Path) -> str:
    """A pre-training run's page opens on its curves, the loss among them."""
    runs = tracker.search(PRETRAIN_EXPERIMENT, {"kind": "pretrain"})
    assert runs, f"{PRETRAIN_EXPERIMENT}: found no run"
    info = runs[0].info
    page.goto(f"{tracker.ui}/#/experiments/{info.experiment_id}/runs/{info.run_id}/model-metrics{TRAINING}")
    lines = page.locator(".js-plotly-plot .scatterlayer path.js-line")
    expect(lines.first).to_be_visible(timeout=_PATIENCE)
    expect(page.get_by_text("train/loss").first).to_be_visible()
    shot(page, shots, "curves")
    return f"curves: {lines.count()} lines of {info.run_name} in sight"


def _await_rows(page: Page) -> None:
    expect(page.locator(_ROWS).first).to_be_visible(timeout=_PATIENCE)
    page.wait_for_timeout(_SETTLE)


def _run_names(page: Page) -> list[str]:
    """The run names of the table, top to bottom."""
    names = {}
    for row in page.locator(".ag-pinned-left-cols-container .ag-row").all():
        cell = row.locator("[col-id='attributes.`Run Name`'] a")
        names[int(row.get_attribute("row-index") or 0)] = cell.inner_text().strip()
    return [names[place] for place in sorted(names)]


def _shown_scores(page: Page, row: int) -> dict[str, str]:
    """Column -> text of the cells of one row that lie inside the window."""
    shown = {}
    for column in ("average", *SCORES):
        cell = page.locator(f"{_ROWS}[row-index='{row}'] [col-id='{metric(column)}']")
        assert cell.count() == 1, f"{column}: no such column on the page"
        assert _inside(page, cell), f"{column}: right of the window's edge"
        shown[column] = cell.inner_text().strip()
    return shown


def _inside(page: Page, cell: Locator) -> bool:
    """Whether a cell is really in sight: inside the table's viewport, not cut by its right edge."""
    box, frame = cell.bounding_box(), page.locator(".ag-center-cols-viewport").bounding_box()
    return box is not None and frame is not None and box["x"] + 0.6 * box["width"] <= frame["x"] + frame["width"]


def _as_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def shot(page: Page, shots: Path, name: str, view: str = "") -> None:
    """Screenshots of a page of MLflow's; ``view``: the address of the saved view that it is."""
    taken(page, shots, f"mlflow-{name}", _SETTLE, view)
