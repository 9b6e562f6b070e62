"""A training as a Job of Kubernetes over several hosts: the manifest, made of a template. Nothing is started here.

The template has what is the cluster's: image, volumes, what a pod asks for. What is the training's is put in its place.
Pods see the job's file under the path that it has here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from gptcore.base.errors import InputError, require
from tasks.jobs.command import job_command

_RESTARTS = 100  # of all processes: whenever a pod is evicted, those of the others fail


def manifest(template: str, module: str, workspace: Path, nproc: int, prepare: Callable[[int], None]) -> str:
    """The documents of a template, with the names, the number of pods and the command line of one training.

    :param template: a file with a headless Service, and a Job whose first container asks for a pod's GPUs and cores.
    :param workspace: a folder that is called by a digest: so are the Job and all that belongs to it.
    :param nproc: training processes, one a GPU; 0: as many as a pod has.
    :param prepare: called when all is well, with the CPU threads of a process: writes ``workspace/JOB.json``.
    :raises InputError: no such template, processes that do not fill whole pods, or pods that do not see the workspace.
    """
    where = f"--manifest {template}"
    try:
        documents = list(filter(None, yaml.safe_load_all(Path(template).read_text(encoding="utf-8"))))
        kinds = {document["kind"]: document for document in documents}
        service, job = kinds["Service"], kinds["Job"]
        pods, port = job["spec"]["template"], service["spec"]["ports"][0]["port"]
        labels = pods["metadata"]["labels"]
        container = pods["spec"]["containers"][0]
        asked, folders = container["resources"]["requests"], [each["mountPath"] for each in container["volumeMounts"]]
        gpus = next((int(number) for resource, number in asked.items() if resource.endswith("/gpu")), 1)
        threads = max(1, int(asked["cpu"]) // gpus)
    except (OSError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{where}: {reason}; expected what infra/kubernetes/pretrain-hosts.yaml has") from None
    hosts, left = divmod(nproc or gpus, gpus)
    require(not left, f"--nproc: found {nproc}, expected a multiple of {gpus}, the GPUs of a pod ({where})")
    seen = any(workspace.is_relative_to(folder) for folder in folders)
    require(seen, f"{where}: mounts {', '.join(folders)}; expected a volume with the store, {workspace}, at its path")
    prepare(threads)

    name = f"gptmill-{module.rpartition('.')[2]}-{workspace.name[:12]}"
    meeting = {"nnodes": str(hosts), "rendezvous": f"{name}-0.{name}:{port}", "run_id": name}
    command = job_command(module, workspace / "JOB.json", gpus, **meeting, max_restarts=_RESTARTS)
    service["metadata"]["name"] = job["metadata"]["name"] = pods["spec"]["subdomain"] = name
    labels["app"], service["spec"]["selector"] = name, {"app": name}
    job["spec"] |= {"completionMode": "Indexed", "completions": hosts, "parallelism": hosts}
    container["args"] = ["python", *command[1:]]
    return yaml.safe_dump_all(documents, sort_keys=False)
