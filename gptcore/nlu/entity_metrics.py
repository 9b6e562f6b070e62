"""F1 of named entities, as the shared task of CoNLL-2003 counts them (Tjong Kim Sang and De Meulder 2003, section 2.4).

An entity is right where its kind, its first and its last word are. Which words make one follows the task's script,
`conlleval`, for any sequence of tags in IOB1 or IOB2, also one that breaks its scheme, as a network's may: it begins at
B, behind O, and where the kind changes; it ends before the next one begins, and before O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Entity = tuple[str, int, int]
"""Kind, first word, and the one behind the last."""


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a text, from a tag a word: "O", "B-KIND" or "I-KIND"."""
    found: set[Entity] = set()
    kind, start = "", 0
    for at, tag in enumerate([*tags, "O"]):
        prefix, _, its_kind = tag.partition("-")
        if kind and (prefix != "I" or its_kind != kind):
            found.add((kind, start, at))
            kind = ""
        if prefix != "O" and not kind:
            kind, start = its_kind, at
    return found


def entity_counts(predicted: Sequence[str], gold: Sequence[str]) -> tuple[int, int, int]:
    """How many entities of a text are right, are predicted, and are there."""
    ours, theirs = entities(predicted), entities(gold)
    return len(ours & theirs), len(ours), len(theirs)


def entity_f1(right: float, predicted: float, there: float) -> float:
    """F1 of counts; 0 where nothing is predicted and nothing there."""
    return 2 * right / (predicted + there) if predicted + there else 0.0


def entity_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """The numbers of a split, as fractions.

    :param predicted: the tags of each text's words.
    :param gold: what is right.
    :return: "entity_f1", "entity_precision", "entity_recall", and "entity_f1 KIND" of each kind that is there; 0 for
        0/0.
    :raises ValueError: no texts, or texts of unequal lengths.
    """
    pairs = list(zip(predicted, gold, strict=True))
    if not pairs:
        raise ValueError("no texts to score")
    right, ours, theirs = Counter[str](), Counter[str](), Counter[str]()
    for tags, expected in pairs:
        if len(tags) != len(expected):
            raise ValueError(f"{len(tags)} tags for {len(expected)} words")
        mine, its = entities(tags), entities(expected)
        right.update(kind for kind, *_ in mine & its)
        ours.update(kind for kind, *_ in mine)
        theirs.update(kind for kind, *_ in its)
    n_right, n_ours, n_theirs = right.total(), ours.total(), theirs.total()
    return {
        "entity_f1": entity_f1(n_right, n_ours, n_theirs),
        "entity_precision": n_right / n_ours if n_ours else 0.0,
        "entity_recall": n_right / n_theirs if n_theirs else 0.0,
        **{f"entity_f1 {kind}": entity_f1(right[kind], ours[kind], theirs[kind]) for kind in sorted(theirs)},
    }
