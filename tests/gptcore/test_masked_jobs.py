"""Pre-training on hidden words as a job: it learns, resumes to the bit, has one curve for any number of processes."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.config import NetworkConfig, network_config
from gptcore.data.masking import PieceTable
from gptcore.data.shards import write_shards
from gptcore.families import FAMILIES
from gptcore.machine import process
from gptcore.models.network import build_model, load_model
from gptcore.papers.graphs.entities import Entities, Gazetteer, link_shards
from gptcore.training import pretrain
from tests.expected import expected
from tests.gptcore import jobs
from tests.gptcore.jobs import (
    N_VOCAB,
    Job,
    assert_same_run,
    curve,
    run_world,
    start,
    stopped_and_resumed,
    timeless,
    wait_for_checkpoint,
)
from tests.gptcore.sentence_shards import FIRST, SEP, table
from tests.gptcore.toy_encoder import TOYS, know_toys

N_CTX = 24
SETTINGS = dataclasses.replace(jobs.SETTINGS, steps=60, lr=1e-2, warmup_steps=5, eval_tokens=400)
STUDENTS = ("distilbert", "tinybert")
FAMILY_NAMES = [*sorted(TOYS), "bert", "albert", "electra", "ernie", *STUDENTS]
OWN = {
    "ernie": {"pair_loss", "pair_accuracy", "entity_loss", "entity_accuracy"},
    "distilbert": {"soft_loss", "cosine_loss"},
    "tinybert": {"embedding_loss", "hidden_loss", "attention_loss"},
}
REPLACED = ("toy_replaced", "electra")
MakeJob = Callable[..., Job]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAMILIES, "_theirs", dict(TOYS))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of a noisy arithmetic language, in documents that each count in steps of their own."""
    folder = tmp_path_factory.mktemp("shards")
    draws = np.random.default_rng(0)
    for split, n_documents in (("train", 40), ("validation", 6)):
        documents = []
        for number in range(n_documents):
            words, step = FIRST + int(draws.integers(N_VOCAB - FIRST)), int(draws.integers(1, 4))
            sentences = []
            for _ in range(int(draws.integers(1, 20))):
                n = int(draws.integers(2, 9))
                ids = FIRST + (words - FIRST + step * np.arange(n)) % (N_VOCAB - FIRST)
                words = int(ids[-1]) + step
                sentences.append([*ids.tolist(), SEP])
            documents.append((f"{split}-{number}", sentences))
        write_shards(documents, folder / split, n_vocab=N_VOCAB, max_tokens=1000)
    pieces = dataclasses.replace(table(N_VOCAB), tail=np.arange(N_VOCAB) % 3 == 2)
    dataclasses.replace(pieces, tail=pieces.tail & ~pieces.special).save(folder)
    (folder / "meta.json").write_text(json.dumps({"tokenizer_digest": "d1", "n_vocab": N_VOCAB}))
    return folder


def settings_of(family: str, dropout: float) -> NetworkConfig:
    """A small network of a family; its larger draws let it learn something within few updates."""
    sizes = {"n_vocab": N_VOCAB, "n_ctx": N_CTX, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_inner": 32}
    rates = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), dropout)
    own = FAMILIES[family].settings.get("model", {})
    return network_config({"family": family, **own, **sizes, **rates, "init_std": 0.2})


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model to learn from, twice as deep; what it knows is chance's."""
    folder = tmp_path_factory.mktemp("teacher")
    deeper = dataclasses.replace(settings_of("bert", 0.1), n_layer=4)  # type: ignore[call-arg]  # an encoder's
    build_model(deeper, torch.Generator().manual_seed(7)).save(folder)
    return folder


@pytest.fixture(scope="module")
def entities(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of five entities, which have nine words of the language for names, and where they stand in it."""
    folder = tmp_path_factory.mktemp("entities")
    names = [[FIRST + 3 * number] for number in range(6)] + [[5, 6], [9, 11], [20, 21, 22]]
    pieces = np.array([piece for name in names for piece in name])
    tail = PieceTable.read(shards).tail
    gazetteer = Gazetteer(pieces, np.cumsum([*map(len, names)]), np.arange(len(names)) % 5, tail)
    counts = link_shards(shards, gazetteer, folder)
    assert counts["train"]["mentions"] > 100
    vectors = np.random.default_rng(3).normal(size=(5, 6)).astype(np.float32)
    Entities(vectors, gazetteer).save(folder)
    return folder


@pytest.fixture(scope="module")
def job_for(shards: Path, teacher: Path, entities: Path) -> MakeJob:
    def make(workspace: Path, family: str, dropout: float = 0.1, **changes: Any) -> Job:
        model = settings_of(family, dropout)
        if FAMILIES[family].knowledge:
            sizes: dict[str, Any] = {**Entities.read(entities).sizes, "n_head_entities": 2}
            model = dataclasses.replace(model, **sizes)
        taught = {"teacher": str(teacher), "distil": FAMILIES[family].settings.get("distil", {})}
        return {
            **(taught if family in STUDENTS else {}),
            **({"entities": str(entities)} if FAMILIES[family].knowledge else {}),
            "model": dataclasses.asdict(model),
            "pretrain": dataclasses.asdict(dataclasses.replace(SETTINGS, **changes)),
            "shards": str(shards),
            "tokenizer_digest": "d1",
            "workspace": str(workspace),
            "threads": 1,
        }

    return make


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, job_for: MakeJob) -> Callable[[str], Path]:
    """The workspace of a family's run that was never stopped."""
    made: dict[str, Path] = {}

    def run(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            pretrain.run(job_for(made[family], family), process.StopRequest())
        return made[family]

    return run


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_run_learns_and_says_how(family: str, straight: Callable[[str], Path]) -> None:
    workspace = straight(family)
    result = read_json(workspace / "result.json")
    assert result["validation/perplexity"] == pytest.approx(np.exp(result["validation/loss"]))
    assert result["validation/unigram_entropy"] < np.log(N_VOCAB)
    if family in TOYS:  # attention takes some hundred updates before it tells more than how frequent words are
        assert result["validation/loss"] < result["validation/unigram_entropy"]
    records = [metrics for _, metrics in timeless(workspace)]
    told = [metrics for metrics in records if "validation/loss" in metrics]
    assert all(metrics["validation/unigram_entropy"] == result["validation/unigram_entropy"] for metrics in told)
    trained = records[0].keys()
    common = {f"train/{name}" for name in ("loss", "word_loss", "word_accuracy", "grad_norm", "lr")}
    own = {"replaced_loss", "replaced", "replaced_found", "false_alarms"}
    own = own if family in REPLACED else OWN.get(family, {"pair_loss", "pair_accuracy"})
    assert trained == common | {f"train/{name}" for name in own} | {"tokens_seen", "progress"}
    load_model(str(workspace / "model"))
    generator = workspace / "model" / "generator"
    assert generator.exists() == (family in REPLACED)
    if generator.exists():
        assert load_model(str(generator)).config.n_embd == 8
        assert 0 < result["validation/replaced_share"] < 1 > result.get("validation/replaced_loss", 0.5) > 0


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_sigterm_anywhere_then_resume_is_exact(
    family: str, tmp_path: Path, straight: Callable[[str], Path], job_for: MakeJob
) -> None:
    stopped_and_resumed(pretrain.run, job_for(tmp_path, family), 14, 1, 9)  # between checkpoints, in an evaluation
    assert_same_run(tmp_path, straight(family))


def test_kill_9_of_a_child_then_resume_is_exact(
    tmp_path: Path, straight: Callable[[str], Path], job_for: MakeJob
) -> None:
    job = job_for(tmp_path / "killed", "electra")
    child = start(job)
    wait_for_checkpoint(job, child)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    pretrain.run(job, process.StopRequest())
    assert_same_run(tmp_path / "killed", straight("electra"))


@pytest.mark.parametrize("family", ["bert", "albert", "electra", "tinybert", "ernie"])
def test_the_curves_are_those_of_one_process(family: str, tmp_path: Path, job_for: MakeJob) -> None:
    changes = {"steps": 8, "micro_batch_size": 1, "eval_every": 4, "checkpoint_every": 8, "dropout": 0.0}
    pretrain.run(job_for(tmp_path / "1", family, **changes), process.StopRequest())
    worlds = ((2, False), (4, False), (2, True))
    for size, sharded in worlds[-1:] if family in STUDENTS else worlds:  # whose batches are BERT's
        workspace = tmp_path / f"{size}-{sharded}"
        job = {**job_for(workspace, family, **changes), "sharded": sharded}
        run_world(job, size, prepare=know_toys)
        np.testing.assert_allclose(curve(workspace), curve(tmp_path / "1"), rtol=1e-5)


def test_entities_go_on_from_a_bert_and_are_told(tmp_path: Path, job_for: MakeJob) -> None:
    """From another network's weights, with the entities' own; told, they are learnt, and with weight 0 they are not."""
    bert = build_model(settings_of("bert", 0.0), torch.Generator().manual_seed(3))
    bert.save(tmp_path / "bert")
    scores = {}
    for name, weight in (("told", None), ("fused", 0.0)):
        job = job_for(tmp_path / name, "ernie", dropout=0.0, entity_weight=weight, short_length=None)
        pretrain.run({**job, "start": str(tmp_path / "bert")}, process.StopRequest())
        scores[name] = read_json(tmp_path / name / "result.json")
    assert scores["told"]["validation/entity_accuracy"] > scores["fused"]["validation/entity_accuracy"]
    assert scores["told"]["validation/entity_loss"] < scores["fused"]["validation/entity_loss"]
    still = job_for(tmp_path / "still", "ernie", dropout=0.0, steps=1, lr=1e-12, eval_every=1)
    pretrain.run({**still, "start": str(tmp_path / "bert")}, process.StopRequest())
    found = load_model(str(tmp_path / "still" / "model"))
    tokens = torch.randint(FIRST, N_VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    nothing = torch.zeros_like(tokens)
    assert torch.allclose(found(tokens, entities=nothing), bert.eval()(tokens), atol=1e-5)
    assert not torch.allclose(found(tokens), bert(tokens), atol=1e-3)


def test_a_job_without_entities_or_with_those_of_nobody_is_refused(tmp_path: Path, job_for: MakeJob) -> None:
    job = job_for(tmp_path, "ernie")
    with pytest.raises(InputError, match="entities = None: ERNIE takes a folder"):
        pretrain.run({name: value for name, value in job.items() if name != "entities"}, process.StopRequest())
    with pytest.raises(InputError, match="BERT takes none"):
        pretrain.run({**job_for(tmp_path, "bert"), "entities": job["entities"]}, process.StopRequest())
    with pytest.raises(InputError, match=r"mentions.safetensors: cannot be read"):
        pretrain.run({**job, "entities": str(tmp_path)}, process.StopRequest())
    other = {**job, "model": {**job["model"], "n_entities": 6}}
    with pytest.raises(InputError, match=r"vectors have the shape \[6, 6\], expected \[7, 6\] as in the settings"):
        pretrain.run(other, process.StopRequest())


OTHERS = expected(__file__, "OTHERS")


@pytest.mark.parametrize("name", [*OTHERS, "short_share"])
def test_every_setting_of_hidden_words_changes_a_training(name: str, tmp_path: Path, job_for: MakeJob) -> None:
    """A copy of masks in one is that of a sequence that comes back, which takes more updates than an epoch has."""
    family = "toy_replaced" if name == "replaced_weight" else "toy_order"
    few: dict[str, Any] = {"steps": 4, "eval_every": 4, "lr": 1e-2}
    if name == "mask_copies":
        few |= {"batch_size": 60, "steps": 3}
    if name == "short_share":
        few |= {"short_length": 12}
    if name == "mask_words":
        few |= {"mask_ngrams": 1}
    changed = {name: {**OTHERS, "short_share": 0.5}[name]}
    for folder, settings in (("plain", few), ("changed", few | changed)):
        pretrain.run(job_for(tmp_path / folder, family, **settings), process.StopRequest())
    ours, theirs = (load_model(str(tmp_path / folder / "model")).state_dict() for folder in ("plain", "changed"))
    assert any(not torch.equal(ours[part], theirs[part]) for part in ours)


def test_a_generator_goes_on_with_its_discriminator(
    tmp_path: Path, straight: Callable[[str], Path], job_for: MakeJob
) -> None:
    start = straight("toy_replaced") / "model"
    job = {**job_for(tmp_path / "on", "toy_replaced", steps=4, lr=1e-9), "start": str(start)}
    pretrain.run(job, process.StopRequest())
    for name in ("model", "model/generator"):
        before, after = (load_model(str(w / name)).state_dict() for w in (start.parent, tmp_path / "on"))
        assert all(torch.allclose(before[part], after[part], atol=1e-6) for part in before)


def test_shards_without_sentence_borders_and_settings_of_others_are_refused(
    tmp_path: Path, shards: Path, job_for: MakeJob
) -> None:
    with pytest.raises(InputError, match=r"pretrain.replaced_weight = 2.0: .* does not learn so"):
        pretrain.run(job_for(tmp_path, "toy_masked", replaced_weight=2.0), process.StopRequest())
    with pytest.raises(InputError, match=r"pretrain.pairs = 'nsp': GPT-1 does not learn so"):
        pretrain.run(job_for(tmp_path, "gpt", pairs="nsp"), process.StopRequest())
    with pytest.raises(InputError, match=r"pretrain.pairs = 'sop': this family tells nothing of pairs"):
        pretrain.run(job_for(tmp_path, "toy_replaced", pairs="sop"), process.StopRequest())
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("train", "validation", "meta.json"):
        (bare / name).symlink_to(shards / name)
    with pytest.raises(InputError, match=r"no pieces.json here, expected shards with sentence borders"):
        pretrain.run(job_for(tmp_path, "toy_masked") | {"shards": str(bare)}, process.StopRequest())
