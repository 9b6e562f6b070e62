"""`prefect.yaml` for people who use Prefect's own command, written from the same list as `gptmill deploy`.

python -m flows.deployments.yaml > prefect.yaml
"""

from __future__ import annotations

from typing import Any

import yaml

from flows.deployments.catalog import OFFERS, Offer
from flows.servers.pools import POOLS
from gptcore import __version__

_HEAD = """\
# For `prefect deploy --all` on a server of your own; written by `make prefect.yaml` from flows/deployments/catalog.py.
# `gptmill deploy` does the same and more: schedules, automations, forms that list the checkpoints. First the pools:
{pools}
"""


def document() -> dict[str, Any]:
    """What the file says."""
    return {
        "name": "gptmill",
        # The flows are found in the installed package; relative paths in a form are meant from here.
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": [_entry(offer) for offer in OFFERS],
    }


def text() -> str:
    """The file."""
    pools = "\n".join(f"#   prefect work-pool create {name} --type process" for name in POOLS)
    body: str = yaml.safe_dump(document(), sort_keys=False, width=110)
    return _HEAD.format(pools=pools) + body


def _entry(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "version": __version__,
        "description": offer.description,
        "tags": offer.tags,
        "entrypoint": offer.entrypoint,
        "work_pool": {"name": offer.pool},
    }


if __name__ == "__main__":
    print(text(), end="")
