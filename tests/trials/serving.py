"""One model, four ways to ask it, on the stack that runs: the same labels and probabilities from each.

    make demo && make up          # or make full, with a pipeline on its store
    python -m tests.trials.serving [--task rte] [--datasets FOLDER] [--port 8090]
    python -m tests.trials.serving --load 60

Takes the registry's champion of the task and the dev rows that it was measured on, and asks `gptmill predict`,
`mlflow.pyfunc.load_model`, `mlflow models serve` (/invocations) and `gptmill serve` (/predict). Both servers are timed
until /health answers and get a bad row, which must be a 400 that names its field; then SIGTERM, while `gptmill serve`
has a request under way, which it must still answer. Prints a line a check; exit code 1 where one fails.

`--load` needs no stack: 1, 16 and 256 clients ask a network of the preset `small`'s shape for so many seconds each, a
row a request, and every answer that they got is one that the server's /metrics counts.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import psutil

from flows.servers.environment import prepare, read_stack
from gptcore.base.errors import InputError
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import task_spec
from tests.trials.scenarios import options, output_of, started

_Answers = list[dict[str, Any]]
_DECIMALS = 6
"""The decimals of a probability as it is told; batches of other rows may move the last of them by one."""
_ROUNDED = 1.0
"""Points by which a score may differ from the registry's: training scores in bfloat16, answers are given in float32."""
_READY_SECONDS = 300.0
_END_SECONDS = 60.0
_BAD_REQUEST, _SIGTERM_EXIT = 400, 143
_LOADS = (1, 16, 256)
_CALLS_AT_ONCE = 100  # rows of one request to a server


@dataclass
class Checks:
    """What held, a line each."""

    failed: list[str] = field(default_factory=list)

    def tell(self, good: bool, line: str) -> None:
        """Print a check's line."""
        print(f"{'ok    ' if good else 'FAILED'}  {line}", flush=True)
        if not good:
            self.failed.append(line)


@dataclass(frozen=True)
class Subject:
    """The model that is asked, and what it is asked."""

    task: str
    ref: str
    """``models:/NAME@champion``."""
    store: str
    rows: Sequence[Mapping[str, str]]
    columns: Sequence[str]
    """The columns of a row, as the data names them."""
    labels: Sequence[str]
    """The right answers; none for a graded score."""
    score: str
    """The version's own dev score, in per cent, where that is an accuracy."""


def main() -> int:
    """Ask it each way; 0 if all agree."""
    parser = options(__doc__)
    parser.add_argument("--task", default="rte", help="one of the twelve (%(default)s)")
    parser.add_argument("--datasets", default="", help="folder of its rows (the generated world of the stack's store)")
    parser.add_argument("--port", type=int, default=8090, help="for the servers of the model (%(default)s)")
    parser.add_argument("--load", type=float, default=0.0, help="seconds of load from each number of clients, alone")
    given = parser.parse_args()
    checks = Checks()
    if given.load:
        _load(checks, given.load)
        return 1 if checks.failed else 0
    prepare()
    stack = read_stack()
    if stack is None:
        raise InputError("no stack is running; start one first: gptmill up")
    os.environ["MLFLOW_TRACKING_URI"] = stack["mlflow_url"]
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    subject = _subject(given.task, given.datasets, stack["forms"]["store"])
    kind = "full" if stack["layout"]["full"] else "light"
    print(f"{kind} stack, {stack['mlflow_url']}: {subject.ref} in {subject.store}, {len(subject.rows)} dev rows")
    expected, seconds = _timed(lambda: _of_predict(subject))
    checks.tell(len(expected) == len(subject.rows), f"gptmill predict: {len(expected)} answers ({seconds:.1f} s)")
    if subject.score:
        right = sum(one["label"] == label for one, label in zip(expected, subject.labels, strict=True))
        accuracy = 100 * right / len(expected)
        line = f"accuracy of these answers {accuracy:.1f}, in the registry {subject.score}"
        checks.tell(abs(accuracy - float(subject.score)) <= _ROUNDED, f"{line} (by the training, in its own precision)")
    answers, seconds = _timed(lambda: _of_pyfunc(subject))
    _compare(checks, f"mlflow.pyfunc.load_model ({seconds:.1f} s)", answers, expected)
    _ask_mlflow(checks, subject, expected, given.port)
    _ask_gptmill(checks, subject, expected, given.port)
    return 1 if checks.failed else 0


def _load(checks: Checks, seconds: float) -> None:
    """A row a request, from so many clients at a time: p50, p99, rows a second, memory; none lost."""
    from gptcore.nlu.readers import load_task

    bench = import_module("tests.benchmarks.serving")  # whose parts have no types
    with tempfile.TemporaryDirectory(prefix="gptmill-load-") as folder:
        datasets, tokenizer = bench.sources(Path(folder))
        texts = [row.fields[0] for row in load_task("sst2", str(datasets), "dev")]
        bodies = [json.dumps({"sentence": text}).encode() for text in texts]
        command = ["flows.cli", "serve", bench.stored(Path(folder) / "store", tokenizer).url, "--port"]
        with bench.served(command) as (process, port, _):

            def counted() -> int:
                page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
                return round(float(page.partition("\ngptmill_rows_total ")[2].split()[0]))

            for clients in _LOADS:
                before = counted()
                waits, spent = bench.asked(port, bodies, clients, seconds)
                lost = counted() - before - len(waits) - 1  # the one that comes before them
                p50, p99 = (1000 * statistics.quantiles(waits, n=100)[at] for at in (49, 98))
                memory = psutil.Process(process.pid).memory_info().rss / 1e6
                line = f"{clients} clients: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(waits) / spent:,.0f} rows/s"
                checks.tell(not lost, f"{line}; {len(waits):,} answers, {lost} lost; {memory:.0f} MB")


def _subject(task: str, datasets: str, store: str) -> Subject:
    from flows.forms.checks import datasets_folder
    from gptcore.nlu.readers import load_task
    from tasks.report.entries import task_model
    from tasks.store.store import Store
    from tasks.tracking.registry import CHAMPION
    from tasks.tracking.tracker import Tracker

    spec, name = task_spec(task), task_model(task, synthetic=not datasets)
    datasets = datasets_folder(Store(store), datasets)
    named = zip(spec.fields, form_of(spec).names_of(spec), strict=False)
    texts = [field if isinstance(field, str) else other for field, other in named]  # of several columns one text
    columns = (*texts, *spec.choices)
    examples = load_task(task, datasets)
    rows = [dict(zip(columns, (*example.fields, *example.choices), strict=True)) for example in examples]
    labels = [spec.labels[int(example.label or 0)] for example in examples] if spec.labels else []
    version = Tracker().client.get_model_version_by_alias(name, CHAMPION)
    score = version.tags["dev_score"] if spec.headline == "accuracy" else ""
    return Subject(task, f"models:/{name}@{CHAMPION}", store, rows, columns, labels, score)


def _timed(ask: Callable[[], _Answers]) -> tuple[_Answers, float]:
    begun = time.monotonic()
    return ask(), time.monotonic() - begun


def _compare(checks: Checks, way: str, answers: _Answers, expected: _Answers) -> None:
    """Every label equal, every probability as good as equal."""
    if len(answers) != len(expected):
        checks.tell(False, f"{way}: {len(answers)} answers, expected {len(expected)}")
        return
    apart = [
        name
        for one, other in zip(answers, expected, strict=True)
        for name in one.keys() | other.keys()
        if isinstance(one.get(name), str) and one.get(name) != other.get(name)
    ]
    largest = max(
        abs(float(one[name]) - float(value)) if name in one else float("inf")
        for one, other in zip(answers, expected, strict=True)
        for name, value in other.items()
        if not isinstance(value, str)
    )
    good = not apart and round(largest, _DECIMALS + 1) <= 10**-_DECIMALS
    checks.tell(
        good, f"{way}: {len(answers)} answers, {len(apart)} other labels, probabilities {largest:.1e} apart at most"
    )


# --- the four ways ----------------------------------------------------------------------------------------------------


def _of_predict(subject: Subject) -> _Answers:
    """`gptmill predict`, a JSON line a row."""
    command = ["predict", subject.task, "--model", subject.ref, "--store", subject.store]
    lines = "".join(json.dumps(row) + "\n" for row in subject.rows)
    cells = form_of(task_spec(subject.task)).cells
    return [cells(json.loads(line)) for line in output_of("flows.cli", *command, given=lines).splitlines()]


def _of_pyfunc(subject: Subject) -> _Answers:
    """A data frame, in this process."""
    import mlflow
    import pandas as pd

    model = mlflow.pyfunc.load_model(subject.ref)
    return list(model.predict(pd.DataFrame(subject.rows)).to_dict("records"))


def _ask_mlflow(checks: Checks, subject: Subject, expected: _Answers, port: int) -> None:
    command = ["-m", "mlflow", "models", "serve", "--model-uri", subject.ref, "--env-manager", "local"]
    with _served([*command, "--host", "127.0.0.1", "--port", str(port)], port) as (process, client, seconds):
        checks.tell(True, f"mlflow models serve: /health after {seconds:.1f} s")

        def ask(rows: Sequence[Mapping[str, str]]) -> httpx.Response:
            return client.post("/invocations", json={"dataframe_records": rows})

        answers, seconds = _timed(lambda: [a for part in _parts(subject.rows) for a in ask(part).json()["predictions"]])
        _compare(checks, f"/invocations ({seconds:.1f} s)", answers, expected)
        _bad_row(checks, "/invocations", subject, ask)
        code, seconds = _end(process)
        checks.tell(True, f"mlflow models serve: SIGTERM, ended after {seconds:.1f} s (exit code {code})")


def _ask_gptmill(checks: Checks, subject: Subject, expected: _Answers, port: int) -> None:
    command = ["-m", "flows.cli", "serve", subject.ref, "--store", subject.store, "--port", str(port)]
    with _served(command, port) as (process, client, seconds):
        health = client.get("/health").json()
        good = health["status"] == "ok" and health["task"] == subject.task
        checks.tell(good, f"gptmill serve: /health after {seconds:.1f} s, digest {health['digest'][:12]}")

        def ask(rows: Sequence[Mapping[str, str]]) -> httpx.Response:
            return client.post("/predict", json=rows)

        cells = form_of(task_spec(subject.task)).cells
        answers, seconds = _timed(lambda: [cells(a) for part in _parts(subject.rows) for a in ask(part).json()])
        _compare(checks, f"/predict ({seconds:.1f} s)", answers, expected)
        _bad_row(checks, "/predict", subject, ask)
        under_way: list[httpx.Response] = []
        many = [*subject.rows] * (2000 // len(subject.rows))
        caller = threading.Thread(target=lambda: under_way.append(ask(many)))
        caller.start()
        time.sleep(0.5)
        code, seconds = _end(process)
        caller.join()
        answered = len(under_way[0].json()) if under_way else 0
        line = f"SIGTERM with {len(many)} rows under way: {answered} answered, ended after {seconds:.1f} s"
        checks.tell(answered == len(many) and code == _SIGTERM_EXIT, f"gptmill serve: {line} (exit code {code})")


def _bad_row(checks: Checks, way: str, subject: Subject, ask: Callable[[Any], httpx.Response]) -> None:
    """A row without its last text is refused by name; the next request is answered."""
    *kept, dropped = subject.columns
    answer = ask([{name: subject.rows[0][name] for name in kept}])
    named = dropped in answer.text and answer.status_code == _BAD_REQUEST
    after = ask(subject.rows[:1]).status_code
    lines = [line.strip() for value in answer.json().values() for line in str(value).splitlines()]
    said = next((line for line in reversed(lines) if dropped in line), lines[-1])  # MLflow's traceback ends with it
    checks.tell(named and after == httpx.codes.OK, f"{way}, a row without {dropped}: {answer.status_code}, {said!r}")


def _parts(rows: Sequence[Mapping[str, str]]) -> Iterator[Sequence[Mapping[str, str]]]:
    for first in range(0, len(rows), _CALLS_AT_ONCE):
        yield rows[first : first + _CALLS_AT_ONCE]


@contextmanager
def _served(arguments: Sequence[str], port: int) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client, float]]:
    """A server of a model, a client of it, and the seconds until its /health answered; ended in the end."""
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", port))
        except OSError:
            raise InputError(f"--port {port}: in use, expected a free one") from None
    with tempfile.TemporaryDirectory(prefix="gptmill-serving-") as folder:
        log = Path(folder) / "log"
        begun = time.monotonic()
        process = started([sys.executable, *arguments], log, _activated(), start_new_session=True)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        try:
            while not _healthy(client):
                if process.poll() is not None or time.monotonic() - begun > _READY_SECONDS:
                    raise RuntimeError(f"{' '.join(arguments)}: not ready:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield process, client, time.monotonic() - begun
        finally:
            client.close()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _activated() -> dict[str, str]:
    """The environment as `. .venv/bin/activate` makes it: MLflow starts uvicorn by its bare name."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _end(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """SIGTERM to the group, as a supervisor sends it; the exit code, and the seconds until none of it was left."""
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)
    code = process.wait(_END_SECONDS)
    while time.monotonic() - begun < _END_SECONDS:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return code, time.monotonic() - begun
        time.sleep(0.05)
    raise TimeoutError(f"SIGTERM: a process of {process.args!r} was still there after {_END_SECONDS:.0f} s")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"tests.trials.serving: error: {error}", file=sys.stderr)
        sys.exit(2)
