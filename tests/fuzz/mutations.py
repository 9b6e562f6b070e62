"""Files gone wrong: flipped bytes, cut and doubled lines, swapped fields, values of other types, numbers too big."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

_NESTED = b'{"a":' * 3000
ODD_BYTES = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\\ud800", "\u2028".encode(), b"\x85"),
    *(b"1e999", b"-1", b"0", b"9" * 400, b"9" * 5000, b"NaN", b"-Infinity", b"null", b"true", b"1.5"),
    *(b"[" * 3000, _NESTED, b'"', b"'", b"\t", b"\r", b"\n", b"\r\n", b",", b"../../x", b" ", b"#", b"="),
)


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 10**6, 2**31, 2**63, 10**30, 1.5, -0.5, 1e308, "", "x", "0", "1e9", "nan"),
    *([], {}, [None], {"a": None}, [[1, 2], [3]], ["x"] * 5, _deep(400), "\ud800", "../../x", "/dev/null", "a\nb"),
)
KINDS = (
    *("flip", "cut", "drop line", "repeat line", "swap lines", "swap fields", "insert", "insert", "number", "empty"),
    *("json", "json", "json", "json"),
)
_EDIT = st.tuples(st.sampled_from(KINDS), *(st.integers(0, 2**20) for _ in range(3)))
damages = st.lists(_EDIT, min_size=1, max_size=3) | st.binary(max_size=200)
"""What happens to a file: edits one after the other, or bytes of somebody else's in its place."""
Damage = list[tuple[str, int, int, int]] | bytes


def damaged(data: bytes, damage: Damage) -> bytes:
    """``data`` after the damage."""
    if isinstance(damage, bytes):
        return damage
    for kind, a, b, c in damage:
        data = _edited(data, kind, a, b, c)
    return data


def _edited(data: bytes, kind: str, a: int, b: int, c: int) -> bytes:
    where = a % (len(data) + 1)
    lines = data.splitlines(keepends=True) or [b""]
    line, other = a % len(lines), b % len(lines)
    match kind:
        case "flip":
            return data[:where] + bytes([b % 256]) + data[where + 1 :]
        case "cut":
            return data[:where]
        case "drop line":
            del lines[line]
        case "repeat line":
            lines.insert(line, lines[other])
        case "swap lines":
            lines[line], lines[other] = lines[other], lines[line]
        case "swap fields":
            cells = re.split(rb"([\t,: ])", lines[line])
            i, j = b % len(cells), c % len(cells)
            cells[i], cells[j] = cells[j], cells[i]
            lines[line] = b"".join(cells)
        case "insert":
            return data[:where] + ODD_BYTES[b % len(ODD_BYTES)] + data[where:]
        case "number":
            found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
            if found:
                match = found[a % len(found)]
                return data[: match.start()] + ODD_BYTES[b % len(ODD_BYTES)] + data[match.end() :]
        case "empty":
            return b""
        case "json":
            return _with_odd_value(data, lines, line, b, c)
    return b"".join(lines)


def _with_odd_value(data: bytes, lines: list[bytes], line: int, b: int, c: int) -> bytes:
    """A value of the JSON in the file, or in one of its lines, replaced, or its name."""
    parts = [(b"", data, b""), (b"".join(lines[:line]), lines[line], b"".join(lines[line + 1 :]))]
    for before, text, after in parts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        places = list(_places({"": value}))
        holder, key = places[b % len(places)]
        odd = ODD_VALUES[c % (len(ODD_VALUES) + 2)] if c % (len(ODD_VALUES) + 2) < len(ODD_VALUES) else ...
        if odd is not ...:
            holder[key] = odd
        elif isinstance(holder, dict) and holder is not places[0][0]:
            holder[f"{key}x"] = holder.pop(key)
        top = places[0][0][""]
        return before + json.dumps(top).encode() + (b"\n" if text.endswith(b"\n") else b"") + after
    return data


def _places(value: Any) -> Any:
    """(holder, key) of every value inside, the outermost first."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in list(items):
            yield holder, key
            if isinstance(inner, dict | list):
                waiting.append(inner)
