"""Put the work pools and the deployments on a Prefect server."""

from __future__ import annotations

from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.types.entrypoint import EntrypointType

from flows.deployments.catalog import OFFERS
from flows.forms import list_checkpoints
from flows.pools import POOLS


def deploy(store: str, datasets: str) -> None:
    """Put every flow on the Prefect server, with forms whose defaults point at ``store``.

    :param store: default store of the forms.
    :param datasets: default datasets folder of the forms; empty: the generated world in the store.
    """
    with get_client(sync_client=True) as client:
        for name, description in POOLS.items():
            pool = WorkPoolCreate(name=name, type="process", description=description)
            client.create_work_pool(pool, overwrite=True)
    defaults = {"store": _absolute(store), "datasets": _absolute(datasets)}
    for offer in OFFERS:
        fields = offer.form.model_fields if offer.form else {}
        chosen = {name: value for name, value in defaults.items() if name in fields and value}
        offer.flow.to_deployment(
            name=offer.flow.name,
            work_pool_name=offer.pool,
            parameters={"parameters": chosen} if offer.form else {},
            description=((offer.form or offer.flow).__doc__ or "").strip(),
            entrypoint_type=EntrypointType.MODULE_PATH,
            job_variables={"working_dir": str(Path.cwd())},  # so that relative paths in a form mean what they say
        ).apply()
    if Path(store).exists() or "://" in store:
        list_checkpoints(defaults["store"])


def _absolute(location: str) -> str:
    return location if not location or "://" in location else str(Path(location).absolute())
