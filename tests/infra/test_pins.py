"""What constraints.txt pins is what the project needs, all of it and no more, under licences that may be used."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from infra import audit
from tests.expected import expected

ROOT = Path(__file__).resolve().parents[2]
INSTALLERS = {"pip", "setuptools", "wheel"}
FREE = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|CC0|Unlicense|BSL-1\.0|CNRI|HPND|Public Domain"
)
STRICT = re.compile(r"GPL|SSPL|Commons Clause|Proprietary|BUSL|Business Source", re.IGNORECASE)
NAMED = expected(__file__, "NAMED")
"""Package -> why its licence may be used, which its metadata do not say."""
NVIDIAS = expected(__file__, "NVIDIAS")
"""Under NVIDIA's own licence, which lets anybody use them and not everybody pass them on. Only torch's CUDA build loads
them; gptmill does not import, ship or need them, and runs on torch's CPU build without any."""
CUDA = {*NVIDIAS, "cuda-bindings", "cuda-pathfinder", "cuda-toolkit", "nvidia-nvtx", "triton"}
"""What torch's CUDA build brings and its CPU build does not."""
PROPRIETARY = re.compile(r"(Other/Proprietary License / )?LicenseRef-NVIDIA-Proprietary|NVIDIA Proprietary Software")


def pins() -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    found = [pin for pin in map(Requirement, filter(None, lines)) if not pin.marker or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in found}


def project_requirements() -> list[Requirement]:
    """What pyproject.toml names, all extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in [*project["dependencies"], *extras]]


def cuda_requirements() -> list[Requirement]:
    """What the CUDA build of torch asks for on Linux beyond what every build asks for."""
    asked = map(Requirement, distribution("torch").requires or [])
    return [found for found in asked if "platform_system" in str(found.marker)]


def reached(start: Iterable[Requirement], without: Collection[Requirement] = ()) -> dict[str, Distribution]:
    """Every installed package that ``start`` needs, however indirectly, where nothing needs ``without``."""
    waiting = [(requirement, "") for requirement in start]
    found: dict[str, Distribution] = {}
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        key = (canonicalize_name(requirement.name), tuple(sorted(requirement.extras)), extra)
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        if requirement in without:
            continue
        seen.add(key)
        try:
            package = found[key[0]] = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here: its own pins are looked at where it is
        inner = [Requirement(text) for text in package.requires or []]
        waiting += [(child, wanted) for child in inner for wanted in ("", *requirement.extras)]
    return {name: package for name, package in found.items() if name not in INSTALLERS}


@pytest.fixture(scope="module")
def packages() -> dict[str, Distribution]:
    return reached(project_requirements())


def test_every_package_that_is_needed_is_pinned_as_installed(packages: dict[str, Distribution]) -> None:
    pinned = pins()
    assert sorted(set(packages) - set(pinned)) == [], "not pinned"
    public = {name: Version(package.version).public for name, package in packages.items()}
    assert {name: (found, pinned[name]) for name, found in public.items() if found != pinned[name]} == {}


def test_nothing_is_pinned_that_nobody_needs(packages: dict[str, Distribution]) -> None:
    of_another_build = set() if torch.version.cuda else CUDA
    assert sorted(set(pins()) - set(packages) - of_another_build) == []


def test_what_the_cuda_build_of_torch_brings_is_named_and_nothing_else_brings_it() -> None:
    brought = set(reached(cuda_requirements()))
    assert brought == (CUDA if torch.version.cuda else set())
    assert set(pins()) >= CUDA, "pinned on machines with the other build, too"
    assert brought.isdisjoint(reached(project_requirements(), without=cuda_requirements()))


def licences(package: Distribution) -> Iterator[str]:
    about = package.metadata
    if expression := about.get("License-Expression"):
        yield expression
        return
    yield from (text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or [] if text.startswith("License"))
    yield (about.get("License") or "").partition("\n")[0]


def test_every_licence_may_be_used(packages: dict[str, Distribution]) -> None:
    odd = {}
    for name, package in packages.items():
        words = " / ".join(filter(None, licences(package)))
        free = FREE.search(words) and not STRICT.search(words)
        if not (free or name in NAMED or (name in NVIDIAS and PROPRIETARY.fullmatch(words))):
            odd[name] = words
    assert odd == {}


@pytest.mark.parametrize(
    ("canary", "answer", "code", "words"), expected(__file__, "test_an_audit_that_asked_nobody_says_so")
)
def test_an_audit_that_asked_nobody_says_so(
    canary: Any, answer: Any, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        found = answer if str(audit.PINS) in command else canary
        text = "Traceback" if found is None else json.dumps({"dependencies": found})
        return subprocess.CompletedProcess(command, 1, text, "")

    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == code
    assert words in capsys.readouterr().out


@pytest.mark.usefixtures("prefect_server")
def test_the_prefect_server_takes_the_nulls_that_its_client_sends() -> None:
    """With FastAPI 0.151 it answers 422; then workers that have lost the server once cancel no run any more."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        assert isinstance(client.read_flow_runs(), list)
        assert isinstance(client.read_deployments(), list)
