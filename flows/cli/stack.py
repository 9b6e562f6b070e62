"""The commands of the stack: up, deploy, down, status; like the others they import what they use late."""

from __future__ import annotations

import argparse
import os

from gptcore.base.errors import InputError


def up(options: argparse.Namespace) -> None:
    from flows.deployments.settings import read_settings
    from flows.servers.environment import PORTS
    from flows.servers.stack.control import up

    read_settings()  # before anything is started
    if options.store == "":
        raise InputError("--store: found nothing, expected a folder or an address")
    given = {name: port for name in PORTS if (port := getattr(options, f"{name}_port")) is not None}
    up(options.full, given, options.store, options.datasets, _register)


def _register(store: str, datasets: str) -> None:
    """Imported once the stack's server is named in the environment, which Prefect reads as it is imported."""
    from flows.deployments.deploy import deploy

    deploy(store, datasets)


def deploy(options: argparse.Namespace) -> None:
    from flows.deployments.settings import read_settings
    from flows.forms.checks import check_addresses, task_file
    from flows.servers.environment import LIGHT_STORE, absolute, is_of, read_stack
    from flows.servers.preflight import require_log_in, require_prefect
    from flows.servers.stack.control import remember

    settings = read_settings(options.settings)
    require_prefect()
    record = read_stack()
    ours = record is not None and is_of(record, os.environ["PREFECT_API_URL"])
    forms = dict(record["forms"]) if record and ours else {"store": LIGHT_STORE, "datasets": ""}
    given = {name: place for name in forms if (place := getattr(options, name)) is not None}
    forms = {name: absolute(place) for name, place in {**forms, **given}.items()}
    check_addresses(forms)
    tasks = [task_file(file, forms["datasets"]) for file in options.task]
    require_log_in()
    from httpx import TransportError

    from flows.deployments.deploy import deploy

    try:
        deploy(**forms, settings=settings, tasks=tasks)
        if ours:
            remember(forms)
    except TransportError as error:
        raise ConnectionError(
            f"the Prefect server went away meanwhile ({str(error) or type(error).__name__}); "
            "what is done stays: deploy again"
        ) from error


def down(options: argparse.Namespace) -> None:
    from flows.servers.stack.control import down

    down(options.wipe)


def status(_: argparse.Namespace) -> None:
    from flows.servers.stack.control import status

    status()
