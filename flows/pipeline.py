"""The whole chain: books in, a leaderboard of twelve tasks out."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.fanout import score_tasks
from flows.finetune import arms_of, chosen_tasks, settings_of
from flows.parameters import PipelineParameters
from gptcore.config import preset_named
from gptcore.text.corpus import find_sources
from tasks.baseline import score_baselines
from tasks.card import chain_card
from tasks.corpus import clean_corpus
from tasks.dataset import encode_dataset
from tasks.leaderboard import Leaderboard
from tasks.ngrams import measure_ngrams
from tasks.pretrain import pretrain_model
from tasks.shards import encode_shards
from tasks.store import Store
from tasks.storyworld import generate_world
from tasks.tokenizer import train_tokenizer

WORLD_SEED = 42


@flow(name="pipeline", persist_result=False)
def pipeline(parameters: PipelineParameters) -> Leaderboard:
    """Clean -> BPE -> shards -> pre-train -> fine-tune every task -> leaderboard; nothing is computed twice.

    The baselines come first: fitting them reads every row, so a broken one costs seconds, not days of training.
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
    for name in names:
        score_baselines(store.url, datasets_url, name)

    corpus = clean_corpus(store.url, corpus_url, preset.corpus, parameters.dask)
    tokenizer = train_tokenizer(store.url, corpus, preset.tokenizer)
    datasets = {name: encode_dataset(store.url, datasets_url, name, tokenizer) for name in names}
    shards = encode_shards(store.url, corpus, tokenizer, preset.shards)
    ngrams = measure_ngrams(store.url, shards)
    checkpoint = pretrain_model(store.url, shards, preset.model, preset.pretrain, ngrams, parameters.nproc)
    arms, seeds, jobs = arms_of(preset, checkpoint), parameters.seeds, parameters.jobs
    board = score_tasks(store.url, datasets_url, datasets, arms, settings_of(preset), seeds, jobs)
    stages = [corpus, tokenizer, *datasets.values(), shards, ngrams, checkpoint]
    create_markdown_artifact(chain_card(store, stages, board), key="pipeline-card", description="The whole chain")
    return board
