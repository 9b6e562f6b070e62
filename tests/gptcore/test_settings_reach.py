"""Fine-tuning a language model on a domain, to the bit; settings reach what they are for, but scores are of float32."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gptcore import GPT
from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import FinetuneConfig, ModelConfig, PretrainConfig
from gptcore.data.sampler import Blocks, sequential_windows
from gptcore.data.shards import Shards
from gptcore.machine import process
from gptcore.machine.device import autocast
from gptcore.machine.distributed import World
from gptcore.models.network import load_model
from gptcore.objectives.next_token import NEXT_TOKEN, language_model_objective
from gptcore.objectives.objective import Text, perplexity
from gptcore.papers.abstracts import adapt, write
from gptcore.papers.abstracts.config import AdaptConfig, SamplingConfig
from gptcore.papers.abstracts.documents import N_MARKS
from gptcore.training import finetune, pretrain
from gptcore.training.pretrain import ValidationMonitor
from tests.expected import expected
from tests.gptcore.jobs import N_VOCAB, Job, JobFor, stopped_and_resumed, timeless, write_language
from tests.gptcore.papers.abstracts.test_abstracts import TITLES, TOKENIZER
from tests.gptcore.test_finetune import job as finetune_job
from tests.gptcore.test_finetune import world  # noqa: F401  # a fixture

OTHER: dict[str, Any] = expected(__file__, "OTHER")
"""A value of each setting that has to change the weights; the others say how often something is written or looked at,
how much of it, in which type, or where the training starts."""
ELSEWHERE = {
    "micro_batch_size",  # the same update in parts
    "eval_every",
    "eval_tokens",
    "eval_blocks",
    "evaluations",
    "checkpoint_every",
    "keep_checkpoints",
    "max_eval_rows",
    "precision",
    # of hidden words: tests/gptcore/test_masked_jobs.py
    *("short_length", "short_share", "pairs", "mask_share", "mask_words", "mask_ngrams", "mask_copies"),
    "replaced_weight",
    "generator_share",  # tests/gptcore/test_recipes.py
    "span_pdrop",  # no row is a span: tests/gptcore/test_recipes.py
    "words",  # nor has tags: tests/gptcore/test_tagger.py
    "replaced_objective",  # tests/gptcore/papers/electra/test_replaced.py
    "hidden_share",  # tests/gptcore/papers/gptbert/test_both_ways.py
    *("entity_weight", "unlinked"),  # entities beside words: tests/gptcore/test_masked_jobs.py, test_entities.py
    "snapshot",  # chooses the folder of the model to start from
    "from_task",  # as well: tests/gptcore/papers/students
    *(
        "taught",
        "layer_epochs",
        "layer_lr",
        "augmentation",
    ),  # need a teacher: papers/students
    "class_weights",  # nothing of grades: tests/gptcore/test_finetune.py
    "lora_rank",  # tests/gptcore/test_finetune.py
    "ngrams",  # is fitted once the network is trained: tests/gptcore/test_ngrams.py
    "layer_decay_original",  # nothing without the decay: tests/gptcore/test_optim.py
}
FEW = {"pretrain": {"steps": 8, "warmup_steps": 2, "lr": 1e-3}, "adapt": {"epochs": 1.0}, "finetune": {"epochs": 1}}
KINDS = {"pretrain": PretrainConfig, "adapt": AdaptConfig, "finetune": FinetuneConfig}
CASES = [
    (kind, field.name)
    for kind, config in KINDS.items()
    for field in dataclasses.fields(config)
    if field.name not in ELSEWHERE
    and (kind, field.name) != ("finetune", "pretrained")  # tests/gptcore/test_finetune.py
]


@pytest.fixture(scope="module")
def trained(
    job_for: JobFor,
    adapt_job: JobFor,
    world: Any,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., dict[str, torch.Tensor]]:
    """Weights of a short training of a kind, with some settings changed."""
    plain: dict[str, dict[str, torch.Tensor]] = {}

    def run(kind: str, **changes: Any) -> dict[str, torch.Tensor]:
        if not changes and kind in plain:
            return plain[kind]
        folder: Path = tmp_path_factory.mktemp(kind)
        settings = {**FEW[kind], **changes}
        if kind == "finetune":
            finetune.run(finetune_job(world, "stsb", folder, **settings), process.StopRequest())
        elif kind == "pretrain":
            pretrain.run(job_for(folder, **settings), process.StopRequest())
        else:
            adapt.run(adapt_job(folder, **settings), process.StopRequest())
        weights = load_file(folder / "model" / "model.safetensors")
        if not changes:
            plain[kind] = weights
        return weights

    return run


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_setting_of_a_training_changes_it(
    trained: Callable[..., dict[str, torch.Tensor]], kind: str, name: str
) -> None:
    value = OTHER[name]
    if kind == "adapt" and name == "epochs":
        value = 2.0
    if kind == "pretrain" and name == "epochs":
        before, after = trained(kind, steps=None, epochs=0.3), trained(kind, steps=None, epochs=0.6)
    else:
        before, after = trained(kind), trained(kind, **{name: value})
    assert before.keys() != after.keys() or any(not torch.equal(before[part], after[part]) for part in before)


def test_abstracts_are_drawn_with_every_setting_of_the_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_inner": 32, "norm_first": True}
    config = ModelConfig(n_vocab=TOKENIZER.n_vocab, n_special=N_MARKS, n_ctx=64, **sizes)
    model = GPT(config, torch.Generator().manual_seed(2)).eval()
    asked: list[dict[str, Any]] = []

    def seen(model: GPT, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
        asked.append(settings)
        return [[] for _ in prompts]

    sampling = SamplingConfig(max_tokens=9, temperature=0.7, top_k=5, top_p=0.8, repetition_penalty=1.3, seed=11)
    with monkeypatch.context() as patch:
        patch.setattr(write, "generate_ids", seen)
        write.write_abstracts(model, TOKENIZER, [TITLES[0]] * 20, sampling)
    handed = [{name: call[name] for name in dataclasses.asdict(sampling)} for call in asked]
    assert handed == [{**dataclasses.asdict(sampling), "seed": 11 + first} for first in (0, 8, 16)]
    twenty = write.write_abstracts(model, TOKENIZER, [TITLES[0]] * 20, sampling)
    assert len({item.abstract for item in twenty}) > 10, "each title has its own draws"
    for number in (0, 7, 8, 19):
        alone = write.write_abstracts(model, TOKENIZER, TITLES[:1], dataclasses.replace(sampling, seed=11 + number))
        assert alone[0].abstract == twenty[number].abstract, "those of the seed with its number"


ALONE = World(0, 1, torch.device("cpu"))


def with_offset(offset: float, n_vocab: int) -> GPT:
    """A model all of whose logits lie around ``offset``: a direction that all states and all embeddings share."""
    config = ModelConfig(n_vocab=n_vocab, n_ctx=16, n_layer=1, n_head=2, n_embd=16, n_inner=32)
    model = GPT(config, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.blocks[-1].norm_2.bias += offset / 16 / 0.5
        model.tokens.weight += 0.5
    return model


def plain_loss(model: GPT, found: Shards) -> float:
    """Nats a token, a sequence at a time, in float64."""
    model, nats, n = model.double(), 0.0, 0
    for inputs, targets in sequential_windows(found, model.config.n_ctx, None):
        for x, y in zip(torch.from_numpy(inputs), torch.from_numpy(targets), strict=True):
            scored = y != -100
            logits = model(x[None])[0][scored]
            nats -= float(torch.log_softmax(logits, -1).gather(1, y[scored][:, None]).detach().sum())
            n += int(scored.sum())
    return nats / n


def test_a_validation_in_bfloat16_training_scores_in_float32(shards: Path, tmp_path: Path) -> None:
    held_out = Shards(shards / "validation")
    model = with_offset(-80.0, n_vocab=40)
    objective = language_model_objective(model)
    with torch.no_grad():
        assert -82 < model(torch.zeros(1, 4, dtype=torch.int64)).mean() < -78
    config = PretrainConfig(precision="bfloat16", steps=1)
    score = partial(NEXT_TOKEN.score, objective, Text(held_out, model.config, config, ALONE))
    monitor = ValidationMonitor(model, score, config, 1, held_out.n_tokens, ALONE, tmp_path)
    found = monitor.evaluate(1, lambda: False)["validation/loss"]
    with autocast(ALONE.device, torch.bfloat16):
        rounded = perplexity(objective, sequential_windows(held_out, 16, None), ALONE)["loss"]
    expected = plain_loss(model, held_out)
    assert found == pytest.approx(expected, abs=2e-5)
    assert abs(rounded - expected) > 1e-3, "what it would be in the training's own type"


@pytest.mark.parametrize("job", ["pretrain", "adapt"])
def test_the_final_scores_of_a_bfloat16_job_are_those_of_its_weights_in_float32(
    job: str, job_for: JobFor, adapt_job: JobFor, tmp_path: Path
) -> None:
    module, make = {"pretrain": (pretrain, job_for), "adapt": (adapt, adapt_job)}[job]
    given = make(tmp_path, precision="bfloat16")
    module.run(given, process.StopRequest())
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["precision"] == "bfloat16"
    model = load_model(str(tmp_path / "model"))
    objective = language_model_objective(model)
    if job == "pretrain":
        windows = sequential_windows(Shards(Path(given["shards"]) / "validation"), model.config.n_ctx, None)
        split = "validation"
    else:
        blocks = adapt.Blocks(Shards(Path(given["shards"]) / "test"), given["adapt"]["block_size"], 0)
        windows, split = blocks.in_order(4, None), "test"
    found = perplexity(objective, windows, ALONE)["loss"]
    assert result[f"{split}/loss"] == pytest.approx(found, abs=1e-6)
    assert result[f"{split}/perplexity"] == pytest.approx(math.exp(found), rel=1e-6)


ADAPTED = ModelConfig(n_vocab=N_VOCAB, n_ctx=24, n_layer=2, n_head=2, n_embd=16, n_inner=64, norm_first=True)
SETTINGS = AdaptConfig(
    block_size=16, batch_size=2, accumulation=2, lr=1e-2, epochs=6, evaluations=5, eval_blocks=8, precision="float32"
)


@pytest.fixture(scope="module")
def adapt_job(tmp_path_factory: pytest.TempPathFactory) -> JobFor:
    folder = tmp_path_factory.mktemp("inputs")
    # a special id, then the language
    write_language(folder / "shards", {"train": 60, "valid": 8, "test": 8}, 40, n_vocab=N_VOCAB + 2, begin=(N_VOCAB,))
    GPT(ADAPTED, torch.Generator().manual_seed(1)).save(folder / "model")
    write_json_atomic(folder / "model" / "meta.json", {"tokenizer_digest": "d1"})
    without = {f"{part}_pdrop": 0.0 for part in ("embd", "attn", "resid")}
    GPT(dataclasses.replace(ADAPTED, **without), torch.Generator().manual_seed(1)).save(folder / "no dropout")

    def make(workspace: Path, **changes: Any) -> Job:
        return {
            "adapt": dataclasses.asdict(dataclasses.replace(SETTINGS, **changes)),
            "model": str(folder / "model"),
            "n_special": 2,
            "shards": str(folder / "shards"),
            "tokenizer_digest": "d1",
            "workspace": str(workspace),
            "threads": 1,
        }

    return make


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, adapt_job: JobFor) -> Path:
    workspace = tmp_path_factory.mktemp("straight")
    adapt.run(adapt_job(workspace), process.StopRequest())
    return workspace


def test_it_learns_and_leaves_what_it_promises(straight: Path, adapt_job: JobFor) -> None:
    result = read_json(straight / "result.json")
    blocks = Blocks(Shards(Path(adapt_job(straight)["shards"]) / "train"), 16)
    assert result["steps"] == math.ceil(6 * blocks.count / 4)
    assert result["tokens_seen"] == result["steps"] * 4 * 15  # a block's first token is not predicted
    first = timeless(straight)[0][1]["train/loss"]
    assert result["test/loss"] < 0.8 * first
    for split in adapt.SPLITS:
        assert result[f"{split}/perplexity"] == pytest.approx(math.exp(result[f"{split}/loss"]))
    model = GPT.load(straight / "model")
    assert (model.config.n_special, model.config.n_ctx, model.config.norm_first) == (2, 16, True)


def test_the_reported_losses_are_those_of_the_saved_model(straight: Path, adapt_job: JobFor) -> None:
    result, model = read_json(straight / "result.json"), GPT.load(straight / "model")
    for split in ("valid", "test"):
        nats, count = 0.0, 0
        for inputs, targets in Blocks(Shards(Path(adapt_job(straight)["shards"]) / split), 16).in_order(1):
            with torch.no_grad():
                logits = model(torch.from_numpy(inputs)).double()
            nats -= sum(
                torch.log_softmax(logits[0, at], -1)[targets[0, at]].item() for at in range(inputs.shape[1] - 1)
            )
            count += inputs.shape[1] - 1
        assert result[f"{split}/tokens"] == count
        assert result[f"{split}/loss"] == pytest.approx(nats / count, rel=1e-5)


@pytest.mark.parametrize("asked", [1, 7, 30, 61])
def test_sigterm_anywhere_then_resume_is_exact(tmp_path: Path, straight: Path, adapt_job: JobFor, asked: int) -> None:
    stopped_and_resumed(adapt.run, adapt_job(tmp_path), asked)
    final, other = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, straight))
    assert all(torch.equal(final[name], other[name]) for name in final)
    assert timeless(tmp_path) == timeless(straight)
    ours, theirs = (read_json(folder / "result.json") for folder in (tmp_path, straight))
    assert {k: v for k, v in ours.items() if "/" in k} == {k: v for k, v in theirs.items() if "/" in k}


def test_accumulation_gives_the_gradient_of_the_whole(tmp_path: Path, adapt_job: JobFor) -> None:
    """Two blocks twice are four at once, to rounding."""
    losses = []
    for number, (batch, times) in enumerate([(4, 1), (2, 2), (1, 4)]):
        workspace = tmp_path / str(number)
        job = adapt_job(workspace, batch_size=batch, accumulation=times, epochs=0.5)
        adapt.run({**job, "model": str(Path(job["model"]).with_name("no dropout"))}, process.StopRequest())
        losses.append(read_json(workspace / "result.json")["test/loss"])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)


def test_new_rows_and_cut_positions_leave_the_rest_as_it_was(tmp_path: Path, adapt_job: JobFor) -> None:
    job = adapt.AdaptJob.parse(adapt_job(tmp_path))
    source, start = GPT.load(job.model), adapt.adapted_model(job)
    for name, value in source.state_dict().items():
        mine = start.state_dict()[name]
        assert torch.equal(mine[: len(value)], value[: len(mine)]), name
    scratch = adapt.adapted_model(dataclasses.replace(job, adapt=dataclasses.replace(job.adapt, pretrained=False)))
    assert scratch.config == start.config
    assert not torch.equal(scratch.tokens.weight, start.tokens.weight)


@pytest.mark.parametrize(("changes", "message"), expected(__file__, "test_a_job_that_cannot_be_done_is_refused"))
def test_a_job_that_cannot_be_done_is_refused(tmp_path: Path, adapt_job: JobFor, changes: Job, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapt.run({**adapt_job(tmp_path), **changes}, process.StopRequest())
