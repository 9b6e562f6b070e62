"""Where the optional folder of real data is: `GPTMILL_REAL_DATA`, default `../shared/data` beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"


def real_data(*parts: str) -> Path:
    """A path inside the folder of real data; skips the calling test, with the reason, where it is absent."""
    path = Path(os.environ.get("GPTMILL_REAL_DATA", _DEFAULT)).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"real data not here: {path} (set GPTMILL_REAL_DATA)")
    return path
