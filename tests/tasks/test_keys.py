"""Names that people give become keys that Prefect, MLflow and file systems take, and two names never become one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import (
    _validate_metric_name,
    _validate_model_name,
    _validate_param_name,
    _validate_tag_name,
)
from prefect.client.schemas.actions import ArtifactCreate

from gptcore.nlu.own_task import _NAME, free_name
from tasks.report.entries import PRETRAINED, task_model
from tasks.tracking.keys import METRIC, key_of

TASKS = st.from_regex(_NAME, fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PRODUCT = [path for room in ("flows", "tasks") for path in (Path(__file__).parents[2] / room).rglob("*.py")]


def others(key: str) -> str:
    """A name that would be mistaken for ``key``, were it only cut and patched."""
    return key.replace("-", "_")


@given(TASKS | TEXTS)
def test_every_name_makes_a_key_of_prefect_and_a_file(name: str) -> None:
    key = key_of(f"finetune-{name}")
    assert ArtifactCreate(key=key, type="markdown", data="").key == key
    assert key.isascii()
    assert len(key) <= 64
    assert Path(key).name == key


@given(TASKS)
def test_every_task_has_names_that_mlflow_takes(name: str) -> None:
    for metric in (name, f"{name}/stderr", f"glue/{name}", f"{name}/0.0005"):
        _validate_metric_name(metric)
        assert key_of(metric, METRIC) == metric
    _validate_tag_name(f"cell.{name}")
    _validate_param_name(f"settings.{name}.lr")
    for synthetic in (False, True):
        _validate_model_name(task_model(name, synthetic))


@given(TEXTS)
def test_every_text_makes_a_metric(text: str) -> None:
    _validate_metric_name(f"{key_of(text, METRIC)}/score")


@given(TASKS | TEXTS, TASKS | TEXTS)
def test_two_names_are_two_keys(one: str, other: str) -> None:
    for allowed in ((), (METRIC,)):
        for second in {other, others(one), others(key_of(one, *allowed)), one.upper()} - {one}:
            assert key_of(one, *allowed) != key_of(second, *allowed)


@given(TASKS, TASKS, st.booleans(), st.booleans())
def test_two_tasks_are_two_models_and_none_is_the_pretrained(
    one: str, other: str, synthetic: bool, other_synthetic: bool
) -> None:
    pretrained = {PRETRAINED, f"{PRETRAINED}-synthetic"}
    models = {(name, kind): task_model(name, kind) for name in (one, f"{one}-synthetic"[:32]) for kind in (False, True)}
    models[other, other_synthetic] = task_model(other, other_synthetic)
    assert len({*models.values()} | pretrained) == len(models) + 2


@pytest.mark.parametrize(
    ("name", "synthetic"), [("pretrained", False), ("pretrained", True), ("mood-synthetic", False)]
)
def test_a_name_that_the_registry_has_for_something_else_is_told_apart(name: str, synthetic: bool) -> None:
    taken = {PRETRAINED, f"{PRETRAINED}-synthetic", task_model("mood", True)}
    assert task_model(name, synthetic) not in taken


def test_names_that_are_keys_stay() -> None:
    """What was shown and registered under them before is found under them."""
    assert [key_of(name) for name in ("finetune-sst2", "analysis-zero-shot")] == ["finetune-sst2", "analysis-zero-shot"]
    assert task_model("mood", False) == "gptmill-mood"
    assert task_model("mood", True) == "gptmill-mood-synthetic"
    assert free_name("multi_semi") == "multi_semi"


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: path.stem)
def test_no_artifact_of_prefect_has_another_key(path: Path) -> None:
    """What a name becomes is decided in one place."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.endswith("_artifact"):
            keys = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
            assert all(isinstance(key, ast.Call) and ast.unparse(key.func) == "key_of" for key in keys), ast.unparse(
                call
            )
