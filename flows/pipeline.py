"""The whole chain: books in, a leaderboard of twelve tasks out."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.chain import run_chain
from flows.fanout import score_tasks
from flows.finetune import arms_of, seeds_of, settings_of
from flows.parameters import PipelineParameters
from tasks.report.card import chain_card
from tasks.report.leaderboard import Leaderboard


@flow(name="pipeline", persist_result=False)
def pipeline(parameters: PipelineParameters) -> Leaderboard:
    """Clean -> BPE -> shards -> pre-train -> fine-tune every task -> leaderboard; nothing is computed twice."""
    chain = run_chain(parameters)
    board = score_tasks(
        chain.store.url,
        chain.datasets_url,
        chain.datasets,
        arms_of(chain.preset, chain.checkpoint),
        settings_of(chain.preset),
        seeds_of(chain.preset, parameters.seeds),
        parameters.jobs,
    )
    card = chain_card(chain.store, chain.stages, board)
    create_markdown_artifact(card, key="pipeline-card", description="The whole chain")
    return board
