"""The card says what was done, in Markdown that renders, with a figure that holds the curves."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from tasks.report.card import Card, cost, shown
from tasks.report.figures import _POINTS, _curve, loss_curve
from tests.expected import expected

MANIFEST: dict[str, Any] = expected(__file__, "MANIFEST")


def records(count: int, *names: str) -> list[dict[str, Any]]:
    return [{"step": step, "time": 0.0, "metrics": dict.fromkeys(names, 5.0 / (step + 1))} for step in range(count)]


def card(**changes: Any) -> str:
    whole = {"title": "Pre-training ab", "results": {"loss": 3.25}, "config": {"lr": 1e-3}, "manifest": MANIFEST}
    return Card(**{**whole, **changes}).markdown()


def rows(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


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
    assert ["model.n_layer", "12"] in found
    assert ["lr", "0.00025"] in found


@pytest.mark.parametrize("text", ["a | b", "two\nlines", "|", "tab\there"])
def test_no_value_breaks_a_table(text: str) -> None:
    plain, odd = card(config={"name": "x"}), card(config={"name": text})
    assert [len(row) for row in rows(odd)] == [len(row) for row in rows(plain)]
    assert len(odd.splitlines()) == len(plain.splitlines())


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


def test_cost() -> None:
    assert cost(1800, threads=2, device="cpu") == "1.000 core-hours"
    assert cost(1800, threads=1, device="cpu", processes=4) == "2.000 core-hours"
    assert cost(3600, threads=16, device="NVIDIA H100 80GB HBM3", processes=8) == "8.000 GPU-hours"
