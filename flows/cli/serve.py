"""`gptmill serve TASK|REF`: a model of the store behind HTTP, on this machine alone."""

from __future__ import annotations

import sys
from typing import Any

from flows.forms.checks import any_model
from flows.forms.references import fine_tuned_model, named_task
from flows.servers.signals import Ended
from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.nlu.registry import BEYOND, REGISTRY
from tasks.store.artifact import Artifact
from tasks.store.lineage import model_files
from tasks.store.references import fine_tuned_tasks
from tasks.store.store import Store


def serve(store: Store, name: str, model: str, port: int) -> None:
    """Serve until SIGTERM; see :mod:`flows.servers.model_server`.

    :param name: a task, whose model ``model`` chooses; or a model itself.
    :param model: empty: the task's best.
    :raises InputError: no such model, ``model`` beside a model, or a port that is taken.
    """
    artifact = served_model(store, name, model)
    folder, words = model_files(artifact)
    from flows.servers.model_server import Generation, Predictions, Service, serve  # brings torch along
    from gptcore.evaluation.task_model import TaskModel
    from gptcore.machine.device import pick_device
    from gptcore.models.build import load_language_model
    from gptcore.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(str(words))
    about: dict[str, Any] = {"model": artifact.url, "digest": artifact.digest}
    service: Service
    if "head" in read_json(folder / "config.json"):
        task_model = TaskModel(folder, tokenizer)
        spec = task_model.spec
        service = Predictions(task_model)
        about |= {"task": spec.name, "fields": [*spec.text_columns, *spec.choices], "labels": list(spec.labels)}
    else:
        service = Generation(load_language_model(str(folder)).to(pick_device(0)).eval(), tokenizer)
    what = about.get("task", "a language model")

    def ready() -> None:
        print(f"{what} {artifact.short}: http://127.0.0.1:{port}{service.path}, /health (SIGTERM ends it)")
        sys.stdout.flush()

    try:
        serve(service, about, port, ready)
    except Ended as ended:
        print(f"gptmill: ended by {ended}; what was under way was answered", file=sys.stderr)
        raise SystemExit(ended.exit_code) from None


def served_model(store: Store, name: str, model: str) -> Artifact:
    """The model that is meant: of a task the one that ``model`` names, else the one that ``name`` does itself.

    :param model: empty: the task's best.
    :raises InputError: there is none, or both name one.
    """
    if name in REGISTRY | BEYOND or name.endswith(".toml") or name in fine_tuned_tasks(store):
        return fine_tuned_model(store, model or "best", named_task(store, name))
    if name.isalpha() and name not in ("latest", "best"):
        raise InputError(
            f"{name}: found no task and no model of this name; expected one of {', '.join(REGISTRY | BEYOND)}, a REF"
        )
    artifact = any_model(store, name)
    if model:
        raise InputError(f"--model {model}: found {name} beside it, a model itself; expected a task or no --model")
    return artifact
