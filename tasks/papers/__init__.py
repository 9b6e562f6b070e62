"""The stages and reports of single papers: a room a system, as in :mod:`gptcore.papers`."""
