"""Known vulnerabilities of what constraints.txt pins: `make audit`, with pip-audit against PyPI's records, then OSV's.

Exit code 1: a pin has one. Exit code 0: every pin was looked up, or nobody could be asked; which of the two, the last
line says. An answer is believed only from a service that knows the hole of an old version (`CANARY`): a mirror that
has no such records, or a proxy that knows nothing, would pass anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PINS = Path(__file__).resolve().parents[1] / "constraints.txt"
CANARY = "jinja2==2.10"  # CVE-2019-10906 and later ones
SERVICES = ("pypi", "osv")
_SECONDS = 900


def asked(service: str, pins: Path) -> list[dict[str, Any]] | None:
    """pip-audit's word on each pin; None where the service does not answer."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip"]
    command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        told: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    return told


def knows_a_hole(service: str) -> bool:
    """Whether the service answers for a version whose vulnerabilities are known to everybody."""
    with TemporaryDirectory(prefix="gptmill-audit-") as folder:
        pins = Path(folder) / "canary.txt"
        pins.write_text(f"{CANARY}\n", encoding="utf-8")
        return any(pin.get("vulns") for pin in asked(service, pins) or [])


def main() -> int:
    """Print what was found; the exit code."""
    service = next((name for name in SERVICES if knows_a_hole(name)), None)
    audited = asked(service, PINS) if service else None
    if service is None or audited is None:
        print(f"WARNING: NOT AUDITED: {' and '.join(SERVICES)} do not answer from here; {PINS.name} was not looked up")
        return 0
    holes = [(pin, hole) for pin in audited for hole in pin.get("vulns", [])]
    for pin, hole in holes:
        fixed = ", ".join(hole["fix_versions"]) or "no version"
        print(f"{pin['name']} {pin['version']}: {hole['id']}, fixed in {fixed}")
    skipped = [pin for pin in audited if "skip_reason" in pin]
    for pin in skipped:
        print(f"WARNING: {pin['name']}: not looked up: {pin['skip_reason']}")
    print(
        f"audited against {service}: {len(audited) - len(skipped)} of {len(audited)} pins, {len(holes)} vulnerabilities"
    )
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
