"""Every form on a real Prefect server, asked by hand: no address that is signed or has a password in it gets in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL

from flows.deployments.catalog import OFFERS, Offer
from flows.forms.choices import with_choices
from gptcore.base.addresses import _SIGN

SECRET = "pl4nted-s3cret"
FILLED: dict[str, Any] = {"task": "rte", "titles": ["A title"], "sweep": {}, "family": "tinybert"}
"""What fields without a default are filled with."""
ORDINARY = ["https://host/a.txt", "https://host/a?versionId=3&download=true&policy=strict", "s3://bucket/a", "latest"]
HOSTILE = [
    *(f"https://host/a?{name}={SECRET}" for name in _SIGN),
    *(f"https://host/a?raw=1&{name.upper()}={SECRET}" for name in _SIGN),
    *(f"https://host/a?{''.join(f'%{ord(letter):02X}' for letter in name)}={SECRET}" for name in _SIGN),
    *(f"https://host/a?raw=1;{name[0]}%25{ord(name[1]):02x}{name[2:]}={SECRET}#x" for name in _SIGN),
    f"https://host/a?X-Amz-Date=1&X-Amz-Signature={SECRET}",
    f"https://host/a?X%2Dgoog-signature={SECRET}",
    f"https://host/a#access_token={SECRET}",
    f"https://user:{SECRET}@host/a",
    f"tcp://user:{SECRET}@10.0.0.5:8786",
    f"s3://{SECRET}@bucket/a",
    f"https:\\\\user:{SECRET}%40host",
]


def fields(offer: Offer, schema: dict[str, Any]) -> Iterator[tuple[str, bool, bool]]:
    """The fields of an offer's form that take text: name, whether it is a list, whether any text is as good."""
    for name, said in schema["definitions"][form(offer)]["properties"].items():
        text = said.get("items", said)
        if text.get("type") == "string" or "$ref" in text or "anyOf" in text:
            yield name, said.get("type") == "array", "$ref" not in text and "pattern" not in text


def form(offer: Offer) -> str:
    """The name of its form."""
    return str(offer.schema["properties"]["parameters"]["$ref"]).rpartition("/")[2]


FORMS = {form(offer): offer for offer in OFFERS if "parameters" in offer.schema.get("properties", {})}


def asked(client: SyncPrefectClient, deployment: str, filled: dict[str, Any]) -> int:
    """The status with which the server takes a filled form."""
    address = f"{client.api_url}deployments/{deployment}/create_flow_run"
    return httpx.post(address, json={"parameters": {"parameters": filled}}, timeout=60).status_code


@pytest.mark.parametrize("offer", FORMS.values(), ids=list(FORMS))
def test_each_field_of_text_takes_addresses_and_none_that_must_not_be_recorded(offer: Offer) -> None:
    schema = with_choices(offer.schema, ["latest"])
    said = schema["definitions"][form(offer)]["properties"]
    for name, listed, free in fields(offer, schema):
        for address in [*HOSTILE, *(ORDINARY if free else ())]:
            value = [address] if listed else address
            whole = {**said[name], "definitions": schema["definitions"]}
            assert is_taken(value, whole) == (address in ORDINARY), (name, address)


def is_taken(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the schema allows a value, as the server checks it."""
    return next(Draft202012Validator(schema).iter_errors(value), None) is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("prefect_server")
def test_no_signed_address_is_recorded_by_a_server() -> None:
    turn = cycle(HOSTILE)
    with get_client(sync_client=True) as client:
        deployments, created = [], 0
        for name_of_form, offer in FORMS.items():
            schema = with_choices(offer.schema, ["latest"])
            flow = client.create_flow_from_name(offer.flow.name)
            deployments.append(
                str(client.create_deployment(flow, f"hostile-{offer.name}", parameter_openapi_schema=schema))
            )
            base = {
                name: FILLED.get(name, "/books") for name in schema["definitions"][name_of_form].get("required", [])
            }
            for name, listed, free in fields(offer, schema):
                tries = [*islice(turn, 5), *([ORDINARY[1]] if free else [])]
                for address in tries:
                    status = asked(client, deployments[-1], {**base, name: [address] if listed else address})
                    assert (status == 201) if address in ORDINARY else (400 <= status < 500), (name, address, status)
                created += free
        runs = client.request("POST", "/flow_runs/count", json={"deployments": {"id": {"any_": deployments}}}).json()
        assert runs == created > 50
    database = Path(str(PREFECT_SERVER_DATABASE_CONNECTION_URL.value()).partition("///")[2])
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in connection.execute(f"SELECT * FROM '{table}'")]
    assert SECRET not in repr(rows)
