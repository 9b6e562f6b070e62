"""`gptmill doctor`: what will work on this machine, a line each, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
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

    lacking: dict[str, list[str]] = {}  # extra -> what is not as it should be; "": of the core
    for wanted in map(Requirement, requires("gptmill") or ()):
        with suppress(PackageNotFoundError):
            if wanted.specifier.contains(version(wanted.name), prereleases=True):
                continue
        extra = str(wanted.marker).split('"')[1] if wanted.marker else ""
        lacking.setdefault(extra, []).append(str(wanted).partition(";")[0])
    extras = {*(metadata("gptmill").get_all("Provides-Extra") or ())} - {"dev", "docs"}  # those of users
    here = f"gptmill {version('gptmill')}"
    yield _FINE, f"Python {platform.python_version()} of {sys.prefix}, {platform.system()} {platform.machine()}", ""
    if "" in lacking:
        yield _MISSING, f"{here}, which needs {', '.join(lacking[''])}", "pip install --upgrade gptmill"
    else:
        yield _FINE, f"{here} with all that it needs, and the extras {', '.join(sorted(extras - {*lacking}))}", ""
    for extra in sorted(extras & {*lacking}):
        yield _LESS, f"the extra {extra}: {', '.join(lacking[extra])}", f"pip install 'gptmill[{extra}]'"


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
    compiler = "g++"
    if device.type == "cuda":
        compiler = "gcc and triton"
        for number in range(torch.cuda.device_count()):
            its = torch.cuda.get_device_properties(number)
            yield _FINE, f"GPU {number}: {its.name}, {its.total_memory / 1e9:.0f} GB", ""
    elif shutil.which("nvidia-smi"):
        yield _LESS, "a GPU: there is a driver, but torch sees none", "install torch's build for CUDA"
    else:
        yield _LESS, "a GPU: there is none", "the presets demo and small suit processors"
    does = "are compiled" if (fine := compiles(device.type)) else "take longer"
    yield _FINE if fine else _LESS, f"a compiler ({compiler}): long trainings {does}", f"install {compiler}"


def _places(store: str) -> Iterator[Line]:
    from gptcore.base.filesystems import require_address

    for what, place, remedy in (("state", str(state_folder()), "GPTMILL_HOME"), ("store", store, "--store")):
        free, told = _SAFE_BYTES, ""
        if "://" in place:
            try:
                require_address(place, remedy)
            except InputError as error:
                told = f", which does not answer ({error})"
        else:
            free = free_bytes(Path(place))
            holder = next(each for each in (Path(place), *Path(place).absolute().parents) if each.exists())
            can = holder.is_dir() and os.access(holder, os.W_OK)
            told = f", {free / 1e9:.1f} GB free" if can else ", which is no folder that can be written"
        state = _MISSING if ", which" in told or free < ROOM else _LESS if free < _SAFE_BYTES else _FINE
        do = "" if ", which" in told else "free some, 5 GB are safe, or "
        yield state, f"{what} {place}{told}", f"{do}name another place by {remedy}"


def _ports() -> Iterator[Line]:
    if stack := read_stack():
        yield _FINE, f"gptmill up has started {stack['prefect_url']} and {stack['mlflow_url']}", ""
        return
    for name in ("prefect", "mlflow"):
        port, state = PORTS[name], _FINE
        try:
            listener(port).close()
        except InputError:
            state = _LESS
        free = "is free" if state == _FINE else "is taken"
        yield state, f"port {port} for {name} {free}", f"gptmill up --{name}-port PORT takes another"
