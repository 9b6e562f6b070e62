"""Plugins: packages that add commands, forms, deployments, analyses and trainings to a core that names none of them.

Each room of `flows/papers` is one; one of another package is an entry point of the group ``gptmill.plugins`` that leads
to that package. What a plugin adds stands in tables in its folder, so that listing it imports nothing:

    plugin.toml
      [commands.NAME]      a command, as `flows/cli/commands.toml` has them
      [options]            COMMAND = [...]: further options of a command that is there
      [deployments.NAME]   flow, and where they are not as `flows/deployments/catalog.py` has them pool, text, group;
                           scheduled: its form, where an owner's settings may schedule it
      [analyses.NAME]      fields of `flows.analyses.Offered`
      [trainings]          STAGE = "module:class", a kind of training that a worker may be sent
      [models]             STAGE = "words": what a model of this stage is to people
      [parts]              NAME = "module:function": what the core asks for by its name, as :func:`part` has it
      [former]             MODULE = "module": where a flow is now that deployments of former versions name
    fields.toml            the fields of its forms, as `flows/forms/fields.toml` has them

``after`` in a table of a command, a deployment or an analysis is the name of the one that it stands behind in lists.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError

ENTRY_POINTS = "gptmill.plugins"


def added(section: str) -> dict[str, Any]:
    """Name -> what the plugins' files have under it in one of their sections.

    Of equal names the first one counts, but lists are joined: several plugins may add options to one command.
    """
    values: dict[str, Any] = {}
    for folder in _folders():
        for name, value in _read(folder / "plugin.toml").get(section, {}).items():
            if isinstance(value, list):
                values[name] = [*values.get(name, ()), *value]
            else:
                values.setdefault(name, value)
    return values


def added_fields() -> dict[str, Any]:
    """Name -> what the plugins' files say of a field of a form."""
    fields: dict[str, Any] = {}
    for folder in _folders():
        fields = {**_read(folder / "fields.toml"), **fields}
    return fields


def part(name: str) -> Any:
    """What a plugin hands over under a name that the core knows.

    :raises InputError: no plugin that is installed has it.
    """
    if (path := added("parts").get(name)) is None:
        raise InputError(f"{name}: found no plugin that has it; expected the one that it comes with to be installed")
    return named(path)


def named(path: str) -> Any:
    """What a table names as "module:attribute", imported now."""
    from pkgutil import resolve_name  # not for `--help`

    return resolve_name(path)


def ordered(ours: Iterable[str], theirs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of ours and of theirs, each of theirs behind the one that its table says; at the end where that is missing.

    :param theirs: name -> table, which may have ``after``.
    """
    names = list(ours)
    left = {name: table.get("after", "") for name, table in theirs.items() if name not in names}
    while left:
        ready = (name for name, after in left.items() if after in names)
        free = (name for name, after in left.items() if not after)
        name = next(ready, next(free, next(iter(left))))
        after = left.pop(name)
        names.insert(names.index(after) + 1 if after in names else len(names), name)
    return names


@cache
def _folders() -> tuple[Path, ...]:
    """The folders of all plugins: ours by their names, then those of other packages."""
    ours = sorted(path.parent for path in Path(__file__).with_name("papers").glob("*/plugin.toml"))
    return (*ours, *_folders_of_others())


def _folders_of_others() -> Iterator[Path]:
    """The folders of the packages that entry points lead to.

    Reading every installed package's entry points takes as long as all the rest of `gptmill --help`. So that is done
    only where the text of one of their files has the group's name.
    """
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(f"[{ENTRY_POINTS}]" in file.read_text(encoding="utf-8", errors="replace") for file in files):
        return
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    for point in entry_points(group=ENTRY_POINTS):
        if (spec := find_spec(point.value)) is not None:
            yield from map(Path, spec.submodule_search_locations or ())


@cache
def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
