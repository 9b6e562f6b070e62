"""Where this machine keeps what belongs to no store: the tracking database, copies and workspaces of remote stores."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """The state folder, absolute: `GPTMILL_HOME`, by default `.gptmill` in the current folder. Not created here."""
    return Path(os.environ.get("GPTMILL_HOME") or ".gptmill").expanduser().absolute()
