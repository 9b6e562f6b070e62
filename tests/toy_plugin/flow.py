"""The tides of a coast, as a table."""

from __future__ import annotations

import argparse

from prefect import flow

from flows.forms.fields import Form, field
from flows.forms.run_names import from_form
from tasks.report.analysis import Analysis, publish_all


class TidesParameters(Form):
    """The tides of a coast."""

    coast: str = field("tides-coast", 0)
    store: str = field("store", 1)


@flow(name="tides", flow_run_name=from_form, persist_result=False)
def tides(parameters: TidesParameters) -> list[Analysis]:
    body = [(parameters.coast, water) for water in ("high", "low")]
    identity = {"coast": parameters.coast}
    return publish_all([Analysis("tides", "Tides of a coast", ("coast", "water"), body, identity)], "")


def by_the_moon(options: argparse.Namespace) -> None:
    print(f"{options.task}: a new moon")
