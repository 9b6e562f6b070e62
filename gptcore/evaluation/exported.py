"""A fine-tuned classifier exported as ONNX, and what the export is worth: its logits and scores beside the model's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from gptcore.evaluation.predict import EVAL_ROW_SEED, check_dataset, logits_of, reader_for
from gptcore.evaluation.predictions import Predictions, label_predictions
from gptcore.families import FAMILIES
from gptcore.models.classifier import Classifier
from gptcore.models.onnx import OnnxClassifier, export_onnx, quantise_onnx, require_onnx
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import TaskSpec, recorded_task
from gptcore.nlu.rows import Rows, split_rows
from gptcore.text.tokenizer import Tokenizer

TOLERANCE = 1e-4
"""How far a logit may be from the model's."""
_ROWS = 1000
"""Dev rows that an export is compared on: enough to see a loss of a point."""
_SAME = 0.005  # of a score: what two decimals show
MODEL, INT8 = "model.onnx", "model-int8.onnx"


def write_onnx(folder: Path, tokenizer: Tokenizer, dataset: Path, out: Path, int8: bool = False) -> dict[str, Any]:
    """Export a classifier into a new folder, and measure what came out on dev rows of its task.

    The folder holds :data:`MODEL`, on request :data:`INT8`, the model's ``config.json`` (task, labels, n_ctx), its
    tokenizer under ``tokenizer/``, and what this function returns as ``comparison.json``.

    :param folder: what :meth:`Classifier.save` wrote.
    :param dataset: what :func:`gptcore.nlu.encoded.encode_task` wrote, with the same tokenizer.
    :param out: a folder that is not there yet.
    :param int8: also with int8 weights.
    :return: "rows", and for each file "bytes", "largest_difference" (of a logit from the model's in float32), "score"
        (the task's headline metric on those rows) and "same_answers" (the share of rows; scores to half a hundredth).
    :raises InputError: a package is missing, the network is recurrent, the dataset another task's, or the logits
        differ by more than :data:`TOLERANCE`; then nothing is left.
    """
    require_onnx()
    model, config = Classifier.load(folder)
    spec = recorded_task(config)
    network = model.network.config
    family = FAMILIES[network.family]
    if not family.layout:
        known = ", ".join(other.title for other in FAMILIES.values() if other.layout)
        raise InputError(f"--format onnx: found a model of the kind {family.title}, expected one of {known}")
    if form_of(spec).places:
        raise InputError(
            f"--format onnx: found a model for {spec.name}, which points at places; expected one that classifies"
        )
    check_dataset(dataset, spec, config["tokenizer_digest"], network.n_vocab, str(folder))
    rows = split_rows(reader_for(model, spec, config.get("part_tokens")), dataset, "dev", _ROWS, EVAL_ROW_SEED)
    expected = label_predictions(spec, rows, logits_of(model, rows, torch.device("cpu")))
    out.mkdir(parents=True)
    try:
        export_onnx(model, out / MODEL)
        comparison: dict[str, Any] = {"rows": len(rows), "score": expected.scores(spec)["score"]}
        comparison[MODEL] = _compared(out / MODEL, spec, rows, expected)
        if (difference := comparison[MODEL]["largest_difference"]) > TOLERANCE:
            raise InputError(f"--format onnx: logits differ by {difference:.2g}, expected at most {TOLERANCE:g}")
        if int8:
            quantise_onnx(out / MODEL, out / INT8)
            comparison[INT8] = _compared(out / INT8, spec, rows, expected)
        shutil.copyfile(folder / "config.json", out / "config.json")
        tokenizer.save(out / "tokenizer")
        write_json_atomic(out / "comparison.json", comparison)
    except BaseException:
        shutil.rmtree(out)
        raise
    return comparison


def _compared(path: Path, spec: TaskSpec, rows: Rows, expected: Predictions) -> dict[str, Any]:
    actual = label_predictions(spec, rows, logits_of(OnnxClassifier(path), rows, torch.device("cpu")))
    return {
        "bytes": path.stat().st_size,
        "largest_difference": float(np.abs(actual.logits - expected.logits).max()),
        "score": actual.scores(spec)["score"],
        "same_answers": float(np.isclose(actual.values, expected.values, rtol=0, atol=_SAME).mean()),
    }
