"""The whole chain: books in, a leaderboard of twelve tasks out."""

from __future__ import annotations

from prefect import flow

from flows.fanout import finetune_suites, resolve_datasets, task_runner
from flows.parameters import PipelineParameters
from gptcore.config import preset_named
from gptcore.errors import InputError
from gptcore.nlu import available
from gptcore.text.corpus import find_sources
from tasks.corpus import clean_corpus
from tasks.dataset import encode_dataset
from tasks.leaderboard import Leaderboard
from tasks.ngrams import measure_ngrams
from tasks.pretrain import pretrain_model
from tasks.shards import encode_shards
from tasks.store import Store
from tasks.storyworld import generate_world
from tasks.tokenizer import train_tokenizer


@flow(name="pipeline", persist_result=False)
def pipeline(parameters: PipelineParameters) -> Leaderboard:
    """Clean -> BPE -> shards -> pre-train -> fine-tune every task -> leaderboard; nothing is computed twice.

    Every dataset is read, checked and encoded before pre-training starts, so that a broken row costs seconds, not days.
    """
    preset = preset_named(parameters.preset, parameters.overrides)
    store = Store(parameters.store)
    corpus_url, datasets_url = parameters.corpus, parameters.datasets
    if not corpus_url or not datasets_url:
        world = store.local(generate_world(store.url, WORLD_SEED))
        corpus_url = corpus_url or str(world / "books")
        datasets_url = datasets_url or str(world / "datasets")
    find_sources(corpus_url)  # both inputs answer before anything is computed
    names = chosen_tasks(parameters.tasks, datasets_url)

    corpus = clean_corpus(store.url, corpus_url, preset.corpus, parameters.dask)
    tokenizer = train_tokenizer(store.url, corpus, preset.tokenizer)
    datasets = {name: encode_dataset(store.url, datasets_url, name, tokenizer) for name in names}
    shards = encode_shards(store.url, corpus, tokenizer, preset.shards)
    ngrams = measure_ngrams(store.url, shards)
    checkpoint = pretrain_model(store.url, shards, preset.model, preset.pretrain, ngrams, parameters.nproc)
    runner = finetune_suites.with_options(task_runner=task_runner(parameters.jobs))
    return runner(store.url, datasets_url, datasets, checkpoint, preset, list(range(parameters.seeds)))


def chosen_tasks(wanted: list[str], datasets_url: str) -> list[str]:
    """The tasks to run: those asked for, else every one whose folder is there.

    :raises InputError: none is there, or one that was asked for is not.
    """
    there = available(datasets_url)
    if missing := [name for name in wanted if name not in there]:
        raise InputError(f"{datasets_url}: no data for {', '.join(missing)}; found {', '.join(there) or 'no dataset'}")
    if not there:
        raise InputError(f"{datasets_url}: no dataset found; expected sub-folders such as MNLI, SST-2, RACE")
    return wanted or there
