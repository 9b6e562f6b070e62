"""The tables that choose: presets, registry entries, prompts, published numbers, deployments. None changes unnoticed.

`tests/tables.json` has them as they were looked at against their papers, a value a line. What is changed on purpose is
written again with

    python -m tests.test_tables

and its difference is read line by line.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("tables.json")
FORMS = (
    "flows.papers.abstracts.forms",
    "flows.papers.graphs.forms",
    "flows.papers.prompting.forms",
    "flows.papers.students.forms",
    "flows.papers.sweep.forms",
    "flows.forms.parameters",
)
"""Modules whose forms' defaults are looked at; of the others that the file names, the constants."""


def plain(value: Any) -> Any:
    """A value as JSON: what it says, not where it is kept."""
    if isinstance(value, type):
        return value.__name__
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str | int | float | bool | None):
        return value
    return getattr(value, "__qualname__", None) or getattr(value, "name", None) or type(value).__name__


def tables() -> dict[str, Any]:
    """Module -> its constants; presets of every family; every form's defaults; what each stage's version is."""
    from pydantic import BaseModel

    from gptcore.config import PRESETS, preset_named
    from gptcore.families import FAMILIES, offered

    found: dict[str, Any] = {}
    for name in json.loads(FILE.read_text(encoding="utf-8")):
        if "." not in name or name in FORMS:
            continue
        constants = dict(vars(import_module(name)))
        names = [k for k in constants if k.strip("_").isupper() and not k.startswith("__") and k != "FAMILIES"]
        found[name] = {k: plain(constants[k]) for k in names}
    pairs = [(p, f) for p in PRESETS for f in offered() if p != "best" or FAMILIES[f].generates]
    found["presets"] = {
        f"{preset} {family}": plain(preset_named(preset, {"family": family})) for preset, family in pairs
    }
    found["families"] = {name: plain(FAMILIES[name]) for name in sorted(FAMILIES)}
    for name in FORMS:
        forms = {k: v for k, v in vars(import_module(name)).items() if isinstance(v, type) and issubclass(v, BaseModel)}
        found[name] = {
            k: {field: plain(info.default) for field, info in form.model_fields.items()}
            for k, form in sorted(forms.items())
            if form is not BaseModel
        }
    return found


def leaves(value: Any, where: str = "") -> dict[str, Any]:
    """Path -> value, for a message that names what differs."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {k: v for name, part in parts for k, v in leaves(part, f"{where} / {name}").items()}
    return found or {where: value}


def test_no_table_that_chooses_has_changed() -> None:
    ours, theirs = leaves(json.loads(json.dumps(tables()))), leaves(json.loads(FILE.read_text(encoding="utf-8")))
    changed = {k: (theirs.get(k), ours.get(k)) for k in ours.keys() | theirs.keys() if theirs.get(k) != ours.get(k)}
    assert not changed, "as looked at, and as it is now"


if __name__ == "__main__":
    FILE.write_text(json.dumps(tables(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
