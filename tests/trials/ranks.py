"""An update of pre-training on 64 GPUs, predicted: collectives, bytes, memory, time; and four ranks for real.

    python -m tests.trials.ranks [--link 40]

Tables: what an update of a rank sends, holds and takes, counted by :mod:`tests.trials.one_rank`; the same arithmetic
beside published speeds; and four real processes (gloo) beside what was predicted for four, and what a checkpoint of
theirs takes (FSDP2; 3 GB of memory in all). The trial fails where their bytes or the highest of their memory are more
than 10 % from the prediction.

A time is that of the product's measured speed on one H100, and what the collectives take beyond the backward pass (DDP)
or beyond all of the computing (FSDP2), which they run beside. Nothing else is waited for: a prediction is a lower
bound. Memory is that of a CPU's kernels, which keep the attention's weights; a GPU's do not.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

from gptcore.config import ModelConfig
from gptcore.data.feed import Update
from gptcore.machine.distributed import World, join_world, whole
from gptcore.training.checkpoint import model_tensors, save
from gptcore.training.loop import Trainer
from gptcore.training.optim import optimizer_tensors
from tests.trials.one_rank import Case, Found, kind_of, simulate, trainer, update_of
from tests.trials.scenarios import free_ports, heading, options, row

GB, MB = 1e9, 1e6
_PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 (NVIDIA's data sheet)."""
_OF_A_HOST = 8
_WITHIN = 450.0
"""GB/s that an H100 sends to the others of its host (NVLink, NVIDIA's data sheet)."""
_START = 20e-6
"""Seconds before a collective sends its first byte: assumed."""


# --- the same for real


def measure(case: Case, folder: Path, each: Callable[..., None]) -> list[Any]:
    """The ranks as processes that train over gloo: what each of them found."""
    (port,) = free_ports(1)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(case.ranks), "OMP_NUM_THREADS": "1"}
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # what is freed goes back at once; read when a process starts
    spawning = multiprocessing.get_context("spawn")
    results: Any = spawning.Queue()
    ranks = [spawning.Process(target=each, args=(case, rank, told, folder, results)) for rank in range(case.ranks)]
    for process in ranks:
        process.start()
    try:
        return [results.get(timeout=900) for _ in ranks]
    finally:
        for process in ranks:
            process.join(30)
            process.kill()


def _rank(case: Case, rank: int, told: dict[str, str], folder: Path, results: Any) -> None:
    """What torch's profiler and the kernel saw."""
    os.environ.update(told, RANK=str(rank))
    torch.set_num_threads(1)
    with join_world(case.sharded) as world:
        small = dataclasses.replace(case.model, n_layer=1, n_embd=64, n_head=1, n_inner=64, n_vocab=64)
        _updates(dataclasses.replace(case, model=small), world, folder)  # code is read, workers are started
        before = psutil.Process().memory_info().rss
        Path("/proc/self/clear_refs").write_text("5")  # the highest from here on
        trains, update = _updates(case, world, folder)
        status = Path("/proc/self/status").read_text()
        highest = int(status.partition("VmHWM:")[2].split()[0]) * 1024
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            trains._update(update)
    calls: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for event in seen.events():
        if event.name.startswith("gloo:"):  # the engine's own record: what one rank hands it
            kind = kind_of("c10d" + event.name) or event.name
            whole = case.ranks if kind == "all-gather" else 1
            calls[kind] += 1
            sent[kind] += whole * 4 * sum(math.prod(shape) for shape in event.input_shapes)
    results.put(Found(dict(calls), dict(sent), highest - before))


def _checkpoint(case: Case, rank: int, told: dict[str, str], folder: Path, results: Any) -> None:
    """Bytes of a checkpoint; seconds, and CPU seconds of this process, to put it together and until it is on the disk.

    The best of three.
    """
    os.environ.update(told, RANK=str(rank))
    torch.set_num_threads(1)
    with join_world(case.sharded) as world:
        trains, _ = _updates(case, world, folder)
        parts = {"model": model_tensors(trains.model), "optimizer": optimizer_tensors(trains.optimizer, trains.model)}
        took = []
        for step in range(3):
            clocks = [(time.perf_counter(), time.process_time())]
            tensors = {group: whole(named, world) for group, named in parts.items()}
            clocks.append((time.perf_counter(), time.process_time()))
            if world.main:
                save(folder, step, tensors, {}, keep=1)
            clocks.append((time.perf_counter(), time.process_time()))
            world.agree(False)
            took.append([end - start for pair in pairwise(clocks) for start, end in zip(*pair, strict=True)])
        size = sum(tensor.nbytes for named in tensors.values() for tensor in named.values())
        results.put((size, *[min(each) for each in zip(*took, strict=True)]))


def _updates(case: Case, world: World, folder: Path) -> tuple[Trainer, Update]:
    trains = trainer(case, world, folder)
    update = update_of(case, case.sequences, case.model.n_ctx)
    for _ in range(2):
        trains._update(update)
    return trains, update


# --- how long an update takes


def transfer_seconds(counted: Found, ranks: int, link: float) -> float:
    """The seconds of all collectives of an update, one after the other, by rings over the slowest link.

    :param link: GB/s that a GPU sends to another host.
    """
    rate = link if ranks > _OF_A_HOST else _WITHIN
    return counted.wire(ranks) / (rate * GB) + sum(counted.calls.values()) * _START


def update_seconds(compute: float, transfer: float, sharded: bool, micro_batches: int) -> float:
    """FSDP2 sends while all is computed; DDP while the last micro-batch's gradients are, two thirds of its time."""
    beside = compute if sharded else compute / micro_batches * 2 / 3
    return compute + max(0.0, transfer - beside)


_GPT1 = ModelConfig(n_vocab=40478)  # the paper's
_LARGE = dataclasses.replace(_GPT1, n_vocab=50257, n_ctx=1024, n_layer=48, n_head=25, n_embd=1600, n_inner=6400)
_GPT1_ALONE = 313_000.0
"""Tokens a second of an H100, not compiled: infra/docs/results/gpu.md."""
_LARGE_ALONE = 0.237 * _PEAK / _LARGE.flops_per_token(1024)
"""Assumed: the MFU that GPT-2 345M had on an H100, not compiled."""
_CASES = [
    Case("GPT-1 117M, DDP", _GPT1, 64, False, 1, 1, _GPT1_ALONE),
    Case("GPT-1 117M, DDP", _GPT1, 64, False, 16, 1, _GPT1_ALONE),
    Case("GPT-1 117M, DDP", _GPT1, 64, False, 64, 1, _GPT1_ALONE),
    Case("GPT-2 1.5B, FSDP2", _LARGE, 64, True, 4, 4, _LARGE_ALONE),
    Case("GPT-2 1.5B, FSDP2", _LARGE, 64, True, 8, 2, _LARGE_ALONE),
    Case("GPT-2 1.5B, FSDP2", _LARGE, 64, True, 16, 1, _LARGE_ALONE),
]
_MIDDLE = ModelConfig(n_vocab=8000, n_ctx=32, n_layer=8, n_head=12, n_embd=768, n_inner=3072)
"""A network of which four processes, and the main one's whole, fit into 3 GB."""
_SMALL = ModelConfig(n_vocab=8000, n_ctx=128, n_layer=8, n_head=8, n_embd=512, n_inner=2048)


@dataclass(frozen=True)
class Published:
    """A model's speed on few and on many H100 of 8 a host, bfloat16, FSDP; weights gathered in 2 bytes, slopes in 4."""

    source: str
    parameters: float
    tokens: int
    """The tokens of a GPU in an update, one micro-batch."""
    few: tuple[int, float]
    """GPUs, tokens a second and GPU."""
    many: tuple[int, float]
    mfu: str
    """The share of the peak that the many reached."""


_TORCHTITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
_FOUNDRY = "llm-foundry, scripts/train/benchmarking/README.md"
_PUBLISHED = [
    Published(f"Llama 3.1 8B ({_TORCHTITAN})", 8.03e9, 2 * 8192, (8, 5762), (128, 5605), "33 to 39 %"),
    Published(f"MPT 1B ({_FOUNDRY})", 1_315_950_592, 20 * 2048, (16, 46_037), (64, 44_402), "40.85 %"),
    Published(f"MPT 760M ({_FOUNDRY})", 760_470_528, 24 * 2048, (16, 68_551), (32, 67_971), "37.57 %"),
]


def _predictions(link: float) -> None:
    heading(
        "job", "ranks", "tokens an update", "a rank", "collectives", "sent, GB", "held, GB", "computing, ms",
        "sending, ms", "update, ms", "tokens/s", "MFU",
    )  # fmt: skip
    for case in _CASES:
        counted = simulate(case)
        compute = case.micro_batches * case.sequences * case.model.n_ctx / case.alone
        transfer = transfer_seconds(counted, case.ranks, link)
        seconds = update_seconds(compute, transfer, case.sharded, case.micro_batches)
        mfu = case.tokens / seconds * case.model.flops_per_token(case.model.n_ctx) / (case.ranks * _PEAK)
        row(
            case.name, case.ranks, f"{case.tokens:,}", f"{case.micro_batches} x {case.sequences} x {case.model.n_ctx}",
            sum(counted.calls.values()), f"{counted.wire(case.ranks) / GB:.2f}", f"{counted.peak / GB:.1f}",
            f"{1e3 * compute:.1f}", f"{1e3 * transfer:.1f}", f"{1e3 * seconds:.1f}", f"{case.tokens / seconds:,.0f}",
            f"{100 * mfu:.1f} %",
        )  # fmt: skip


def _beside_published(link: float) -> None:
    heading("published", "GPUs", "tokens/s a GPU", "predicted from fewer GPUs", "difference", "published MFU")
    for known in _PUBLISHED:
        (few, alone), (many, measured) = known.few, known.many
        sent = {"all-gather": int(4 * known.parameters), "reduce-scatter": int(4 * known.parameters)}
        transfer = transfer_seconds(Found({}, sent, 0), many, link)
        predicted = known.tokens / update_seconds(known.tokens / alone, transfer, True, 1)
        off = 100 * (predicted / measured - 1)
        row(
            known.source,
            f"{few}, {many}",
            f"{alone:,.0f}, {measured:,.0f}",
            f"{predicted:,.0f}",
            f"{off:+.1f} %",
            known.mfu,
        )


def _four_for_real(folder: Path) -> bool:
    """Whether all that was measured is within a tenth of the prediction."""
    heading("four processes", "", "predicted", "measured", "difference")
    fits = True
    for sharded in (False, True):
        case = Case("", _SMALL, 4, sharded, 4, 2)
        predicted, ranks = simulate(case), measure(case, folder, _rank)
        worst = max(ranks, key=lambda found: found.peak)
        total = {"bytes handed to collectives, MB": (sum(predicted.sent.values()), sum(worst.sent.values()))}
        for what, (mine, real) in {**total, "memory, MB": (predicted.peak, worst.peak)}.items():
            off = real / mine - 1
            fits &= abs(off) <= 0.1
            row("FSDP2" if sharded else "DDP", what, f"{mine / MB:,.2f}", f"{real / MB:,.2f}", f"{100 * off:+.2f} %")
    return fits


def _checkpoints(folder: Path) -> None:
    heading("a checkpoint of four (FSDP2)", "MB", "seconds", "MB/s", "CPU seconds", "MB a CPU second")
    size, *took = max(measure(Case("", _MIDDLE, 4, True, 1, 1), folder, _checkpoint))  # the main one has all of it
    for what, seconds in (("put together", took[:2]), ("written", took[2:])):
        cells = [f"{cell:,.2f}" for spent in seconds for cell in (spent, size / MB / spent)]
        row(what, f"{size / MB:,.0f}", *cells)


def main() -> None:
    """All tables; exit code 1 where four processes differ by more than a tenth."""
    parser = options(__doc__)
    parser.add_argument("--link", type=float, default=40.0, help="GB/s a GPU sends to another host (50 at 400 Gb/s)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    _predictions(given.link)
    print()
    _beside_published(given.link)
    print()
    with tempfile.TemporaryDirectory() as folder:
        fits = _four_for_real(Path(folder))
        print()
        _checkpoints(Path(folder))
    sys.exit(0 if fits else "a measurement is more than a tenth from what was predicted")


if __name__ == "__main__":
    main()
