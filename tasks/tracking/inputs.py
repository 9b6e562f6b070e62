"""The data that a run read, as MLflow's dataset inputs: what the UI's Dataset column and filter show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasks.tracking.tracker import Run

_INPUTS_TAG = "inputs"  # of a run: how many datasets it has
_DIGEST_LENGTH = 36  # MLflow's limit; the whole digest is in the source


@dataclass(frozen=True)
class Data:
    """One set of rows or documents."""

    name: str
    digest: str
    url: str
    rows: Mapping[str, int]
    """Split -> rows."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Other sizes: words, tokens."""


def has_inputs(run: Run) -> bool:
    """Whether the run's data is recorded; costs nothing, as the run says so itself."""
    return _INPUTS_TAG in run.opened_tags


def log_inputs(run: Run, inputs: Sequence[Data]) -> None:
    """Record the data that a run reads."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    entities = [
        DatasetInput(
            Dataset(
                data.name,
                data.digest[:_DIGEST_LENGTH],
                source_type=data.url.partition("://")[0] if "://" in data.url else "local",
                source=json.dumps({"uri": data.url, "sha256": data.digest}),
                profile=json.dumps({"num_rows": sum(data.rows.values()), **data.rows, **data.more}),
            ),
            [InputTag("mlflow.data.context", ", ".join(data.rows))],
        )
        for data in inputs
    ]
    run.tracker.client.log_inputs(run.run_id, entities)
    run.set_tags({_INPUTS_TAG: str(len(entities))})
