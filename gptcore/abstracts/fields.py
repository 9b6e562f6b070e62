"""Whether an abstract fits the field of its title (section 4.4), by a classifier that has read real abstracts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from gptcore.abstracts.arxiv import Paper, categories_of

_MOST = 20_000  # training abstracts, spread evenly


def field_of(paper: Paper) -> str:
    """The field of a paper: the first of its categories."""
    return next(iter(categories_of(paper)), "")


class FieldClassifier:
    """Logistic regression on tf-idf weighted words of real training abstracts, with scikit-learn's defaults.

    :param train: papers of the training split, in order of date; those without a category are left out.
    """

    def __init__(self, train: Sequence[Paper]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        known = [paper for paper in train if field_of(paper)]
        known = [known[n * len(known) // min(_MOST, len(known))] for n in range(min(_MOST, len(known)))]
        fields = [field_of(paper) for paper in known]
        self.fields = sorted(set(fields))
        """Those that it tells apart; of fewer than two it tells nothing."""
        self._commonest = Counter(fields).most_common(1)[0][0] if fields else ""
        if len(self.fields) > 1:
            self._weights = TfidfVectorizer(sublinear_tf=True)
            self._model = LogisticRegression(max_iter=1000)
            self._model.fit(self._weights.fit_transform(paper.abstract for paper in known), fields)

    def share_right(self, papers: Sequence[Paper], abstracts: Sequence[str]) -> float | None:
        """Share of abstracts whose field is told to be that of the paper under whose title they stand.

        :param abstracts: one for each of ``papers``; their own, or generated ones.
        :returns: None where no paper has a field that the classifier knows, or it knows fewer than two.
        """
        asked = [(field_of(paper), text) for paper, text in zip(papers, abstracts, strict=True)]
        asked = [(field, text) for field, text in asked if field in self.fields]
        if not asked or len(self.fields) < 2:
            return None
        answers = self._model.predict(self._weights.transform(text for _, text in asked))
        return float(np.mean([field == answer for (field, _), answer in zip(asked, answers, strict=True)]))

    def by_chance(self, papers: Sequence[Paper]) -> float | None:
        """What who always says the commonest training field would reach on ``papers``."""
        fields = [field for paper in papers if (field := field_of(paper)) in self.fields]
        return fields.count(self._commonest) / len(fields) if fields and len(self.fields) > 1 else None
