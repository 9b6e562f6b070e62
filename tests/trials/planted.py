"""Secrets planted by every way in, then looked for in every byte.

    python -m tests.trials.planted FOLDER

Ways in: the environment, addresses (a user's and a presigned one's, whose pipeline works), TOML files, a form, headers,
paths and texts of requests. Runs a small pipeline and commands that fail, with --verbose and --debug, and a server, and
searches what they print, their state folder (MLflow's and Prefect's databases, logs, artifacts, cards), the store, the
report, the server's pages, and the command lines of their processes. Exit code 1: a secret was found somewhere.
"""

from __future__ import annotations

import base64
import http.client
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import psutil

from gptcore.papers.storyworld.write import generate
from tests.trials.scenarios import free_ports, started

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "SLACK_WEBHOOK_URL", "SOMEBODYS_PASSWORD")
LOGINS = ("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD")


def main(folder: Path) -> int:
    """Plant, run, search; the exit code."""
    folder.mkdir(parents=True)
    more = ("address", "signature", "TOML", "form", "header", "path", "text")
    planted = {name: f"planted-{secrets.token_hex(12)}" for name in (*NAMES, *LOGINS, *more)}
    planted[LOGINS[1]] = planted[LOGINS[0]]  # the temporary server's own
    address = f"http://user:{planted['address']}@127.0.0.1:9"
    values = {name: value for name, value in planted.items() if name not in more}
    values |= {name: f"admin:{planted[name]}" for name in LOGINS[:2]}
    values["SLACK_WEBHOOK_URL"] = f"https://hooks.example.com/services/{planted['SLACK_WEBHOOK_URL']}"
    environment = {**os.environ, **values, "GPTMILL_HOME": str(folder / "home"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    store = ["--store", str(folder / "store")]
    pipeline = ["pipeline", "--config", str(ROOT / "infra" / "short-demo.toml"), "--tasks", "rte", *store]
    slashed = f"s3://KEY:{planted['address'][:12]}/{planted['address']}@bucket/x"
    files = _written(folder, planted["TOML"])
    tracker = {"MLFLOW_TRACKING_URI": address}
    database = {"MLFLOW_TRACKING_URI": f"postgresql://user:{planted['address']}@127.0.0.1:9/mlflow"}
    server = {"PREFECT_API_URL": f"{address}/api"}
    runs: list[tuple[list[str], dict[str, str], int]] = [
        ([*pipeline, "--verbose"], {}, 0),
        (["--debug", *pipeline], tracker, 2),
        (["--debug", *pipeline, "--verbose"], database, 2),
        (["--debug", *pipeline, "--verbose"], server, 2),
        (["--debug", "pipeline", "--store", f"{address}/store"], {}, 2),
        (["--debug", "pipeline", "--corpus", f"{address}/books", *store, "--verbose"], {}, 2),
        (["--debug", "datasets", "--datasets", f"{address}/data"], {}, 2),
        (["--debug", "pipeline", "--corpus", slashed, *store, "--verbose"], {}, 2),
        (["--debug", "pipeline", "--corpus", f"https://{planted['address']}@127.0.0.1:9/a.txt", *store], {}, 2),
        (["--debug", "datasets", "get", "rte", "--to", str(folder / "data"), "--mirror", address], {}, 2),
        *(([*words, *store], {}, 2) for words in files),
        (["gc", *store, "--older-than", "0"], {}, 0),
        (["leaderboard", "--format", "csv"], {}, 0),
    ]
    seen = 0
    with _signed_books(folder / "served", planted["signature"]) as books:
        signed = ["--corpus", f"{books}?X-Amz-Date=1&X-Amz-Signature={planted['signature']}"]
        runs.append(([*pipeline, *signed, "--verbose"], {}, 0))
        runs.append((["report", "--out", str(folder / "report.html")], {}, 0))
        seen = _run_all(runs, environment, folder, planted["address"])
    print(f"form: {_of_form(planted['form'])}")
    served = _ask_server([*store, "rte"], environment, planted, folder)
    print(f"{'as expected' if served else 'NOT as expected'}: a server, asked with secrets, and its end")
    told = [(name, path) for path in _files(folder) for name in _named(path, planted)]
    for name, path in told:
        print(f"FOUND the secret {name} in {path}")
    total = sum(path.stat().st_size for path in _files(folder))
    print(
        f"{len(set(planted.values()))} secrets, {len(runs)} commands ({seen} as expected), "
        f"{len(_files(folder))} files of {total / 1e6:.1f} MB searched: found {len(told)} times"
    )
    return 1 if told or seen < len(runs) or not served else 0


def _run_all(
    runs: list[tuple[list[str], dict[str, str], int]], environment: dict[str, str], folder: Path, secret: str
) -> int:
    """How many commands ended as expected."""
    seen = 0
    for number, (arguments, more, expected) in enumerate(runs):
        code = _run(arguments, {**environment, **more}, folder / f"output-{number}.txt", folder / "command-lines.txt")
        seen += code == expected
        shown = " ".join(arguments).replace(secret, "***")
        print(
            f"{'as expected' if code == expected else 'NOT as expected'}: exit code {code}: {shown}"[:150], flush=True
        )
    return seen


def _written(folder: Path, secret: str) -> list[list[str]]:
    """Commands that read TOML files with a secret, which lie where nothing is searched."""
    out = folder.with_name(f"{folder.name}-given")
    out.mkdir()
    task = f'form = "pair"\nfields = ["a", "b"]\nlabel = "c"\ntrain = "t.csv"\nfolder = "https://u:{secret}@127.0.0.1:9/d"\n'
    (out / "task.toml").write_text(f'name = "own"\nformat = "csv"\nholdout = 0.1\n{task}', encoding="utf-8")
    (out / "config.toml").write_text(f'[corpus]\nencodings = "https://{secret}@127.0.0.1:9"\n', encoding="utf-8")
    return [
        ["--debug", "pipeline", "--tasks", str(out / "task.toml")],
        ["--debug", "pipeline", "--config", str(out / "config.toml")],
    ]


@contextmanager
def _signed_books(folder: Path, signature: str) -> Iterator[str]:
    """The address of a file of books, which a server gives to whoever has its signature."""
    generate(folder, seed=7, books=4, characters=60_000)
    text = b"\n\n".join(path.read_bytes() for path in sorted((folder / "books").glob("*.txt")))

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            good = self.path == f"/books.txt?X-Amz-Date=1&X-Amz-Signature={signature}"
            body = text if good and self.command == "GET" else b""
            self.send_response(200 if good else 403)
            self.send_header("Content-Length", str(len(text) if good else 0))
            self.send_header("ETag", '"one"')
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/books.txt"
        server.shutdown()


def _of_form(secret: str) -> str:
    """How many addresses Prefect's own check of a form's values refuses, as it would record them."""
    from prefect.utilities.schema_tools import validate

    from flows.forms.parameters import PipelineParameters

    schema = PipelineParameters.model_json_schema()
    bad = (f"s3://KEY:{secret}@bucket/x", f"https://{secret}@host/x", f"https://host/x?a=1&X-Amz-Signature={secret}")
    refused = sum(bool(validate({"corpus": address}, schema)) for address in bad)
    good = not validate({"corpus": "https://host/x?raw=1"}, schema)
    assert refused == len(bad)
    assert good
    return f"{refused} addresses refused before they are recorded"


def _ask_server(model: list[str], environment: dict[str, str], planted: dict[str, str], folder: Path) -> bool:
    """Whether a server answers requests with secrets in headers, path and text, and ends; its pages are kept."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "flows.cli", "serve", *model, "--port", str(port)]
    process = started(command, folder / "output-serve.txt", environment, cwd=ROOT)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {planted['header']}"}
    headers["Cookie"] = f"session={planted['header']}"
    row = f'{{"premise": "{planted["text"]}", "hypothesis": "a"}}'
    asked = [("POST", f"/predict?token={planted['path']}", row), ("GET", f"/{planted['path']}", "")]
    asked += [
        ("POST", "/predict", f'{{"premise": "{planted["text"]}"}}'),
        ("GET", "/health", ""),
        ("GET", "/metrics", ""),
    ]
    statuses: list[int] = []
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and len(statuses) < len(asked):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection, suppress(OSError):
            method, path, text = asked[len(statuses)]
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            statuses.append(answer.status)
            page = answer.read()
            if answer.status == 200:
                (folder / f"page-{len(statuses)}").write_bytes(page)
            continue
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    return process.wait(60) == 128 + signal.SIGTERM and statuses == [200, 404, 400, 200, 200]


def _run(arguments: list[str], environment: dict[str, str], output: Path, lines: Path) -> int:
    """One command; command lines of it and of all that it starts are written down, without our own arguments."""
    process = started([sys.executable, "-m", "flows.cli", *arguments], output, environment, cwd=ROOT)
    ended = threading.Event()

    def watch() -> None:
        given = set(arguments)
        while not ended.wait(0.05):
            with suppress(psutil.NoSuchProcess), open(lines, "a", encoding="utf-8") as file:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        file.write(" ".join(word for word in child.cmdline() if word not in given) + "\n")

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    ended.set()
    watcher.join()
    return code


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _named(path: Path, planted: dict[str, str]) -> list[str]:
    """The secrets that a file holds, as they are or as addresses and headers write them."""
    data = path.read_bytes()
    spelt = {
        name: (value.encode(), quote(value, safe="").encode(), base64.b64encode(value.encode()).rstrip(b"="))
        for name, value in planted.items()
    }
    return [name for name, forms in spelt.items() if any(form in data for form in forms)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.trials.planted FOLDER (a new one)")
    sys.exit(main(Path(sys.argv[1])))
