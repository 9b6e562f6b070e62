"""A TOML file that a person wrote, field by field: each is looked at, and what is wrong is told by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptcore.base.errors import InputError, near, nearest, require
from gptcore.nlu.examples import show
from gptcore.nlu.forms import label_text


class TomlFields:
    """What a file says, field by field; whatever nobody asked for is an error.

    :param url: of the file, for messages.
    :param values: what it holds.
    """

    def __init__(self, url: str, values: Mapping[str, Any]) -> None:
        self.url, self._values = url, values
        self._read: set[str] = set()

    def error(self, field: str, found: Any, expected: str) -> InputError:
        return InputError(f"{self.url}: {field} = {show(found)}, expected {expected}")

    def require(self, condition: object, field: str, found: Any, expected: str) -> None:
        """:raises InputError: the condition does not hold; the message is that of :meth:`error`."""
        if not condition:
            raise self.error(field, found, expected)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def _value(self, field: str, kind: type | tuple[type, ...], expected: str, default: Any = None) -> Any:
        self._read.add(field)
        if field not in self._values:
            if default is None:
                other = near(field, self._values)
                raise InputError(f"{self.url}: found no {field}{f' but {other}' if other else ''}, expected {expected}")
            return default
        value = self._values[field]
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        self.require(fits, field, value, expected)
        return value

    def text(self, field: str, default: str | None = None) -> str:
        value: str = self._value(field, str, "text in quotes", default)
        self.require(value.strip() or default is not None, field, value, "text that is not empty")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of different texts; empty where the field is left out."""
        value = self._value(field, list, "a list of texts", [])
        fits = all(isinstance(item, str) and item for item in value) and len(set(value)) == len(value)
        self.require(fits, field, value, "a list of texts, each once")
        return tuple(value)

    def labels(self, field: str) -> tuple[str, ...]:
        """A list of different labels: texts, numbers or truth values; empty where the field is left out."""
        value = self._value(field, list, "a list of labels", [])
        spelled = [label_text(item) for item in value]
        fits = all(isinstance(item, str) for item in spelled) and len(set(spelled)) == len(spelled)
        self.require(fits, field, value, "a list of labels, each once, in whichever spelling")
        return tuple(item if isinstance(item, str) else text for item, text in zip(value, spelled, strict=True))

    def flag(self, field: str) -> bool:
        return bool(self._value(field, bool, "true or false", False))

    def whole(self, field: str, default: int | None, least: int, most: int | None = None) -> int:
        expected = f"a whole number from {least}" + (f" to {most}" if most is not None else "")
        value: int = self._value(field, int, expected, default)
        self.require(value >= least and (most is None or value <= most), field, value, expected)
        return value

    def one_of(self, field: str, names: tuple[str, ...]) -> Any:
        value = self._value(field, str, f"one of {', '.join(names)}")
        require(value in names, f"{self.url}: {field} = {show(value)}, {nearest(value, names)}")
        return value

    def table(self, field: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._value(field, dict, f"a table [{field}]", {})
        return value

    def raw(self, field: str) -> Any:
        """The value as it is; None where the field is left out."""
        self._read.add(field)
        return self._values.get(field)

    def check_all_read(self) -> None:
        """:raises InputError: a field that nothing reads, with the nearest one that is read."""
        for field in self._values:
            require(field in self._read, f"{self.url}: {field}: no such field; {nearest(field, sorted(self._read))}")
