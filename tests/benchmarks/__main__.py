"""The command `python -m tests.benchmarks`: each part of the table, one after the other."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
from importlib.metadata import version

from tests.benchmarks.table import heading, run_part

_PARTS = ("text", "corpus", "jobs", "orchestration", "generation", "finetune", "memory", "references", "serving")
_PARTS += ("step", "updates", "encoders")


def main() -> None:
    """Print the machine, then the table."""
    parser = argparse.ArgumentParser(description="What this machine does a second, beside the peers.")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn, of three each (%(default)s)")
    parser.add_argument("--only", default=",".join(_PARTS), help="of %(default)s")
    options = parser.parse_args()
    names = ("torch", "transformers", "tokenizers", "ftfy", "spacy", "pyarrow")
    print(f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in names) + "\n")
    began = time.monotonic()
    heading()
    for name in options.only.split(","):
        # in a process of its own: what one has held also counts as held by those that it starts (getrusage)
        part = multiprocessing.get_context("spawn").Process(target=run_part, args=(name, options.seconds))
        part.start()
        part.join()
        if part.exitcode:
            sys.exit(part.exitcode)
    print(f"\n{time.monotonic() - began:.0f} s")


def _processor() -> str:
    """The processor's name, and which of bfloat16's instructions it has."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file.read().partition("\n\n")[0].splitlines() if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    fast = sorted({"amx_bf16", "avx512_bf16"} & set(facts.get("flags", "").split()))
    return f"{facts.get('model name', 'unknown')} ({', '.join(fast) or 'no bfloat16 instructions'})"


if __name__ == "__main__":
    main()
