"""What a started run's own page holds: its name, its card, its table; and what the forms offer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.names import run_name
from flows.parameters import (
    AnalysisParameters,
    FinetuneAllParameters,
    FinetuneParameters,
    PipelineParameters,
    PretrainParameters,
)
from tasks.store.references import checkpoint_label, pretrained_model
from tasks.store.store import Store
from tests.flows.world import OVERRIDES, TASKS

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def checkpoint(world: tuple[str, str], store: str, prefect_server: None) -> str:
    """A pipeline of two tasks has run; the label of its checkpoint."""
    from flows.pipeline import pipeline

    books, datasets = world
    form = {"corpus": books, "datasets": datasets, "store": store, "overrides": OVERRIDES, "jobs": 2}
    pipeline(PipelineParameters(preset="demo", tasks=TASKS[:2], **form))
    found = Store(store)
    return checkpoint_label(found, found.list("pretrain")[0])


def newest(flow: str) -> tuple[str, list[dict[str, Any]]]:
    """Name and artifacts (Markdown and tables) of the newest run of a flow."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowFilter
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        where = FlowFilter.model_validate({"name": {"any_": [flow]}})
        run = client.read_flow_runs(flow_filter=where, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1)[0]
        body = {"artifacts": {"flow_run_id": {"any_": [str(run.id)]}}}
        artifacts = client.request("POST", "/artifacts/filter", json=body).json()
    return run.name, [found for found in artifacts if found["type"] in ("markdown", "table")]


def test_a_pipelines_page_has_the_average_then_the_stages(checkpoint: str) -> None:
    name, artifacts = newest("pipeline")
    assert name.startswith("pipeline demo → ")
    assert "bag of words" in name
    (card,) = (found for found in artifacts if found["key"] is None)
    assert card["data"].startswith("# 2 tasks: ")
    assert card["data"].index("| rte") < card["data"].index("## Stages") < card["data"].index("tokenizer ")
    assert "| -" not in card["data"].replace("| ---", "")


def test_a_fine_tunes_page_holds_its_result_alone(checkpoint: str, world: tuple[str, str], store: str) -> None:
    from flows.finetune import finetune

    chosen = {"store": store, "datasets": world[1], "epochs": 1, "max_train_rows": 32, "seeds": 2}
    finetune(FinetuneParameters(task="rte", checkpoint=checkpoint, **chosen))
    name, artifacts = newest("finetune")
    assert name.startswith("finetune rte → ")
    assert name.endswith(f"; checkpoint {checkpoint[:12]}, 2 seeds, epochs 1, max train rows 32")
    (card,) = artifacts
    assert card["key"] is None
    for words in ("median of 2 seeds", "±", "bag of words", "majority class", "| 56.0", "Rank ", " of 3 on these rows"):
        assert words in card["data"]
    assert "epochs 3" not in card["data"]  # the pipeline's runs had one epoch too
    assert "random weights" in card["data"]
    assert card["data"].count("[run](http") == 2
    assert "bag of words" in card["description"]

    name, artifacts = newest("fine-tunes")
    assert name == "fine-tunes: rte x pre-trained"
    (table,) = (found for found in artifacts if found["type"] == "table")
    assert "rte" in table["data"]
    assert "cola" not in table["data"]
    assert '"-"' not in table["data"]


@pytest.mark.parametrize(
    ("flow", "form", "name"),
    [
        ("pipeline", PipelineParameters(), "pipeline demo"),
        ("pipeline", PipelineParameters(preset="small", seeds=3, tasks=["rte"]), "pipeline small, rte, 3 seeds"),
        ("pretrain", PretrainParameters(preset="demo", store="s3://x/y"), "pretrain demo 1,400 updates"),
        ("pretrain", PretrainParameters(preset="paper"), "pretrain paper 100 epochs"),
        ("finetune", FinetuneParameters(task="rte"), "finetune rte"),
        ("finetune", FinetuneParameters(task="rte", lr=5e-4, seeds=1), "finetune rte, 1 seed, lr 0.0005"),
        ("finetune", FinetuneParameters(task="rte", pretrained=False), "finetune rte, from random weights"),
        (
            "finetune-all",
            FinetuneAllParameters(overrides={"finetune": {"lr": 1e-4}}),
            "finetune all demo, finetune.lr 0.0001",
        ),
        ("analysis-table5", AnalysisParameters(jobs=2), "analysis table5 demo"),
        ("analysis-zero-shot", AnalysisParameters(max_rows=20), "analysis zero-shot demo, max rows 20"),
        (
            "finetune",
            FinetuneParameters(task="rte", lr=1e-3, seeds=1, epochs=1, batch_size=8, lm_coef=0.0),
            "finetune rte, 1 seed, lr 0.001, batch size 8, epochs 1, ...",
        ),
    ],
)
def test_a_run_is_called_by_what_it_does(flow: str, form: Any, name: str) -> None:
    assert run_name(flow, form) == name


def test_forms_list_the_stores_checkpoints_and_take_any_text(checkpoint: str, store: str, tmp_path: Path) -> None:
    from prefect.client.orchestration import get_client

    from flows.finetune import finetune
    from flows.forms import list_checkpoints

    finetune.to_deployment(name="finetune", parameters={"parameters": {"store": store}}).apply()
    list_checkpoints(str(tmp_path))  # another store's business
    with get_client(sync_client=True) as client:
        before = client.read_deployment_by_name("finetune/finetune").parameter_openapi_schema
        list_checkpoints(store)
        schema = client.read_deployment_by_name("finetune/finetune").parameter_openapi_schema
    assert before
    assert "anyOf" not in before["definitions"]["FinetuneParameters"]["properties"]["checkpoint"]
    assert schema
    typed, listed = schema["definitions"]["FinetuneParameters"]["properties"]["checkpoint"]["anyOf"]
    assert typed["type"] == "string"
    assert listed["enum"] == ["latest", checkpoint]
    assert "type" not in listed


def test_a_label_means_its_digest(checkpoint: str, store: str) -> None:
    found = Store(store)
    assert pretrained_model(found, checkpoint) == found.list("pretrain")[0] == pretrained_model(found, "latest")
    assert "1 layers x 16, perplexity" in checkpoint
