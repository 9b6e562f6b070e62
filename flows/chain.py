"""From raw books to a pre-trained model and encoded tasks: the part that the pipeline and every analysis begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows import signals
from flows.forms import list_checkpoints
from flows.inputs import chosen_tasks
from flows.parameters import PipelineParameters
from flows.references import pretrained_model
from gptcore.config import Preset, preset_named
from gptcore.text.corpus import find_sources
from tasks.stages.baseline import score_baselines
from tasks.stages.corpus import clean_corpus
from tasks.stages.dataset import encode_dataset
from tasks.stages.ngrams import measure_ngrams
from tasks.stages.partitions import clean_partitions, encode_partitions
from tasks.stages.pretrain import pretrain_model
from tasks.stages.shards import encode_shards
from tasks.stages.storyworld import generate_world
from tasks.stages.tokenizer import pin_tokenizer, train_tokenizer
from tasks.store.artifact import Artifact
from tasks.store.references import check_start
from tasks.store.store import Store

WORLD_SEED = 42


@dataclass(frozen=True)
class Chain:
    """The artifacts that fine-tunes and analyses hang on."""

    store: Store
    preset: Preset
    datasets_url: str
    corpus: Artifact
    tokenizer: Artifact
    datasets: dict[str, Artifact]
    """Task -> its encoded rows."""
    shards: Artifact
    ngrams: Artifact
    checkpoint: Artifact

    @property
    def stages(self) -> list[Artifact]:
        """Every artifact, in the order in which they were made."""
        return [self.corpus, self.tokenizer, *self.datasets.values(), self.shards, self.ngrams, self.checkpoint]

    def pretrain_lstm(self, parameters: PipelineParameters) -> Artifact:
        """The LSTM of Table 5 on the same windows with the same settings."""
        preset, store, processes = self.preset, self.store, _processes(parameters)
        checkpoint: Artifact = pretrain_model(
            store.url, self.shards, preset.lstm, preset.pretrain, self.ngrams, **processes
        )
        list_checkpoints(store.url)
        return checkpoint


def run_chain(parameters: PipelineParameters, tasks: Sequence[str] = ()) -> Chain:
    """Clean -> BPE -> shards -> pre-train, and the tasks' rows encoded; what the store holds is not made again.

    With a tokenizer that is given, books are cleaned and encoded one by one, so that a new one is all that is read.
    The baselines come first: fitting them reads every row, so a broken one costs seconds, not days of training.

    :param tasks: only these; empty: the form's, or every one whose data is there.
    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    preset = preset_named(parameters.preset, parameters.overrides)
    store = Store(parameters.store)
    corpus_url, datasets_url = parameters.corpus, parameters.datasets
    if not corpus_url or not datasets_url:
        world = store.local(generate_world(store.url, WORLD_SEED))
        corpus_url = corpus_url or str(world / "books")
        datasets_url = datasets_url or str(world / "datasets")
    find_sources(corpus_url)  # all inputs answer before anything is computed
    pinned = pin_tokenizer(store.url, parameters.tokenizer) if parameters.tokenizer else None
    start = pretrained_model(store, parameters.start) if parameters.start else None
    if start:
        known = store.manifest(pinned)["counts"]["tokenizer_digest"] if pinned else ""
        check_start(store, start, preset.model, known)
    names = chosen_tasks(tasks or parameters.tasks, datasets_url)
    for name in names:
        score_baselines(store.url, datasets_url, name)

    dask = parameters.dask
    if pinned:
        tokenizer, corpus = pinned, clean_partitions(store.url, corpus_url, preset.corpus, dask)
    else:
        corpus = clean_corpus(store.url, corpus_url, preset.corpus, dask)
        tokenizer = train_tokenizer(store.url, corpus, preset.tokenizer, dask)
    datasets = {name: encode_dataset(store.url, datasets_url, name, tokenizer) for name in names}
    encode = encode_partitions if pinned else encode_shards
    shards = encode(store.url, corpus, tokenizer, preset.shards, dask)
    ngrams = measure_ngrams(store.url, shards, dask)
    processes = _processes(parameters)
    checkpoint = pretrain_model(store.url, shards, preset.model, preset.pretrain, ngrams, start=start, **processes)
    list_checkpoints(store.url)
    return Chain(store, preset, datasets_url, corpus, tokenizer, datasets, shards, ngrams, checkpoint)


def _processes(parameters: PipelineParameters) -> dict[str, Any]:
    """What the processes of a pre-training are."""
    return {"nproc": parameters.nproc, "sharded": parameters.shard}
