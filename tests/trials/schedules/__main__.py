"""Deployments, schedules and lost machines on a real local stack: what `gptmill deploy` promises, tried.

    python -m tests.trials.schedules [--folder FOLDER] [--prefect-port 4200] [--mlflow-port 4201] [--only again,lost]

Starts `gptmill up` with heartbeats every 30 s (Prefect's least; 180 s otherwise) and a webhook receiver of its own, and
prints a row for each trial as it is known. Processes are killed by their pids, found by the trial's state folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import psutil

from gptcore.storyworld.write import generate
from tests.trials.schedules.stack import PATIENCE, Receiver, Stack, row, told, wait
from tests.trials.schedules.unstaffed import unstaffed

_OVERRIDES: dict[str, dict[str, object]] = {
    "corpus": {"validation_fraction": 0.1, "min_characters": 10},
    "tokenizer": {"n_merges": 150},
    "model": {"n_ctx": 32, "n_layer": 1, "n_head": 2, "n_embd": 16, "n_inner": 32},
    "pretrain": {"steps": 40, "batch_size": 4, "warmup_steps": 2, "eval_every": 20, "eval_tokens": 256},
    "finetune": {"epochs": 1, "max_train_rows": 64, "max_eval_rows": 32},
}
_TASKS = ["rte", "cola"]
_DARK = 330.0  # seconds; what Prefect remembers of a loss for a minute is forgotten by then


def again(stack: Stack) -> None:
    """`gptmill deploy` twice."""

    def updated() -> dict[str, str]:
        found = {d["name"]: d["updated"] for d in stack.request("POST", "/deployments/filter", {})}
        return found | {a["name"]: a["updated"] for a in stack.request("POST", "/automations/filter", {})}

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
        + "".join(
            f"[schedule.parameters.overrides.{section}]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            for section, values in _OVERRIDES.items()
        )
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
    wait(lambda: list(stack.store.glob(".work/finetune/*/checkpoints/*/manifest.json")), "a checkpoint")
    killed = stack.lose("gpu", run)
    stack.worker("gpu")
    crashed = wait(lambda: "Crashed" in stack.states(run), "Crashed")
    end = stack.ended(run)
    resumed = sum("resum" in p.read_text().lower() for p in stack.store.glob("finetune/*/log.txt"))
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
    overrides = {**_OVERRIDES, "finetune": {"epochs": 100, "max_train_rows": 64, "max_eval_rows": 31}}
    form = {"preset": "demo", "tasks": _TASKS, "seeds": 2, "overrides": overrides, "store": str(stack.store)}
    before = {run["id"] for run in stack.runs("train")}
    run = stack.start("finetune-all", form)

    def children() -> list[dict[str, Any]]:
        return [child for child in stack.runs("train") if child["id"] not in before]

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
    overrides = {**_OVERRIDES, "finetune": {"epochs": 800, "max_train_rows": 64, "max_eval_rows": 30}}
    form = {"preset": "demo", "tasks": _TASKS, "seeds": 1, "overrides": overrides, "store": str(stack.store)}
    before = {run["id"] for run in stack.runs("train")}
    run = stack.start("finetune-all", form)

    def trains() -> list[psutil.Process]:
        return stack.processes("gptcore.training")

    wait(trains, "a job")
    stack.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": True})
    end = stack.ended(run)
    seconds = wait(lambda: not trains(), "the end of the job")
    children = [child for child in stack.runs("train") if child["id"] not in before]
    wait(lambda: all(stack.run(child["id"])["state"]["type"] == "CANCELLED" for child in children), "their ends")
    checkpoints = len(list(stack.store.glob(".work/finetune/*/checkpoints/*/manifest.json")))
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
    overrides = {**_OVERRIDES, "finetune": {"epochs": 800, "max_train_rows": 64, "max_eval_rows": 29}}
    form = {"preset": "demo", "tasks": ["rte"], "seeds": 1, "overrides": overrides, "store": str(stack.store)}
    before = {run["id"] for run in stack.runs("train")}

    def checkpoints() -> set[Path]:
        return set(stack.store.glob(".work/finetune/*/checkpoints/*/manifest.json"))

    earlier = checkpoints()
    run = stack.start("finetune-all", form)
    wait(lambda: checkpoints() - earlier, "a checkpoint")
    lost = stack.processes("")
    for process in lost:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    time.sleep(_DARK)
    stack.up()
    again = wait(lambda: "Crashed" in stack.states(run), "Crashed")
    end = stack.ended(run)
    children = [child for child in stack.runs("train") if child["id"] not in before]
    row(
        f"all {len(lost)} processes killed (9) in a fine-tune, power back after {_DARK:.0f} s",
        f"Crashed {again:.0f} s after `up`; {' > '.join(stack.states(run))}; {end['state']['name']}",
        "its child: " + ", then ".join(" > ".join(stack.states(child["id"])) for child in reversed(children)),
    )


def broken(stack: Stack) -> None:
    """One task's data broken: the others' results stand; mended, the same command does one."""
    table = stack.folder / "world/datasets/RTE/train.tsv"
    text = table.read_text()
    config = stack.folder / "broken.toml"
    settings: dict[str, dict[str, object]] = {**_OVERRIDES, "finetune": {"epochs": 2, "max_train_rows": 32}}
    config.write_text(
        "scratch = false\n"
        + "".join(
            f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            for section, values in settings.items()
        )
    )
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
    found = [json.loads(path.read_text()) for path in store.glob("finetune/*/manifest.json")]
    manifest = max(found, key=lambda manifest: str(manifest["created"]))
    return [(f["path"], f["sha256"]) for f in manifest["files"] if f["path"].endswith(".safetensors")]


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="keep the stack's state there")
    parser.add_argument("--prefect-port", type=int, default=4200)
    parser.add_argument("--mlflow-port", type=int, default=4201)
    parser.add_argument("--only", default=",".join(TRIALS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the stack is stopped
    folder = Path(options.folder or tempfile.mkdtemp(prefix="gptmill-schedules-"))
    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    webhook = f"http://127.0.0.1:{receiver.server_port}/hook"
    stack = Stack(folder, options.prefect_port, options.mlflow_port, webhook)
    if not (folder / "world").exists():
        generate(folder / "world", seed=7, books=16, characters=20_000)
    try:
        start = time.monotonic()
        stack.up()
        row("trial", "what happened", "what was found")
        row("---", "---", "---")
        row("gptmill up", f"{time.monotonic() - start:.0f} s", "")
        for name in options.only.split(","):
            TRIALS[name](stack)
    finally:
        stack.stop()


if __name__ == "__main__":
    main()
