"""The settings of a drawn text, checked without torch, so that a wrong one is said at once."""

from __future__ import annotations

import math

from gptcore.base.errors import InputError


def check_sampling(
    max_tokens: int, temperature: float, top_k: int, top_p: float, repetition_penalty: float = 1.0
) -> None:
    """Refuse what :func:`gptcore.evaluation.generate.generate` cannot draw with.

    :raises InputError: naming the setting, its value and what was expected.
    """
    checks = (
        ("max_tokens", max_tokens, max_tokens >= 1, "1 or more"),
        ("temperature", temperature, 0 <= temperature < math.inf, "0 or more"),
        ("top_k", top_k, top_k >= 0, "0 or more"),
        ("repetition_penalty", repetition_penalty, 1 <= repetition_penalty < math.inf, "1 or more"),
        ("top_p", top_p, 0 < top_p <= 1, "more than 0, at most 1"),
    )
    for name, value, fits, expected in checks:
        if not fits:
            raise InputError(f"{name}: found {value}, expected {expected}")
