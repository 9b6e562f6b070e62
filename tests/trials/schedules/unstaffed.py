"""Trainings of a pipeline for which no worker is there, or is there no longer: what is printed, and who is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.trials.schedules.stack import Receiver, Stack, row, told, wait

_OVERRIDES: dict[str, dict[str, object]] = {
    "corpus": {"validation_fraction": 0.1, "min_characters": 10},
    "tokenizer": {"n_merges": 150},
    "model": {"n_ctx": 32, "n_layer": 1, "n_head": 2, "n_embd": 16, "n_inner": 32},
    "finetune": {"epochs": 1, "max_train_rows": 32, "max_eval_rows": 32},
}


def unstaffed(stack: Stack) -> None:
    """No worker of the pool `gpu`: each policy; then one that comes late, is killed in a training, and comes again."""
    _lose(stack, "--pool gpu")
    for policy, steps in (("", 40), ("fail", 41), ("here", 42)):
        run = _start(stack, steps, **({"GPTMILL_NO_WORKER": policy} if policy else {}))
        end = stack.ended(run)
        said = stack.said(run, "trainings run in this process") or [str(end["state"]["message"])]
        alert = f"; told: {told(policy)}" if policy == "fail" else ""
        row(f"no worker, GPTMILL_NO_WORKER={policy}", f"{end['state']['name']}{alert}", repr(said[0]))
    run = _start(stack, 3_000, GPTMILL_NO_WORKER="wait")
    first = _child(stack, run, set())
    seconds = wait(lambda: told(f"{first['name']}: late"), "an alert")
    row("no worker, GPTMILL_NO_WORKER=wait", f"told after {seconds:.0f} s", repr(_texts(first, "late")[-1]))
    row("", "its log", repr(stack.said(run, ": waiting ")))
    stack.worker("gpu")
    wait(lambda: _checkpoints(stack), "a checkpoint")
    row("", "a worker came", repr(stack.said(run, " waited ")[-1]))
    start = time.monotonic()
    killed = _lose(stack, first["id"])
    wait(lambda: "Crashed" in stack.states(first["id"]), "Crashed")
    wait(lambda: told(f"{first['name']}: Crashed"), "an alert")
    row(
        "that worker killed (9) in the training",
        f"{killed} processes; Crashed after {time.monotonic() - start:.0f} s",
        _texts(first, "Crashed"),
    )
    second = _child(stack, run, {first["id"]})
    row("", "its log", repr(stack.said(run, "lost its machine")))
    _post_state(stack, second["id"], "PENDING")
    seconds = wait(lambda: told(f"{second['name']}: taken"), "an alert")
    row("taken by a worker that is gone", f"told after {seconds:.0f} s", repr(_texts(second, "taken")[-1]))
    seconds = wait(lambda: "AwaitingRetry" in stack.states(second["id"]), "AwaitingRetry")
    row("", f"AwaitingRetry {seconds:.0f} s later", "")
    stack.worker("gpu")
    end = stack.ended(run)
    resumed = sum("resum" in path.read_text().lower() for path in stack.store.glob("pretrain/*/log.txt"))
    row(
        "a worker again",
        f"{end['state']['name']}; {' > '.join(stack.states(second['id']))}",
        f"resumed from its checkpoint: {resumed}; all that was said: {stack.said(run, ': wait')}",
    )


def _start(stack: Stack, steps: int, **environment: str) -> str:
    pretrain = {"steps": steps, "batch_size": 4, "warmup_steps": 2, "eval_every": steps // 2, "eval_tokens": 256}
    overrides = {**_OVERRIDES, "pretrain": {**pretrain, "checkpoint_every": 100}}
    form = {"preset": "demo", "corpus": str(stack.folder / "world/books"), "tasks": ["rte"], "seeds": 1}
    return stack.start("pipeline", {**form, "overrides": overrides}, **environment)


def _lose(stack: Stack, run: str) -> int:
    """Kill the worker of the pool `gpu` and a run's processes; wait until the server notices."""
    killed = stack.lose("gpu", run)
    wait(lambda: not stack.online("gpu"), "the worker's absence")
    return killed


def _child(stack: Stack, parent: str, but: set[str]) -> dict[str, Any]:
    """The training's run that a parent waits for."""

    def found() -> list[dict[str, Any]]:
        runs = [stack.run(run["id"]) for run in stack.runs("train") if run["id"] not in but]
        return [run for run in runs if f"of {parent}" in run["tags"]]

    wait(found, "a child")
    return found()[0]


def _checkpoints(stack: Stack) -> list[Path]:
    return list(stack.store.glob(".work/pretrain/*/checkpoints/*/manifest.json"))


def _texts(run: dict[str, Any], about: str) -> list[str]:
    return [text for text in Receiver.texts if f"{run['name']}: {about}" in text]


def _post_state(stack: Stack, run: str, state: str) -> None:
    """As the worker does that takes a run, and is killed before it begins it."""
    stack.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})
