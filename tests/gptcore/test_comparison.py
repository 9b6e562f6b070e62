"""Differences between two models: probabilities written out, scipy's intervals, and how often equal ones differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import bootstrap, norm, pearsonr, permutation_test
from sklearn.metrics import f1_score, matthews_corrcoef
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from gptcore.base.errors import InputError
from gptcore.evaluation import comparison
from gptcore.evaluation.comparison import average, compared, holm
from gptcore.nlu.metrics import score_stderrs
from gptcore.nlu.registry import BEYOND, task_spec

Numbers = NDArray[np.float64]


def predictions(path: Path, answers: Any, labels: Any, first: int = 0) -> Path:
    pairs = zip(answers, labels, strict=True)
    rows = ((f"dev.tsv:{row}", "", label, answer) for row, (answer, label) in enumerate(pairs, first))
    names = ("row", "subset", "label", "prediction")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def two(folder: Path, task: str, one: Any, other: Any, labels: Any) -> comparison.Difference:
    files = [predictions(folder / name, each, labels) for name, each in (("one", one), ("other", other))]
    return compared(task_spec(task), files[:1], files[1:])


def test_mcnemars_probability_is_that_of_the_rows_which_one_alone_has_right(tmp_path: Path) -> None:
    """15 rows are right by the first alone, 5 by the second alone: 2 P(X <= 5) of 20 coins is 0.0414."""
    labels = ["entailment"] * 100
    one = ["entailment"] * 60 + ["not_entailment"] * 40
    other = ["not_entailment"] * 15 + ["entailment"] * 45 + ["entailment"] * 5 + ["not_entailment"] * 35
    found = two(tmp_path, "rte", one, other, labels)
    assert found.p == pytest.approx(0.04138947)
    assert (found.rows, found.first, found.second) == (100, 0.6, 0.5)
    low, high = found.interval  # the difference's standard error is sqrt(0.2 - 0.1 ** 2) / 10 = 0.0436
    assert (low, high) == (pytest.approx(0.1 - 1.96 * 0.0436, abs=0.015), pytest.approx(0.1 + 1.96 * 0.0436, abs=0.015))
    assert two(tmp_path, "rte", one, one, labels).p == 1.0


def test_probabilities_of_stored_answers_are_statsmodels_and_scipys(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    names = {task: task_spec(task).labels for task in ("rte", "mrpc", "cola")}
    for task, labels in names.items():
        right = draws.random(150) < 0.5
        one, other = (np.where(draws.random(150) < share, right, ~right) for share in (0.8, 0.7))
        found = two(tmp_path, task, *([labels[int(each)] for each in part] for part in (one, other, right)))
        if task == "rte":
            a, b = one == right, other == right
            table = [[int((a & b).sum()), int((a & ~b).sum())], [int((~a & b).sum()), int((~a & ~b).sum())]]
            assert found.p == pytest.approx(mcnemar(table, exact=True).pvalue)
            continue
        score = {"mrpc": f1_score, "cola": matthews_corrcoef}[task]
        assert (found.first, found.second) == (pytest.approx(score(right, one)), pytest.approx(score(right, other)))
        both = np.concatenate([np.stack([part, right], axis=1) for part in (one, other)])

        def difference(rows: Any, others: Any, pairs: Any = both, score: Any = score) -> float:
            return float(score(pairs[rows, 1], pairs[rows, 0]) - score(pairs[others, 1], pairs[others, 0]))

        twin = permutation_test(
            (np.arange(150), np.arange(150, 300)), difference, permutation_type="samples", n_resamples=1500, rng=draws
        )
        assert found.p == pytest.approx(twin.pvalue, abs=0.03)


def test_a_subset_is_compared_alone(tmp_path: Path) -> None:
    spec, labels = task_spec("mnli"), ["neutral"] * 40
    answers = {"one": ["neutral"] * 40, "other": ["neutral"] * 20 + ["contradiction"] * 20}
    files = [predictions(tmp_path / name, told, labels) for name, told in answers.items()]
    for path in files:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        parted = [{**row, "subset": ("mnli_m", "mnli_mm")[n // 20]} for n, row in enumerate(rows)]
        path.write_text("".join(json.dumps(row) + "\n" for row in parted))
    matched, other, whole = (compared(spec, files[:1], files[1:], part) for part in ("mnli_m", "mnli_mm", ""))
    assert (matched.rows, matched.p) == (20, 1.0)
    assert (other.rows, other.second, other.p) == (20, 0.0, pytest.approx(2**-19))
    assert (whole.rows, whole.second) == (40, 0.5)
    assert len(compared(spec, files[:1], files[1:], redraws=50).redrawn) == 50


def test_an_interval_of_correlations_is_scipys(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    grades = draws.uniform(0, 5, 300)
    one, other = (np.clip(grades + draws.normal(0, noise, 300), 0, 5) for noise in (1.0, 1.6))
    found = two(tmp_path, "stsb", one.tolist(), other.tolist(), grades.tolist())

    def difference(a: Numbers, b: Numbers, c: Numbers) -> float:
        return float(pearsonr(a, c)[0] - pearsonr(b, c)[0])

    how: dict[str, Any] = {"paired": True, "vectorized": False, "method": "percentile", "n_resamples": 2000}
    twin = bootstrap((one, other, grades), difference, rng=draws, **how)
    assert found.interval == pytest.approx(tuple(twin.confidence_interval), abs=0.01)
    assert found.first - found.second == pytest.approx(difference(one, other, grades))
    assert found.p < 0.001


@pytest.mark.parametrize(("task", "p_yes"), [("rte", 0.5), ("mrpc", 0.65)])
def test_models_that_are_equally_good_are_seldom_told_apart(
    task: str, p_yes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds of one model: each is right on a row with the same probability, rows being of unlike difficulty."""
    monkeypatch.setattr(comparison, "REDRAWS", 99)
    draws, names = np.random.default_rng(7), task_spec(task).labels
    called = 0
    for _ in range(200):
        labels = draws.random(120) < p_yes
        hard = draws.beta(4, 2, 120)
        one, other = (np.where(draws.random(120) < hard, labels, ~labels) for _ in range(2))
        found = two(tmp_path, task, *([names[int(each)] for each in part] for part in (one, other, labels)))
        called += found.p < comparison.LEVEL
    assert called <= 10


def test_of_several_seeds_rows_and_seeds_are_redrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "REDRAWS", 400)
    labels, draws = ["1"] * 200, np.random.default_rng(0)

    def seeds(name: str, shares: list[float]) -> list[Path]:
        right = [draws.permutation(np.arange(200) < 200 * share) for share in shares]
        return [
            predictions(tmp_path / f"{name}{seed}", np.where(part, "1", "0").tolist(), labels)
            for seed, part in enumerate(right)
        ]

    steady, spread = seeds("steady", [0.7, 0.7, 0.7]), seeds("spread", [0.4, 0.6, 0.8])
    spec = task_spec("sst2")
    found = compared(spec, steady, spread)
    assert (found.first, found.second) == (pytest.approx(0.7), pytest.approx(0.6))
    same = compared(spec, steady, seeds("other", [0.6, 0.6, 0.6]))
    width, narrow = (high - low for low, high in (found.interval, same.interval))
    assert width > 1.5 * narrow
    assert same.p < comparison.LEVEL < found.p
    both = average([found, same])
    assert both.first - both.second == pytest.approx(0.1)
    assert np.array_equal(both.redrawn, (found.redrawn + same.redrawn) / 2)


def test_places_are_compared_by_what_each_row_adds(tmp_path: Path) -> None:
    spans = [tmp_path / name for name in ("one", "other")]
    for path, score in zip(spans, (1.0, 0.5), strict=True):
        rows = ({"row": f"dev:{row}", "label": ["a"], "span_f1": score * (row % 2)} for row in range(60))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compared(BEYOND["squad"], spans[:1], spans[1:])
    assert (found.first, found.second) == (0.5, 0.25)
    assert found.p < 0.001
    tags = [tmp_path / name for name in ("tags", "others")]
    for path, tag in zip(tags, ("B-PER", "O"), strict=True):
        rows = ({"row": f"dev:{row}", "label": ["B-PER", "O"], "prediction": [tag, "O"]} for row in range(20))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compared(BEYOND["conll2003"], tags[:1], tags[1:])
    assert (found.first, found.second) == (1.0, 0.0)


def test_answers_to_other_rows_are_refused(tmp_path: Path) -> None:
    one = predictions(tmp_path / "one", ["1", "0"], ["1", "0"])
    other = predictions(tmp_path / "other", ["1", "0"], ["1", "0"], first=1)
    fewer = predictions(tmp_path / "fewer", ["1"], ["1"])
    spec = task_spec("sst2")
    with pytest.raises(InputError, match=r"sst2: found answers to other rows \(dev.tsv:0 beside dev.tsv:1\), expected"):
        compared(spec, [one], [other])
    with pytest.raises(InputError, match=r"2 beside 1 rows"):
        compared(spec, [one], [fewer])


def test_holms_correction() -> None:
    given = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(given) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(holm(given)) == ["a", "b", "c", "d"]
    many = dict(enumerate(np.random.default_rng(0).random(30) ** 3))
    twin = multipletests(list(many.values()), method="holm")[1]
    assert list(holm({str(name): p for name, p in many.items()}).values()) == pytest.approx(list(twin))


@pytest.mark.parametrize("n", [1, 20, 3000])
def test_the_error_of_rows_that_are_all_right_is_half_of_wilsons_interval(n: int) -> None:
    spec = task_spec("sst2")
    found = score_stderrs(spec, np.ones(n), np.ones(n))["score_stderr"]
    low, high = proportion_confint(n, n, alpha=2 * norm.sf(1), method="wilson")
    assert found == pytest.approx((high - low) / 2)
    low, high = proportion_confint(0, n, alpha=2 * norm.sf(1), method="wilson")
    assert score_stderrs(spec, np.ones(n), np.zeros(n))["score_stderr"] == pytest.approx((high - low) / 2)
