"""Values that are found by their names, and to which other packages add by entry points; and the parts that they name.

A part is named as entry points are, ``package.module:attribute``, and imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name as named_part
from typing import Protocol, TypeVar

__all__ = ["Named", "named_part"]


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


Value = TypeVar("Value", bound=_HasName)


class Named(Mapping[str, Value]):
    """Name -> value: our own in their order, then those of other packages, which are looked for when they are needed.

    :param group: of the entry points that lead to the others.
    :param read: gives our own; asked once.
    """

    def __init__(self, group: str, read: Callable[[], Iterable[Value]]) -> None:
        self._group, self._read = group, read

    @cached_property
    def _ours(self) -> dict[str, Value]:
        return {value.name: value for value in self._read()}

    @cached_property
    def _theirs(self) -> dict[str, Value]:
        loaded = [point.load() for point in entry_points(group=self._group)]
        return {value.name: value for value in loaded if value.name not in self._ours}

    def __getitem__(self, name: str) -> Value:
        return self._ours[name] if name in self._ours else self._theirs[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._theirs

    def __len__(self) -> int:
        return len(self._ours) + len(self._theirs)
