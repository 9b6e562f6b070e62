"""What the trials of this folder share: a small generated world, its settings, and `gptmill` seen from outside."""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gptcore.papers.storyworld.write import generate

Settings = dict[str, dict[str, Any]]
TASKS = ("rte", "cola")


def small(steps: int, epochs: int = 1, **pretrain: Any) -> Settings:
    """Settings of a pipeline of a few seconds; 1,500 updates and 60 epochs take half a minute.

    :param pretrain: what differs in pre-training.
    """
    schedule = {"steps": steps, "batch_size": 4, "warmup_steps": 2, "eval_every": max(1, steps // 2)}
    return {
        "corpus": {"validation_fraction": 0.1, "min_characters": 10},
        "tokenizer": {"n_merges": 150},
        "model": {"n_ctx": 32, "n_layer": 1, "n_head": 2, "n_embd": 16, "n_inner": 32},
        "pretrain": {**schedule, "eval_tokens": 256, **pretrain},
        "finetune": {"epochs": epochs, "max_train_rows": 64, "max_eval_rows": 32},
    }


def toml(settings: Mapping[str, Mapping[str, Any]], prefix: str = "") -> str:
    """Sections of a TOML file; JSON's values are TOML's.

    :param prefix: of the sections' names, with its dot.
    """
    return "".join(
        f"[{prefix}{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for section, values in settings.items()
    )


def make_world(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Books, datasets and settings.toml in ``folder``, unless it is there already."""
    if folder.exists():
        return
    generate(folder, seed=7, books=16, characters=20_000)
    (folder / "settings.toml").write_text("scratch = false\n" + toml(settings), encoding="utf-8")


def of_world(world: Path, store: str | Path) -> list[str]:
    """The options by which a command finds a world and its store."""
    places = {"corpus": world / "books", "datasets": world / "datasets", "config": world / "settings.toml"}
    return [word for name, place in {**places, "store": store}.items() for word in (f"--{name}", str(place))]


def environment(
    home: Path, more: Mapping[str, str], foreign: tuple[str, ...] = ("PREFECT_", "MLFLOW_")
) -> dict[str, str]:
    """The environment of a command: no server of somebody else's, a state folder of the trial's own, and ``more``."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**ours, "GPTMILL_HOME": str(home), **more}


def options(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a trial's own docstring; SIGTERM ends the trial as an exception, so that nothing stays."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def wait(condition: Callable[[], object], what: str, seconds: float, pause: float = 1.0) -> float:
    """Wait for something; how many seconds that took.

    :raises TimeoutError: what was waited for did not come.
    """
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"{what} did not come in {seconds:.0f} s")
        time.sleep(pause)
    return time.monotonic() - start


def ended(pid: int) -> bool:
    """Whether a process has ended, though nobody may have collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def started(command: Sequence[str], log: Path, variables: Mapping[str, str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a command that is asked nothing; what it says, on both streams, is added to a file."""
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables, **how)


def output_of(module: str, *arguments: str, variables: Mapping[str, str] | None = None, given: str = "") -> str:
    """Standard output of a module that is run as a program.

    :raises RuntimeError: it failed.
    """
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, env=variables, input=given, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {ended.returncode}: {ended.stderr[-2000:]}")
    return ended.stdout


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def call(url: str, body: Any = None, login: str = "") -> Any:
    """GET, or POST with a JSON body; the JSON answer.

    :param login: ``user:password``.
    :raises OSError: the server does not answer, or refuses.
    """
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)  # a server of the trial's own
    with urllib.request.urlopen(request, timeout=60) as response:  # as above
        return json.load(response)


def credentials_of(home: Path) -> dict[str, str]:
    """Variable -> value, of the full stack whose state folder this is."""
    lines = (home / "credentials").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def row(*cells: object) -> None:
    """A row of the table that a trial prints."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def heading(*columns: str) -> None:
    """The first rows of that table."""
    row(*columns)
    row(*["---"] * len(columns))


def compile_shim(source: Path, folder: Path) -> Path:
    """The library of a C file, made in ``folder`` with gcc."""
    library = folder / source.with_suffix(".so").name
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


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
        """What the command's processes see."""
        return environment(self.home, self.more)

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        """The pipeline, as a terminal's foreground job would run: its own group, SIGINT not ignored.

        :param program: in the place of `-m flows.cli`.
        """
        command = ["pipeline", "--preset", "demo", "--tasks", ",".join(TASKS), "--seeds", "1"]
        command += of_world(self.world, self.store)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "out.txt", "ab") as out, open(self.folder / "err.txt", "ab") as err:
            return subprocess.Popen(
                [sys.executable, *(program or ("-m", "flows.cli")), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                process_group=0,
            )

    def processes(self) -> dict[int, str]:
        """pid -> command line of what belongs to this trial and runs."""
        running, home = {}, f"GPTMILL_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if home in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    if words:  # none: it has ended and waits to be collected
                        running[int(entry.name)] = words
            except OSError:
                continue  # gone meanwhile, or somebody else's
        return running

    def has(self, part: str) -> bool:
        """Whether a process with ``part`` in its command line runs."""
        return any(part in words for words in self.processes().values())

    def has_open(self, path: Path) -> bool:
        """Whether a process has a file open."""
        return any(str(path) == each.path for pid in self.processes() for each in psutil.Process(pid).open_files())

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
