"""What a training run keeps and tells while it runs: checkpoints, metrics.jsonl, and a progress bar or plain lines.

Checkpoints are complete or absent: safetensors and JSON, written aside, fsynced, renamed, checked on reading.

step-00000100/
    model.safetensors, optimizer.safetensors   one file a group of named tensors
    state.json                                 step, schedule, RNG states, data position, settings, digests
    manifest.json                              size and SHA-256 of the files above, written last
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from gptcore.base.files import fsync_file, fsync_folder, read_json, sha256_file, write_json_atomic
from gptcore.machine.distributed import placed_like

FORMAT = 2
"""Raised when the meaning of the files changes; a checkpoint of another format is not resumed from."""

_FOLDER = re.compile(r"step-(\d{8,})")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files have been checked against its manifest."""

    folder: Path
    step: int
    """Updates made when it was written."""
    state: dict[str, Any]

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The named tensors of one group ("model", "optimizer", ...), on the CPU."""
        return load_file(self.folder / f"{group}.safetensors")


def save(
    root: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], *, keep: int
) -> Path:
    """Write ``root/step-<step>`` and drop all but the newest ``keep`` checkpoints.

    :param tensors: groups of named tensors, on any device; one file a group.
    :param state: JSON values.
    :return: the checkpoint's folder. A folder of the same step that was there is replaced.
    """
    root.mkdir(parents=True, exist_ok=True)
    final = root / f"step-{step:08d}"
    aside = root / f".{final.name}.{os.getpid()}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for group, named in tensors.items():
        # Views are written whole: safetensors refuses tensors that share memory.
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in named.items()}, aside / f"{group}.safetensors"
        )
    write_json_atomic(aside / "state.json", {"format": FORMAT, "step": step, **state})
    files = {path.name: {"size": path.stat().st_size, "sha256": sha256_file(path)} for path in sorted(aside.iterdir())}
    for path in aside.iterdir():
        fsync_file(path)
    write_json_atomic(aside / "manifest.json", {"format": FORMAT, "step": step, "files": files})
    if final.exists():
        shutil.rmtree(final)
    os.replace(aside, final)
    fsync_folder(root)
    _prune(root, keep)
    return final


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors, each under its first name alone: networks that are trained together may share embeddings."""
    first = _first_names(model)
    return {name: value for name, value in model.state_dict().items() if first[name] == name}


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`model_tensors` gave, where each parameter is.

    :raises RuntimeError: other tensors than the model's.
    """
    mine = model.state_dict()
    tied = {name: tensors[first] for name, first in _first_names(model).items() if first in tensors}
    model.load_state_dict({name: placed_like(mine[name], value) for name, value in {**tensors, **tied}.items()})


def _first_names(model: nn.Module) -> dict[str, str]:
    """Name of each tensor -> the first one by which the model has it."""
    seen: dict[int, str] = {}
    return {name: seen.setdefault(id(value), name) for name, value in model.state_dict(keep_vars=True).items()}


def newest_valid(root: Path) -> Checkpoint | None:
    """The newest checkpoint under ``root`` whose files match its manifest; broken ones are skipped with a warning."""
    for step, folder in reversed(_checkpoints(root)):
        fault = find_fault(folder)
        if fault is None:
            return Checkpoint(folder, step, read_json(folder / "state.json"))
        _log.warning("checkpoint %s is skipped: %s", folder, fault)
    return None


def find_fault(folder: Path) -> str | None:
    """Why a checkpoint cannot be trusted, in a few words; None: every file is as its manifest says."""
    try:
        manifest = read_json(folder / "manifest.json")
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']}, expected {FORMAT}"
        for name, expected in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != expected["size"] or sha256_file(path) != expected["sha256"]:
                return f"{name} is not what was written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _checkpoints(root: Path) -> list[tuple[int, Path]]:
    """(step, folder) in order of steps; temporary and foreign names are not seen."""
    if not root.is_dir():
        return []
    matches = [(path, _FOLDER.fullmatch(path.name)) for path in root.iterdir()]
    return sorted((int(match[1]), path) for path, match in matches if match)


def _prune(root: Path, keep: int) -> None:
    """Remove checkpoints beyond the newest ``keep``, and what killed processes left half-written."""
    for _, folder in _checkpoints(root)[:-keep]:
        # manifest first: a removal cut short leaves a folder that no reader takes for a checkpoint
        with contextlib.suppress(FileNotFoundError):
            (folder / "manifest.json").unlink()
        shutil.rmtree(folder)
    for leftover in root.glob(".step-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


class MetricsLog:
    """metrics.jsonl: one JSON object a line, {"step", "time" (unix seconds), "metrics": {name: value}}.

    A checkpoint remembers what :meth:`sync` returns; a resumed run cuts the file there, so that it reads as if never
    stopped.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open ``path``, keeping its first ``size`` bytes (fewer, up to a line's end, if it has become shorter)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by close()
        self._file.seek(0)
        kept = self._file.read(size)
        self._file.truncate(kept.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one line and hand it to the operating system at once, so that a supervisor can read it."""
        line = json.dumps({"step": step, "time": time.time(), "metrics": dict(metrics)}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def sync(self) -> int:
        """Make all lines durable; the file's size in bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Progress:
    """A bar on a terminal, else one plain line a report; silent where ``shown`` is false. Writes to stderr."""

    def __init__(self, total: int, start: int, shown: bool) -> None:
        self._total = total
        self._shown = shown
        on_terminal = shown and sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=start, unit="update", dynamic_ncols=True) if on_terminal else None

    def advance(self) -> None:
        """One update more."""
        if self._bar is not None:
            self._bar.update()

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the newest metrics."""
        text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        elif self._shown:
            print(f"step {step}/{self._total}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it is and free the line."""
        if self._bar is not None:
            self._bar.close()
