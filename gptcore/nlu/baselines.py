"""Two floors under every model's number: the commonest label, and a linear model on bags of words.

Both are trained on the train rows and scored exactly as models are. The bag of words knows neither order nor which
words two texts share; what it cannot do is what a task asks of a network. Deterministic for a seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gptcore.nlu.bootstrap import score_stderrs
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.labels import as_numbers, from_numbers
from gptcore.nlu.metrics import score
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import TaskSpec

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_MAX_ROWS = 100_000
"""Train rows used, drawn from the seed: a floor must not take minutes on the largest set's 549 367 rows."""
_WORD = r"\w+|[^\w\s]"  # words and single marks, lower-cased by the vectorizer
_MANY_ROWS = 1000
"""From here on words of a single row are left out: they cannot help on other rows and are most of the features."""


def majority(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """Answer the commonest train label (of equals, the first in label order) everywhere; for a graded label, the mean.

    :return: the numbers of :func:`gptcore.nlu.metrics.score` on ``dev``, with their standard errors. Correlations are
        0 by definition here.
    """
    labels = _labels(train)
    if spec.score_range:
        answer = float(np.mean(labels))
    else:
        counts = Counter(labels.tolist())
        answer = min(counts, key=lambda label: (-counts[label], label))
    return _score(spec, np.full(len(dev), answer), dev)


def bag_of_words(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example], seed: int = 0) -> dict[str, float]:
    """Logistic regression (ridge regression for a graded label) on tf-idf weighted words, with the library's defaults.

    single: the text's words. labels: those, once for each label. pair: the words of each side, apart; of a symmetric
    one those of both sides together, as neither is first. choices: the words of each answer, right against wrong, the
    best-scored answer chosen; the document is the same for all answers, so that a linear model gains nothing from it.

    :param seed: draws the rows used of sets with more than 100 000.
    :return: the numbers of :func:`gptcore.nlu.metrics.score` on ``dev``, with their standard errors.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    train = _sample(train, seed)
    parts = [_parts(spec, rows) for rows in (train, dev)]
    train_features, dev_features = [], []
    for train_texts, dev_texts in zip(*parts, strict=True):
        rows_at_least = 2 if len(train_texts) >= _MANY_ROWS else 1
        weights = TfidfVectorizer(token_pattern=_WORD, min_df=rows_at_least, sublinear_tf=True, dtype=np.float32)
        train_features.append(weights.fit_transform(train_texts))
        dev_features.append(weights.transform(dev_texts))
    return _score(spec, _fit_predict(spec, _beside(train_features), _targets(spec, train), _beside(dev_features)), dev)


def _sample(rows: Sequence[Example], seed: int) -> Sequence[Example]:
    if len(rows) <= _MAX_ROWS:
        return rows
    chosen = np.random.default_rng(seed).choice(len(rows), _MAX_ROWS, replace=False)
    return [rows[row] for row in sorted(chosen)]


def _parts(spec: TaskSpec, rows: Sequence[Example]) -> list[list[str]]:
    """Texts whose words are counted apart: one list a side, each as long as there are rows (or answers)."""
    if form_of(spec).choices:
        return [[choice for row in rows for choice in row.choices]]
    if spec.symmetric:
        return [[" ".join(row.fields) for row in rows]]
    return [[row.fields[side] for row in rows] for side in range(len(spec.fields))]


def _targets(spec: TaskSpec, rows: Sequence[Example]) -> NDArray[np.float64]:
    labels = _labels(rows)
    if not form_of(spec).choices:
        return labels
    return np.asarray([float(number == row.label) for row in rows for number in range(len(row.choices))])


def _fit_predict(
    spec: TaskSpec, features: csr_matrix, targets: NDArray[np.float64], dev_features: csr_matrix
) -> NDArray[np.float64]:
    from sklearn.linear_model import LogisticRegression, Ridge

    if form_of(spec).several:
        kinds = from_numbers(targets, len(spec.labels))  # (rows, K)
        single = replace(spec, form="single")
        told = [_fit_predict(single, features, has.astype(np.float64), dev_features) > 0 for has in kinds.T]
        return as_numbers(np.stack(told, axis=1))
    if spec.score_range:
        graded = Ridge(solver="lsqr").fit(features, targets).predict(dev_features)
        return np.clip(np.asarray(graded, dtype=np.float64), *spec.score_range)
    if len(set(targets.tolist())) == 1:  # a single class leaves nothing to fit
        return np.full(dev_features.shape[0] // (len(spec.choices) or 1), targets[0])
    model = LogisticRegression(max_iter=1000).fit(features, targets)
    if form_of(spec).choices:
        answers = model.decision_function(dev_features).reshape(-1, len(spec.choices))  # (rows, choices)
        return np.asarray(np.argmax(answers, axis=1), dtype=np.float64)
    return np.asarray(model.predict(dev_features), dtype=np.float64)


def _beside(features: list[Any]) -> csr_matrix:
    from scipy.sparse import hstack

    return hstack(features, format="csr")


def _labels(rows: Sequence[Example]) -> NDArray[np.float64]:
    return np.asarray([row.label for row in rows], dtype=np.float64)


def _score(spec: TaskSpec, predictions: NDArray[np.float64], dev: Sequence[Example]) -> dict[str, float]:
    labels, subsets = _labels(dev), [row.subset for row in dev]
    return score(spec, predictions, labels, subsets) | score_stderrs(spec, predictions, labels, subsets)
