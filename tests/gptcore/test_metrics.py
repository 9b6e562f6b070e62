"""Metrics against their definitions, degenerate cases, the parts of MNLI and RACE; standard errors against
resampling row by row, and what they cost."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from gptcore.base.errors import InputError
from gptcore.nlu import REGISTRY
from gptcore.nlu.metrics import (
    GLUE,
    f1,
    glue_average,
    glue_score,
    is_constant,
    leaderboard_cells,
    macro_f1,
    matthews,
    pearson,
    score,
    score_stderrs,
    stderrs_of_file,
)

ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), *[st.integers(0, 20)] * 2), min_size=3, max_size=60)


@given(ROWS)
def test_scores_are_those_of_the_libraries(rows: list[tuple[int, int, int, int]]) -> None:
    """Where the libraries have no number, because all rows are of one class or one grade, it is 0."""
    said, right, graded, grades = (np.asarray(column, dtype=float) for column in zip(*rows, strict=True))
    mrpc, cola = score(REGISTRY["mrpc"], said, right), score(REGISTRY["cola"], said, right)
    assert mrpc["accuracy"] == pytest.approx(accuracy_score(right, said))
    assert mrpc["f1"] == mrpc["score"] == pytest.approx(f1_score(right, said, zero_division=0.0))
    assert cola["matthews"] == cola["score"] == pytest.approx(matthews_corrcoef(right, said))
    assert macro_f1(graded, grades) == pytest.approx(f1_score(grades, graded, average="macro", zero_division=0))
    found = score(REGISTRY["stsb"], graded / 4, grades / 4)
    constant = is_constant(graded) or is_constant(grades)
    for name, theirs in (("pearson", pearsonr), ("spearman", spearmanr)):
        assert found[name] == pytest.approx(0.0 if constant else theirs(graded, grades).statistic, abs=1e-9)
    assert found["score"] == found["pearson"]


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


# --- standard errors


def answers(n: int, *, skill: float = 0.6, share: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = (rng.random(n) < share).astype(float)
    guessed = (rng.random(n) < share).astype(float)
    return np.where(rng.random(n) < skill, labels, guessed), labels


def row_by_row(metric, predictions: np.ndarray, labels: np.ndarray, resamples: int = 600) -> float:
    rng = np.random.default_rng(2)
    chosen = (rng.integers(0, len(labels), len(labels)) for _ in range(resamples))
    return float(np.std([metric(predictions[rows], labels[rows]) for rows in chosen], ddof=1))


@pytest.mark.parametrize(("task", "metric"), [("mrpc", f1), ("cola", matthews)])
def test_tables_of_counts_are_resampled_like_rows(task, metric) -> None:
    predictions, labels = answers(300)
    found = score_stderrs(REGISTRY[task], predictions, labels)
    assert found == {"score_stderr": pytest.approx(row_by_row(metric, predictions, labels), rel=0.15)}


def test_accuracy_is_the_binomial() -> None:
    found = score_stderrs(REGISTRY["rte"], [1.0] * 75 + [0.0] * 25, [1.0] * 100)
    assert found == {"score_stderr": pytest.approx(math.sqrt(0.75 * 0.25 / 100))}


def test_pearson_is_resampled_by_rows() -> None:
    rng = np.random.default_rng(3)
    labels = rng.uniform(0, 5, 200)
    predictions = labels + rng.normal(0, 2, 200)
    found = score_stderrs(REGISTRY["stsb"], predictions, labels)["score_stderr"]
    assert found == pytest.approx(row_by_row(pearson, predictions, labels), rel=0.15)


def test_each_column_has_its_own() -> None:
    parts = ["race_m"] * 50 + ["race_h"] * 150
    predictions, labels = [0.0] * 125 + [1.0] * 75, [0.0] * 200
    found = score_stderrs(REGISTRY["race"], predictions, labels, parts)
    assert set(found) == {"score_stderr", "race_stderr", "race_m_stderr", "race_h_stderr"}
    assert found["race_m_stderr"] == pytest.approx(1 / 102)  # all 50 right: Wilson's
    assert found["race_h_stderr"] == pytest.approx(0.5 / math.sqrt(150))
    assert found["race_stderr"] == found["score_stderr"]
    assert set(found) == {f"{key}_stderr" for key in score(REGISTRY["race"], predictions, labels, parts)} - {
        "accuracy_stderr"
    }


def test_a_collapsed_run_has_no_spread_and_the_same_rows_give_the_same_number() -> None:
    labels = [0.0, 1.0, 1.0, 0.0]
    assert score_stderrs(REGISTRY["cola"], [1.0] * 4, labels) == {"score_stderr": 0.0}
    assert score_stderrs(REGISTRY["stsb"], [2.5] * 4, [0.0, 1.0, 2.0, 5.0]) == {"score_stderr": 0.0}
    assert score_stderrs(REGISTRY["mrpc"], *answers(100)) == score_stderrs(REGISTRY["mrpc"], *answers(100))


@pytest.mark.parametrize(("task", "rows"), [("qqp", 40_430), ("mnli", 19_647), ("cola", 1043), ("stsb", 1500)])
def test_a_second_is_enough_for_the_largest_dev_set(task: str, rows: int) -> None:
    predictions, labels = answers(rows)
    score_stderrs(REGISTRY[task], predictions[:10], labels[:10])  # imports
    start = time.process_time()
    score_stderrs(REGISTRY[task], predictions, labels)
    assert time.process_time() - start < 1.5


def lines(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps({"subset": "", **row}) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_predictions_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    spelled = [("entailment", "entailment"), ("entailment", "not_entailment"), ("entailment", None)]
    path = lines(tmp_path / "dev.jsonl", *({"prediction": p, "label": label} for p, label in spelled))
    expected = score_stderrs(REGISTRY["rte"], [1.0, 1.0], [1.0, 0.0])  # the row without a label tells nothing
    assert stderrs_of_file(REGISTRY["rte"], path) == expected
    graded = [(1.5, 2.0), (3.25, 5.0), (0.5, 0.25)]
    path = lines(tmp_path / "stsb.jsonl", *({"prediction": p, "label": label} for p, label in graded))
    predictions, labels = zip(*graded, strict=True)
    assert stderrs_of_file(REGISTRY["stsb"], path) == score_stderrs(REGISTRY["stsb"], predictions, labels)


def test_a_foreign_predictions_file_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "dev.jsonl", {"prediction": "neutral", "label": "entailment"})
    with pytest.raises(InputError, match=r"dev\.jsonl, line 1: prediction: found 'neutral', expected one of not_ent"):
        stderrs_of_file(REGISTRY["rte"], path)
    with pytest.raises(InputError, match="no labelled row"):
        stderrs_of_file(REGISTRY["rte"], lines(tmp_path / "dev.jsonl", {"prediction": "entailment", "label": None}))
