"""Markdown tables, read back."""

from __future__ import annotations

import re


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a text, as rows of cells."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in b.splitlines()] for b in blocks]
