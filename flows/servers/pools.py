"""What our runs on a Prefect server are known by: work pools, which say where a run may go, and tags.

A worker of each pool runs wherever the flows do. The tags tell our runs from those of others who use the same server.
"""

from __future__ import annotations

from http import HTTPStatus

OFFERED = "gptmill"
"""Tag of the deployments that people start: automations start their runs again and tell of their failures."""
INTERNAL = "gptmill-internal"
"""Tag of runs that whoever started them looks after: those that a flow starts, and those of the command line."""
TRAINING = "gptmill-training"
"""Tag, beside INTERNAL, of what a flow gives to a worker: its starter starts it again, but a worker may be missing."""
START = "start-here"
"""Tag of the two deployments that somebody new needs: the page of deployments has thirty, by their names."""
ANALYSIS = "analysis"
"""Tag of the deployments that make a table or figure of a paper."""
INTERNAL_TRAINING = "internal-training"
"""The deployment of a flow's trainings, which nobody starts by hand."""
CPU = "cpu"
"""For what orchestrates, reads and cleans: the pipeline, analyses, finetune-all, sweeps, abstracts, prompts."""
TRAINERS = "training"
"""For what trains, with a GPU or without. A worker here takes as many runs as its machine trains: one a GPU."""
POOLS = {
    CPU: "Flows that orchestrate: the pipeline, analyses, finetune-all, sweeps, abstracts, prompts, the leaderboard.",
    TRAINERS: "Flows that train: pretrain, finetune, each training of a pipeline. A worker takes one run a GPU.",
}
"""Name -> what it is for."""
FORMER_POOLS = {TRAINERS: "gpu"}
"""What a pool was called up to version 0.1.0."""
START_WORKER = f"prefect worker start --pool {TRAINERS}, or gptmill up"
"""The commands that bring a worker."""
_WORKERS_READ = 200  # the most that Prefect gives at once


def worker_online(pool: str) -> bool:
    """Whether the Prefect server hears of a worker of ``pool``; False where there is no such pool."""
    from prefect.client.orchestration import get_client  # here, as the stack's start reads the names before Prefect
    from prefect.exceptions import PrefectHTTPStatusError

    with get_client(sync_client=True) as client:
        try:
            # Without the two numbers the client's own defaults are refused by the server.
            workers = client.read_workers_for_work_pool(pool, offset=0, limit=_WORKERS_READ)
        except PrefectHTTPStatusError as error:
            if error.response.status_code != HTTPStatus.NOT_FOUND:
                raise
            return False
    return any(worker.status == "ONLINE" for worker in workers)
