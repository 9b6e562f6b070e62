"""`gptmill pipeline` on a small generated world, seen from outside: what this folder's trials start and look at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptcore.storyworld.write import generate

TASKS = ("rte", "cola")
SMALL: dict[str, dict[str, Any]] = {
    "corpus": {"validation_fraction": 0.1, "min_characters": 10},
    "tokenizer": {"n_merges": 150},
    "model": {"n_ctx": 32, "n_layer": 1, "n_head": 2, "n_embd": 16, "n_inner": 32},
    "pretrain": {"steps": 1500, "batch_size": 4, "warmup_steps": 2, "eval_every": 500, "eval_tokens": 256},
    "finetune": {"epochs": 60, "max_train_rows": 64, "max_eval_rows": 32},
}
"""Settings of a pipeline that ends in half a minute."""


def make_world(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Books, datasets and settings.toml in ``folder``, unless it is there already."""
    if folder.exists():
        return
    generate(folder, seed=7, books=16, characters=20_000)
    text = "scratch = false\n" + "".join(
        f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for section, values in settings.items()
    )
    (folder / "settings.toml").write_text(text, encoding="utf-8")


@dataclass
class Trial:
    """One run of the command in a folder of its own, which holds its state, its output and, if local, its store."""

    folder: Path
    world: Path
    store: str = ""
    """Address of the store; empty: a folder of the trial's own."""
    more: dict[str, str] = field(default_factory=dict)
    """Environment variables that its processes get beside this process' own."""

    def __post_init__(self) -> None:
        self.store = self.store or str(self.folder / "store")

    @property
    def home(self) -> Path:
        """The state folder, by which everything that the command starts is known."""
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """What the command's processes see: no server of somebody else's, and the trial's state folder."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
        return {**ours, "GPTMILL_HOME": str(self.home), **self.more}

    def start(self) -> subprocess.Popen[bytes]:
        """The pipeline, as a terminal's foreground job would run: its own group, SIGINT not ignored."""
        command = ["pipeline", "--preset", "demo", "--tasks", ",".join(TASKS), "--seeds", "1"]
        command += ["--corpus", str(self.world / "books"), "--datasets", str(self.world / "datasets")]
        command += ["--config", str(self.world / "settings.toml"), "--store", self.store]
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "out.txt", "ab") as out, open(self.folder / "err.txt", "ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                process_group=0,
            )

    def processes(self) -> dict[int, str]:
        """pid -> command line of what belongs to this trial and runs."""
        found, home = {}, f"GPTMILL_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if home in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    if words:  # none: it has ended and waits to be collected
                        found[int(entry.name)] = words
            except OSError:
                continue  # gone meanwhile, or somebody else's
        return found

    def has(self, part: str) -> bool:
        """Whether a process with ``part`` in its command line runs."""
        return any(part in words for words in self.processes().values())

    def stored(self, pattern: str) -> list[Path]:
        """Files in the store's folders on this machine that match: the store itself, or copies of a remote one."""
        roots = [self.folder / "store", *(self.home / "remote").glob("*")]
        return [path for root in roots for path in root.glob(pattern)]

    def begin_with(self, finished: Trial, lacking: Iterable[str]) -> None:
        """Take over a finished trial's store but for some stages."""
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        shutil.copytree(finished.folder / "store", self.folder / "store", ignore=shutil.ignore_patterns(".*"))
        for stage in lacking:
            shutil.rmtree(self.folder / "store" / stage, ignore_errors=True)
