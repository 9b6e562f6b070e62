"""Tables of what tests expect, as JSON beside them: `expected/NAME.json` of the module `test_NAME.py`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def expected(module: str, table: str) -> Any:
    """A table of a module's file, by the name of the test or constant that it is for.

    :param module: the test module's ``__file__``.
    """
    path = Path(module)
    return _tables(path.with_name("expected") / f"{path.stem.removeprefix('test_')}.json")[table]
