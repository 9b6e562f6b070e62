"""Settings of text: how documents are read, cut into pieces and kept as ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.base.settings import derived
from gptcore.families import DEFAULT, FAMILIES


@dataclass(frozen=True)
class CorpusConfig:
    """How raw documents are read and cleaned."""

    text_field: str = "text"
    """Field of .jsonl rows, column of .parquet files, that holds the text."""
    strip_gutenberg: bool = True
    """Cut Project Gutenberg headers and licences from documents that carry them."""
    min_characters: int = 200
    """Documents with fewer characters (after stripping) are dropped and counted."""
    drop_duplicates: bool = True
    """Keep only the first document, in sorted order of the sources, of those with equal content."""
    near_duplicates: float = 0.8
    """A document that has at least this share of its runs of some ten words in common with an earlier one (estimated;
    of all runs of either) is dropped like an equal one; 1: equal ones alone."""
    validation_fraction: float = 0.05
    """Expected share of documents held out; which ones follows from each document's own hash."""
    encoding: str | None = None
    """What `.txt` and `.jsonl` files that are no UTF-8 are in, as Python calls it ("cp1252"); None: such a file is an
    error, with what it seems to be in. Bytes that are damaged amid UTF-8 are no other encoding: ``strict`` is for
    these."""
    decontaminate: str | None = None
    """Leave out documents that hold rows of dev and test sets: the address of a folder of datasets or of a task's file,
    or several with commas between; None: none is left out."""
    weights: Mapping[str, float] | None = None
    """How often the training documents of a folder, file or glob below the corpus' root are read, on average, where
    that is not once: ``{"wiki" = 2.0, "forum" = 0.5}``; the first that a file matches counts. A whole number
    repeats each of its documents; the fraction beside it is the share that is read once more, drawn by the documents'
    hashes. None: each document is read once."""
    strict: bool = False
    """Undecodable bytes: an error that names file and byte offset, instead of replaced and counted."""
    raw: bool = derived(False)
    """For a family whose tokenizer takes any text as it is: no ftfy, no spaCy, no lower case. Line ends are unified and
    licences cut as ever."""

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """Without the address of datasets, whose content is an input of the stage, and weights, which are of shards."""
        return {name: value for name, value in values.items() if name not in ("decontaminate", "weights")}


@dataclass(frozen=True)
class TokenizerConfig:
    """GPT-1's byte pair encoding, over words that end in </w>, GPT-2's, over the bytes of any text, BERT's WordPiece or
    ALBERT's SentencePiece."""

    n_merges: int = 40_000
    """Learnt merges; for WordPiece and SentencePiece, learnt pieces besides the special ones and single characters."""
    family: str = derived(DEFAULT)
    """Whose kind of tokenizer it is."""

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """The kind of tokenizer, not the family: two families that share a kind share their tokenizers."""
        family = FAMILIES[values.pop("family")]
        kind = {"kind": family.tokenizer} if family.tokenizer_recorded is None else family.tokenizer_recorded
        return {**values, **kind}


@dataclass(frozen=True)
class ShardConfig:
    """Arrow IPC files of token ids."""

    max_tokens: int = 16_000_000
    """Upper bound of one file, in tokens (32 MB of uint16)."""
    sentences: bool = derived(False)
    """For a family that is pre-trained on sentences: the separator stands behind each of them."""
    weights: Mapping[str, float] | None = derived(None)
    """Those of the corpus' files."""

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """The weights in pairs, as the first that a file matches counts."""
        return values | ({"weights": [*map(list, self.weights.items())]} if self.weights else {})
