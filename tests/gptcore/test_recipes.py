"""Recipes of encoders and students: the papers' tables as they are printed, and what `original = true` stands for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import EncoderConfig, preset_named
from gptcore.config.operations import operations_of_update
from gptcore.models.encoder import Encoder
from gptcore.nlu.registry import task_spec
from gptcore.papers.electra.replaced import REPLACED_TOKENS, Detection
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig, TransEConfig
from gptcore.training.finetune import FinetuneJob, task_model
from tests.expected import expected
from tests.gptcore.tiny_tasks import finetune_job, pretrained_encoder


def table_of(test: str, names: str) -> Any:
    return pytest.mark.parametrize(names.split(), expected(__file__, test))


@table_of("test_the_preset_paper_is_what_the_papers_print", "source family size task printed")
def test_the_preset_paper_is_what_the_papers_print(
    source: str, family: str, size: str | None, task: str | None, printed: dict[str, Any]
) -> None:
    """Each cell of a table; null where what is printed is the default."""
    preset = preset_named("paper", {"family": family, **({"shape": size} if size else {})})
    finetune = preset.finetune_for(task) if task else preset.finetune
    found = {cell: finetune if cell.startswith("finetune") else getattr(preset, cell.split(".")[0]) for cell in printed}
    assert {cell: getattr(its, cell.split(".")[1]) for cell, its in found.items()} == printed, source


@table_of("test_recipes_of_graphs_are_as_written", "section values")
def test_recipes_of_graphs_are_as_written(section: str, values: dict[str, Any]) -> None:
    """KagNET's released models/main.py and pathfinder/; RotatE's section 3.2 and best_config.sh, and its own sizes."""
    (config,) = (each for each in (TransEConfig(), GroundingConfig(), KagNETConfig()) if each.section == section)
    assert {name: getattr(config, name) for name in values} == values


@table_of("test_electras_generators_have_the_widths_of_table_6", "size heads width inner")
def test_electras_generators_have_the_widths_of_table_6(size: str, heads: int, width: int, inner: int) -> None:
    preset = preset_named("paper", {"family": "electra", "shape": size, "model": {"n_vocab": 50}})
    assert isinstance(preset.model, EncoderConfig)
    with torch.device("meta"):
        found = REPLACED_TOKENS.network(Encoder(preset.model), preset.pretrain, torch.Generator())
    assert isinstance(found, Detection)
    its = found.generator.config
    assert (its.n_head, its.n_embd, its.n_inner) == (heads, width, inner)
    whole, quarter = (dataclasses.replace(preset.pretrain, generator_share=share) for share in (1.0, 0.25))
    assert operations_of_update(preset.model, whole) > operations_of_update(preset.model, preset.pretrain)
    assert "generator_share" not in recorded(quarter), "as it was recorded"


@pytest.mark.parametrize("preset", ["demo", "paper"])
@table_of("test_original_is_each_familys_own_release", "family section wanted")
def test_original_is_each_familys_own_release(preset: str, family: str, section: str, wanted: dict[str, Any]) -> None:
    """`create_optimizer` of optimization.py in BERT's and in ELECTRA's repository, whatever the preset has."""
    chosen = preset_named(preset, {"family": family, section: {"original": True, "lr": 0.125}})
    assert {name: getattr(getattr(chosen, section), name) for name in wanted} == wanted
    assert getattr(chosen, section).lr == 0.125, "the rest is the user's"
    own = preset_named(preset, {"family": family, section: {"original": True, "epsilon": 0.5}})
    assert getattr(own, section).epsilon == 0.5
    if section == "finetune":
        one = preset_named(preset, {"family": family, "tasks": {"rte": {"original": True}}})
        assert (one.finetune_for("rte").uncorrected, one.finetune_for("mrpc").uncorrected) == (True, False)


@pytest.mark.parametrize(
    ("family", "section"), [("ALBERT", "pretrain"), ("DistilBERT", "pretrain"), ("ERNIE", "finetune")]
)
def test_a_release_that_is_not_here_is_refused(family: str, section: str) -> None:
    message = rf"x: {section}\.original = True, of {family}: its release is not here, expected False"
    with pytest.raises(InputError, match=message):
        preset_named("demo", {"family": family.lower(), section: {"original": True}}, "x")


@table_of("test_the_last_layers_dropout_is_the_releases", "family task rate")
def test_the_last_layers_dropout_is_the_releases(family: str, task: str, rate: float, tmp_path: Path) -> None:
    model = pretrained_encoder(tmp_path / family, family)
    settings = recorded(preset_named("paper", {"family": family}).finetune_for(task))
    job = FinetuneJob.parse(finetune_job(task, model, tmp_path, tmp_path, settings))
    found, again = (task_model(job, task_spec(task))[0] for _ in range(2))
    for mine, its in zip(found.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, its), "drawn by the seed, all of them"
    assert found.clf_pdrop == rate
    assert not found.network.config.resid_pdrop, "so that what differs is dropped before the last layer"
    ones = torch.ones(1, 1, 6, dtype=torch.long)
    twice = [found.train()(ones, ones[..., 0], segments=0 * ones, mask=ones.bool())[0] for _ in range(2)]
    assert torch.equal(*twice) == (rate == 0.0)
