"""Deployments, schedules and lost machines on a real local stack: what `gptmill deploy` promises, tried.

    python -m tests.trials.schedules [--folder FOLDER] [--prefect-port 4200] [--mlflow-port 4201] [--only again,lost]

Starts `gptmill up` with heartbeats every 30 s (Prefect's least; 180 s otherwise) and a webhook receiver of its own, and
prints a row for each trial as it is known. Processes are killed by their pids, found by the trial's state folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.trials.scenarios import heading, make_world, options, row, small, toml
from tests.trials.schedules.stack import PATIENCE, Receiver, Stack, receiver, told, wait

_OVERRIDES = small(40)
_TASKS = ["rte", "cola"]
_DARK = 330.0  # seconds; what Prefect remembers of a loss for a minute is forgotten by then


def again(stack: Stack) -> None:
    """`gptmill deploy` twice."""

    def updated() -> dict[str, str]:
        times = {d["name"]: d["updated"] for d in stack.request("POST", "/deployments/filter", {})}
        return times | {a["name"]: a["updated"] for a in stack.request("POST", "/automations/filter", {})}

    stack.deploy()
    before = updated()
    said = [line for line in stack.deploy().splitlines() if "changed" in line or "created" in line]
    moved = [name for name, when in updated().items() if before[name] != when]
    row("deploy twice", "; ".join(" ".join(line.split()) for line in said), f"{len(moved)} objects newer {moved}")


def scheduled(stack: Stack) -> None:
    """A cron line fires the pipeline; the next time nothing is computed."""
    settings = stack.home / "deploy.toml"
    form = {"preset": "demo", "corpus": str(stack.folder / "world/books"), "tasks": _TASKS, "seeds": 1}
    settings.write_text(
        '[[schedule]]\nname = "often"\ncron = "*/5 * * * *"\n[schedule.parameters]\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in form.items())
        + toml(_OVERRIDES, "schedule.parameters.overrides.")
    )
    stack.deploy()

    def done() -> list[dict[str, Any]]:
        return [run for run in stack.runs("pipeline") if run["state"]["type"] == "COMPLETED"]

    wait(lambda: len(done()) >= 2, "the second scheduled run", 2 * PATIENCE)
    second, first = done()[:2]
    settings.write_text("")
    removed = "removed often" in stack.deploy()
    artifacts = len(list(stack.store.glob("*/*/manifest.json")))
    row(
        "schedule fires",
        f"first run {first['total_run_time']:.0f} s, the next over the same books {second['total_run_time']:.0f} s",
        f"{artifacts} artifacts; schedule taken out of the file: removed {removed}",
    )


def lost(stack: Stack) -> None:
    """A worker and its run killed outright in a training."""
    form = {"task": "rte", "epochs": 800, "max_train_rows": 64, "seeds": 1, "store": str(stack.store)}
    run = stack.start("finetune", form)
    wait(lambda: _checkpoints(stack, "finetune"), "a checkpoint")
    killed = stack.lose("training", run)
    stack.worker("training")
    crashed = wait(lambda: "Crashed" in stack.states(run), "Crashed")
    end = stack.ended(run)
    resumed = _resumed(stack, "finetune")
    model = newest(stack.store)
    shutil.copytree(stack.store, stack.folder / "other", ignore=shutil.ignore_patterns("finetune", ".work", ".locks"))
    undisturbed = stack.ended(stack.start("finetune", {**form, "store": str(stack.folder / "other")}))
    row(
        "worker and run killed (9) in a fine-tune",
        f"{killed} processes; Crashed after {crashed:.0f} s; {' > '.join(stack.states(run))}; {end['state']['name']}",
        f"resumed {resumed}; files as undisturbed ({undisturbed['state']['name']}): "
        f"{model == newest(stack.folder / 'other')}; told: {told('finetune rte')}",
    )


def parent(stack: Stack) -> None:
    """The parent of a fan-out killed outright; its children go on, and it makes no twin of one."""
    run, children = _fan_out(stack, _TASKS, seeds=2, epochs=100, max_eval_rows=31)
    wait(lambda: any(child["state"]["type"] == "RUNNING" for child in children()), "a running child")
    killed = stack.lose("cpu", run)
    at = Counter(child["state"]["type"].lower() for child in children())
    stack.worker("cpu")
    end = stack.ended(run)
    names = Counter(child["name"] for child in children())
    row(
        "parent and its worker killed (9) in the fan-out",
        f"{killed} processes, children then: {dict(at)}; {' > '.join(stack.states(run))}; {end['state']['name']}",
        f"{len(children())} children of {len(names)} names, twins: {sum(count > 1 for count in names.values())}",
    )


def cancelled(stack: Stack) -> None:
    """The parent of a fan-out cancelled as on its page, while a child trains."""
    run, found = _fan_out(stack, _TASKS, max_eval_rows=30)

    def trains() -> list[psutil.Process]:
        return stack.processes("gptcore.training")

    wait(trains, "a job")
    stack.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": True})
    end = stack.ended(run)
    seconds = wait(lambda: not trains(), "the end of the job")
    children = found()
    wait(lambda: all(stack.run(child["id"])["state"]["type"] == "CANCELLED" for child in children), "their ends")
    checkpoints = len(_checkpoints(stack, "finetune"))
    row(
        "parent of a fan-out cancelled while a child trains",
        f"{end['state']['name']}; {len(children)} children, each {stack.run(children[0]['id'])['state']['name']}",
        f"its job was gone {seconds:.0f} s later, checkpoints left: {checkpoints}",
    )


def late(stack: Stack) -> None:
    """No worker for a scheduled run: somebody is told."""
    for process in stack.processes("--pool cpu"):
        process.kill()
    lines = ["[[schedule]]", 'name = "unheard"', 'cron = "* * * * *"', "[schedule.parameters]", 'preset = "demo"']
    (stack.home / "deploy.toml").write_text("\n".join(lines) + "\n")
    stack.deploy()
    seconds = wait(lambda: told("late: no worker"), "an alert")
    (stack.home / "deploy.toml").write_text("")
    stack.deploy()
    stack.worker("cpu")
    row("no worker for a schedule", f"told after {seconds:.0f} s", repr(next(t for t in Receiver.texts if "late" in t)))


def power(stack: Stack) -> None:
    """Everything killed outright while a child of a fan-out trains, servers included; minutes later there is power."""
    earlier = _checkpoints(stack, "finetune")
    run, children = _fan_out(stack, ["rte"], max_eval_rows=29)
    wait(lambda: _checkpoints(stack, "finetune") - earlier, "a checkpoint")
    lost = stack.processes("")
    for process in lost:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    time.sleep(_DARK)
    stack.up()
    again = wait(lambda: "Crashed" in stack.states(run), "Crashed")
    end = stack.ended(run)
    row(
        f"all {len(lost)} processes killed (9) in a fine-tune, power back after {_DARK:.0f} s",
        f"Crashed {again:.0f} s after `up`; {' > '.join(stack.states(run))}; {end['state']['name']}",
        "its child: " + ", then ".join(" > ".join(stack.states(child["id"])) for child in reversed(children())),
    )


def broken(stack: Stack) -> None:
    """One task's data broken: the others' results stand; mended, the same command does one."""
    table = stack.folder / "world/datasets/RTE/train.tsv"
    text = table.read_text()
    config = stack.folder / "broken.toml"
    config.write_text("scratch = false\n" + toml({**_OVERRIDES, "finetune": {"epochs": 2, "max_train_rows": 32}}))
    command = ["finetune-all", "--tasks", "rte,cola,sst2", "--seeds", "1", "--config", str(config)]
    command += ["--store", str(stack.store), "--datasets", str(stack.folder / "world/datasets")]
    table.write_text(text + "9999\tonly one column\n")
    before = len(stack.runs("train"))
    said = stack.gptmill(*command, code=2).splitlines()
    board = [line.split()[0] for line in said if line.startswith(("cola", "sst2", "rte"))]
    first = len(stack.runs("train")) - before
    table.write_text(text)
    stack.gptmill(*command)
    row(
        "one task's data broken",
        f"exit code 2: {said[-1]}",
        f"{first} trained, on the board {', '.join(dict.fromkeys(board))}; "
        f"mended: {len(stack.runs('train')) - before - first} trained",
    )


def newest(store: Path) -> list[tuple[str, str]]:
    """The files of a store's newest fine-tuned model with their digests."""
    manifests = [json.loads(path.read_text()) for path in store.glob("finetune/*/manifest.json")]
    manifest = max(manifests, key=lambda manifest: str(manifest["created"]))
    return [(f["path"], f["sha256"]) for f in manifest["files"] if f["path"].endswith(".safetensors")]


def unstaffed(stack: Stack) -> None:
    """No worker of the pool `training`: each policy; one that comes late, is killed in a training, and comes again."""
    _lose(stack, "--pool training")
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
    stack.worker("training")
    wait(lambda: _checkpoints(stack, "pretrain"), "a checkpoint")
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
    body = {"state": {"type": "PENDING"}, "force": True}  # as the worker does that takes a run, and is killed then
    stack.request("POST", f"/flow_runs/{second['id']}/set_state", body)
    seconds = wait(lambda: told(f"{second['name']}: taken"), "an alert")
    row("taken by a worker that is gone", f"told after {seconds:.0f} s", repr(_texts(second, "taken")[-1]))
    seconds = wait(lambda: "AwaitingRetry" in stack.states(second["id"]), "AwaitingRetry")
    row("", f"AwaitingRetry {seconds:.0f} s later", "")
    stack.worker("training")
    end = stack.ended(run)
    resumed = _resumed(stack, "pretrain")
    row(
        "a worker again",
        f"{end['state']['name']}; {' > '.join(stack.states(second['id']))}",
        f"resumed from its checkpoint: {resumed}; all that was said: {stack.said(run, ': wait')}",
    )


def _start(stack: Stack, steps: int, **environment: str) -> str:
    overrides = small(steps, checkpoint_every=100) | {"finetune": {**_OVERRIDES["finetune"], "max_train_rows": 32}}
    form = {"preset": "demo", "corpus": str(stack.folder / "world/books"), "tasks": ["rte"], "seeds": 1}
    return stack.start("pipeline", {**form, "overrides": overrides}, **environment)


def _lose(stack: Stack, run: str) -> int:
    """Kill the worker of the pool `training` and a run's processes; wait until the server notices."""
    killed = stack.lose("training", run)
    wait(lambda: not stack.online("training"), "the worker's absence")
    return killed


def _child(stack: Stack, parent: str, but: set[str]) -> dict[str, Any]:
    """The training's run that a parent waits for."""

    def found() -> list[dict[str, Any]]:
        runs = [stack.run(run["id"]) for run in stack.runs("train") if run["id"] not in but]
        return [run for run in runs if f"of {parent}" in run["tags"]]

    wait(found, "a child")
    return found()[0]


def _fan_out(
    stack: Stack, tasks: list[str], seeds: int = 1, epochs: int = 800, **finetune: Any
) -> tuple[str, Callable[[], list[dict[str, Any]]]]:
    """A run of `finetune-all`, and how to ask for its children.

    :param finetune: the number of dev rows, which no other trial has: nothing is in the store already.
    """
    overrides = {**_OVERRIDES, "finetune": {"epochs": epochs, "max_train_rows": 64, **finetune}}
    before = {run["id"] for run in stack.runs("train")}
    form = {"preset": "demo", "tasks": tasks, "seeds": seeds, "overrides": overrides, "store": str(stack.store)}
    run = stack.start("finetune-all", form)
    return run, lambda: [child for child in stack.runs("train") if child["id"] not in before]


def _checkpoints(stack: Stack, stage: str) -> set[Path]:
    return set(stack.store.glob(f".work/{stage}/*/checkpoints/*/manifest.json"))


def _resumed(stack: Stack, stage: str) -> int:
    return sum("resum" in path.read_text().lower() for path in stack.store.glob(f"{stage}/*/log.txt"))


def _texts(run: dict[str, Any], about: str) -> list[str]:
    return [text for text in Receiver.texts if f"{run['name']}: {about}" in text]


TRIALS: dict[str, Callable[[Stack], None]] = {
    "again": again,
    "scheduled": scheduled,
    "lost": lost,
    "parent": parent,
    "broken": broken,
    "cancelled": cancelled,
    "power": power,
    "late": late,
    "unstaffed": unstaffed,
}


def main() -> None:
    """All trials on one stack; the later ones need what the schedule has made."""
    parser = options(__doc__)
    parser.add_argument("--folder", help="keep the stack's state there")
    parser.add_argument("--prefect-port", type=int, default=4200)
    parser.add_argument("--mlflow-port", type=int, default=4201)
    parser.add_argument("--only", default=",".join(TRIALS))
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="gptmill-schedules-"))
    make_world(folder / "world", _OVERRIDES)
    with receiver() as webhook:
        stack = Stack(folder, given.prefect_port, given.mlflow_port, webhook)
        try:
            start = time.monotonic()
            stack.up()
            heading("trial", "what happened", "what was found")
            row("gptmill up", f"{time.monotonic() - start:.0f} s", "")
            for name in given.only.split(","):
                TRIALS[name](stack)
        finally:
            stack.stop()


if __name__ == "__main__":
    main()
