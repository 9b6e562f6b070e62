"""Fine-tuning that starts from a model fine-tuned on another task: what is taken over, what is new, exact resume."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from gptcore.machine import process
from gptcore.models.classifier import Classifier
from gptcore.nlu import REGISTRY
from gptcore.training import finetune
from tests.gptcore.test_encoder_head import QUICK as ENCODER
from tests.gptcore.test_finetune import QUICK as DECODER
from tests.gptcore.test_finetune import outcome
from tests.gptcore.tiny_encoders import PieceTokenizer, pretrained_encoder
from tests.gptcore.tiny_tasks import StopAt, encoded, finetune_job, pretrained

FAMILIES = ("gpt", "bert", "albert", "electra")


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A pre-trained network of a family, two encoded tasks, and the settings of their fine-tuning; MNLI's is done."""
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    decodes = family == "gpt"
    if decodes:
        pretrained(folder / "model")
    else:
        pretrained_encoder(folder / "model", family)
    words = None if decodes else PieceTokenizer()
    found = {"model": folder / "model", "settings": {**(DECODER if decodes else ENCODER), "epochs": 1}}
    for task in ("mnli", "rte"):
        found[task] = encoded(folder, task, n_train=80, n_dev=20, words=words)
    finetune.run(job(found, "mnli", folder / "tuned"), process.StopRequest())
    return {**found, "tuned": folder / "tuned/model"}


def job(
    world: dict[str, Any], task: str, workspace: Path, start: Path | None = None, **settings: Any
) -> dict[str, Any]:
    chosen = {**world["settings"], **settings, **({"from_task": "mnli"} if start else {})}
    return finetune_job(
        task, world["model"], world[task], workspace, chosen, **({"start": str(start)} if start else {})
    )


def test_the_whole_network_is_taken_over_and_the_linear_layer_is_new(world: dict[str, Any]) -> None:
    """Of a decoder the special rows, too; of an encoder the pooler, too. Every seed draws its own linear layer."""
    tuned, _ = Classifier.load(world["tuned"])
    models = []
    for seed in (0, 1):
        parsed = finetune.FinetuneJob.parse(job(world, "rte", Path("unused"), world["tuned"], seed=seed))
        model, digest = finetune.task_model(parsed, REGISTRY["rte"])
        assert digest is not None
        models.append(model)
        theirs = tuned.network.state_dict()
        assert model.network.config == tuned.network.config
        assert all(torch.equal(value, theirs[name]) for name, value in model.network.state_dict().items())
    assert (tuned.n_outputs, models[0].n_outputs) == (3, 2)
    assert not torch.equal(models[0].head.weight, models[1].head.weight)
    plain = finetune.FinetuneJob.parse(job(world, "rte", Path("unused")))
    before = finetune.task_model(plain, REGISTRY["rte"])[0].network.state_dict()
    assert any(not torch.equal(value, theirs[name]) for name, value in before.items()), "MNLI has changed it"


def test_stopped_and_resumed_it_ends_in_the_same_bits(world: dict[str, Any], tmp_path: Path) -> None:
    finetune.run(job(world, "rte", tmp_path / "whole", world["tuned"]), process.StopRequest())
    given = job(world, "rte", tmp_path / "stopped", world["tuned"])
    with pytest.raises(process.Interrupted):
        finetune.run(given, StopAt(3))
    finetune.run(given, process.StopRequest())
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    about = json.loads((tmp_path / "whole/model/config.json").read_text(encoding="utf-8"))
    assert (about["task"], about["head"]["n_outputs"]) == ("rte", 2)


def test_settings_that_do_not_go_together_are_refused() -> None:
    assert "from_task" not in recorded(FinetuneConfig())
    start = FinetuneConfig(from_task="mnli")
    for name, value in (("pretrained", False), ("n_transfer", 1), ("original", True)):
        with pytest.raises(InputError, match=f"from_task = 'mnli' with {name} = {value}: expected"):
            dataclasses.replace(start, **{name: value})
    chosen = {"task": "rte", "finetune": {"from_task": "mnli"}, "model": "m", "dataset": "d", "workspace": "w"}
    with pytest.raises(InputError, match="finetune job: from_task = mnli, expected start = a folder"):
        finetune.FinetuneJob.parse({**chosen, "threads": None})
    with pytest.raises(InputError, match="finetune job: from_task = None, expected start = null"):
        finetune.FinetuneJob.parse({**chosen, "finetune": {}, "threads": None, "start": "s"})
