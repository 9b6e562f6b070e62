"""Keys of Prefect, MLflow and file systems that are made of names which people give: of tasks, families, analyses."""

from __future__ import annotations

import re
from hashlib import sha256

_KEY = r"[^a-z0-9-]"
METRIC = r"[^/\w. :-]|(?<![^/])\.{0,2}(?![^/])"
"""What MLflow's metrics cannot have in their names: other characters, and parts that a path would not keep."""
_LONGEST = 200  # characters: MLflow takes 250, file systems 255 bytes


def key_of(name: str, unfit: str = _KEY) -> str:
    """The name itself where all of it fits; else, that no two names share a key, with its digest: multi-semi-09df201f.

    :param unfit: pattern of what becomes a dash, as no key can have it; unless given, no key of Prefect's.
    """
    plain = re.sub(unfit, "-", name)[:_LONGEST]
    return name if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"
