"""From raw books to a pre-trained model and encoded tasks: the part that the pipeline and every analysis begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows import signals
from flows.away import pretrained
from flows.failures import Failures, leave_out, raise_if_all
from flows.forms import list_checkpoints
from flows.inputs import chosen_tasks
from flows.parameters import PipelineParameters
from gptcore.config import Preset, preset_named
from gptcore.errors import InputError
from gptcore.text.corpus import find_sources
from tasks.stages.baseline import score_baselines
from tasks.stages.corpus import clean_corpus
from tasks.stages.dataset import encode_dataset
from tasks.stages.ngrams import measure_ngrams
from tasks.stages.shards import encode_shards
from tasks.stages.storyworld import generate_world
from tasks.stages.tokenizer import train_tokenizer
from tasks.store.artifact import Artifact
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
    left_out: Failures
    """Tasks whose data is broken."""

    @property
    def stages(self) -> list[Artifact]:
        """Every artifact, in the order in which they were made."""
        return [self.corpus, self.tokenizer, *self.datasets.values(), self.shards, self.ngrams, self.checkpoint]

    def pretrain_lstm(self, nproc: int) -> Artifact:
        """The LSTM of Table 5 on the same windows with the same settings."""
        preset, store = self.preset, self.store
        checkpoint = pretrained(
            store_url=store.url,
            shards=self.shards,
            model=preset.lstm,
            config=preset.pretrain,
            ngrams=self.ngrams,
            nproc=nproc,
        )
        list_checkpoints(store.url)
        return checkpoint


def run_chain(parameters: PipelineParameters, tasks: Sequence[str] = (), whole: bool = True) -> Chain:
    """Clean -> BPE -> shards -> pre-train, and the tasks' rows encoded; what the store holds is not made again.

    The baselines come first: fitting them reads every row, so a broken one costs seconds, not days of training.

    :param tasks: only these; empty: the form's, or every one whose data is there.
    :param whole: stop at the first task whose data is broken; else such a task is left out, and said.
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
    find_sources(corpus_url)  # both inputs answer before anything is computed
    names = chosen_tasks(tasks or parameters.tasks, datasets_url)
    left_out: Failures = {}
    for name in names:
        try:
            score_baselines(store.url, datasets_url, name)
        except InputError as error:
            if whole:
                raise
            leave_out(left_out, name, error)
    raise_if_all(left_out, names)

    corpus = clean_corpus(store.url, corpus_url, preset.corpus, parameters.dask)
    tokenizer = train_tokenizer(store.url, corpus, preset.tokenizer)
    datasets = {
        name: encode_dataset(store.url, datasets_url, name, tokenizer) for name in names if name not in left_out
    }
    shards = encode_shards(store.url, corpus, tokenizer, preset.shards)
    ngrams = measure_ngrams(store.url, shards)
    checkpoint = pretrained(
        store_url=store.url,
        shards=shards,
        model=preset.model,
        config=preset.pretrain,
        ngrams=ngrams,
        nproc=parameters.nproc,
    )
    list_checkpoints(store.url)
    return Chain(store, preset, datasets_url, corpus, tokenizer, datasets, shards, ngrams, checkpoint, left_out)
