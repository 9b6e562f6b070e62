"""What a task's training rows say, as plain text to pre-train on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gptcore.nlu.held_out import parts_of_texts
from gptcore.nlu.readers import iterate
from gptcore.nlu.registry import TaskSpec


def training_texts(spec: TaskSpec, datasets_url: str) -> Iterator[str]:
    """The texts of each training row in the order of the file, a line each, without its label.

    A text comes once, and one that is a part of a longer one, as phrases are of a sentence, not at all; a row of which
    nothing is left is passed over.

    :raises InputError: see :func:`gptcore.nlu.readers.iterate`.
    """
    rows = [(*row.fields, *row.choices) for row in iterate(spec, datasets_url, "train")]
    texts = list(dict.fromkeys(text for row in rows for text in row))
    words: dict[str, int] = {}
    ids = [np.array([words.setdefault(word, len(words)) for word in text.split()], np.int64) for text in texts]
    said = {texts[part] for part, _ in parts_of_texts(ids)}
    for row in rows:
        if new := [" ".join(text.split()) for text in dict.fromkeys(row) if text not in said]:
            yield "\n".join(new)
        said.update(row)
