"""An encoder's inputs: special pieces, segments, padding and truncation of every form; where the pieces come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.nlu import REGISTRY
from gptcore.nlu.encoded import recorded_pieces
from gptcore.nlu.inputs import DecoderReader, EncoderReader
from tests.gptcore.reading import task_rows
from tests.gptcore.tiny_encoders import CLS, PAD, PIECES, SEP, PieceTokenizer
from tests.gptcore.tiny_tasks import encoded


def reader(task: str, n_ctx: int = 16) -> EncoderReader:
    return EncoderReader(REGISTRY[task], n_ctx, 40, pieces=PIECES)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint16)


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
    assert batch.segments is not None
    assert batch.mask is not None
    assert batch.segments.tolist() == [
        [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]],
        [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0]],
    ]
    assert torch.equal(batch.mask, batch.tokens != PAD)
    assert batch.n_tokens == 6 + 7 + 5 + 5
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 0]
    assert set(batch.marks) == {"segments", "mask"}
    assert set(batch.to("cpu").marks) == {"segments", "mask"}
    assert bool((batch.lm_targets == -100).all())
    single = reader("sst2").collate([[ids(CLS, 1, SEP)]], [None])
    assert single.segments is not None
    assert (single.segments.tolist(), single.labels) == ([[[0, 0, 0]]], None)
    graded = reader("stsb").collate([[ids(CLS, 1, SEP, 2, SEP)]], [2.25])
    assert graded.labels is not None
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
