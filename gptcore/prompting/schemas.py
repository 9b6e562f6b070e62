"""Winograd schemas as items: two readings of a text, and the rest of it, which the right one makes likelier.

The "partial" scoring of Trinh and Le (2018), which GPT-2's paper uses (its section 3.4): the probability of what stands
behind the pronoun, given the text with either referent in the pronoun's place.
"""

from __future__ import annotations

from collections.abc import Iterable

from gptcore.nlu.winograd import Pronoun, read_dprd, read_wsc273
from gptcore.prompting.items import Rows, WinogradSchema


def dprd(datasets_url: str) -> Rows:
    """The definite pronoun resolution set: test rows, train rows as examples.

    :raises InputError: a missing file or a broken row.
    """
    return Rows(_items(read_dprd(datasets_url, "test")), _items(read_dprd(datasets_url, "train")), "the train split")


def wsc273(datasets_url: str) -> Rows:
    """The Winograd Schema Challenge, where a schema's twin, which stands beside it, is no example for it.

    :raises InputError: a missing file or a broken row.
    """
    return Rows(_items(read_wsc273(datasets_url)), excluded_neighbours=1)


def _items(schemas: Iterable[Pronoun]) -> list[WinogradSchema]:
    return [WinogradSchema((schema.resolved(0), schema.resolved(1)), schema.after, schema.label) for schema in schemas]
