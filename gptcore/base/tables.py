"""Tables of data that stand in a TOML file beside the module that reads them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_table(module: str, name: str) -> dict[str, Any]:
    """What the TOML file ``name`` beside a module holds, its arrays as tuples.

    :param module: the module's ``__file__``.
    """
    table: dict[str, Any] = as_tuples(tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8")))
    return table


def as_tuples(value: Any) -> Any:
    """A value of TOML or JSON whose lists, at any depth, have become tuples."""
    if isinstance(value, dict):
        return {name: as_tuples(part) for name, part in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
