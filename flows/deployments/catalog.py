"""The flows that a Prefect server offers, each with its work pool and the form it shows.

python -m flows.deployments.catalog > prefect.yaml    # for people who use Prefect's own command
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

import yaml
from prefect.utilities.callables import parameter_schema

from flows.analyses import Offered, analyses
from flows.finetune import finetune, finetune_all
from flows.forms.fields import Form
from flows.pipeline import pipeline
from flows.plugins import added, named, ordered
from flows.pretrain import pretrain
from flows.servers.pools import ANALYSIS, CPU, INTERNAL, INTERNAL_TRAINING, OFFERED, POOLS, START, TRAINERS, TRAINING
from flows.trainings.leaderboard import leaderboard
from flows.trainings.train import train
from flows.upkeep.flow import upkeep
from gptcore import __version__
from tasks.store.manifest import code_version


@dataclass(frozen=True)
class Offer:
    """One deployment: a flow, and where it runs."""

    flow: Any
    pool: str = CPU
    internal: bool = False
    called: str = ""
    """Where the flow's own name does not say what it is for."""
    text: str = ""
    """Where neither the form nor the flow says it."""
    group: str = ""
    """One more tag, by which the page of deployments shows a few of them."""

    @property
    def name(self) -> str:
        """The deployment is called as its flow, or what it is for."""
        return self.called or str(self.flow.name)

    @property
    def address(self) -> str:
        """How Prefect's clients name it: ``flow/deployment``."""
        return f"{self.flow.name}/{self.name}"

    @property
    def former(self) -> str:
        """The address that earlier versions gave it."""
        return f"{self.flow.name}/{self.flow.name}"

    @property
    def form(self) -> type[Form] | None:
        """What the flow asks; None where it takes no form."""
        asked = next(iter(get_type_hints(self.flow.fn).values()))
        return asked if isinstance(asked, type) and issubclass(asked, Form) else None

    @property
    def description(self) -> str:
        return self.text or ((self.form or self.flow).__doc__ or "").strip()

    @property
    def tags(self) -> list[str]:
        """What the automations know it by, and its group."""
        return [INTERNAL, TRAINING] if self.internal else [OFFERED, *([self.group] if self.group else [])]

    @property
    def alone(self) -> bool:
        """Whether one run at a time is enough: of what orchestrates, not of what workers take by their own number."""
        return self.pool == CPU and not self.internal

    @property
    def entrypoint(self) -> str:
        """Where a worker finds the flow, in the installed package."""
        return f"{self.flow.fn.__module__}.{self.flow.fn.__name__}"

    @property
    def schema(self) -> dict[str, Any]:
        return parameter_schema(self.flow.fn).model_dump(exclude_unset=True)

    def parameters(self, defaults: dict[str, str]) -> dict[str, Any]:
        """The form's values that differ from its own defaults.

        :param defaults: field -> value; those that the form has and that are not empty are used.
        """
        if self.form is None:
            return {}
        fields = self.form.model_fields
        return {"parameters": {name: value for name, value in defaults.items() if name in fields and value}}


def _said_of(analysis: Offered) -> str:
    """What an analysis answers, how long it takes and what it needs, each a paragraph."""
    said = {"": analysis.text, "Takes: ": analysis.takes, "Needs: ": analysis.needs}
    return "\n\n".join(f"{word}{text}." for word, text in said.items() if text)


def _offers() -> list[Offer]:
    """The core's deployments, those of the analyses, and those that plugins add, in the order of their lists."""
    ours = [
        Offer(pipeline, group=START),
        Offer(pretrain, TRAINERS),
        Offer(finetune, TRAINERS, group=START),
        Offer(finetune_all),
        *(Offer(found.load(), text=_said_of(found), group=ANALYSIS) for found in analyses().values()),
        *map(Offer, [leaderboard, upkeep]),
        Offer(train, TRAINERS, internal=True, called=INTERNAL_TRAINING),
    ]
    tables = added("deployments")
    offers = {offer.name: offer for offer in [*(_added(name, **table) for name, table in tables.items()), *ours]}
    return [offers[name] for name in ordered([offer.name for offer in ours], tables)]


def _added(name: str, flow: str, pool: str = CPU, text: str = "", group: str = "", **_: str) -> Offer:
    """What a plugin's table says of a deployment; its place and form are for others to read."""
    chosen = named(flow)
    return Offer(chosen, pool, called="" if chosen.name == name else name, text=text, group=group)


OFFERS = _offers()


def version() -> str:
    """The version of the deployments: the package's, and the git commit if any (`.dirty`: with local changes)."""
    code = code_version()
    commit = f"+{str(code['git'])[:12]}{'.dirty' if code['dirty'] else ''}" if code["git"] else ""
    return f"{code['package']}{commit}"


# --- prefect.yaml

_HEAD = """\
# For `prefect deploy --all` on a server of your own; written by `make prefect.yaml` from flows/deployments/catalog.py.
# `gptmill deploy` does the same and more: schedules, automations, forms that list the checkpoints. First the pools:
{pools}
"""


def document() -> dict[str, Any]:
    return {
        "name": "gptmill",
        # The flows are found in the installed package; relative paths in a form are meant from here.
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": [
            {
                "name": offer.name,
                "version": __version__,
                "description": offer.description,
                "tags": offer.tags,
                "entrypoint": offer.entrypoint,
                "work_pool": {"name": offer.pool},
            }
            for offer in OFFERS
        ],
    }


def text() -> str:
    pools = "\n".join(f"#   prefect work-pool create {name} --type process" for name in POOLS)
    body: str = yaml.safe_dump(document(), sort_keys=False, width=110)
    return _HEAD.format(pools=pools) + body


if __name__ == "__main__":
    print(text(), end="")
