"""Which training rows choose the epoch of a fine-tune.

Texts are held out, not rows: a network that has learnt a text, or a part of it, answers about it better than about a
new one, and would choose too late an epoch, or trust too much in rare words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.seeds import derive_seed
from gptcore.nlu.encoded import read_encoded
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import EncodedExample

_FEWEST, _MOST = 20, 2000  # rows
_LONG = 8  # pieces, of a text that is not the same by chance
_LONGEST_PART = 64  # pieces: of longer texts, hardly ever a part of others, there are many lengths
_FACTOR = 6364136223846793005  # odd, so that it has an inverse modulo 2 ** 64


def held_out_rows(folder: Path, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The training rows (N,) that choose an epoch, ascending, and that are not trained on: of the same rows the
    same, whatever the seed of a training.

    A tenth, but 20 at least (of fewer than 40 rows half of them), and 2,000 at most. On one side together stand rows
    with the same longest text, as questions of one passage and hypotheses of one premise have; or the same other text,
    unless it is short or asks for one of some choices; and a row whose longest text is a part of another's, as phrases
    are of a sentence. Rows that would be too many are divided, so that there are as many as said.

    :param numbers: (N,) the rows that may be trained on.
    :raises InputError: there is one row alone.
    """
    if len(numbers) < 2:
        raise InputError(
            f"{folder / 'train'}.arrow: {len(numbers)} rows to train on, of which none can be held out; expected 2 or "
            'more, or finetune.select = "dev"'
        )
    count = min(max(len(numbers) // 10, min(_FEWEST, len(numbers) // 2)), _MOST)
    train = read_encoded(folder, "train")
    drawn = np.random.Generator(np.random.Philox(derive_seed(0, "held-out"))).permutation(len(numbers))
    places = np.argsort(drawn)  # of each row in the draw
    # The place of one row is that of all it stands with; by the first of their places large groups would come early.
    together = places[_together([train[int(row)] for row in numbers])]
    return np.sort(numbers[np.lexsort((places, together))[:count]])


def _together(rows: Sequence[EncodedExample]) -> list[int]:
    """For each row the first of those that it stands together with, directly or by way of others."""
    earlier = list(range(len(rows)))  # of each row, or itself

    def first(row: int) -> int:
        while earlier[row] != row:
            earlier[row] = row = earlier[earlier[row]]
        return row

    def join(row: int, other: int) -> None:
        one, other = sorted((first(row), first(other)))
        earlier[other] = one

    firsts: dict[bytes, int] = {}
    longest = [max(row.fields, key=len) for row in rows]
    for row, example in enumerate(rows):
        others = () if example.choices else (text for text in example.fields if len(text) >= _LONG)
        for text in (longest[row], *others):
            join(row, firsts.setdefault(text.tobytes(), row))
    for part, whole in parts_of_texts(longest):
        join(part, whole)
    return [first(row) for row in range(len(rows))]


def parts_of_texts(texts: Sequence[Ids]) -> Iterator[tuple[int, int]]:
    """The texts that are a part of a longer one, each with the first such; of over 64 pieces none is looked for.

    Runs of pieces are told by a hash of 64 bits: sum of piece * factor ** place, modulo 2 ** 64.
    """
    sizes = np.array([len(text) for text in texts])
    starts = sizes.cumsum() - sizes
    owner = np.repeat(np.arange(len(texts)), sizes)
    powers, inverses = (_powers(base, len(owner)) for base in (_FACTOR, pow(_FACTOR, -1, 1 << 64)))
    sums = np.zeros(len(owner) + 1, np.uint64)
    sums[1:] = ((np.concatenate(texts).astype(np.uint64) + np.uint64(1)) * powers).cumsum()

    def codes(begins: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
        hashes: NDArray[np.uint64] = (sums[begins + size] - sums[begins]) * inverses[begins]
        return hashes

    ends = (starts + sizes)[owner]
    for size in np.unique(sizes[(sizes > 0) & (sizes <= _LONGEST_PART)]):
        same = np.flatnonzero(sizes == size)
        wanted, which = np.unique(codes(starts[same], size), return_inverse=True)
        begins = np.flatnonzero((np.arange(len(owner)) + size <= ends) & (sizes[owner] > size))
        runs = codes(begins, size)
        places = np.searchsorted(wanted, runs).clip(max=len(wanted) - 1)
        matched = wanted[places] == runs
        known, at = np.unique(places[matched], return_index=True)  # the first of equal ones
        wholes = dict(zip(known.tolist(), owner[begins[matched][at]].tolist(), strict=True))
        for text, place in zip(same.tolist(), which.tolist(), strict=True):
            if place in wholes:
                yield text, wholes[place]


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """1, base, base ** 2, ... modulo 2 ** 64: [count]."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return powers.cumprod(dtype=np.uint64)
