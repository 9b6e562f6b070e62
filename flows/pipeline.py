"""The whole chain: books in, a leaderboard of twelve tasks out."""

from __future__ import annotations

from prefect import flow

from flows.chain import run_chain
from flows.fanout import score_tasks
from flows.finetune import arms_of, seeds_of, settings_of
from flows.names import from_form
from flows.parameters import PipelineParameters
from tasks.report.card import stages_table
from tasks.report.leaderboard import Leaderboard


@flow(name="pipeline", flow_run_name=from_form, persist_result=False)
def pipeline(parameters: PipelineParameters) -> Leaderboard:
    """Clean -> BPE -> shards -> pre-train -> fine-tune every task -> leaderboard; nothing is computed twice."""
    chain = run_chain(parameters, whole=False)
    return score_tasks(
        chain.store.url,
        chain.datasets_url,
        chain.datasets,
        arms_of(chain.preset, chain.checkpoint),
        settings_of(chain.preset),
        seeds_of(chain.preset, parameters.seeds),
        parameters.jobs,
        sections={"Stages": stages_table(chain.store, chain.stages)},
        left_out=chain.left_out,
    )
