"""What a training run tells the world while it runs: metrics.jsonl, and a progress bar or plain lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm


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
