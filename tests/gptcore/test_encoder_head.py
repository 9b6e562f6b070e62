"""A fine-tuned encoder: logits, loss and gradients of transformers' classifiers, its folder, its fine-tuning job."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, preset_named
from gptcore.evaluation.predict import evaluate
from gptcore.machine import process
from gptcore.models.classifier import Classifier, EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder
from gptcore.models.files.encoders import BERT
from gptcore.models.files.layout import read_model
from gptcore.models.network import build_model
from gptcore.models.onnx import OnnxClassifier, export_onnx
from gptcore.nlu import REGISTRY
from gptcore.objectives.losses import task_loss
from gptcore.training import finetune
from tests.expected import expected as table_of
from tests.gptcore.test_finetune import outcome, stops_that_change_nothing, wait_for
from tests.gptcore.tiny_tasks import (
    PAD,
    TASKS,
    PieceTokenizer,
    config,
    encoded,
    finetune_job,
    finetuned,
    pretrained_encoder,
)

FAMILIES = ("bert", "albert", "electra")
QUICK = {"lr": 1e-2, "batch_size": 16, "epochs": 6, "precision": "float32", "lm_coef": 0.0, "warmup": 0.1}


def classifier(form: str = "pair", n_outputs: int = 3, **changes: Any) -> EncoderClassificationModel:
    torch.manual_seed(1)
    network = dataclasses.replace(config("bert"), words=False, pair=False, activation="gelu", init_std=0.2, **changes)
    return EncoderClassificationModel(Encoder(network), Head(form, n_outputs, 0.0)).eval()


def batch(n_sequences: int = 1) -> dict[str, Tensor]:
    """Three examples of unequal lengths, padded to the longest."""
    torch.manual_seed(2)
    lengths = torch.tensor([9, 5, 7])[:, None, None]
    places = torch.arange(9).expand(3, n_sequences, 9)
    mask = places < lengths
    tokens = torch.randint(0, 30, mask.shape).where(mask, PAD)
    return {"tokens": tokens, "segments": ((places > 3) & mask).long(), "mask": mask}


def run(model: EncoderClassificationModel, given: dict[str, Tensor]) -> Tensor:
    marks = {name: given[name] for name in ("segments", "mask")}
    logits, found = model(given["tokens"], given["tokens"][:, :, 0] * 0, **marks)
    assert found is None
    return logits


# Parity ---------------------------------------------------------------------------------------------------------------


def theirs(kind: str, model: EncoderClassificationModel, head: str = "classifier") -> torch.nn.Module:
    """transformers' classifier of a kind, with our weights; ``head``: its name of the linear layer."""
    import transformers

    ours = model.encoder.config
    settings = transformers.BertConfig(
        vocab_size=ours.n_vocab,
        hidden_size=ours.n_embd,
        num_hidden_layers=ours.n_layer,
        num_attention_heads=ours.n_head,
        intermediate_size=ours.n_inner,
        max_position_embeddings=ours.n_ctx,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=model.n_outputs,
        pad_token_id=PAD,
    )
    found = getattr(transformers, kind)(settings).eval()
    with torch.no_grad():
        for name, weight in named(found, model, head=head).items():
            found.get_parameter(name).copy_(weight)
    assert set(named(found, model, head=head)) == {name for name, _ in found.named_parameters()}
    return found


def named(
    found: torch.nn.Module, model: EncoderClassificationModel, gradients: bool = False, head: str = "classifier"
) -> dict[str, Tensor]:
    """Our weights, or their gradients, by transformers' names; of those that it has."""
    mine = {name: p.grad if gradients else p.detach() for name, p in model.named_parameters()}
    by_name = {f"{head}.{part}": mine[f"head.{part}"] for part in ("weight", "bias")}
    for ours, its in BERT._names(model.encoder.config):
        if mine[f"encoder.{ours}"] is not None:
            parts = mine[f"encoder.{ours}"].chunk(len(its))
            by_name |= {f"bert.{name}": part for name, part in zip(its, parts, strict=True)}
    there = {name for name, _ in found.named_parameters()}
    return {name: value for name, value in by_name.items() if name in there}


@pytest.mark.parametrize(
    ("kind", "form", "n_outputs", "n_sequences"),
    [("BertForSequenceClassification", "pair", 3, 1), ("BertForMultipleChoice", "choices", 1, 4)],
)
def test_logits_loss_and_gradients_equal_those_of_transformers(
    kind: str, form: str, n_outputs: int, n_sequences: int
) -> None:
    model, given = classifier(form, n_outputs), batch(n_sequences)
    labels = torch.tensor([2, 0, 1])
    reference = theirs(kind, model)
    shaped = {name: value if form == "choices" else value[:, 0] for name, value in given.items()}
    expected = reference(
        input_ids=shaped["tokens"],
        token_type_ids=shaped["segments"],
        attention_mask=shaped["mask"].long(),
        labels=labels,
    )
    logits = run(model, given)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)
    loss = task_loss(logits, labels)
    assert loss.item() == pytest.approx(expected.loss.item(), abs=1e-4)
    loss.backward()
    expected.loss.backward()
    for name, gradient in named(reference, model, gradients=True).items():
        its = reference.get_parameter(name).grad
        assert its is not None
        torch.testing.assert_close(gradient, its, rtol=1e-4, atol=1e-4, msg=name)


# Properties -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", [None, "mean"])
@pytest.mark.parametrize("form", ["pair", "choices"])
def test_padding_changes_nothing(form: str, pooling: str | None) -> None:
    given = batch(2 if form == "choices" else 1)
    model = classifier(form, 1 if form == "choices" else 3)
    model.pooling = pooling
    summaries: list[Tensor] = []
    model.head.register_forward_pre_hook(lambda _, inputs: summaries.append(inputs[0]))
    logits = run(model, given)
    states = model.encoder.encode(*(value.flatten(0, 1) for value in given.values()))  # (B*C, T, D)
    means = [row[real].mean(dim=0) for row, real in zip(states, given["mask"].flatten(0, 1), strict=True)]
    expected = model.encoder.summary(states) + (torch.stack(means) if pooling else 0)
    torch.testing.assert_close(summaries[0].flatten(0, 1), expected, rtol=1e-5, atol=1e-6)
    alone = [
        run(model, {name: value[row : row + 1, :, :length] for name, value in given.items()})
        for row, length in enumerate((9, 5, 7))
    ]
    torch.testing.assert_close(torch.cat(alone), logits, rtol=1e-5, atol=1e-6)
    other = given | {"tokens": given["tokens"].where(given["mask"], 3)}
    assert torch.equal(run(model, other), logits)
    assert not torch.allclose(run(model, given | {"segments": given["segments"] * 0}), logits)


def test_one_dropout_mask_serves_all_choices_of_an_example() -> None:
    model = classifier("choices", 1)
    model.clf_pdrop = 0.5
    given = {name: value[:, :1].expand(-1, 3, -1) for name, value in batch().items()}
    logits = run(model.train(), given)
    torch.testing.assert_close(logits[:, :1].expand(-1, 3), logits, rtol=0, atol=1e-6)
    assert not torch.allclose(run(model, given), logits, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_comes_back_and_its_encoder_alone_too(family: str, tmp_path: Path) -> None:
    settings = EncoderClassificationModel.network_settings(config(family), n_ctx=20)
    model = EncoderClassificationModel(build_model(settings), Head("pair", 3, 0.1)).eval()  # type: ignore[arg-type]
    model.save(tmp_path, {"task": "mnli"})
    loaded, about = Classifier.load(tmp_path)
    assert isinstance(loaded, EncoderClassificationModel)
    assert not loaded.training
    assert (about["task"], about["model"]["family"], loaded.network.config) == ("mnli", family, settings)
    assert (loaded.form, loaded.n_outputs, loaded.clf_pdrop) == ("pair", 3, 0.1)
    assert torch.equal(run(loaded, batch()), run(model, batch()))
    (tmp_path / "state.json").write_text(json.dumps({"identity": {"model": about["model"]}}), encoding="utf-8")
    (tmp_path / "config.json").unlink()
    assert set(read_model(str(tmp_path)).tensors) == set(model.encoder.state_dict())


def test_what_is_no_encoder_is_refused(tmp_path: Path) -> None:
    decoder = build_model(preset_named("demo").model)
    with pytest.raises(InputError, match="here: found GPT-1, expected an encoder"):
        EncoderClassificationModel.over(decoder, "here", Head("pair", 2, 0.1))
    with pytest.raises(InputError, match="form = 'triple'"):
        classifier("triple")


# The job --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pre-trained encoder of each family, and an encoded dataset of every form."""
    folder = tmp_path_factory.mktemp("world")
    models = {family: pretrained_encoder(folder / family, family) for family in FAMILIES}
    rows = {task: encoded(folder, task, n_train=160, n_dev=40, words=PieceTokenizer()) for task in TASKS}
    return models | rows


def job(world: dict[str, Path], family: str, task: str, workspace: Path, **settings: Any) -> dict[str, Any]:
    scratch = settings.get("pretrained") is False
    shape = {"model_config": dataclasses.asdict(config(family))} if scratch else {}
    model = None if scratch else world[family]
    return finetune_job(task, model, world[task], workspace, {**QUICK, **settings}, **shape)


@pytest.mark.parametrize(
    ("family", "task"), [("bert", task) for task in TASKS] + [("albert", "rte"), ("electra", "storycloze")]
)
def test_every_form_is_learned_and_scored_again_the_same(
    world: dict[str, Path], tmp_path: Path, family: str, task: str
) -> None:
    result = finetuned(job(world, family, task, tmp_path, epochs=12))
    assert result["dev/score"] > {"mnli": 0.55, "stsb": 0.6}.get(task, 0.75)
    assert ("test/score" in result) == (task == "storycloze")
    again = evaluate(tmp_path / "model", world[task], "dev", precision="float32", predictions=tmp_path / "p.jsonl")
    assert again["score"] == result["dev/score"]
    assert (tmp_path / "p.jsonl").read_bytes() == (tmp_path / "predictions/dev.jsonl").read_bytes()
    about = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert (about["model"]["family"], about["model"]["n_special"]) == (family, 0)
    assert not [name for name in load_file(tmp_path / "model/model.safetensors") if "_head" in name]


def test_from_scratch_only_the_pretrained_weights_differ(world: dict[str, Path]) -> None:
    def network(**settings: Any) -> EncoderClassificationModel:
        parsed = finetune.FinetuneJob.parse(job(world, "bert", "rte", Path("unused"), **settings))
        found = finetune.task_model(parsed, REGISTRY["rte"])[0]
        assert isinstance(found, EncoderClassificationModel)
        return found

    ours, scratch = network(seed=4), network(seed=4, pretrained=False)
    assert ours.network.config == scratch.network.config
    assert torch.equal(ours.head.weight, scratch.head.weight)
    assert not torch.equal(ours.encoder.embeddings.words.weight, scratch.encoder.embeddings.words.weight)
    assert torch.equal(
        network(seed=4, n_transfer=-1).encoder.attention[1].qkv.weight, scratch.encoder.attention[1].qkv.weight
    )
    source = load_file(world["bert"] / "model.safetensors")
    assert torch.equal(ours.encoder.pooler.weight, source["pooler.weight"])  # type: ignore[union-attr]


def test_stopped_anywhere_and_resumed_it_ends_in_the_same_bits(world: dict[str, Path], tmp_path: Path) -> None:
    settings = {"batch_size": 40, "epochs": 2, "max_eval_rows": 8}
    assert stops_that_change_nothing(lambda name: job(world, "bert", "storycloze", tmp_path / name, **settings)) >= 8


def test_after_sigterm_it_goes_on_as_if_undisturbed(world: dict[str, Path], tmp_path: Path) -> None:
    settings = {"batch_size": 2, "epochs": 4, "lr": 1e-3}
    finetuned(job(world, "bert", "rte", tmp_path / "whole", **settings))
    given, workspace = job(world, "bert", "rte", tmp_path / "disturbed", **settings), tmp_path / "disturbed"
    workspace.mkdir()
    (workspace / "job.json").write_text(json.dumps(given), encoding="utf-8")
    command = [sys.executable, "-m", "gptcore.training.finetune", str(workspace / "job.json")]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    wait_for(lambda: any((workspace / "checkpoints").glob("step-*")), child)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=120) == process.EXIT_INTERRUPTED
    assert not (workspace / "result.json").exists()
    finetuned(given)
    assert outcome(workspace) == outcome(tmp_path / "whole")


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "message"), table_of(__file__, "test_a_job_that_no_encoder_can_do_is_refused"))
def test_a_job_that_no_encoder_can_do_is_refused(
    world: dict[str, Path], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        finetune.run(job(world, "bert", "rte", tmp_path, **settings), process.StopRequest())


def test_presets_know_that_there_is_no_auxiliary_objective() -> None:
    for family in FAMILIES:
        for preset in ("demo", "small", "long", "paper"):
            found = preset_named(preset, {"family": family})
            assert isinstance(found.model, EncoderConfig)
            assert (found.finetune.lm_coef, found.finetune.warmup) == (0.0, 0.1)
    with pytest.raises(InputError, match=r"overrides: finetune.lm_coef = 0.5: ELECTRA predicts no next token"):
        preset_named("demo", {"family": "electra", "finetune": {"lm_coef": 0.5}})
    with pytest.raises(InputError, match=r"overrides: tasks.rte.lm_coef = 0.1: BERT predicts no next token"):
        preset_named("demo", {"family": "bert", "tasks": {"rte": {"lm_coef": 0.1}}})


# Other ways to run it ------------------------------------------------------------------------------------------------


def test_an_onnx_file_gives_the_models_logits(tmp_path: Path) -> None:
    model = classifier("choices", 1)
    export_onnx(model, tmp_path / "model.onnx")
    exported = OnnxClassifier(tmp_path / "model.onnx", threads=1)
    given = batch(2)
    marks = {name: given[name] for name in ("segments", "mask")}
    found, _ = exported(given["tokens"], given["tokens"][:, :, 0] * 0, **marks)
    with torch.inference_mode():
        torch.testing.assert_close(found, run(model, given), atol=1e-5, rtol=0)
