"""The program, whose presets and generated world end in seconds: `python -m tests.infra.tiny COMMAND ...`.

Commands of the documentation are run with it. What is typed is what a reader types; networks, steps and rows are small.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

from flows.cli.main import main
from gptcore.config import presets
from gptcore.papers.storyworld import write
from tests.flows.world import OVERRIDES

_SERVERS = ("prefect", "mlflow")


def shrink() -> None:
    """Put tiny settings under every preset, and the small world in the generated one's place."""
    tables: Any = presets.preset_tables()
    for preset in tables["presets"].values():
        for section, values in OVERRIDES.items():
            preset[section] = {**preset.get(section, {}), **values}
        preset["seeds"] = 1
    presets._read.cache_clear()
    write.generate = partial(write.generate, books=8, characters=6_000, pages=80)  # type: ignore[assignment]


def with_free_ports(arguments: list[str]) -> list[str]:
    """Arguments of `gptmill up` with ports that nothing else listens on."""
    if arguments[:1] != ["up"]:
        return arguments
    with ExitStack() as stack:  # all held until each is known, so that no two are one
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _SERVERS]
        ports = [str(each.getsockname()[1]) for each in held]
    given = (f"--{server}-port" for server in _SERVERS)
    return [*arguments, *(word for pair in zip(given, ports, strict=True) for word in pair)]


if __name__ == "__main__":
    shrink()
    sys.exit(main(with_free_ports(sys.argv[1:])))
