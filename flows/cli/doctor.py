"""`gptmill doctor`: what will work on this machine, a line each, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from itertools import chain
from pathlib import Path

from flows.cli.run import wrapped
from flows.servers.environment import PORTS, listener, read_stack
from gptcore.base.errors import InputError
from gptcore.base.files import ROOM, free_bytes
from tasks.store.state import state_folder

_FINE, _LESS, _MISSING = "ok", "without", "MISSING"
_SAFE_BYTES = 5e9
"""What a pre-training of the preset small and the fine-tunes after it take, and as much again."""
_OF_DEVELOPERS = ("dev", "docs")
Line = tuple[str, str, str]
"""How it is, what was found, and what to do about it where that is not fine."""


def doctor(store: str) -> None:
    """Print a line on each part; see the module.

    :raises SystemExit: 1, where something is missing that every command needs.
    """
    states = set()
    for state, found, remedy in chain(_packages(), _torch(), _places(store), _ports()):
        line = f"{state:<8} {found}{'' if state == _FINE else f'; {remedy}'}"
        print(wrapped(line, 9) if sys.stdout.isatty() else line, flush=True)
        states.add(state)
    if _MISSING in states:
        raise SystemExit(1)


def _packages() -> Iterator[Line]:
    from packaging.requirements import Requirement

    lacking: dict[str, list[str]] = {}  # extra -> what is not here as it should be; "": of the core
    for wanted in map(Requirement, requires("gptmill") or ()):
        try:
            there = version(wanted.name)
        except PackageNotFoundError:
            there = ""
        if not there or not wanted.specifier.contains(there, prereleases=True):
            extra = str(wanted.marker).split('"')[1] if wanted.marker else ""
            lacking.setdefault(extra, []).append(f"{wanted.name} {there}".strip())
    core = lacking.pop("", [])
    yield _FINE, f"Python {platform.python_version()} of {sys.prefix}, {platform.system()} {platform.machine()}", ""
    extras = [name for name in metadata("gptmill").get_all("Provides-Extra") or () if name not in lacking]
    told = f"but for {', '.join(core)}" if core else f"with all that it needs, and the extras {', '.join(extras)}"
    yield _MISSING if core else _FINE, f"gptmill {version('gptmill')} {told}", "pip install --upgrade gptmill"
    for extra, names in lacking.items():
        if extra not in _OF_DEVELOPERS:
            yield _LESS, f"the extra {extra}: no {', '.join(names)}", f"pip install 'gptmill[{extra}]'"


def _torch() -> Iterator[Line]:
    try:
        import torch

        from gptcore.machine.device import compiles, pick_dtype
    except (ImportError, OSError) as error:
        yield _MISSING, f"torch: cannot be imported ({error})", "pip install --force-reinstall torch"
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trains = f"{torch.get_num_threads()} threads, trains in {str(pick_dtype('auto', device)).removeprefix('torch.')}"
    yield _FINE, f"torch {torch.__version__}, {trains}", ""
    for number in range(torch.cuda.device_count() if device.type == "cuda" else 0):
        its = torch.cuda.get_device_properties(number)
        yield _FINE, f"GPU {number}: {its.name}, {its.total_memory / 1e9:.0f} GB", ""
    if device.type == "cpu" and shutil.which("nvidia-smi"):
        yield _LESS, "a GPU: there is a driver, but torch sees none", "install torch's build for CUDA"
    elif device.type == "cpu":
        yield _LESS, "a GPU: there is none", "the presets demo and small suit processors"
    compiler = "g++" if device.type == "cpu" else "gcc and triton"
    does = "are compiled" if (fine := compiles(device.type)) else "take longer"
    yield _FINE if fine else _LESS, f"a compiler ({compiler}): long trainings {does}", f"install {compiler}"


def _places(store: str) -> Iterator[Line]:
    for what, place, remedy in (("state", str(state_folder()), "GPTMILL_HOME"), ("store", store, "--store")):
        free, told, folder = _SAFE_BYTES, "", Path(place).absolute()
        try:
            if "://" in place:
                from gptcore.base.filesystems import require_address

                require_address(place, remedy)
            else:
                holder = next(each for each in (folder, *folder.parents) if each.exists())
                free = free_bytes(holder)
                told = f", {free / 1e9:.1f} GB free" if os.access(holder, os.W_OK) else ", which cannot be written"
        except InputError as error:
            told = f", which does not answer ({error})"
        state = _MISSING if ", which" in told or free < ROOM else _LESS if free < _SAFE_BYTES else _FINE
        yield state, f"{what} {place}{told}", f"free some, 5 GB are safe, or name another place by {remedy}"


def _ports() -> Iterator[Line]:
    if stack := read_stack():
        yield _FINE, f"gptmill up has started {stack['prefect_url']} and {stack['mlflow_url']}", ""
        return
    for name in ("prefect", "mlflow"):
        try:
            listener(PORTS[name]).close()
            yield _FINE, f"port {PORTS[name]}, where gptmill up starts {name}, is free", ""
        except InputError:
            yield _LESS, f"port {PORTS[name]} for {name}: it is taken", f"gptmill up --{name}-port PORT"
