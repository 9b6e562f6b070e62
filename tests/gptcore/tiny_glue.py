"""A tiny vocabulary, untrained models of any task, and GLUE's unlabelled test files in small."""

from __future__ import annotations

from pathlib import Path

import torch

from gptcore.config import ModelConfig
from gptcore.evaluation.submission import SUBMISSION, SubmissionFile
from gptcore.models.classifier import ClassificationModel, Head
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import task_spec
from gptcore.text.bpe import WordTokenizer
from gptcore.text.tokenizer import Tokenizer
from tests.gptcore.datasets import write_bytes

TEXT = "the cat sat on the mat because it was tired . who said that a bird runs ? row says yes and no"


def tokenizer() -> Tokenizer:
    return WordTokenizer.train([TEXT] * 3, 40)


def save_model(task: str, words: Tokenizer, folder: Path, n_ctx: int = 48) -> Path:
    """An untrained model of one task whose answers differ from row to row."""
    spec = task_spec(task)
    torch.manual_seed(sum(task.encode()))
    config = ModelConfig(
        n_vocab=words.n_vocab, n_special=3, n_ctx=n_ctx, n_layer=1, n_head=2, n_embd=16, n_inner=32, init_std=0.5
    )
    model = ClassificationModel(GPT(config), Head(spec.form, form_of(spec).n_outputs(spec), 0.1))
    model.save(folder, {"task": task, "labels": list(spec.labels), "tokenizer_digest": words.digest})
    return folder


def write_test_file(
    datasets: str, file: SubmissionFile, texts: list[tuple[str, ...]], *, header: list[str] | None = None
) -> None:
    """A test file as published: a header, the counting column first, columns that no reader needs in between."""
    columns = header or [file.index, "genre", *task_spec(file.task).text_columns]
    lines = ["\t".join(columns), *("\t".join([str(row), "x", *cells]) for row, cells in enumerate(texts))]
    write_bytes(f"{datasets}/{file.path}", ("\n".join(lines) + "\n").encode())


def texts_of(file: SubmissionFile, rows: int) -> list[tuple[str, ...]]:
    """Texts of several lengths with quotes that do not close."""
    words = TEXT.split()
    sides = len(task_spec(file.task).text_columns)
    return [
        tuple(" ".join([*words[row % 7 : row % 7 + 2 + (row + side) % 5], '"']) for side in range(sides))
        for row in range(rows)
    ]


def write_test_files(datasets: str, rows: int) -> None:
    for file in SUBMISSION:
        write_test_file(datasets, file, texts_of(file, rows))
