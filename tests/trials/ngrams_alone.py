"""What n-grams alone tell of tasks' rows: the layer of `finetune.ngrams` without a network, beside the tasks' floors.

    python -m tests.trials.ngrams_alone --tokenizer URL --datasets URL [--tasks cola,rte] [--rows 6000]

A tenth of the training rows, held out as a fine-tune holds them out, chooses the penalty; then all are fitted. Dev rows
(of Story Cloze and SNLI test rows, too) are scored once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore import Tokenizer
from gptcore.base.seeds import choose_rows
from gptcore.data.feed import by_length, evaluation_tokens
from gptcore.evaluation.predict import answers_of, mean_loss
from gptcore.models.ngrams import NGrams
from gptcore.nlu.encoded import encode_task, encoded_splits, read_encoded
from gptcore.nlu.forms import form_of
from gptcore.nlu.held_out import held_out_rows
from gptcore.nlu.inputs import DecoderReader
from gptcore.nlu.readers import load_task
from gptcore.nlu.registry import REGISTRY, TaskSpec, task_spec
from gptcore.nlu.rows import Rows, numbered_rows, split_rows
from gptcore.training.ngrams import PENALTIES, NGramFit
from tests.trials.scenarios import heading, row

_N_CTX = 256


def logits(layer: NGrams, spec: TaskSpec, rows: Rows) -> Sequence[NDArray[np.float32]]:
    """What the layer gives each row."""
    outputs: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
    for part in by_length(rows.sizes, evaluation_tokens(torch.device("cpu"))):
        batch = rows.batch(part)
        each = layer(batch.tokens, batch.ends)  # (B, C, K)
        told = each.flatten(1) if form_of(spec).choices else each.sum(dim=1)
        for number, its in zip(part, told.numpy(), strict=True):
            outputs[number] = its
    return outputs


def scores(spec: TaskSpec, datasets: str, tokenizer: Tokenizer, most: int | None, folder: Path) -> list[str]:
    """A task's row of the table."""
    started = time.process_time()
    encode_task(spec, datasets, tokenizer, folder)
    reader = DecoderReader(spec, _N_CTX, tokenizer.n_vocab)
    numbers = choose_rows(len(read_encoded(folder, "train")), most, 0)
    held_out = held_out_rows(folder, numbers)
    learnt, validation, every = (
        numbered_rows(reader, folder, "train", part) for part in (np.setdiff1d(numbers, held_out), held_out, numbers)
    )
    fit, tried = NGramFit(spec, learnt, tokenizer.word_edges, 3, lambda: False), []
    for penalty in PENALTIES:
        told = logits(fit.layer(penalty), spec, validation)
        score = answers_of(spec, validation, told).scores(spec)["score"]
        tried.append((score, -mean_loss(spec, validation, told, torch.device("cpu")), penalty))
    layer = NGramFit(spec, every, tokenizer.word_edges, 3, lambda: False).layer(max(tried)[-1])
    cells = []
    for split in ("dev", "test"):
        rows = split_rows(reader, folder, split) if split in encoded_splits(folder) else None
        cells.append(
            f"{100 * answers_of(spec, rows, logits(layer, spec, rows)).scores(spec)['score']:.1f}" if rows else ""
        )
    train, dev = (load_task(spec.name, datasets, split=split) for split in ("train", "dev"))
    floors = {name: floor(spec, train, dev)["score"] for name, floor in form_of(spec).fitted_floors().items()}
    best = max(floors, key=lambda name: floors[name])
    took = f"{time.process_time() - started:.0f} s"
    return [spec.name, f"{len(numbers):,}", *cells, f"{100 * floors[best]:.1f} ({best})", f"{max(tried)[-1]:g}", took]


def main() -> None:
    """All tasks, one after the other; a row is printed as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--datasets", required=True)
    parser.add_argument("--tasks", default=",".join(REGISTRY))
    parser.add_argument("--rows", type=int, help="training rows, at most")
    given = parser.parse_args()
    tokenizer = Tokenizer.load(given.tokenizer)
    heading("task", "rows", "dev", "test", "best floor, dev", "penalty", "CPU")
    for name in given.tasks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            row(*scores(task_spec(name), given.datasets, tokenizer, given.rows, Path(folder)))


if __name__ == "__main__":
    main()
