"""What runs it elsewhere: every file against its real schema, every command against the program's own parser."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from flows.servers.mlflow_server import NAMES_VARIABLE as MLFLOW_NAMES
from flows.servers.pools import POOLS
from flows.servers.prefect_server import NAMES_VARIABLE as PREFECT_NAMES
from tasks.jobs import hosts
from tests.expected import expected

INFRA = Path(__file__).resolve().parents[2] / "infra"
VERSIONS = ("1.33", "1.37")
MANIFESTS = sorted((INFRA / "kubernetes").glob("*.yaml"))
COMPOSE = [INFRA / "compose.yaml", INFRA / "compose.gpu.yaml"]
TEMPLATES = {"cpu": "base-job-template.json", "training": "gpu-job-template.json"}
SERVERS = {"prefect": PREFECT_NAMES, "mlflow": MLFLOW_NAMES}
PROBES = ("startup", "readiness", "liveness")
EXAMPLE = (INFRA / "gptmill.env.example").read_text().splitlines()
SECRETS = [line.partition("=")[0] for line in EXAMPLE if line and not line.startswith("#")]


def documents(path: Path) -> list[dict[str, Any]]:
    text = hosts_of_16() if path.name == "pretrain-hosts.yaml" else path.read_text()
    return list(yaml.safe_load_all(text))


def hosts_of_16() -> str:
    """What `gptmill pretrain --manifest` makes of its template."""
    workspace, template = Path("/shared/runs/.work/pretrain", "0" * 64), INFRA / "kubernetes/pretrain-hosts.yaml"
    return hosts.manifest(str(template), "gptcore.training.pretrain", workspace, 16, lambda threads: None)


def template(pool: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((INFRA / "kubernetes" / TEMPLATES[pool]).read_text())
    return found


def rendered(pool: str, **values: Any) -> dict[str, Any]:
    """The job that a worker of worker.yaml makes of a template for a flow run, by Prefect's own code."""
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect_kubernetes.worker import KubernetesWorker, KubernetesWorkerJobConfiguration

    nobody = PrefectClient("http://prefect.invalid/api")  # it would look up blocks, of which there are none
    told = {entry["name"]: entry.get("value", "") for entry in containers(pod(f"worker-{pool}"))[0]["env"]}
    prefix = "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_"

    async def render() -> KubernetesWorkerJobConfiguration:
        made = await KubernetesWorkerJobConfiguration.from_template_and_values(template(pool), values, client=nobody)
        made.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), flow_id=uuid.uuid4(), name="brave-finch"))
        hide = KubernetesWorker._replace_env_variable_with_secret
        where = (told[f"{prefix}NAME"], told[f"{prefix}KEY"])
        await hide(cast(Any, None), "PREFECT_API_AUTH_STRING", made, *where)
        return made

    return dict(asyncio.run(render()).job_manifest)


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    pod = document["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def pod(name: str) -> dict[str, Any]:
    (found,) = [document for document in PODS if document["metadata"]["name"] == name]
    return found


def started(document: dict[str, Any]) -> list[list[str]]:
    """The command lines of a manifest with pods, the image's entry point included."""
    return [[*each.get("command", ENTRYPOINT), *each.get("args", [])] for each in containers(document)]


ENTRYPOINT = ["tini", "--", "gptmill"]
PODS = [document for path in MANIFESTS for document in documents(path) if document["kind"] in ("Deployment", "Job")]
SERVICES = documents(COMPOSE[0])[0]["services"]
OURS = {name: service for name, service in SERVICES.items() if "gptmill" in service["image"]}


# --- schemas


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_refuses_what_is_wrong() -> None:
    wrong = json.loads(json.dumps(pod("gptmill-pretrain-000000000000")))
    wrong["spec"]["paralellism"] = 2
    with pytest.raises(kubernetes_validate.ValidationError, match="paralellism"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("values", expected(__file__, "test_jobs_of_the_work_pools"))
@pytest.mark.parametrize("pool", TEMPLATES)
def test_jobs_of_the_work_pools(pool: str, values: dict[str, Any]) -> None:
    from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings
    from prefect.utilities.schema_tools.validation import is_valid, is_valid_schema

    schema = template(pool)["variables"]
    is_valid_schema(schema)
    assert is_valid(values, schema)
    with temporary_settings({PREFECT_API_AUTH_STRING: "admin:planted"}):
        job = rendered(pool, **values)
    for version in VERSIONS:
        kubernetes_validate.validate(job, version, strict=True)
    assert "planted" not in json.dumps(job)
    assert "{{" not in json.dumps(job)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    defaults = {name: field["default"] for name, field in schema["properties"].items()}
    wanted = {**defaults, **values}
    assert container["resources"]["limits"] == {"memory": wanted["memory"], "nvidia.com/gpu": wanted["gpus"]}
    assert container["image"] == wanted["image"]
    assert pod["terminationGracePeriodSeconds"] == wanted["grace_seconds"]
    assert pod["nodeSelector"] == wanted["node_selector"]
    shm, shared = pod["volumes"]
    assert shm["emptyDir"]["sizeLimit"] == wanted["shm_size"]
    assert shared["persistentVolumeClaim"]["claimName"] == wanted["shared_claim"]
    references = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "valueFrom" in entry
    }
    assert references.pop("PREFECT_API_AUTH_STRING") == {"name": "gptmill", "key": "PREFECT_API_AUTH_STRING"}
    assert {reference["name"] for reference in references.values()} == {wanted["secret"]}
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert given["GPTMILL_HOME"] == f"{wanted['shared_folder']}/.gptmill"
    assert given.items() >= wanted["env"].items()


@pytest.mark.parametrize("values", [{"gpus": -1}, {"gpus": "eight"}, {"image_pull_policy": "Sometimes"}])
def test_a_wrong_variable_is_refused(values: dict[str, Any]) -> None:
    from prefect.utilities.schema_tools.validation import is_valid

    assert not is_valid(values, template("training")["variables"])


def test_each_work_pool_has_a_template_and_they_differ_in_defaults_only() -> None:
    assert TEMPLATES.keys() == POOLS.keys()
    cpu, gpu = template("cpu"), template("training")
    differing = set()
    for name, field in cpu["variables"]["properties"].items():
        if field["default"] != (default := gpu["variables"]["properties"][name]["default"]):
            differing.add(name)
            field["default"] = default
    assert cpu == gpu
    assert differing == {"image", "gpus", "cpus", "memory", "shm_size"}


def test_compose_files_are_what_compose_takes() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, INFRA / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    ignored = (INFRA / "Dockerfile.dockerignore").read_text().splitlines()
    for line in (INFRA / "Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            for source in words[1:-1]:
                assert (INFRA.parent / source).exists(), source
                shown = [f"!{source}", f"!{source}/**", f"!{Path(source).parent}/*{Path(source).suffix}"]
                assert set(shown) & set(ignored), source
    lines = (INFRA / "Dockerfile").read_text().splitlines()
    (entry,) = [line.removeprefix("ENTRYPOINT ") for line in lines if line.startswith("ENTRYPOINT ")]
    assert json.loads(entry) == ENTRYPOINT
    assert "USER 1000" in lines


# --- what they call


def parse(command: list[str]) -> str:
    """Read a command line as the program would; its name. Whoever refuses it raises."""
    assert command[:2] == ["tini", "--"]
    program, *arguments = command[2:]
    if program == "gptmill":
        from flows.cli.main import parser

        parser().parse_args(arguments)
    elif program == "prefect":
        from prefect.cli._app import _app

        _app.parse_args(arguments, exit_on_error=False, print_error=False)
    elif arguments[1:2] == ["flows.servers.mlflow_server"]:
        from mlflow.cli import cli

        cli.commands["server"].make_context("mlflow", arguments[2:])
    elif arguments[1:2] == ["flows.servers.prefect_server"]:
        from flows.servers.prefect_server import parser as server_parser

        server_parser().parse_args(arguments[2:])
    else:
        assert (program, arguments[:2]) == ("python", ["-m", "gptcore.machine.torchrun"])
        from torch.distributed.run import get_args_parser

        assert importlib.util.find_spec(arguments[1])
        options = get_args_parser().parse_args(arguments[2:])
        assert options.module
        assert hasattr(import_module(options.training_script), "run")
    return program


def commands() -> Iterator[tuple[str, list[str]]]:
    for document in PODS:
        for number, command in enumerate(started(document)):
            yield f"{document['metadata']['name']}-{number}", command
    for name, service in OURS.items():
        yield f"compose-{name}", [*service.get("entrypoint", ENTRYPOINT), *service["command"]]


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_understood(name: str) -> None:
    parse(COMMANDS[name])


@pytest.mark.parametrize("pool", TEMPLATES)
def test_a_run_is_started_as_prefect_starts_runs(pool: str) -> None:
    (line,) = started(rendered(pool))
    assert parse(line) == "prefect"


def test_a_command_with_a_wrong_option_is_refused() -> None:
    for line in expected(__file__, "test_a_command_with_a_wrong_option_is_refused"):
        with pytest.raises((SystemExit, Exception), match=r"2|option|unrecogn|found --"):  # a parser leaves as it likes
            parse(["tini", "--", *line.split()])


def test_workers_and_pools_are_those_of_the_deployments() -> None:
    lines = [" ".join(command) for command in COMMANDS.values()]
    for pool in POOLS:
        assert sum(f"worker start --pool {pool} --type kubernetes" in line for line in lines) == 1
        assert sum(f"worker start --pool {pool} --type process" in line for line in lines) == 1
        where = f"/opt/gptmill/{TEMPLATES[pool]}"
        create = f"work-pool create {pool} --type kubernetes --base-job-template {where}"
        assert sum(create in line for line in lines) == 1


def _ways_in() -> Iterator[tuple[str, list[str], dict[str, str], list[dict[str, Any]]]]:
    """Server, command line, variables, probes: of each Prefect and MLflow server of compose and Kubernetes."""
    for name in sorted(SERVERS):
        (container,) = containers(pod(name))
        given = {}
        for entry in container["env"]:
            source = entry.get("valueFrom", {}).get("configMapKeyRef")
            told = _settings()[source["name"]]["data"][source["key"]] if source else entry.get("value", "")
            given[entry["name"]] = told
        yield name, started(pod(name))[0], given, [container[f"{kind}Probe"] for kind in PROBES]
    for name in SERVERS:
        yield name, COMMANDS[f"compose-{name}"], OURS[name]["environment"], []


def test_servers_stand_behind_the_guard_and_answer_to_the_names_that_they_are_asked_by() -> None:
    from flows.servers.guard import own_names, refusal

    clients = [_settings()["gptmill-client"]["data"], OURS["worker-cpu"]["environment"]]
    addresses = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI"}
    found = list(_ways_in())
    assert sorted(name for name, *_ in found) == ["mlflow", "mlflow", "prefect", "prefect"]
    for (name, command, given, probes), client in zip(found, [clients[0]] * 2 + [clients[1]] * 2, strict=True):
        assert command[2:5] == ["python", "-m", f"flows.servers.{name}_server"]
        assert "--allowed-hosts" not in " ".join(command)
        port = int(words(command)[words(command).index("--port") + 1])
        further = given[SERVERS[name]].replace(f"${{{SERVERS[name]}:-}}", "")
        names = own_names("0.0.0.0", port, further.split())
        asked = urlsplit(client[addresses[name]]).netloc
        assert not refusal([("host", asked)], names), asked
        assert refusal([("host", asked), ("origin", "http://evil.example")], names)
        assert refusal([("host", f"10.evil.example:{port}")], names)
        for probe in probes:  # else the kubelet names the pod's address
            (header,) = probe["httpGet"]["httpHeaders"]
            assert header["name"] == "Host"
            assert not refusal([("host", header["value"])], names)
    lines = [" ".join(command) for command in COMMANDS.values()]
    assert not [line for line in lines if "prefect server" in line or "mlflow server" in line]


def test_nobody_but_its_server_reaches_a_database_and_the_parts_of_s3_stay_in_its_container() -> None:
    reach = {name: set(service["networks"]) for name, service in SERVICES.items()}
    assert {name for name, networks in reach.items() if "databases" in networks} == {"postgres", "prefect", "mlflow"}
    keys = {name for name, service in OURS.items() if "AWS_ACCESS_KEY_ID" in service["environment"]}
    assert {name for name, networks in reach.items() if "storage" in networks} == {"s3", *keys}
    networks = documents(COMPOSE[0])[0]["networks"]
    assert networks["databases"] == networks["storage"] == {"internal": True}
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"prefect": ["127.0.0.1:4200:4200"], "mlflow": ["127.0.0.1:5000:5000"]}
    s3 = SERVICES["s3"]["command"]
    assert {"-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.ip.bind=0.0.0.0", "-s3.iam=false"} <= set(s3)
    assert {"-s3.port.iceberg=0", "-s3.port.lance=0"} <= set(s3)
    for name, password in (("prefect", "PREFECT_DATABASE_PASSWORD"), ("mlflow", "MLFLOW_DATABASE_PASSWORD")):
        assert password in OURS[name]["environment"]["PGPASSWORD"]
        (entry,) = [entry for entry in containers(pod(name))[0]["env"] if entry["name"] == "PGPASSWORD"]
        assert entry["valueFrom"]["secretKeyRef"]["key"] == password
    texts = [path.read_text() for path in (*MANIFESTS, *COMPOSE)]
    addresses = [address for text in texts for address in re.findall(r"postgresql\+\w+://(\w+)@[^/]+/(\w+)", text)]
    assert sorted(set(addresses)) == [("mlflow", "mlflow"), ("mlflow", "mlflow_auth"), ("prefect", "prefect")]
    (policy,) = [each for each in documents(INFRA / "kubernetes/settings.yaml") if each["kind"] == "NetworkPolicy"]
    among_pods = [{"from": [{"podSelector": {}}]}]
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": among_pods}


def words(line: list[str]) -> list[str]:
    return [part for word in line for part in word.split("=")]


# --- what they say to it


def environments() -> Iterator[tuple[str, set[str]]]:
    settings = {name: set(document["data"]) for name, document in _settings().items()}
    jobs = [template(pool)["job_configuration"]["job_manifest"] for pool in TEMPLATES]
    for document in [*PODS, *jobs]:
        for container in containers(document):
            given = {entry["name"] for entry in container.get("env", [])}
            for source in container.get("envFrom", []):
                given |= settings.get(source["configMapRef"]["name"], set())
            yield container["name"], given
    for name, service in OURS.items():
        yield f"compose-{name}", set(service["environment"])


def _settings() -> dict[str, Any]:
    return {
        document["metadata"]["name"]: document
        for document in documents(INFRA / "kubernetes" / "settings.yaml")
        if document["kind"] == "ConfigMap"
    }


def test_every_variable_is_one_that_somebody_reads() -> None:
    import mlflow
    from prefect.settings import Settings
    from prefect_kubernetes.settings import KubernetesSettings

    prefects = {name.upper() for name in _names(Settings) | _names(KubernetesSettings)}
    mlflows = "".join(path.read_text() for path in Path(str(mlflow.__file__)).parent.glob("environment_variables.py"))
    mlflows += "".join(path.read_text() for path in (Path(str(mlflow.__file__)).parent / "server").rglob("*.py"))
    others = {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GOMP_SPINCOUNT"}
    ours = {"GPTMILL_HOME", *SERVERS.values()}
    for where, names in environments():
        for name in names:
            known = name in prefects | others | ours
            assert known or (name.startswith("MLFLOW_") and f'"{name}"' in mlflows), f"{where}: {name}"


def _names(settings: Any) -> set[str]:
    prefix = settings.model_config.get("env_prefix", "")
    found = set()
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_config"):
            found |= _names(field.annotation)
            continue
        found.add(f"{prefix}{name}")
        choices = getattr(field.validation_alias, "choices", [])
        found |= {choice for choice in choices if isinstance(choice, str)}
    return found


def test_secrets_are_references_and_each_is_in_the_example() -> None:
    assert all(document["kind"] != "Secret" for path in MANIFESTS for document in documents(path))
    for document in [*PODS, *[rendered(pool) for pool in TEMPLATES]]:
        for container in containers(document):
            for entry in container.get("env", []):
                if "secretKeyRef" in entry.get("valueFrom", {}):
                    assert entry["valueFrom"]["secretKeyRef"]["key"] in SECRETS
                assert not (entry["name"] in SECRETS and "value" in entry), entry["name"]
                reference = entry.get("valueFrom", {}).get("configMapKeyRef")
                assert reference is None or reference["key"] in _settings()[reference["name"]]["data"]
    asked = set(re.findall(r"\$\{(\w+):\?", COMPOSE[0].read_text()))
    assert asked == set(SECRETS)
    assert all(line.endswith("=") or line.startswith("#") or not line for line in EXAMPLE)


def test_pods_ask_for_no_rights_and_say_what_they_need() -> None:
    """What the namespace's level "restricted" wants, which only a cluster's admission would tell."""
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for document in [*PODS, *[rendered(pool) for pool in TEMPLATES]]:
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(document):
            assert container["securityContext"] == rights
            assert container["resources"]["requests"]["memory"]
            assert container["resources"]["limits"]["memory"]
