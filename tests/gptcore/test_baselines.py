"""The floors: what they can learn, what they must not, and that they never change."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from gptcore.nlu import REGISTRY, Example, load_task
from gptcore.nlu import floors as module
from gptcore.nlu.floors import bag_of_words, best_constant, overlap
from tests.realdata import real_data

FILLER = ["the", "a", "of", "and", "to", "in", "on", "at", "by", "for"]


def example(fields: tuple[str, ...], label: float, choices: tuple[str, ...] = (), subset: str = "") -> Example:
    return Example(fields, choices, label, subset, "generated:1")


def filled(word: str, draw: random.Random) -> str:
    return " ".join(draw.sample([*draw.sample(FILLER, 5), word], 6))


def sentiment(n: int, seed: int) -> list[Example]:
    draw = random.Random(seed)
    return [example((filled(("bad", "good")[row % 2], draw),), row % 2) for row in range(n)]


def test_the_best_constant_of_accuracy_is_the_commonest_train_label() -> None:
    train = [example(("x",), label) for label in (0, 1, 1)]
    dev = [example(("x",), label) for label in (1, 0, 1, 1)]
    stderr = (0.75 * 0.25 / 4) ** 0.5
    found = best_constant(REGISTRY["sst2"], train, dev)
    assert found == {"accuracy": 0.75, "score": 0.75, "score_stderr": pytest.approx(stderr)}
    tied = [example(("x",), label) for label in (1, 0)]
    assert best_constant(REGISTRY["sst2"], tied, dev)["score"] == 0.25  # of equals the first label
    assert best_constant(REGISTRY["cola"], train, dev)["score"] == 0.0
    graded = [example(("x", "y"), score) for score in (0.0, 2.5, 5.0)]
    assert best_constant(REGISTRY["stsb"], graded, graded)["score"] == 0.0


def test_the_best_constant_of_choices_and_parts() -> None:
    rows = [example(("d", "q"), label, ("w", "x", "y", "z"), part) for label, part in ((1, "race_m"), (1, "race_h"))]
    rows.append(example(("d", "q"), 3, ("w", "x", "y", "z"), "race_h"))
    found = best_constant(REGISTRY["race"], rows, rows)
    assert found["race"] == pytest.approx(2 / 3)
    assert (found["race_m"], found["race_h"]) == (1.0, 0.5)


def test_the_best_constant_of_an_f1_is_the_class_that_it_is_of() -> None:
    """One answer everywhere has the class' share p as its precision, and recall 1: F1 = 2 p / (1 + p)."""
    rows = [example(("x", "y"), label) for label in (0, 0, 0, 1)]
    assert best_constant(REGISTRY["qqp"], rows, rows)["f1"] == pytest.approx(2 * 0.25 / 1.25)


def test_words_are_learned() -> None:
    assert bag_of_words(REGISTRY["sst2"], sentiment(200, 1), sentiment(100, 2))["score"] == 1.0


def test_order_is_not_learned() -> None:
    def rows(seed: int) -> list[Example]:
        draw = random.Random(seed)
        orders = ("dog bites man", "man bites dog")
        return [example((orders[label],), label) for label in (draw.randrange(2) for _ in range(200))]

    assert bag_of_words(REGISTRY["sst2"], rows(1), rows(2))["score"] < 0.65


def test_shared_words_are_not_a_feature() -> None:
    """Equal or different pairs of words equally common on either side: whoever sees the overlap scores 1.

    A line between word weights does a little better than chance, as the sums of equal words vary more.
    """

    def rows(seed: int) -> list[Example]:
        draw = random.Random(seed)
        result = []
        for row in range(400):
            first, second = draw.sample([f"w{number}" for number in range(30)], 2)
            result.append(example((first, first if row % 2 else second), row % 2))
        return result

    assert bag_of_words(REGISTRY["rte"], rows(1), rows(2))["score"] < 0.7
    assert overlap(REGISTRY["rte"], rows(1), rows(2))["score"] == 1.0


def test_overlap_knows_no_word() -> None:
    rows = [example(("good" if row % 2 else "bad", f"x{row}"), row % 2) for row in range(100)]
    assert overlap(REGISTRY["rte"], rows, rows)["score"] < 0.65


def test_what_two_texts_share_in_figures() -> None:
    weight = {"cat": 2.0, "dog": 1.0, "the": 0.5}.__getitem__
    one, other = Counter(the=1, cat=2), Counter(cat=1, dog=3)
    cosine = 4 * 2 / math.sqrt((0.5**2 + 4**2) * (2**2 + 3**2))
    shared = [cosine, 0.0, 1 / 2, 1 / 2, 2 / 2.5, 2 / 3, math.log(4), math.log(5)]
    assert module._shared(one, other, weight, False) == pytest.approx(shared)
    assert module._shared(other, one, weight, True) == pytest.approx([*shared[:4], 2 / 3, 2 / 2.5, *shared[6:]])
    same = module._shared(Counter(the=1), Counter(the=1), weight, False)
    assert same == pytest.approx([*[1.0] * 6, math.log(2), math.log(2)])
    assert module._shared(Counter(), Counter(dog=2), weight, False) == pytest.approx([*[0.0] * 7, math.log(3)])
    weight = module._word_weights({"a b", "a", "c", "A a"}, module._tokens)
    assert [weight(word) for word in "abz"] == pytest.approx([math.log(5 / 4), math.log(5 / 2), math.log(5)])


def test_overlap_of_choices_is_that_of_each_with_what_the_row_asks() -> None:
    rows = [
        example(("the cat sat", "what sat"), row % 4, tuple("a cat" if n == row % 4 else f"w{row}" for n in range(4)))
        for row in range(60)
    ]
    assert overlap(REGISTRY["race"], rows, rows)["score"] == 1.0


def test_sides_of_a_pair_are_told_apart_and_those_of_a_symmetric_one_are_not() -> None:
    rows = [example(("yes", "no") if row % 2 else ("no", "yes"), row % 2) for row in range(100)]
    assert bag_of_words(REGISTRY["rte"], rows, rows)["score"] == 1.0
    assert bag_of_words(REGISTRY["qqp"], rows, rows)["accuracy"] == 0.5


def test_choices_by_the_words_of_each_answer() -> None:
    def rows(seed: int) -> list[Example]:
        draw = random.Random(seed)
        result = []
        for _ in range(150):
            right = draw.randrange(2)
            endings = [filled("smiled" if number == right else "exploded", draw) for number in range(2)]
            result.append(example(("a story",), right, tuple(endings)))
        return result

    assert bag_of_words(REGISTRY["storycloze"], rows(1), rows(2))["score"] == 1.0


def test_graded_labels() -> None:
    def rows(seed: int) -> list[Example]:
        draw = random.Random(seed)
        return [example((filled(f"level{n % 6}", draw), filled("same", draw)), float(n % 6)) for n in range(240)]

    found = bag_of_words(REGISTRY["stsb"], rows(1), rows(2))
    assert found["pearson"] > 0.95
    assert set(found) == {"pearson", "spearman", "score", "score_stderr"}


def test_one_class_in_train() -> None:
    rows = [example(("fine",), 1) for _ in range(4)]
    assert bag_of_words(REGISTRY["sst2"], rows[:1], rows)["score"] == 1.0


@pytest.mark.parametrize(("n", "told"), [(999, 1.0), (1000, 0.5)])
def test_words_of_a_single_row_are_left_out_of_a_thousand_rows(n: int, told: float) -> None:
    common = [example(("the same",), row % 2) for row in range(7, n)]
    rare = [example((word,), 1) for word in ("twice", "twice", "once")]
    train = [*common, *rare, *(example((word,), 0) for word in ("odd", "strange", "weird", "queer"))]
    assert bag_of_words(REGISTRY["sst2"], train, rare[1:])["score"] == told


@pytest.mark.parametrize("n", [999, 1000])
def test_where_no_word_tells_anything_the_commonest_label_is_all(n: int) -> None:
    """From a thousand rows on words of a single row do not count; here every word is one."""
    rows = [example((f"word{row}",), float(row % 3 > 0)) for row in range(n)]
    asked = [example((f"other{row}",), float(row < 3)) for row in range(4)]
    assert bag_of_words(REGISTRY["sst2"], rows, asked)["score"] == 0.75


def test_large_sets_are_sampled_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._MAX_ROWS == 100_000
    monkeypatch.setattr(module, "_MAX_ROWS", 40)
    train = sentiment(300, 1)
    assert len(module._sample(train, 0)) == 40
    assert module._sample(train[:40], 0) == train[:40]
    assert [row for row in train if row in module._sample(train, 0)] == module._sample(train, 0)
    assert module._sample(train, 0) == module._sample(train, 0) != module._sample(train, 1)
    assert bag_of_words(REGISTRY["sst2"], train, sentiment(50, 2))["score"] == 1.0
    draw = random.Random(3)
    pairs = [example((filled("cat", draw), filled("dog", draw)), row % 2) for row in range(300)]
    for floor in (bag_of_words, overlap):
        default, *others = (floor(REGISTRY["rte"], pairs, pairs, **seed) for seed in ({}, {"seed": 0}, {"seed": 1}))
        assert default == others[0] != others[1]


def test_real_rows() -> None:
    """Measured: SST-2 82.1, MRPC's F1 83.1 (one answer 50.9 and 81.2); STS-B by overlap 75.9, by words 26.8."""
    root = str(real_data())
    sst2, mrpc = (
        (REGISTRY[task], load_task(task, root, "train"), load_task(task, root, "dev")) for task in ("sst2", "mrpc")
    )
    assert best_constant(*sst2)["score"] == pytest.approx(444 / 872)
    assert bag_of_words(*sst2)["score"] > 0.80
    assert best_constant(*mrpc)["score"] == pytest.approx(0.8122, abs=1e-4)
    assert bag_of_words(*mrpc)["accuracy"] > best_constant(*mrpc)["accuracy"]
    stsb = (REGISTRY["stsb"], load_task("stsb", root, "train"), load_task("stsb", root, "dev"))
    assert overlap(*stsb)["score"] > 0.714 > 0.27 > bag_of_words(*stsb)["score"]  # the cosine alone has 71.4
