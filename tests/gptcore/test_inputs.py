"""Input forms of Figure 1: what stands where, what is cut, what is predicted; and an encoder's: special pieces,
segments, padding and truncation of every form; where the pieces come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.nlu import REGISTRY
from gptcore.nlu.encoded import recorded_pieces
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.form import soft_labels
from gptcore.nlu.inputs import IGNORE_INDEX, DecoderReader, EncoderReader, Ids, fit, specials
from tests.gptcore.tiny_tasks import CLS, PAD, PIECES, SEP, PieceTokenizer, collate, encoded, sequences_of, task_rows

S, D, E = specials(1000)  # start, delimiter, classify


def ids(*values: int) -> Ids:
    return np.asarray(values, dtype=np.uint16)


def words(first: int, count: int) -> Ids:
    return np.arange(first, first + count, dtype=np.uint16)


def build(task: str, fields: list[Ids], choices: tuple[Ids, ...] = (), n_ctx: int = 64) -> tuple[list[list[int]], bool]:
    sequences, truncated = sequences_of(REGISTRY[task], fields, choices, n_ctx, 1000)
    return [sequence.tolist() for sequence in sequences], truncated


def test_forms_of_figure_1() -> None:
    assert specials(40478) == (40478, 40479, 40480)
    a, b = ids(1, 2), ids(3)
    assert build("sst2", [a]) == ([[S, 1, 2, E]], False)
    assert build("rte", [a, b]) == ([[S, 1, 2, D, 3, E]], False)
    assert build("mrpc", [a, b]) == ([[S, 1, 2, D, 3, E], [S, 3, D, 1, 2, E]], False)
    endings = (ids(7), ids(8, 9))
    assert build("storycloze", [a], endings) == ([[S, 1, 2, D, 7, E], [S, 1, 2, D, 8, 9, E]], False)
    answers = (ids(6), ids(7), ids(8), ids(9))
    assert build("race", [a, b], answers)[0] == [[S, 1, 2, 3, D, answer, E] for answer in (6, 7, 8, 9)]


def test_the_context_is_cut_first_and_of_a_similar_pair_the_longer_side() -> None:
    article, question, answers = words(100, 50), words(200, 5), tuple(words(300 + 10 * k, k + 1) for k in range(4))
    room = 20 - 3 - 5 - 4  # the same for all answers: that of the longest
    expected = [[S, *range(100, 100 + room), *question, D, *answer, E] for answer in answers]
    assert build("race", [article, question], answers, n_ctx=20) == (expected, True)
    assert build("qnli", [words(1, 4), words(100, 50)], n_ctx=10) == ([[S, 1, 2, 3, 4, D, 100, 101, 102, E]], True)
    assert build("mnli", [words(100, 50), words(1, 4)], n_ctx=10) == ([[S, 100, 101, 102, D, 1, 2, 3, 4, E]], True)
    assert build("mrpc", [words(1, 2), words(100, 50)], n_ctx=10)[0][0] == [S, 1, 2, D, 100, 101, 102, 103, 104, E]
    # a question where it does not fit without its article
    sequences, truncated = build("race", [words(100, 9), words(200, 30)], (ids(1), ids(2), ids(3), ids(4)), n_ctx=12)
    assert (sequences[3], truncated) == ([S, *range(200, 208), D, 4, E], True)
    assert [build("rte", [words(1, 5), words(20, 5)], n_ctx=n_ctx)[1] for n_ctx in (13, 12)] == [False, True]


def test_no_room_at_all() -> None:
    with pytest.raises(InputError, match=r"model\.n_ctx = 5 has no room for race: expected at least 6"):
        build("race", [ids(1), ids(2)], (ids(3),) * 4, n_ctx=5)


LENGTHS = st.integers(0, 40)


@given(data=st.data(), task=st.sampled_from(sorted(REGISTRY)), n_ctx=st.integers(6, 70))
def test_sequences_always_fit_and_keep_their_specials(data: st.DataObject, task: str, n_ctx: int) -> None:
    spec = REGISTRY[task]
    fields = [words(100 * side, data.draw(LENGTHS)) for side in range(len(spec.fields))]
    choices = tuple(words(500 + 50 * number, data.draw(LENGTHS)) for number in range(len(spec.choices)))
    sequences, truncated = build(task, fields, choices, n_ctx)
    assert len(sequences) == 2 if spec.symmetric else len(choices) if spec.form == "choices" else 1
    inner = [len(field) for field in fields] + ([max(map(len, choices))] if choices else [])
    n_special = 2 if spec.form == "single" else 3
    assert truncated == (sum(inner) + n_special > n_ctx)
    for sequence in sequences:
        assert len(sequence) <= n_ctx
        assert sequence[0] == S
        assert sequence[-1] == E
        assert sequence.count(D) == n_special - 2
    if spec.context is not None and sum(inner) - inner[spec.context] + n_special <= n_ctx:
        whole = [field.tolist() for side, field in enumerate(fields) if side != spec.context]
        assert all(_contains(sequence, part) for part in whole for sequence in sequences)
        assert all(_contains(sequence, choice.tolist()) for sequence, choice in zip(sequences, choices, strict=False))


def _contains(sequence: list[int], part: list[int]) -> bool:
    return any(sequence[start : start + len(part)] == part for start in range(len(sequence)))


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    room=st.integers(0, 60),
    context=st.none() | st.just(0),
)
def test_fit_like_its_plain_twin(lengths: list[int], room: int, context: int | None) -> None:
    kept = fit(lengths, room, context)
    assert sum(kept) == min(sum(lengths), room)
    assert sorted(kept) == sorted(_fit_plainly(lengths, room, context))
    assert all(0 <= now <= before for now, before in zip(kept, lengths, strict=True))
    if context is not None:
        assert kept[context] == _fit_plainly(lengths, room, context)[context]


def _fit_plainly(lengths: list[int], room: int, context: int | None) -> list[int]:
    """One token at a time: off the context while it has any, then off the longest part."""
    kept = list(lengths)
    while sum(kept) > room:
        part = context if context is not None and kept[context] else kept.index(max(kept))
        kept[part] -= 1
    return kept


@given(lengths=st.lists(st.lists(st.integers(2, 12), min_size=2, max_size=2), min_size=1, max_size=4))
def test_collate_like_its_plain_twin(lengths: list[list[int]]) -> None:
    examples = [[words(10 * row + 1, length) for length in example] for row, example in enumerate(lengths)]
    batch = collate(REGISTRY["mrpc"], examples, [1.0] * len(examples))
    width = max(length for example in lengths for length in example)
    assert batch.tokens.shape == batch.lm_targets.shape == (len(lengths), 2, width)
    assert batch.tokens.dtype == batch.lm_targets.dtype == batch.clf_position.dtype == torch.int64
    for row, example in enumerate(examples):
        for column, sequence in enumerate(example):
            padding = width - len(sequence)
            assert batch.tokens[row, column].tolist() == [*sequence.tolist(), *[0] * padding]
            assert batch.lm_targets[row, column].tolist() == [
                *sequence[1:].tolist(),
                IGNORE_INDEX,
                *[IGNORE_INDEX] * padding,
            ]
            assert batch.clf_position[row, column] == len(sequence) - 1


def test_start_is_never_predicted_delimiter_and_classify_are() -> None:
    sequences, _ = sequences_of(REGISTRY["rte"], [ids(1), ids(2)], (), 16, 1000)
    batch = collate(REGISTRY["rte"], [sequences], [0.0])
    assert batch.lm_targets[0, 0].tolist() == [1, D, 2, E, IGNORE_INDEX]


def test_labels_of_a_batch() -> None:
    one = [[words(1, 3)]] * 2
    classes = collate(REGISTRY["sst2"], one, [0.0, 1.0]).labels
    assert classes.dtype == torch.int64
    assert classes.tolist() == [0, 1]
    graded = collate(REGISTRY["stsb"], [[words(1, 3)] * 2] * 2, [3.6, 5.0]).labels
    assert graded.shape == (2, 6)
    torch.testing.assert_close(graded[0], torch.tensor([0.0, 0, 0, 0.4, 0.6, 0]))
    assert graded[1].tolist() == [0, 0, 0, 0, 0, 1]
    unknown = collate(REGISTRY["sst2"], one, [0.0, None])
    assert unknown.labels is None
    assert unknown.to("cpu").labels is None
    assert torch.equal(unknown.to("cpu").tokens, unknown.tokens)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=20))
def test_the_expected_class_of_a_soft_label_is_the_score(scores: list[float]) -> None:
    target = soft_labels(REGISTRY["stsb"], np.asarray(scores))
    assert target.min() >= 0
    np.testing.assert_allclose(target.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(target @ np.arange(6), scores, atol=1e-5)


def test_predictions() -> None:
    logits = np.asarray([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]], dtype=np.float32)
    assert form_of(REGISTRY["mnli"]).predict(REGISTRY["mnli"], logits).tolist() == [1, 0]
    sure = np.full((1, 6), -1e4)
    sure[0, 4] = 1e4  # must not overflow
    assert form_of(REGISTRY["stsb"]).predict(REGISTRY["stsb"], sure).tolist() == [4]
    assert form_of(REGISTRY["stsb"]).predict(REGISTRY["stsb"], np.zeros((1, 6))).tolist() == [2.5]
    shifted = replace(REGISTRY["stsb"], score_range=(1.0, 6.0))
    assert form_of(shifted).predict(shifted, sure).tolist() == [5]


# --- an encoder's


def reader(task: str, n_ctx: int = 16) -> EncoderReader:
    return EncoderReader(REGISTRY[task], n_ctx, 40, pieces=PIECES)


def built(task: str, fields: list[np.ndarray], choices: list[np.ndarray], n_ctx: int) -> tuple[list[list[int]], bool]:
    sequences, cut = reader(task, n_ctx).sequences(fields, choices)
    return [sequence.tolist() for sequence in sequences], cut


@pytest.mark.parametrize(
    ("task", "fields", "choices", "expected"),
    [
        ("sst2", [ids(1, 2, 3)], [], [[CLS, 1, 2, 3, SEP]]),
        ("rte", [ids(1, 2), ids(3)], [], [[CLS, 1, 2, SEP, 3, SEP]]),
        ("mrpc", [ids(1, 2), ids(3)], [], [[CLS, 1, 2, SEP, 3, SEP]]),  # symmetric, and once all the same
        ("storycloze", [ids(1, 2)], [ids(3), ids(4, 5)], [[CLS, 1, 2, SEP, 3, SEP], [CLS, 1, 2, SEP, 4, 5, SEP]]),
        ("race", [ids(1, 2), ids(9)], [ids(3), ids(4)], [[CLS, 1, 2, 9, SEP, 3, SEP], [CLS, 1, 2, 9, SEP, 4, SEP]]),
    ],
)
def test_each_form(task: str, fields: list[np.ndarray], choices: list[np.ndarray], expected: list[list[int]]) -> None:
    assert built(task, fields, choices, 16) == (expected, False)


def test_the_context_gives_way_first() -> None:
    assert built("sst2", [ids(1, 2, 3, 4)], [], 5) == ([[CLS, 1, 2, 3, SEP]], True)
    assert built("rte", [ids(1, 2, 3, 4), ids(5, 6)], [], 7) == ([[CLS, 1, 2, SEP, 5, 6, SEP]], True)
    assert built("qnli", [ids(5, 6), ids(1, 2, 3, 4)], [], 7) == ([[CLS, 5, 6, SEP, 1, 2, SEP]], True)  # its sentence
    assert built("mrpc", [ids(1, 2, 3, 4), ids(5, 6, 7)], [], 7) == ([[CLS, 1, 2, SEP, 5, 6, SEP]], True)
    story, endings = [ids(1, 2, 3, 4)], [ids(5), ids(6, 7)]
    assert built("storycloze", story, endings, 7) == ([[CLS, 1, 2, SEP, 5, SEP], [CLS, 1, 2, SEP, 6, 7, SEP]], True)
    race = built("race", [ids(1, 2, 3), ids(9, 8)], [ids(5), ids(6)], 7)
    assert race == ([[CLS, 1, 9, 8, SEP, 5, SEP], [CLS, 1, 9, 8, SEP, 6, SEP]], True)


@pytest.mark.parametrize(("task", "least"), [("sst2", 3), ("rte", 5), ("storycloze", 5), ("race", 6)])
def test_no_room_is_one_line(task: str, least: int) -> None:
    spec = REGISTRY[task]
    fields, choices = [ids(1)] * len(spec.fields), [ids(2)] * 2 if spec.form == "choices" else []
    built(task, fields, choices, least)
    with pytest.raises(InputError, match=f"has no room for {task}: expected at least {least}"):
        built(task, fields, choices, least - 1)


def test_padding_segments_and_mask() -> None:
    rows = [
        reader("storycloze").sequences([ids(1, 2)], [ids(3), ids(4, 5)])[0],
        reader("storycloze").sequences([ids(0)], [ids(6), ids(7)])[0],  # 0 is a word like any other
    ]
    batch = reader("storycloze").collate(rows, [1.0, 0.0])
    assert batch.tokens.tolist() == [
        [[CLS, 1, 2, SEP, 3, SEP, PAD], [CLS, 1, 2, SEP, 4, 5, SEP]],
        [[CLS, 0, SEP, 6, SEP, PAD, PAD], [CLS, 0, SEP, 7, SEP, PAD, PAD]],
    ]
    assert batch.mask is not None
    assert batch.segments.tolist() == [
        [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]],
        [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0]],
    ]
    assert torch.equal(batch.mask, batch.tokens != PAD)
    assert batch.n_tokens == 6 + 7 + 5 + 5
    assert batch.labels.tolist() == [1, 0]
    assert set(batch.marks) == {"segments", "mask"}
    assert set(batch.to("cpu").marks) == {"segments", "mask"}
    assert bool((batch.lm_targets == -100).all())
    single = reader("sst2").collate([[ids(CLS, 1, SEP)]], [None])
    assert (single.segments.tolist(), single.labels) == ([[[0, 0, 0]]], None)
    graded = reader("stsb").collate([[ids(CLS, 1, SEP, 2, SEP)]], [2.25])
    assert graded.labels[0].sum() == 1.0


def test_special_pieces_are_recorded_with_the_rows_where_there_are_any(tmp_path: Path) -> None:
    plain, pieces = encoded(tmp_path / "a", "sst2"), encoded(tmp_path / "b", "sst2", words=PieceTokenizer())
    assert "specials" not in read_json(plain / "meta.json")
    assert (recorded_pieces(plain), recorded_pieces(pieces)) == (None, PIECES)
    rows = task_rows(REGISTRY["sst2"], pieces, "dev", n_ctx=24, n_vocab=40, max_rows=None, seed=0, kind=EncoderReader)
    assert rows.batch([0]).tokens[0, 0, 0] == CLS
    assert rows.tokens == rows.batch(np.arange(len(rows))).n_tokens
    decoded = task_rows(
        REGISTRY["sst2"], pieces, "dev", n_ctx=24, n_vocab=40, max_rows=None, seed=0, kind=DecoderReader
    )
    assert decoded.batch([0]).marks == {}
    with pytest.raises(InputError, match=r"found one without \[CLS\] and \[SEP\]"):
        task_rows(REGISTRY["sst2"], plain, "dev", n_ctx=24, n_vocab=40, max_rows=None, seed=0, kind=EncoderReader)
