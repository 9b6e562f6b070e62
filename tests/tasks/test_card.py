"""The card says what was done, in Markdown that renders, with a figure that holds the curves.

Panels side by side say once what all have in common; the picture of a sweep names its lines apart.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.axes
import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest

from gptcore.base.settings import recorded
from gptcore.config import ModelConfig
from gptcore.nlu.registry import task_spec
from gptcore.papers.sweep.plan import read_plan
from tasks.papers.graphs.report import Choice, Route, Routes
from tasks.papers.sweep.report import Outcome, SweepResult, shown_value
from tasks.report.card import Card, amount, cost, shown, write_finetuned_card
from tasks.report.figures import _POINTS, Curve, Figure, Panels, _curve, loss_curve
from tasks.report.table import Table
from tasks.store.counts import DatasetCounts
from tests.expected import expected
from tests.tasks.markdown import tables

MANIFEST: dict[str, Any] = expected(__file__, "MANIFEST")


def records(count: int, *names: str) -> list[dict[str, Any]]:
    return [{"step": step, "time": 0.0, "metrics": dict.fromkeys(names, 5.0 / (step + 1))} for step in range(count)]


def card(**changes: Any) -> str:
    whole = {"title": "Pre-training ab", "results": {"loss": 3.25}, "config": {"lr": 1e-3}, "manifest": MANIFEST}
    return Card(**{**whole, **changes}).markdown()


def rows(markdown: str) -> list[list[str]]:
    return [row for table in tables(markdown) for row in table]


def test_a_card_tells_results_lineage_and_settings() -> None:
    text = card(
        results={"validation perplexity": 54.321, "tokens seen": 12_345_678, "MFU": None},
        config={"model": {"n_layer": 12}, "lr": 2.5e-4},
        links={"MLflow run": "http://127.0.0.1:5000/#/experiments/1/runs/2"},
        notes=("synthetic data",),
    )
    assert text.startswith("# Pre-training ab\n\n> synthetic data\n")
    assert "[MLflow run](http://127.0.0.1:5000/#/experiments/1/runs/2)" in text
    found = rows(text)
    assert ["validation perplexity", "54.32"] in found
    assert ["tokens seen", "12,345,678"] in found
    assert ["MFU", "-"] in found
    assert ["shards", "shards", "cdcdcdcdcdcd"] in found
    assert ["files", "files", "efefefefefef"] in found
    assert ["code", "gptmill 0.1.0", "121212121212 with local changes"] in found
    assert ["made", "2026-01-02T03:04:05 UTC", "61.2 s"] in found
    assert ["model.n_layer", "12"] in found
    assert ["lr", "0.00025"] in found


@pytest.mark.parametrize("text", ["a | b", "two\nlines", "|", "tab\there"])
def test_no_value_breaks_a_table(text: str) -> None:
    plain, odd = card(config={"name": "x"}), card(config={"name": text})
    assert [len(row) for row in rows(odd)] == [len(row) for row in rows(plain)]
    assert len(odd.splitlines()) == len(plain.splitlines())
    assert ["name", " ".join(text.replace("|", r"\|").split())] in rows(odd)


def test_a_table_looks_as_its_reader_wants_it() -> None:
    rows = [("a", "1.0"), ("b, <b>", "22.0")]
    table = Table(("name", "score"), rows, ["a & b"], "<i>", n_texts=1, groups=["x", "y"])
    rule = "-" * 13
    assert table.text().splitlines() == ["name    score", rule, "a         1.0", rule, "b, <b>   22.0"]
    assert dataclasses.replace(table, groups=()).text().splitlines()[:2] == ["name    score", "a         1.0"]
    assert table.csv() == 'name,score\na,1.0\n"b, <b>",22.0\n'
    assert table.records()[0] == {"name": "a", "score": "1.0"}
    assert Table.of(table.records()).rows == rows
    assert table.markdown().splitlines()[:4] == ["# <i>", "", "| name | score |", "| --- | ---: |"]
    page = table.html()
    assert "<h1>&lt;i&gt;</h1>\n<ul><li>a &amp; b</li></ul>\n" in page
    assert "<tr><td>b, &lt;b&gt;</td><td>22.0</td></tr>\n</tbody>" in page


def test_the_figure_travels_inside_the_card(tmp_path: Path) -> None:
    figure = loss_curve(records(30, "train/loss", "validation/loss"), tmp_path / "loss.png")
    found = re.search(r"!\[loss curve\]\(data:image/png;base64,([^)]+)\)", card(figure=figure))
    assert found is not None
    assert base64.b64decode(found[1]) == (tmp_path / "loss.png").read_bytes()
    assert "data:image" not in card()


@pytest.mark.parametrize(
    ("names", "references", "colours"),
    [
        (("train/loss",), {}, {"blue"}),
        (("train/loss", "validation/loss"), {}, {"blue", "red"}),
        (("train/loss",), {"bigram": 3.0, "trigram": 2.0}, {"blue", "green"}),
    ],
)
def test_each_curve_is_in_the_figure(
    tmp_path: Path, names: tuple[str, ...], references: dict[str, float], colours: set[str]
) -> None:
    path = loss_curve(records(50, *names), tmp_path / "loss.png", references)
    assert path is not None
    image = matplotlib.image.imread(path)
    red, green, blue = (image[..., channel] for channel in range(3))
    masks = {"red": red - green > 0.2, "green": np.minimum(green - red, green - blue) > 0.1, "blue": blue - red > 0.15}
    seen = {name for name, mask in masks.items() if mask.sum() > 20}
    assert seen == colours
    assert image.shape[1] > image.shape[0] > 300


def test_no_curve_no_figure(tmp_path: Path) -> None:
    assert loss_curve([], tmp_path / "loss.png") is None
    assert loss_curve(records(5, "other"), tmp_path / "loss.png") is None
    assert not (tmp_path / "loss.png").exists()


def test_a_long_curve_is_thinned_to_what_a_figure_shows_but_keeps_its_end() -> None:
    thin = _curve(records(123_457, "train/loss"), "train/loss")
    assert len(thin) <= 2 * _POINTS
    assert (thin[0][0], thin[-1][0]) == (0, 123_456)
    assert len(_curve(records(_POINTS, "x"), "x")) == _POINTS


@pytest.mark.parametrize(("value", "text"), expected(__file__, "test_values_as_people_read_them"))
def test_values_as_people_read_them(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(("task", "shift"), [("cola", -3.946), ("cola", 0.0), ("rte", None)])
def test_a_card_says_how_far_a_decision_was_moved(task: str, shift: float | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(recorded(ModelConfig())))
    result = {"rows": {"dev": 9}, "wall_seconds": 1.0, "threads": 1, "device": "cpu", "precision": "float32"}
    result |= {"steps": 1, "best_epoch": 1, "majority_collapse": False, "decision_shift": shift}
    counts = DatasetCounts.parse({"splits": {}})
    write_finetuned_card(tmp_path, task_spec(task), counts, {"finetune": {}}, result)
    said = (tmp_path / "README.md").read_text()
    assert ("one half is where Matthews correlation is expected to be best" in said) == bool(shift)
    assert (" -3.95 in the log-odds of 1." in said) == bool(shift)


def test_cost() -> None:
    assert [amount(count) for count in (36, 757_529, 3_225_600, 99.4e9, 1e11)] == [
        "36",
        "0.76 M",
        "3.2 M",
        "99 G",
        "100 G",
    ]
    assert cost(1800, threads=2, device="cpu") == "1.000 core-hours"
    assert cost(1800, threads=1, device="cpu", processes=4) == "2.000 core-hours"
    assert cost(3600, threads=16, device="NVIDIA H100 80GB HBM3", processes=8) == "8.000 GPU-hours"


def test_a_figure_has_its_level_and_a_curve_its_marks(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    dataclasses.replace(panel("a"), level=1.5).draw(tmp_path / "a.png")
    curve, level = drawn[0].axes[0].lines
    assert (list(curve.get_xdata()), list(curve.get_ydata())) == ([20.0, 50.0], [1.0, 2.0])
    assert (set(level.get_ydata()), curve.get_marker(), curve.get_linestyle()) == ({1.5}, "o", "-")


# --- panels side by side


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """The canvases that are written."""
    canvases: list[matplotlib.figure.Figure] = []
    save = matplotlib.figure.Figure.savefig

    def saved(canvas: matplotlib.figure.Figure, path: Path) -> None:
        canvases.append(canvas)
        save(canvas, path)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", saved)
    return canvases


def panel(title: str, unit: str = "x 100") -> Figure:
    return Figure([Curve("GPT-1", [(20.0, 1.0), (50.0, 2.0)], 0)], "operations", unit, title, log_x=True)


@pytest.mark.parametrize(("n_panels", "shape"), [(2, (1, 3)), (4, (1, 5)), (5, (2, 3)), (9, (2, 5)), (12, (3, 5))])
def test_panels_and_their_legend_fill_the_rows(
    n_panels: int, shape: tuple[int, int], drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    figures = [panel(str(number)) for number in range(n_panels)]
    path = Panels(figures, "all", [{}] * n_panels, one_scale=False).draw(tmp_path / "panels.png")
    assert path.stat().st_size > 1000
    place = drawn[0].axes[0].get_subplotspec()
    assert place is not None
    assert place.get_gridspec().get_geometry() == shape


def test_a_reference_of_a_later_panel_is_in_the_legend_and_looks_like_no_other(
    drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    references = [{"bag of words": 1.5}, {"chance": 1.2}, {"bag of words": 1.7}]
    Panels([panel("a"), panel("b"), panel("c")], "all", references, one_scale=False).draw(tmp_path / "panels.png")
    *panels, free = drawn[0].axes
    legend = free.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["GPT-1", "bag of words", "chance"]
    styles = [{line.get_label(): line.get_linestyle() for line in axes.lines} for axes in panels]
    assert styles[0]["bag of words"] == styles[2]["bag of words"] != styles[1]["chance"]


def test_one_unit_is_said_once_and_several_beside_their_panels(
    drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    for units in (("x 100", "x 100"), ("x 100", "perplexity")):
        figures = [panel(str(place), unit) for place, unit in enumerate(units)]
        Panels(figures, "all", [{}, {}], one_scale=False).draw(tmp_path / "panels.png")
    same, different = drawn
    assert same.get_supylabel() == "x 100"
    assert [axes.get_ylabel() for axes in same.axes[:2]] == ["", ""]
    assert different.get_supylabel() == ""
    assert [axes.get_ylabel() for axes in different.axes[:2]] == ["x 100", "perplexity"]


# --- parallel coordinates


def swept(path: Path, space: dict[str, Any], *rungs: list[float | None], failed: set[tuple[int, int]]) -> None:
    """Write the picture of a sweep whose trials reached this on each rung; those (trial, rung) that failed, too."""
    fields = {"objective": "validation/bits_per_byte", "eta": 2, "space": {"pretrain": space}}
    plan = read_plan({"preset": "small", **fields, "trials": len(rungs[0]), "rungs": len(rungs)}, "sweep.toml")
    outcomes = [
        Outcome(trial, rung, value, "no space left" if (trial, rung) in failed else "")
        for rung, values in enumerate(rungs, start=1)
        for trial, value in enumerate(values, start=1)
        if value is not None or (trial, rung) in failed
    ]
    SweepResult(plan, outcomes, {}).draw(path)


def ticks(axes: matplotlib.axes.Axes) -> dict[str, float]:
    """What is written on a vertical axis, from bottom to top -> its height, 0 to 1."""
    places = (axes.transScale + axes.transLimits).transform([(0.0, tick) for tick in axes.get_yticks()])[:, 1]
    found = zip((label.get_text() for label in axes.get_yticklabels()), places.round(4).tolist(), strict=True)
    return dict(sorted(found, key=lambda tick: tick[1]))


def test_trials_that_failed_on_a_rung_are_named_together(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    failed = {(2, 2), *((trial, 1) for trial in range(3, 8))}
    lr = {"low": 1e-4, "high": 1e-3}
    swept(tmp_path / "a.png", {"lr": lr}, [2.0, 3.0, *[None] * 5], [1.0, *[None] * 6], failed=failed)
    axes = drawn[0].axes[0]
    dashed = [line.get_linewidth() for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == pytest.approx([1.5, *[0.6] * 5]), "thicker by 0.9 for each rung"
    words = {text.get_text(): text.get_position() for text in axes.texts if "trial" in text.get_text()}
    assert words.keys() == {"trial 1: 1", "trial 2 failed", "trial 3, trial 4, trial 5 and 2 more failed"}
    assert len(set(words.values())) == len(words), "each at a place of its own"
    assert [line.get_ydata()[-1] for line in axes.lines] == pytest.approx([1.0, *[-0.09] * 6])


def test_an_axis_has_its_ends_and_what_lies_well_between(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    space = {
        "lr": {"low": 1e-4, "high": 4e-3, "scale": "log"},
        "warmup_steps": {"low": 0, "high": 12_000},
        "batch_size": [32, 8, 16],
    }
    swept(tmp_path / "a.png", space, [10.0, 0.0, 2.0], [None, 3.0, None], failed=set())
    host, *axes = drawn[0].axes
    assert [*ticks(axes[0])] == ["0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.004"]
    assert ticks(axes[0])["0.002"] == pytest.approx(np.log(20) / np.log(40), abs=1e-4)
    assert ticks(axes[1]) == {"0": 0.0, "2,500": 0.2083, "5,000": 0.4167, "7,500": 0.625, "10,000": 0.8333, "12,000": 1}
    assert ticks(axes[2]) == {"8": 0.0, "16": 0.5, "32": 1.0}, "numbers in their order"
    assert ticks(axes[3]) == {"10": 0.0, "8": 0.2, "6": 0.4, "4": 0.6, "2": 0.8, "0": 1.0}, "the best is on top"
    assert ticks(axes[4]) == {"3": 1.0}
    assert [line.get_ydata()[3] for line in host.lines] == pytest.approx([0.0, 1.0, 0.8])
    titles = {text.get_text(): text.get_position()[0] for text in host.texts if "\n" in text.get_text()}
    assert [*titles] == [
        *("pretrain\nlr (log)", "pretrain\nwarmup_steps", "pretrain\nbatch_size"),
        *("rung 1\n1/2 of it", "rung 2\nwhole"),
    ]
    assert [*titles.values()] == [0, 1, 2, 3, 4]


def test_lines_through_one_choice_are_drawn_apart(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    space = {"batch_size": [8, 16], "lr": {"low": 1e-4, "high": 1e-3}}
    swept(tmp_path / "a.png", space, [float(trial) for trial in range(12)], failed=set())
    heights = [line.get_ydata()[0] for line in drawn[0].axes[0].lines]
    assert len(set(heights)) == 12
    assert {round(height) for height in heights} == {0, 1}


def test_one_axis_leaves_room_for_the_title(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    swept(tmp_path / "a.png", {"lr": {"low": 1e-4, "high": 1e-3}}, [2.0, 3.0], failed=set())
    assert drawn[0].get_size_inches()[0] >= 8.0


def test_values_that_differ_are_shown_apart() -> None:
    values = [0.999, 0.99999, 0.999999, 1e-3, 0.25, 3, True, "adamw"]
    assert [shown_value(value) for value in values[:3]] == ["0.999", "0.99999", "0.999999"]
    assert len({shown_value(value) for value in values}) == len(values)


def test_each_choice_has_room_for_its_routes(drawn: list[matplotlib.figure.Figure], tmp_path: Path) -> None:
    route = Route(("a", "b", "c"), ("is", "of"), 0.5)
    Routes("which?", [Choice("one", 0.75, True, [route] * 3), Choice("two", 0.25, False, [])]).draw(tmp_path / "a.png")
    assert [axes.get_ylim() for axes in drawn[0].axes] == [(-0.6, pytest.approx(2.6)), (-0.6, pytest.approx(0.6))]
    places = {text.get_text(): text.get_position() for text in drawn[0].axes[0].texts}
    of = {"a": (0, 2), "b": (0.5, 2), "c": (1, 2), "is": (0.25, 2.08), "of": (0.75, 2.08), "50%": (1.11, 2)}
    assert places == of, "the last of three routes, the topmost, evenly over the width"
    assert [axes.get_title(loc="left") for axes in drawn[0].axes] == ["one (the right one): 75%", "two: 25%"]
