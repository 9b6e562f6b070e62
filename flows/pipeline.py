"""The whole chain: books in, a leaderboard of twelve tasks out."""

from __future__ import annotations

from prefect import flow

from flows.finetune import fine_tuned
from flows.forms.parameters import FinetuneAllParameters, PipelineParameters
from flows.forms.run_names import from_form
from flows.servers.temporary_server import is_temporary
from flows.trainings.chain import run_chain
from flows.trainings.grid import arms_of
from flows.trainings.leaderboard import score_tasks
from gptcore.config import network_config
from gptcore.families import Family
from gptcore.nlu.blimp import has_blimp
from tasks.jobs.launch import warm_up
from tasks.report.card import stages_table
from tasks.report.leaderboard import Leaderboard
from tasks.report.table import grid
from tasks.stages.evaluation import check_blimp, score_blimp
from tasks.store.artifact import Artifact
from tasks.store.store import Store

_PAIRS_OF_ENCODERS = 500  # a field: of each sentence every piece takes a pass, an hour for all pairs on two cores


@flow(name="pipeline", flow_run_name=from_form, persist_result=False)
def pipeline(parameters: PipelineParameters) -> Leaderboard:
    """Clean -> BPE -> shards -> pre-train -> fine-tune every task -> leaderboard; nothing is computed twice.

    Where the folder of datasets has BLiMP, the pre-trained model is scored on it before it is fine-tuned; an encoder on
    some of the pairs, and on all of them by the analysis of zero-shot curves.
    """
    request = parameters.request
    blimp = bool(request.datasets) and has_blimp(request.datasets)
    if blimp:
        check_blimp(request.store, request.datasets)
    if is_temporary() and not request.store.list("pretrain"):  # a new store: what follows trains, and here
        warm_up()
    chain = run_chain(parameters, whole=False)
    sections = {"Stages": stages_table(chain.store, chain.stages)}
    if blimp:
        sections = blimp_section(chain.store, chain.checkpoint, request.family, chain.datasets_url) | sections
    arms = arms_of(chain.store, chain.preset, chain.checkpoint, parameters.from_task)
    return score_tasks(chain.grid(arms, parameters.seeds), parameters.jobs, sections, chain.left_out, parameters.rates)


@flow(name="pipeline", flow_run_name=from_form, persist_result=False)
def pipeline_on(parameters: FinetuneAllParameters) -> Leaderboard:
    """The chain of a model that is there: BLiMP where its rows are, fine-tune every task -> leaderboard."""
    request, sections = parameters.request, {}
    network = network_config(request.store.manifest(request.checkpoint)["config"]["model"])
    if request.datasets_url and network.words and has_blimp(request.datasets_url):
        check_blimp(request.store, request.datasets_url)
        sections = blimp_section(request.store, request.checkpoint, request.family, request.datasets_url)
    return fine_tuned(parameters, sections)


def blimp_section(store: Store, checkpoint: Artifact, family: Family, datasets_url: str) -> dict[str, str]:
    """A model's scores on BLiMP, without fine-tuning, as a section of the result's card."""
    most = None if family.generates else _PAIRS_OF_ENCODERS
    scores = score_blimp(store, checkpoint, datasets_url, most)
    drawn = "" if family.generates else f", {scores['pairs']:,} pairs drawn by a seed"
    rows = [("**mean of the fields**", f"**{100 * scores['score']:.1f}**")]
    rows += [(field, f"{100 * score:.1f}") for field, score in scores["fields"].items()]
    return {f"BLiMP, without fine-tuning{drawn}": grid(("field", "accuracy x 100 (chance: 50)"), rows)}
