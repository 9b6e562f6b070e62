"""Metrics against their definitions, degenerate cases, and the parts of MNLI and RACE."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.nlu import REGISTRY
from gptcore.nlu.metrics import GLUE, METRICS, glue_average, glue_score, is_constant, leaderboard_cells, score

BINARY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


@settings(deadline=None)
@given(BINARY)
def test_binary_metrics_by_their_definitions(rows: list[tuple[int, int]]) -> None:
    tp, fp, fn, tn = (rows.count(cell) for cell in ((1, 1), (1, 0), (0, 1), (0, 0)))
    predictions, labels = zip(*rows, strict=True)
    mrpc, cola = score(REGISTRY["mrpc"], predictions, labels), score(REGISTRY["cola"], predictions, labels)
    assert mrpc["accuracy"] == pytest.approx((tp + tn) / len(rows))
    assert mrpc["f1"] == mrpc["score"] == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp else 0)
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert cola["matthews"] == cola["score"]
    assert cola["matthews"] == pytest.approx((tp * tn - fp * fn) / math.sqrt(product) if product else 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=3, max_size=30))
def test_correlations_by_their_definitions(rows: list[tuple[int, int]]) -> None:
    x, y = (np.asarray(side, dtype=float) / 4 for side in zip(*rows, strict=True))
    found = score(REGISTRY["stsb"], x, y)
    assert found["score"] == found["pearson"] == pytest.approx(_pearson(x, y), abs=1e-9)
    assert found["spearman"] == pytest.approx(_pearson(_ranks(x), _ranks(y)), abs=1e-9)


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / size) if size else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    """Mean rank of equal values."""
    return np.asarray([(x < value).sum() + ((x == value).sum() - 1) / 2 for value in x])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 9)), min_size=3, max_size=60))
def test_metrics_are_those_of_the_libraries(rows: list[tuple[int, int, int]]) -> None:
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import f1_score, matthews_corrcoef

    predictions, labels, graded = (np.asarray(column, dtype=float) for column in zip(*rows, strict=True))
    assert METRICS["f1"](predictions, labels) == pytest.approx(f1_score(labels, predictions, zero_division=0.0))
    assert METRICS["matthews"](predictions, labels) == pytest.approx(matthews_corrcoef(labels, predictions))
    if not is_constant(predictions) and not is_constant(graded):
        assert METRICS["pearson"](predictions, graded) == pytest.approx(pearsonr(predictions, graded).statistic)
        assert METRICS["spearman"](predictions, graded) == pytest.approx(spearmanr(predictions, graded).statistic)


def test_one_class_for_every_row_scores_0_where_the_metric_is_undefined() -> None:
    labels = [0, 1, 1, 0]
    assert score(REGISTRY["cola"], [1, 1, 1, 1], labels)["score"] == 0.0
    assert score(REGISTRY["qqp"], [0, 0, 0, 0], labels)["score"] == 0.0
    assert score(REGISTRY["stsb"], [2.5] * 4, [0.0, 1.0, 2.0, 5.0]) == {"pearson": 0, "spearman": 0, "score": 0}
    assert is_constant([2.5, 2.5])
    assert not is_constant([2.5, 2.6])
    assert not is_constant([])


def test_parts() -> None:
    parts = ["race_m", "race_m", "race_h", "race_h", "race_h"]
    found = score(REGISTRY["race"], [0, 1, 2, 3, 0], [0, 0, 2, 3, 0], parts)
    assert found == {"accuracy": 0.8, "score": 0.8, "race": 0.8, "race_m": 0.5, "race_h": 1.0}
    assert leaderboard_cells(REGISTRY["race"], found) == {"race_m": 0.5, "race_h": 1.0, "race": 0.8}
    mnli = score(REGISTRY["mnli"], [0, 1], [0, 2], ["mnli_m", "mnli_m"])
    assert leaderboard_cells(REGISTRY["mnli"], mnli) == {"mnli_m": 0.5}  # no mismatched row: no number
    assert leaderboard_cells(REGISTRY["rte"], score(REGISTRY["rte"], [0, 1], [0, 1])) == {"rte": 1.0}


def test_glue_averages_both_metrics_and_mnli_first() -> None:
    pair = score(REGISTRY["mrpc"], [1, 1, 0, 0], [1, 0, 0, 0])
    assert glue_score(REGISTRY["mrpc"], pair) == pytest.approx((pair["f1"] + pair["accuracy"]) / 2)
    cola = score(REGISTRY["cola"], [1, 1, 0, 0], [1, 0, 0, 0])
    assert glue_score(REGISTRY["cola"], cola) == cola["matthews"]  # its accuracy is no part of GLUE
    assert glue_score(REGISTRY["mnli"], {"score": 0.5, "mnli_m": 0.25, "mnli_mm": 0.5}) == 0.375
    assert glue_score(REGISTRY["mnli"], {"score": 0.25, "mnli_m": 0.25}) is None
    assert glue_score(REGISTRY["snli"], {"score": 0.25}) is None


def test_glues_average_needs_its_eight_tasks_and_counts_each_once() -> None:
    parts = dict.fromkeys(GLUE, 50.0) | {"mnli": 90.0, "snli": 0.0}
    assert glue_average(parts) == pytest.approx((7 * 50 + 90) / 8)
    del parts["rte"]
    assert glue_average(parts) is None
    assert GLUE.keys() <= REGISTRY.keys()
    for task, names in GLUE.items():
        assert set(names) <= set(REGISTRY[task].metrics)


def test_wrong_use() -> None:
    with pytest.raises(ValueError, match="rte"):
        score(REGISTRY["rte"], [0, 1], [0])
    with pytest.raises(ValueError, match="rte"):
        score(REGISTRY["rte"], [], [])
    with pytest.raises(ValueError, match="not finite"):
        score(REGISTRY["stsb"], [math.nan, 1.0], [0.0, 1.0])
