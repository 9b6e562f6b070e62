"""The flows of single papers: a room a system, as in :mod:`gptcore.papers`."""
