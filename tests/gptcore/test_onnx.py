"""Classifiers exported as ONNX: the logits of the model, whatever the batch; what int8 costs; what is refused."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from shutil import copyfile

import numpy as np
import onnxruntime
import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.evaluation import exported
from gptcore.evaluation.exported import INT8, MODEL, TOLERANCE, write_onnx
from gptcore.evaluation.own_rows import read_records
from gptcore.evaluation.predict import TaskModel
from gptcore.models.build import build_model
from gptcore.models.heads import ClassificationModel
from gptcore.models.onnx import OnnxClassifier, export_onnx
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer
from tests.gptcore.tiny_glue import save_model, tokenizer
from tests.gptcore.tiny_tasks import encoded

WORDS = tokenizer()


def save(task: str, folder: Path, network: torch.nn.Module) -> Path:
    spec = task_spec(task)
    model = ClassificationModel(network, spec.form, form_of(spec).n_outputs(spec), 0.1)
    model.save(folder, {"task": task, "labels": list(spec.labels), "tokenizer_digest": WORDS.digest})
    return folder


@pytest.mark.parametrize(
    ("form", "n_outputs", "n_sequences", "released"), [("pair", 2, 2, True), ("choices", 1, 4, False)]
)
def test_logits_are_the_models_for_any_rows_sequences_and_lengths(form, n_outputs, n_sequences, released, tmp_path):
    torch.manual_seed(1)
    sizes = {"n_vocab": 50, "n_ctx": 16, "n_layer": 2, "n_head": 2, "n_embd": 8, "n_inner": 32, "n_special": 3}
    config = ModelConfig(**sizes, original=released, smeared_keys=not released, init_std=0.5)
    model = ClassificationModel(GPT(config), form, n_outputs, 0.1).eval()
    export_onnx(model, tmp_path / MODEL)
    exported_model = OnnxClassifier(tmp_path / MODEL, threads=1)
    for rows, length in ((1, 1), (1, 16), (7, 3)):
        tokens = torch.randint(0, 53, (rows, n_sequences, length))
        ends = torch.randint(0, length, (rows, n_sequences))
        with torch.inference_mode():
            expected, _ = model(tokens, ends)
        found, _ = exported_model(tokens, ends)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=TOLERANCE / 10, rtol=0)


def test_the_folder_is_enough_to_answer_rows_as_the_model_does(tmp_path):
    """Without torch: config.json, the tokenizer and onnxruntime."""
    model = save_model("sst2", WORDS, tmp_path / "model")
    report = write_onnx(model, WORDS, encoded(tmp_path, "sst2", words=WORDS), tmp_path / "out", int8=True)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {MODEL, INT8, "config.json", "tokenizer", "comparison.json"}
    assert report == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert report["rows"] == 20
    assert report[MODEL]["largest_difference"] <= TOLERANCE
    assert report[MODEL]["score"] == report["score"]
    assert report[MODEL]["same_answers"] == 1
    assert report[INT8]["largest_difference"] > report[MODEL]["largest_difference"]  # it is another file
    assert report[INT8]["bytes"] == (tmp_path / "out" / INT8).stat().st_size

    config = json.loads((tmp_path / "out" / "config.json").read_text())
    words = Tokenizer.load(str(tmp_path / "out" / "tokenizer"))
    n_vocab = config["model"]["n_vocab"]
    row = [n_vocab, *words.encode("the cat sat"), n_vocab + 2]
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / MODEL), providers=["CPUExecutionProvider"])
    given = {"tokens": np.asarray([[row]]), "clf_position": np.asarray([[len(row) - 1]])}
    (logits,) = session.run(None, given)
    answers = TaskModel(model, WORDS)
    (expected,) = (
        found for _, found in answers.answers(read_records(answers.spec, [{"sentence": "the cat sat"}], "rows"))
    )
    np.testing.assert_allclose(logits[0], expected, atol=TOLERANCE)


def test_an_export_that_differs_or_cannot_be_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    dataset = encoded(tmp_path, "sst2", words=WORDS)
    out = tmp_path / "out"
    recurrent = build_model(LSTMConfig(n_vocab=WORDS.n_vocab, n_special=3, n_ctx=16, n_embd=8, n_units=8))
    with pytest.raises(InputError, match="found a model of the kind LSTM, expected one of GPT-1, "):
        write_onnx(save("sst2", tmp_path / "lstm", recurrent), WORDS, dataset, out)
    model = save_model("sst2", WORDS, tmp_path / "model")
    with pytest.raises(InputError, match="expected rte"):
        write_onnx(save_model("rte", WORDS, tmp_path / "other"), WORDS, dataset, out)
    find = util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr("gptcore.models.onnx.find_spec", lambda name: None if name == "onnxruntime" else find(name))
        with pytest.raises(InputError, match=r"found no package onnxruntime, expected pip install 'gptmill\[onnx\]'"):
            write_onnx(model, WORDS, dataset, out)

    save("sst2", tmp_path / "wrong", ClassificationModel.load(model)[0].gpt)  # another linear layer
    export_onnx(ClassificationModel.load(tmp_path / "wrong")[0], tmp_path / "wrong.onnx")
    monkeypatch.setattr(exported, "export_onnx", lambda _, path: copyfile(tmp_path / "wrong.onnx", path))
    with pytest.raises(InputError, match=r"logits differ by [\d.]+, expected at most 0.0001"):
        write_onnx(model, WORDS, dataset, out)
    assert not out.exists()
