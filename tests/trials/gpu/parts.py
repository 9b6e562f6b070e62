"""The parts of `infra/gpu-trial`: python -m tests.trials.gpu.parts SETTINGS, the fields of Trial as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gptcore.base.files import read_json, write_json_atomic
from gptcore.base.settings import recorded
from gptcore.base.tables import read_table
from gptcore.config import EncoderConfig, NetworkConfig, preset_named
from gptcore.config.operations import operations_of_update
from gptcore.families import FAMILIES
from gptcore.machine.device import autocast, matrix_product_speed, model_flops_utilisation, pick_device, pick_dtype
from gptcore.models.network import Network
from gptcore.training.optim import adam
from tests.benchmarks.learners import Learner, preset_of

TRIAL = read_table(__file__, "trial.toml")
DEVICE = pick_device(0)
GPU = DEVICE.type == "cuda"
BEST = pick_dtype("auto", DEVICE)
Case = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a part is told: its name, folders, whether all is small, and when (seconds since 1970) it is cut off."""

    part: str
    out: Path
    work: Path
    data: Path | None
    small: bool
    end: float

    @property
    def cases(self) -> list[Case]:
        """What the table has for this part."""
        return [case for case in TRIAL[self.part] if not self.small or "rehearsed" in case]

    def tell(self, what: str, find: Callable[[], object]) -> None:
        """Add what is found, or why finding it fails; what comes next goes on."""
        try:
            told = str(find())
        except Exception as error:  # any is a finding
            told = f"FAILED: {type(error).__name__}: {error}"[-400:]
        line = json.dumps({"part": self.part, "what": what, "found": told})
        print(line, flush=True)
        with (self.out / "results.jsonl").open("a", encoding="utf-8") as results:
            results.write(f"{line}\n")

    def network(self, case: Case, **changes: Any) -> NetworkConfig:
        """A network of a published size where a case has a length or is `whole`; else, or rehearsed, the demo's."""
        published = ("length" in case or "whole" in case) and not self.small
        preset = preset_named(
            "paper" if published else "demo", {} if (family := case["family"]) == "lstm" else {"family": family}
        )
        its: Case = {"n_ctx": case.get("length", 512) if published else 48 if self.small else 128} | (
            {} if published else {"n_vocab": 2000}
        )
        if not self.small:
            its |= {**FAMILIES[family].shapes.get(case.get("size", ""), {}), **case.get("model", {})}
        return dataclasses.replace(preset.lstm if family == "lstm" else preset.model, **{**its, **changes})


def environment(t: Trial) -> None:
    """The machine, its packages, and what it multiplies."""
    names = ("torch", "numpy", "pyarrow", "safetensors", "tokenizers", "transformers")
    t.tell("packages", lambda: {name: version(name) for name in names})
    fields = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
    t.tell("nvidia-smi", lambda: subprocess.check_output(query, text=True) if GPU else "no GPU")
    t.tell("matrix products", matrix_product_speed)


# --- the numbers of the CPU


class Pupil(Learner):
    """A family's network on a device, its objective of pre-training by the paper's settings, and a batch."""

    def __init__(self, config: NetworkConfig, rows: int, device: torch.device = DEVICE) -> None:
        super().__init__(config, preset_of(config.family, "paper")[1], rows)
        self.flops = operations_of_update(config, self.settings)
        if isinstance(config, EncoderConfig):
            self.batch["mask"][0, -config.n_ctx // 4 :] = 0  # padding, as real text has it
        self.to(device)

    def to(self, device: torch.device) -> None:
        """Move network and batch."""
        self.trained.to(device)
        self.batch = {name: part.to(device) for name, part in self.batch.items()}

    def measured(self, device: torch.device, dtype: torch.dtype, tf32: bool = False) -> dict[str, Tensor]:
        """Loss, logits and all gradients, without dropout."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        self.to(device)
        self.trained.eval()
        for part in self.trained.modules():
            if isinstance(part, nn.RNNBase):  # cuDNN has a backward pass of recurrence in training mode alone
                part.train().dropout = 0.0
        with autocast(device, dtype):
            loss, logits = self.loss(), self.model(self.batch["tokens"]).detach()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        slopes = torch.cat([p.grad.flatten() for p in self.trained.parameters() if p.grad is not None])
        self.trained.zero_grad(set_to_none=True)
        measures = {"loss": loss.detach(), "logits": logits.float(), "gradients": slopes}
        return {name: value.cpu() for name, value in measures.items()}


def parity(t: Trial) -> None:
    """Loss, logits and gradients of each family beside the CPU's in float32; the kernels of its attention."""
    taught = [name for name, its in FAMILIES.items() if its.knowledge or its.teacher]
    for family in ("gpt", "bert") if t.small else [name for name in FAMILIES if name not in taught]:
        cpu = torch.device("cpu")
        learner = Pupil(t.network({"family": family}), 8, cpu)
        wanted = learner.measured(cpu, torch.float32)

        def errors(dtype: torch.dtype, tf32: bool, learner: Pupil = learner, wanted: Any = wanted) -> str:
            measures = learner.measured(DEVICE, dtype, tf32)
            far = {name: float((measures[name] - its).norm() / its.norm()) for name, its in wanted.items()}
            look = max(far.values()) > (0.1 if tf32 or dtype != torch.float32 else 1e-4)
            return "LOOK: " * look + ", ".join(f"{name} {error:.1e}" for name, error in far.items())

        for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
            t.tell(f"{family}, {dtype}, TF32 {tf32}: relative errors", partial(errors, dtype, tf32))

        def ran(learner: Pupil = learner) -> list[str]:
            names = kernels(partial(learner.measured, DEVICE, BEST))
            return sorted({name[:90] for name in names if re.search("flash|fmha|sdp|attention|softmax", name)})

        t.tell(f"{family}: kernels of attention and softmax", ran)


# --- jobs, as the pipeline starts them


def world(t: Trial) -> None:
    """Books and rows of a generated world, encoded for both kinds of families."""
    from gptcore.data.masking import PieceTable
    from gptcore.data.shards import write_shards
    from gptcore.nlu.encoded import encode_task
    from gptcore.nlu.registry import task_spec
    from gptcore.papers.storyworld.write import generate
    from gptcore.text.byte_bpe import ByteTokenizer
    from gptcore.text.wordpiece import WordPieceTokenizer

    generate(t.work / "world", seed=1, books=3, characters=40_000, pages=20)
    texts = [path.read_text(encoding="utf-8") for path in sorted((t.work / "world/books").glob("*.txt"))]
    jobs = [case for part in ("resume", "forms", "finetune") for case in TRIAL[part] if "task" in case]
    for kind in (ByteTokenizer, WordPieceTokenizer):
        tokenizer, folder, border = kind.train(texts, 1000), t.work / str(kind is WordPieceTokenizer), []
        if kind is WordPieceTokenizer:
            border = [PieceTable.of(tokenizer).sep]
        for split, some in (("train", texts[1:]), ("validation", texts[:1])):
            books = [("book", [ids + border for ids in tokenizer.encode_batch(text.split(". "))]) for text in some]
            write_shards(books, folder / split, n_vocab=tokenizer.n_vocab, max_tokens=1 << 24)
        if border:
            PieceTable.of(tokenizer).save(folder)
        write_json_atomic(folder / "meta.json", {"tokenizer_digest": tokenizer.digest, "n_vocab": tokenizer.n_vocab})
        for task in {case["task"] for case in jobs if FAMILIES[case["family"]].sentences == bool(border)}:
            encode_task(task_spec(task), str(t.work / "world/datasets"), tokenizer, folder / "tasks" / task)


def _settings(t: Trial, case: Case) -> Case:
    """The settings of a job, for its file."""
    family, whole = FAMILIES[case["family"]], "whole" in case and not t.small
    encoded = t.data if "whole" in case and t.data else t.work / str(family.sentences)
    meta, its = read_json(encoded / "meta.json"), {} if t.small else case.get("settings", {})
    model = recorded(t.network(case, n_vocab=meta["n_vocab"]))
    common: Case
    if "task" in case:
        common = {"pretrained": False, "max_train_rows": 192, "max_eval_rows": 64, "batch_size": 8, "epochs": 1}
        common["lm_coef"] = 0.5 if family.auxiliary_loss else 0.0
        dataset = str(encoded / "tasks" / case["task"])
        told = {"task": case["task"], "model": None, "model_config": model, "dataset": dataset}
        return {**told, "finetune": {**common, **its}}
    steps = its.get("steps", max(20, int((t.end - time.time() - 45) * 7)) if whole else 30 if t.small else 60)
    common = {"steps": steps, "batch_size": 16, "micro_batch_size": None if whole else 8, "warmup_steps": steps // 10}
    common |= {"eval_every": max(1, steps // 8), "eval_tokens": 2048, "checkpoint_every": steps // 3 + 1}
    told = {"shards": str(encoded), "tokenizer_digest": meta["tokenizer_digest"], "model": model}
    told |= {"compiled": True} if case.get("compiled") else {}
    if family.teacher:
        distil = recorded(preset_named("demo", {"family": family.name}).distil)
        told |= {"distil": distil, "teacher": str(t.work / "forms/pretrain-bert/model")}
    return {**told, "pretrain": {**common, **its}}


def _job(t: Trial, name: str, case: Case, kill: bool = False) -> Path:
    """The workspace of a job that ended; with ``kill`` it is killed at its first checkpoint and started again."""
    workspace = t.work / t.part / re.sub(r"\W+", "-", name)
    workspace.mkdir(parents=True)
    settings = {**_settings(t, case), "workspace": str(workspace), "threads": 1 if t.small else 2}
    write_json_atomic(workspace / "JOB.json", settings)
    for _ in range(300 if "teacher" in settings and not Path(settings["teacher"], "meta.json").exists() else 0):
        time.sleep(0.1)
    module = f"gptcore.training.{'finetune' if 'task' in case else 'pretrain'}"
    with (workspace / "log").open("w") as log:
        for killing in (True, False) if kill else (False,):
            command = [sys.executable, "-m", module, str(workspace / "JOB.json")]
            child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            while killing and child.poll() is None:
                if any((workspace / "checkpoints").glob("step-*/manifest.json")):
                    child.kill()
                time.sleep(0.002)
            child.wait()
    told = (workspace / "log").read_text(encoding="utf-8", errors="replace")
    if child.returncode or kill > ("resuming from" in told):
        print(told, flush=True)
        raise RuntimeError(f"exit code {child.returncode}: {told.strip()[-300:]}")
    return workspace


def _named(t: Trial) -> list[tuple[str, Case]]:
    named: list[tuple[str, Case]] = []
    for case in t.cases:
        parts = ["finetune" if "task" in case else "pretrain", case["family"], case.get("task", "")]
        parts += ["compiled"] if case.get("compiled") else []
        parts += [f"{key} {value}" for key, value in case.get("settings", {}).items() if key != "steps"]
        named.append((" ".join(part for part in parts if part), case))
    return named


def jobs(t: Trial) -> None:
    """Each job of the part once, some side by side."""
    with ThreadPoolExecutor(2 if t.small else 8 if t.part == "forms" else 1) as pool:
        list(pool.map(lambda one: t.tell(one[0], partial(_told, t, *one)), _named(t)))


def _told(t: Trial, name: str, case: Case) -> str:
    workspace = _job(t, name, case)
    result, lines = read_json(workspace / "result.json"), (workspace / "metrics.jsonl").read_text(encoding="utf-8")
    if t.part == "books":
        (t.out / "books.jsonl").write_text(lines, encoding="utf-8")
    records = [json.loads(line)["metrics"] for line in lines.splitlines()]
    told = [
        its for each in records for name, its in each.items() if name == "validation/loss" or name.endswith("/score")
    ]
    held_out = [f"{its:.3f}" for its in [*told, *([result["dev/score"]] if "dev/score" in result else [])]]
    rate = statistics.median(each["tokens_per_second"] for each in records if "train/loss" in each)
    tokens, memory = result["tokens_seen"] / result["steps"], result["peak_memory_bytes"] / 1e9
    speed = f"{rate:,.0f} tokens/s, {rate / tokens:.2f} updates/s of {tokens:,.0f}, MFU {result.get('mfu') or 0:.1%}"
    return (
        f"{result['steps']} updates in {result['precision']}, held out {' '.join(held_out)}; {speed}, {memory:.1f} GB"
    )


def resume(t: Trial) -> None:
    """Whether a job gives the same bits twice, and when it is killed with SIGKILL and resumed."""
    with ThreadPoolExecutor(2 if t.small else 9) as pool:
        arms = ("once", "again", "killed")
        runs = {n: [pool.submit(_job, t, f"{n} {arm}", case, arm == "killed") for arm in arms] for n, case in _named(t)}
        for name, (once, *others) in runs.items():
            for arm, other in zip(arms[1:], others, strict=True):
                t.tell(f"{name}: once and {arm}", lambda one=once, two=other: _compared(one.result(), two.result()))  # type: ignore[misc]


def _compared(*paths: Path) -> str:
    if len({hashlib.sha256((path / "model/model.safetensors").read_bytes()).digest() for path in paths}) == 1:
        return "the same bits"
    curves = [map(json.loads, (path / "metrics.jsonl").open(encoding="utf-8")) for path in paths]
    for one, other in zip(*curves, strict=False):
        names = [name for name in one["metrics"] if name.startswith(("train/", "validation/", "dev/"))]
        if differing := [name for name in names if one["metrics"][name] != other["metrics"].get(name)]:
            return f"OTHER BITS, first after update {one['step']}: {', '.join(differing)}"
    return "OTHER BITS in the weights, none in the metrics"


# --- speed


def benchmark(module: str) -> Any:
    """A module of the benchmarks, where the networks of others are; it loads transformers."""
    return import_module(f"tests.benchmarks.{module}")


def updates(t: Trial) -> None:
    """Updates of ours and of others, timed or looked into; in a rehearsal nothing is compiled."""
    for case, by in [(one, by) for one in t.cases for by in one["by"] if not t.small or "compiled" not in by]:
        changes = "".join(f", {name} {value}" for name, value in case.get("model", {}).items())
        title = f"{case['family']} {case.get('size', '117M')}, {case['rows']} x {case['length']}{changes}: {by}"
        t.tell(title, partial(_updated, t, case, by, title))
        if GPU:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.compiler.reset()


def _updated(t: Trial, case: Case, by: str, title: str) -> str:
    torch.use_deterministic_algorithms(GPU and by in ("ours", "ours, eager"))
    config = t.network(case)
    learner = Pupil(config, 2 if t.small else case["rows"])
    trained, loss = learner.trained, learner.loss
    if "ours" not in by:
        trained.cpu()
        trained, loss = benchmark("peers").theirs(learner, by)
    if by.endswith("compiled"):
        trained.compile()
    elif not by.endswith("eager") and "ours" in by and not t.small:  # as a long job does
        for part in trained.modules():
            if isinstance(part, Network):
                part.compile_layers()
    optimizer = adam(trained.to(DEVICE).train(), learner.settings)
    work, began = benchmark("step").updating(trained, loss, BEST, 1, optimizer), time.perf_counter()
    work()
    first, seconds = time.perf_counter() - began, seconds_of(work)
    if t.part == "profile":
        return _profiled(t, title, work, seconds)
    mfu = model_flops_utilisation(learner.flops / learner.tokens, learner.tokens / seconds, DEVICE, BEST, 1) or 0
    memory = torch.cuda.max_memory_allocated() / 1e9 if GPU else 0
    return f"{learner.tokens / seconds:,.0f} tokens/s, MFU {mfu:.1%}, {memory:.1f} GB; the first took {first:.0f} s"


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of one turn: the median of three times four, after as many to warm up."""
    turns, spent = 4 if GPU else 1, []
    for _ in range(4):
        torch.cuda.synchronize() if GPU else None
        began = time.perf_counter()
        for _ in range(turns):
            work()
        torch.cuda.synchronize() if GPU else None
        spent.append((time.perf_counter() - began) / turns)
    return statistics.median(spent[1:])


def kernels(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of each of the GPU's kernels; on a CPU of torch's operations."""
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if GPU else [])]) as profiled:
        work()
        torch.cuda.synchronize() if GPU else None
    events = [each for each in profiled.key_averages() if not getattr(each, "is_user_annotation", False)]
    on = [each for each in events if str(each.device_type).endswith("CUDA" if GPU else "CPU")]
    return {each.key: (each.self_device_time_total if GPU else each.self_cpu_time_total) / 1e6 for each in on}


def _profiled(t: Trial, title: str, work: Callable[[], object], wall: float) -> str:
    """The kernels that take longest go into profile.txt; what they leave of an update; where it waits for the GPU."""
    spent = kernels(work)
    busy, most = sum(spent.values()), sorted(spent.items(), key=lambda item: -item[1])[:15]
    with (t.out / "profile.txt").open("a", encoding="utf-8") as file:
        lines = [f"{its / busy:6.1%} {1000 * its:9.2f} ms  {name[:150]}" for name, its in most]
        print(title, *lines, "", sep="\n", file=file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn") if GPU else None
        work()
        torch.cuda.set_sync_debug_mode("default") if GPU else None
    waits = [f"{Path(each.filename).name}:{each.lineno}" for each in caught if "synchroniz" in str(each.message)]
    return f"busy {1000 * busy:.1f} ms of {1000 * wall:.1f}; waits {len(waits)} times {' '.join(sorted(set(waits)))}"


PARTS = {f.__name__: f for f in (environment, parity, world, resume)}
PARTS |= dict.fromkeys(("forms", "finetune", "books"), jobs) | dict.fromkeys(("speed", "profile"), updates)

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    folders = {name: Path(given[name]) for name in ("out", "work", "data") if given[name]}
    PARTS[given["part"]](Trial(**{**given, **folders}))
