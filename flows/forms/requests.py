"""What forms resolve to: requests, frozen and typed, in which each name is looked up once, before anything is computed.

A form's `request` is made by `gptmill` before a server starts, or by the flow where a deployment runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gptcore.config import Preset
from gptcore.families import FAMILIES, Family
from gptcore.nlu.own_task import Task
from tasks.store.artifact import Artifact
from tasks.store.store import Store

Given = Artifact | str
"""A tokenizer that a form names: an artifact, or the address of a folder that is imported once the flow runs."""


@dataclass(frozen=True)
class NetworkRequest:
    """A network to pre-train."""

    store: Store
    preset: Preset
    start: Artifact | None
    """The model whose weights its training goes on from."""
    teacher: Artifact | None
    graph: str
    """Folder, or vectors, of the graph of a family that has entities beside words; empty: the generated world's."""
    links: str
    """A file that says what names in single documents mean; empty: none."""
    nproc: int
    sharded: bool
    """How it is trained, as :class:`tasks.stages.pretrain.PretrainRequest` has it."""

    @property
    def family(self) -> Family:
        return FAMILIES[self.preset.family]


@dataclass(frozen=True)
class ShardsRequest(NetworkRequest):
    """A network to pre-train on shards of the store."""

    shards: Artifact


@dataclass(frozen=True)
class BooksRequest(NetworkRequest):
    """A tokenizer, shards and a network to be made from books, and tasks to be encoded for it."""

    corpus: str
    datasets: str
    """Addresses; empty: the generated world's."""
    tasks: tuple[str, ...]
    """Empty: every one whose data is there."""
    tokenizer: Given | None
    """None: that of the model it goes on from, else it is learnt from the books."""
    by_partition: bool
    """Whether the files of the corpus are artifacts of their own: the text is another one than a tokenizer's."""
    dask: str
    ngrams: bool
    """Whether the n-grams of a large text are counted, too."""
    compares: bool
    """Whether networks are compared, without n-grams beside them that nobody asks for."""


@dataclass(frozen=True)
class FineTunesRequest:
    """Tasks to fine-tune a checkpoint on."""

    store: Store
    checkpoint: Artifact
    family: Family
    preset: Preset
    origin: str
    """Why it is that preset, in words."""
    datasets_url: str
    tasks: tuple[Task, ...]
    from_task: str = ""
    """The task that others start from, where the form says one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the form's options say of every task."""
