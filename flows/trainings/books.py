"""Books to a tokenizer and encoded shards: what every pre-training from raw text begins with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gptcore.config import Preset, ShardConfig
from gptcore.families import Family
from gptcore.text.sources import RawCorpus
from tasks.stages.corpus import clean_corpus, encode_shards, generate_world
from tasks.stages.ngrams import measure_ngrams
from tasks.stages.partitions import clean_partitions, encode_partitions, is_one_split
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import train_tokenizer
from tasks.store.artifact import Artifact
from tasks.store.store import Store


@dataclass(frozen=True)
class Books:
    """Cleaned books and their tokenizer, by which they are encoded once the shards are asked for."""

    store: Store
    corpus: Artifact
    tokenizer: Artifact
    config: ShardConfig
    dask: str = ""
    by_partition: bool = False
    """Whether each file of the corpus is an artifact of its own."""

    @cached_property
    def shards(self) -> Artifact:
        """The books, encoded."""
        encode = encode_partitions if self.by_partition else encode_shards
        return encode(self.store, self.corpus, self.tokenizer, self.config, self.dask)

    @cached_property
    def ngrams(self) -> Artifact:
        """N-gram perplexities of the shards."""
        return measure_ngrams(self.store, self.shards, self.dask)

    def pretraining(self, preset: Preset, nproc: int) -> PretrainRequest:
        """The pre-training of a preset's network on them."""
        return PretrainRequest(self.store, self.shards, preset.model, preset.pretrain, ngrams=self.ngrams, nproc=nproc)


def books_to_shards(
    store: Store,
    raw: RawCorpus,
    preset: Preset,
    dask: str = "",
    tokenizer: Artifact | None = None,
    by_partition: bool = True,
) -> Books:
    """Clean books and learn a tokenizer from them, unless one is given; what the store holds is not made again.

    With a tokenizer that is given, books are cleaned and encoded one by one, so that a new one is all that is read;
    one or two, of which nothing would be held out, are cleaned as a whole.

    :param by_partition: whether books are cleaned one by one at all.
    :raises InputError: broken books, or nothing left of them.
    """
    if tokenizer and by_partition:
        corpus = clean_partitions(store, raw, preset.corpus, dask)
        if not is_one_split(store, corpus):
            return Books(store, corpus, tokenizer, preset.shards, dask, by_partition=True)
    corpus = clean_corpus(store, raw, preset.corpus, dask)
    return Books(
        store, corpus, tokenizer or train_tokenizer(store, corpus, preset.tokenizer, dask), preset.shards, dask
    )


def books_and_datasets(store: Store, corpus_url: str, datasets_url: str, family: Family) -> tuple[str, str]:
    """The two addresses; the generated world's in place of an empty one, of its texts the one about its graph's
    entities for a family that has them beside words."""
    if not corpus_url or not datasets_url:
        world = store.local(generate_world(store))
        corpus_url = corpus_url or str(world / ("chronicle" if family.knowledge else "books"))
        datasets_url = datasets_url or str(world / "datasets")
    return corpus_url, datasets_url
