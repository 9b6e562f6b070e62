"""Held-out rows: whole texts on one side, and the parts of texts against a search through all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.nlu.encoded import write_encoded
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.held_out import held_out_rows, parts_of_texts
from gptcore.nlu.inputs import EncodedExample


def write(folder: Path, texts: list[tuple[Ids, ...]], choices: tuple[Ids, ...] = ()) -> None:
    rows = [EncodedExample(fields, choices, 0.0, "", f"train:{n}") for n, fields in enumerate(texts)]
    write_encoded(folder / "train.arrow", rows, 500)


def divided(folder: Path, n_rows: int, size: int) -> int:
    """How many of the groups of ``size`` rows, one behind the other, stand on both sides."""
    found = set(held_out_rows(folder, np.arange(n_rows)).tolist())
    sides = {row // size for row in found}, {row // size for row in set(range(n_rows)) - found}
    assert len(found) == n_rows // 10
    return len(sides[0] & sides[1])


def test_rows_of_a_passage_are_held_out_together_and_are_the_same_every_time(tmp_path: Path) -> None:
    write(tmp_path, [(np.full(9, n // 3), np.full(2, n % 7)) for n in range(400)])
    for numbers, count in ((np.arange(400), 40), (np.arange(150), 20), (np.arange(7, 37), 15), (np.arange(2), 1)):
        found = held_out_rows(tmp_path, numbers)
        assert (len(found), sorted(set(found) & set(numbers))) == (count, found.tolist())
        sides = [{row // 3 for row in found}, {row // 3 for row in set(numbers) - set(found)}]
        assert len(sides[0] & sides[1]) <= 1
        assert found.tolist() == held_out_rows(tmp_path, numbers).tolist()
    with pytest.raises(InputError, match=r"train.arrow: 1 rows .* expected 2 or more, or finetune.select = .dev."):
        held_out_rows(tmp_path, np.arange(1))


def test_rows_of_one_hypothesis_are_held_out_together_unless_it_asks_for_a_choice(tmp_path: Path) -> None:
    texts = [(np.full(9, n), np.full(8, n // 5)) for n in range(400)]
    write(tmp_path, texts)
    assert divided(tmp_path, 400, 5) <= 1
    write(tmp_path, texts, (np.zeros(1, int), np.ones(1, int)))
    assert divided(tmp_path, 400, 5) > 10


def test_phrases_are_held_out_with_their_sentence(tmp_path: Path) -> None:
    sentences = [np.array([n, 401, 402, 403, n]) for n in range(100)]
    write(tmp_path, [(part,) for whole in sentences for part in (whole[2:], whole[:2], whole, whole[1:])])
    assert divided(tmp_path, 400, 4) <= 1


def test_large_groups_are_held_out_no_more_often_than_small_ones(tmp_path: Path) -> None:
    shares = []
    for start in range(40):  # ten rows of one text among a hundred: a tenth of what is held out, on the average
        write(tmp_path, [(np.full(9, 0 if start <= n < start + 10 else n + 1),) for n in range(100)])
        found = held_out_rows(tmp_path, np.arange(100))
        shares.append(np.mean((found >= start) & (found < start + 10)))
    assert 0 < np.mean(shares) < 0.25  # by their first places 0.5


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=12))
def test_parts_of_texts_are_those_that_a_search_finds(texts: list[list[int]]) -> None:
    expected = {}
    for part, its in enumerate(texts):
        for whole, longer in enumerate(texts):
            runs = [longer[at : at + len(its)] for at in range(len(longer))]
            if its and len(longer) > len(its) and its in runs:
                expected.setdefault(part, whole)
    assert dict(parts_of_texts([np.array(text, np.uint16) for text in texts])) == expected
