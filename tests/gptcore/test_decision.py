"""From which probability on a model of two classes says yes: moved on held-out rows to where the metric is best."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gptcore.evaluation.predict import evaluate
from gptcore.evaluation.predictions import RowPredictions
from gptcore.models.classifier import Classifier
from gptcore.nlu.inputs import DecoderReader, EncodedExample
from gptcore.nlu.metrics import METRICS, needs_threshold
from gptcore.nlu.registry import REGISTRY, Metric, task_spec
from gptcore.nlu.rows import TaskRows
from gptcore.training import decision
from gptcore.training.best_epoch import BestEpoch
from gptcore.training.decision import FEWEST, best_shift
from tests.gptcore.tiny_tasks import PieceTokenizer, encoded, finetune_job, finetuned, pretrained, pretrained_encoder

SCALES = (0.05, 1.0, 30.0)


def drawn(seed: int, n: int, scale: float = 1.0, mean: float = -0.8) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logits whose probabilities would be right at the scale 1, and labels, by default a third of them 1."""
    draws = np.random.default_rng(seed)
    log_odds = draws.normal(mean, 1.2, n)
    labels = (draws.random(n) < 1 / (1 + np.exp(-log_odds))).astype(np.float64)
    common = draws.normal(0, 3, n)
    return np.stack([common, common + scale * log_odds], axis=1), labels


def scored(metric: Metric, logits: NDArray[np.float64], labels: NDArray[np.float64], shift: float) -> float:
    return METRICS[metric]((logits[:, 1] + shift > logits[:, 0]).astype(np.float64), labels)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_on_other_rows_it_is_nearly_the_best_there_is(metric: Metric, scale: float) -> None:
    """Whatever the scale of the logits; the twin tries every threshold on the other rows themselves."""
    gains, missed = [], []
    for seed in range(20):
        moved = best_shift(metric, *drawn(seed, 500, scale))
        logits, labels = drawn(1000 + seed, 4000, scale)
        best = max(scored(metric, logits, labels, shift) for shift in scale * np.linspace(-3, 3, 121))
        found = scored(metric, logits, labels, moved)
        gains.append(found - scored(metric, logits, labels, 0.0))
        missed.append(best - found)
    assert np.mean(gains) > {"f1": 0.06, "matthews": 0.01}[metric]
    assert np.mean(missed) < 0.012


@pytest.mark.parametrize(("metric", "mean", "n"), [("f1", 0.8, 366), ("matthews", 0.9, 855)])
def test_to_move_only_where_the_held_out_score_rises_is_no_better(metric: Metric, mean: float, n: int) -> None:
    """As many rows and as rare a class as MRPC and CoLA hold out: the score itself jumps too much to be asked again."""
    always, asked = [], []
    for seed in range(40):
        logits, labels = drawn(seed, n, mean=mean)
        moved = best_shift(metric, logits, labels)
        rises = scored(metric, logits, labels, moved) > scored(metric, logits, labels, 0.0)
        others, true = drawn(1000 + seed, 4000, mean=mean)
        always.append(scored(metric, others, true, moved))
        asked.append(always[-1] if rises else scored(metric, others, true, 0.0))
    assert np.mean(always) >= np.mean(asked)


def test_f1_says_yes_from_half_of_its_best_value_on() -> None:
    """Lipton et al. 2014, theorem 1, of probabilities that are right."""
    logits, labels = drawn(0, 200_000)
    moved = best_shift("f1", logits, labels)
    threshold = 1 / (1 + np.exp(moved))
    assert threshold == pytest.approx(scored("f1", logits, labels, moved) / 2, abs=0.01)


@given(st.integers(0, 50), st.sampled_from(SCALES), st.floats(-5, 5), st.sampled_from(["f1", "matthews"]))
@settings(max_examples=40)
def test_what_is_added_before_is_added_less(seed: int, scale: float, before: float, metric: Metric) -> None:
    logits, labels = drawn(seed, 150, scale)
    wanted = best_shift(metric, logits, labels)
    found = best_shift(metric, logits + np.asarray([0, before]), labels)
    assert found + before == pytest.approx(wanted, abs=0.3 * scale)


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_where_logits_tell_nothing_it_stays(metric: Metric) -> None:
    logits, labels = drawn(0, 300)
    assert best_shift(metric, -logits, labels) == 0
    assert best_shift(metric, logits, np.zeros(300)) == 0
    assert best_shift(metric, logits, np.ones(300)) == 0
    assert best_shift(metric, np.zeros((300, 2)), labels) == 0


def test_separable_rows_stay_apart() -> None:
    labels = np.repeat([0.0, 1.0], [70, 30])
    logits = np.stack([np.zeros(100), np.where(labels == 1, 9.0, 7.0)], axis=1)
    for metric in ("f1", "matthews"):
        assert scored(metric, logits, labels, best_shift(metric, logits, labels)) == 1


def test_equal_rows_are_answered_alike() -> None:
    """With two values the threshold is between them or below both, where yes to all is best: F1 0.81 for 0.49."""
    log_odds = np.repeat([-1.0, 1.0], [150, 50])
    labels = np.concatenate([np.arange(150) < 90, np.arange(50) < 45]).astype(np.float64)
    logits = np.stack([np.zeros(200), log_odds], axis=1)
    assert scored("f1", logits, labels, best_shift("f1", logits, labels)) == METRICS["f1"](np.ones(200), labels)
    assert best_shift("matthews", logits, labels) == 0  # half-way between the two


def test_held_out_rows_are_scored_as_the_model_will_answer() -> None:
    """From a half on both say no to all; moved, the second model, which has learnt something, scores higher."""
    rows, n = rows_with_labels(np.arange(200) % 5 == 0), 200
    monitor = object.__new__(BestEpoch)
    monitor.spec, monitor.rows, monitor.held_out = task_spec("cola"), rows, True
    draws = np.random.default_rng(0)
    blind = np.stack([np.full(n, 9.0), draws.normal(size=n)], axis=1).astype(np.float32)
    seeing = blind + np.stack([np.zeros(n), 3 * rows.labels], axis=1).astype(np.float32)
    (first, _), (second, shift) = monitor.decided(list(blind)), monitor.decided(list(seeing))
    assert first.scores(monitor.spec)["score"] < 0.3 < 0.7 < second.scores(monitor.spec)["score"]
    assert shift > 0
    monitor.held_out = False
    assert monitor.decided(list(seeing))[1] == 0


def test_so_are_n_grams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept has the best score there is of all weights and penalties, each with its own decision."""
    dataset, network = encoded(tmp_path, "cola", n_train=12 * FEWEST, n_dev=40), pretrained(tmp_path / "model")
    scores = list[float]()
    decided = BestEpoch.decided

    def spy(monitor: BestEpoch, logits: Sequence[NDArray[np.float32]]) -> tuple[RowPredictions, float]:
        found, shift = decided(monitor, logits)
        scores.append(found.scores(monitor.spec)["score"])
        return found, shift

    monkeypatch.setattr(BestEpoch, "decided", spy)
    result = fine_tuned("cola", network, dataset, tmp_path / "job", select="held-out", ngrams=2)
    assert len(set(scores)) > 2
    assert result["validation/score"] == pytest.approx(max(scores), abs=1e-9)


def rows_with_labels(labels: NDArray[np.bool_]) -> TaskRows:
    """Rows of CoLA, of one word each."""
    examples = [EncodedExample((np.asarray([3]),), (), int(label), "", "") for label in labels]
    return TaskRows(DecoderReader(task_spec("cola"), 40, 50), examples, np.arange(len(labels)))


def test_which_tasks_have_one() -> None:
    assert [name for name in REGISTRY if needs_threshold(task_spec(name))] == ["cola", "mrpc", "qqp"]


@pytest.mark.parametrize("ngrams", [None, 2])
@pytest.mark.parametrize(("task", "select"), [("cola", "held-out"), ("mrpc", "refit"), ("cola", "dev")])
def test_a_model_is_moved_by_its_held_out_rows(
    task: str, select: str, ngrams: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, network = encoded(tmp_path, task, n_train=12 * FEWEST, n_dev=40), pretrained(tmp_path / "model")
    moved = fine_tuned(task, network, dataset, tmp_path / "moved", select=select, ngrams=ngrams)
    monkeypatch.setattr(decision, "FEWEST", 10 * FEWEST)
    unmoved = fine_tuned(task, network, dataset, tmp_path / "unmoved", select=select, ngrams=ngrams)
    if select == "dev":
        assert "decision_shift" not in moved
        return
    assert unmoved["decision_shift"] == 0
    assert_moved(moved, tmp_path, dataset)


@pytest.mark.parametrize(("family", "task"), [("bert", "mrpc"), ("distilbert", "cola"), ("electra", "mrpc")])
def test_so_is_an_encoder(family: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some have a layer of their own before the linear one."""
    dataset = encoded(tmp_path, task, n_train=12 * FEWEST, n_dev=40, words=PieceTokenizer())
    network = pretrained_encoder(tmp_path / "model", family)
    moved = fine_tuned(task, network, dataset, tmp_path / "moved", select="held-out")
    monkeypatch.setattr(decision, "FEWEST", 10 * FEWEST)
    fine_tuned(task, network, dataset, tmp_path / "unmoved", select="held-out")
    assert_moved(moved, tmp_path, dataset)


def fine_tuned(task: str, network: Path, dataset: Path, workspace: Path, **settings: object) -> dict[str, Any]:
    given = {"lr": 1e-2, "lm_coef": 0.0, "batch_size": 10, "epochs": 2, "precision": "float32", **settings}
    return finetuned(finetune_job(task, network, dataset, workspace, given))


def assert_moved(result: dict[str, Any], folder: Path, dataset: Path) -> None:
    """The model in moved/ is that in unmoved/ but for what is added, and scores what the result says."""
    assert result["decision_shift"] != 0
    biases = [Classifier.load(folder / name / "model")[0].head.bias for name in ("moved", "unmoved")]
    added = (biases[0] - biases[1]).tolist()
    assert added == pytest.approx([0, result["decision_shift"]], abs=1e-5)
    again = evaluate(folder / "moved" / "model", dataset, "dev", precision="float32")
    assert again["score"] == pytest.approx(result["dev/score"], abs=1e-6)


def test_probabilities_are_drawn_in_by_one_row_of_either_class() -> None:
    """Platt 1999: 5/6 for each of 4 rows that say yes, 1/8 for each of 6 that do not. A line through two values meets
    the mean of either's targets: (5/8 + 5/6) / 6 = 35/144, and (1/8 + 15/6) / 4 = 21/32."""
    log_odds, labels = np.repeat([-1.0, 1.0], [6, 4]), np.asarray([0, 0, 1, 0, 0, 0, 1, 1, 0, 1], np.float64)
    found = decision._platt(log_odds, labels)
    assert found is not None
    assert found.tolist() == pytest.approx([35 / 144] * 6 + [21 / 32] * 4, abs=1e-5)
    assert decision._platt(log_odds, 1 - labels) is None


@pytest.mark.parametrize(("metric", "wanted"), [("f1", -1.75), ("matthews", -1.75)])
def test_the_cut_lies_half_way_between_the_two_rows_that_it_parts(metric: Metric, wanted: float) -> None:
    logits = np.stack([np.zeros(40), np.repeat([0.0, 1.0, 2.5, 3.5], 10)], axis=1)
    labels = np.repeat([0.0, 0.0, 1.0, 1.0], 10)
    assert best_shift(metric, logits, labels) == pytest.approx(wanted)
    assert best_shift(metric, logits + np.asarray([1.5, 0]), labels) == pytest.approx(wanted + 1.5)


def test_below_a_hundred_rows_nothing_is_moved() -> None:
    labels = np.arange(100) % 4 == 0
    logits = [np.asarray([0, 5.0 + label], np.float32) for label in labels]
    assert decision.decision_shift(task_spec("cola"), rows_with_labels(labels), logits) < -5
    assert decision.decision_shift(task_spec("cola"), rows_with_labels(labels[1:]), logits[1:]) == 0
    assert decision.decision_shift(task_spec("sst2"), rows_with_labels(labels), logits) == 0
    logits[7] = np.asarray([0, np.nan], np.float32)
    assert decision.decision_shift(task_spec("cola"), rows_with_labels(labels), logits) == 0


def test_a_checkpoint_remembers_all_of_the_best_epoch(tmp_path: Path) -> None:
    """A job that is resumed behind its best epoch ends with that epoch's decision."""
    monitors = [object.__new__(BestEpoch) for _ in range(2)]
    best = {"step": 30, "scores": {"score": 0.5}, "loss": 0.25, "collapsed": True, "shift": 1.5, "settings": {"a": 1}}
    for name, value in best.items():
        setattr(monitors[0], name, value)
    monitors[1].restore(json.loads(json.dumps(monitors[0].state())))
    assert {name: getattr(monitors[1], name) for name in best} == best
    assert {field.name for field in dataclasses.fields(BestEpoch) if not field.init} == best.keys()
