"""The full stack: its secrets, what its processes are told, what a start says; PostgreSQL and S3 for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import fsspec
import psutil
import pytest

from flows.cli.main import main
from flows.deployments.deploy import deploy
from flows.servers import credentials
from flows.servers.credentials import client_environment, credentials_file, ensure_credentials, read_credentials
from flows.servers.environment import read_stack, stack_file
from flows.servers.stack import postgres, s3
from flows.servers.stack.control import down, remember, status, up
from flows.servers.stack.processes import Process, Service, alive, log_file, orphans, start, stop, wait_until_ready
from flows.servers.stack.services import Layout, client_variables, service
from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.base.filesystems import ANSWERED
from tasks.store.artifact import Recipe
from tasks.store.locks import is_locked
from tasks.store.store import Store
from tests.expected import expected
from tests.trials.scenarios import ended, free_ports


@pytest.fixture
def home(tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    return tmp_path


def s3_port() -> int:
    """A port whose inner neighbours are free, and below those that the kernel gives to clients' connections."""
    for port in range(12_000 + os.getpid() % 5_000, 22_000, 7):
        with socket.socket() as probe:
            if all(probe.connect_ex(("127.0.0.1", one)) for one in s3.ports(port)):
                return port
    raise AssertionError("no free ports")


@pytest.fixture
def layout() -> Layout:
    prefect, mlflow, database = free_ports(3)
    return Layout(True, prefect, mlflow, database, s3_port())


def made(layout: Layout) -> dict[str, str]:
    return ensure_credentials(layout.prefect_url, layout.mlflow_url, layout.s3_url)


def secrets_of(found: dict[str, str]) -> list[str]:
    return [value.removeprefix("admin:") for value in found.values() if "//" not in value and len(value) > 20]


def test_secrets_are_made_once_for_their_owner_alone(home: Path, layout: Layout) -> None:
    first = made(layout)
    assert credentials_file().stat().st_mode & 0o777 == 0o600
    moved = ensure_credentials("http://127.0.0.1:1", layout.mlflow_url, layout.s3_url)
    assert moved["PREFECT_API_URL"] == "http://127.0.0.1:1/api"
    assert secrets_of(moved) == secrets_of(first) == secrets_of(read_credentials())
    assert len(set(secrets_of(first))) == 7
    assert all(line.startswith("#") or "=" in line for line in credentials_file().read_text().splitlines())


def test_a_client_of_other_servers_does_not_get_our_passwords(home: Path, layout: Layout) -> None:
    ours = made(layout)
    assert set(client_environment(ours, {})) == {*credentials.PREFECT, *credentials.MLFLOW, *credentials.S3}
    elsewhere = {"PREFECT_API_URL": "https://else/api", "MLFLOW_TRACKING_URI": "https://else", "AWS_PROFILE": "mine"}
    assert client_environment(ours, elsewhere) == {}
    assert client_environment(ours, {"PREFECT_API_AUTH_STRING": "mine"}).get("PREFECT_API_AUTH_STRING") is None


def test_what_automations_wait_for_outlives_the_server(home: Path, layout: Layout) -> None:
    """Prefect forgets it a minute after it was due: a run lost in a longer power cut would be Running for ever."""
    program = (
        "from prefect.settings import get_current_settings as now; print(now().server.events.expired_bucket_buffer)"
    )
    environment = {**os.environ, **service("prefect", layout, made(layout)).environment}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said == "7 days, 0:00:00\n"


def test_no_command_carries_a_secret(home: Path, layout: Layout) -> None:
    found = made(layout)
    for name in layout.names:
        command = " ".join(service(name, layout, found).command)
        assert not [secret for secret in secrets_of(found) if secret in command]
        assert "0.0.0.0" not in command
    assert not [secret for secret in secrets_of(found) if secret in repr(service("mlflow", layout, found))]
    assert "GPTMILL_POSTGRES_PASSWORD" not in client_variables(layout, found)  # workers and jobs need none of these


@pytest.mark.parametrize(("gpus", "runs"), [("", "1"), ("0,1,2", "3")])
def test_the_worker_that_trains_takes_a_run_for_each_gpu(
    home: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch, gpus: str, runs: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    assert service("worker-training", layout, {}).command[-2:] == ["--limit", runs]
    monkeypatch.setenv("GPTMILL_JOBS", "slurm")
    assert service("worker-training", layout, {}).command[-2:] == ["--limit", "16"]


def test_a_taken_port_is_named_with_its_option_and_nothing_is_started(home: Path, layout: Layout) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", layout.postgres_port))
        other.listen()
        with pytest.raises(InputError, match=rf"port {layout.postgres_port} .* --postgres-port"):
            up(True, layout.chosen, None, None, deploy)
    assert not stack_file().exists()
    assert not credentials_file().exists()


def test_databases_without_their_passwords_are_not_touched(home: Path, layout: Layout) -> None:
    (home / "postgres").mkdir()
    with pytest.raises(InputError, match="put the file back, or delete everything: gptmill down --wipe"):
        up(True, layout.chosen, None, None, deploy)


def test_up_beside_the_other_stack_says_what_runs(
    home: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    light = Layout(False, layout.prefect_port, layout.mlflow_port, 0, 0)
    monkeypatch.setattr("flows.servers.stack.control.alive", lambda _: True)
    recorded(light)
    with pytest.raises(InputError, match=r"--full: the light stack is running with .*; stop it first: gptmill down"):
        up(True, {}, None, None, deploy)
    monkeypatch.setattr("flows.servers.stack.control.status", lambda: None)
    up(False, light.chosen, None, None, deploy)
    assert "The light stack is already running." in capsys.readouterr().out


def recorded(layout: Layout, **processes: Process) -> dict[str, Process]:
    """A record of such a stack: its processes."""
    all_of_them: dict[str, Process] = {name: {"pid": 2**22 + 1, "created": 0.0} for name in layout.names}
    record = {"prefect_url": layout.prefect_url, "mlflow_url": layout.mlflow_url, "layout": vars(layout)}
    record["forms"] = {"store": "/mine", "datasets": "/rows"}
    write_json_atomic(stack_file(), {**record, "processes": all_of_them | processes})
    return all_of_them | processes


def test_a_record_of_an_older_version_is_read(home: Path, layout: Layout) -> None:
    recorded(layout)
    record = read_json(stack_file())
    del record["forms"]
    write_json_atomic(stack_file(), {**record, "store": "s3://gptmill/runs"})
    read = read_stack()
    assert read["forms"] == {"store": "s3://gptmill/runs", "datasets": ""}


@pytest.mark.parametrize("dead", [(), ("mlflow", "s3")], ids=["whole", "two are dead"])
def test_up_with_other_ports_touches_nothing_of_what_runs(
    home: Path,
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dead: tuple[str, ...],
) -> None:
    there = recorded(layout, **{name: Process(pid=2**22 + 2, created=0.0) for name in dead})
    before = stack_file().read_bytes()
    control = "flows.servers.stack.control"
    monkeypatch.setattr(f"{control}.alive", lambda process: process not in [there[name] for name in dead])
    stopped: list[Process] = []
    monkeypatch.setattr(f"{control}.stop", lambda processes: stopped.extend(process for process, _ in processes))
    for ports in ({"prefect": 4890}, {"s3": 5}, {"mlflow": 4890, "postgres": layout.postgres_port}):
        with pytest.raises(
            InputError, match=rf"-port \d+: .*with .*--prefect-port {layout.prefect_port} .*gptmill down"
        ):
            up(True, ports, None, None, deploy)
    assert stack_file().read_bytes() == before
    assert not stopped
    started: list[list[str]] = []
    monkeypatch.setattr(f"{control}._start_all", lambda starting, _: started.append(starting.lacking))
    monkeypatch.setattr(f"{control}.status", lambda: None)
    for full, same in ((True, {}), (False, {}), (True, layout.chosen)):  # the running one's ports are kept
        up(full, same, None, None, deploy)
    assert started == [[name for name in layout.names if name in dead]] * 3 * bool(dead)
    assert ("already running" in capsys.readouterr().out) == (not dead)


def test_ports_that_cannot_be_are_refused_before_anything(home: Path) -> None:
    for ports, said in expected(__file__, "REFUSED_PORTS"):
        with pytest.raises(InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
            up(True, ports, None, None, deploy)
    assert not stack_file().exists()


@pytest.fixture
def orphan(home: Path, layout: Layout) -> Iterator[tuple[Process, psutil.Process]]:
    """A killed process, and its child, which still listens on MLflow's port."""
    listen = f"import socket; s = socket.create_server(('127.0.0.1', {layout.mlflow_port})); s.accept(); s.accept()"
    command = ["sh", "-c", f'{sys.executable} -S -c "{listen}" & wait']
    process = start(Service("mlflow", command, lambda: True), home)
    child = None
    try:
        while child is None or not child.net_connections():
            child = next(iter(psutil.Process(process["pid"]).children()), None)
        os.kill(process["pid"], signal.SIGKILL)
        while alive(process):
            pass
        yield process, child
    finally:
        if child is not None and child.is_running():
            child.kill()


def test_what_a_killed_server_left_is_ended_by_down(
    orphan: tuple[Process, psutil.Process], layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process, child = orphan
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("GPTMILL_HOME", str(tmp_path / "another"))
        assert not orphans(process)  # another stack's, whose leader has had that number
    assert not orphans({"pid": process["pid"], "created": child.create_time() + 1})
    assert orphans(process) == [child]
    recorded(layout, mlflow=process)
    down()
    assert ended(child.pid)
    assert not stack_file().exists()


def test_what_a_killed_server_left_does_not_keep_up_from_its_port(
    orphan: tuple[Process, psutil.Process], layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, child = orphan
    me = psutil.Process()
    recorded(layout, prefect={"pid": me.pid, "created": me.create_time()}, mlflow=process)
    lacking: list[str] = []
    monkeypatch.setattr("flows.servers.stack.control._start_all", lambda starting, _: lacking.extend(starting.lacking))
    monkeypatch.setattr("flows.servers.stack.control.status", lambda: None)
    up(True, {}, None, None, deploy)
    assert lacking == [name for name in layout.names if name != "prefect"]
    assert ended(child.pid)


def test_one_that_is_ending_is_waited_for_though_its_environment_is_gone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that exits gives back its memory, its environment with it, and only then closes its sockets."""
    slow = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit()));"
        "print(1, flush=True); time.sleep(60)"
    )
    service = Service("slow", ["sh", "-c", f"{sys.executable} -S -c '{slow}' & wait"], lambda: True)
    process = start(service, home)
    while not log_file(service, home).read_text():
        pass
    child = psutil.Process(process["pid"]).children()[0]
    signalled: list[int] = []
    send, environ = os.killpg, psutil.Process.environ
    monkeypatch.setattr(os, "killpg", lambda pid, number: (signalled.append(pid), send(pid, number)))
    monkeypatch.setattr(psutil.Process, "environ", lambda one: {} if signalled else environ(one))
    stop([(process, signal.SIGTERM)])
    assert signalled == [process["pid"]]
    assert ended(child.pid)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda file: file.chmod(0o644), "others may read it (mode 644), expected 600"),
        (lambda file: file.write_text("PREFECT_API_URL=x\n"), "found no PREFECT_API_AUTH_STRING"),
        (lambda file: file.unlink(), "cannot be read (No such file or directory)"),
    ],
    ids=["others may read it", "it lacks a key", "it is gone"],
)
def test_broken_credentials_do_not_keep_from_what_mends_them(
    home: Path,
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: Callable[[Path], object],
    said: str,
) -> None:
    made(layout)
    broken(credentials_file())
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    me = psutil.Process()
    recorded(layout, s3={"pid": me.pid, "created": me.create_time()})
    assert main(["leaderboard"]) == 2
    assert f"{credentials_file()}: {said}" in capsys.readouterr().err
    with pytest.raises(SystemExit) as shown:
        main(["--help"])
    assert shown.value.code == 0
    assert main(["status"]) == 2
    shown_too = capsys.readouterr()
    assert f"s3         runs (pid {me.pid})" in shown_too.out
    assert "prefect    NOT running" in shown_too.out
    assert str(credentials_file()) in shown_too.err
    recorded(layout)
    assert main(["down", "--wipe"]) == 0
    assert not stack_file().exists()
    assert not credentials_file().exists()


def test_down_keeps_off_while_another_command_starts_or_stops(
    home: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(layout)
    held: list[bool] = []
    monkeypatch.setattr("flows.servers.stack.control.stop", lambda _: held.append(is_locked(home / ".up.lock")))
    monkeypatch.setattr("flows.servers.stack.control._wipe", lambda: held.append(is_locked(home / ".up.lock")))
    down(wipe=True)
    assert held == [True] * 4
    assert not is_locked(home / ".up.lock")


@pytest.mark.parametrize("fails", [False, True], ids=["it starts", "it does not start"])
def test_up_starts_what_has_died_and_leaves_the_rest_to_its_work(
    home: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    light = Layout(False, layout.prefect_port, layout.mlflow_port, 0, 0)
    (home / "logs").mkdir(mode=0o755)
    there = recorded(light, **{name: Process(pid=pid, created=0.0) for pid, name in enumerate(light.names)})
    fresh: Process = {"pid": 99, "created": 1.0}
    started: list[str] = []
    stopped: list[list[Process]] = []

    def begin(one: Service, logs: Path) -> Process:
        started.append(one.name)
        return fresh

    def wait(one: Service, process: Process, logs: Path) -> None:
        if fails and one.name == "mlflow":
            raise RuntimeError("mlflow did not start")

    control = "flows.servers.stack.control"
    monkeypatch.setattr(f"{control}.alive", lambda process: process not in (there["mlflow"], there["worker-cpu"]))
    monkeypatch.setattr(f"{control}.start", begin)
    monkeypatch.setattr(f"{control}.stop", lambda processes: stopped.append([process for process, _ in processes]))
    monkeypatch.setattr(f"{control}.wait_until_ready", wait)
    for name in (f"{control}.status", f"{control}._refresh_experiments"):
        monkeypatch.setattr(name, lambda *_: None)
    deployed: list[tuple[str, ...]] = []
    with pytest.raises(InputError, match="--store /other: the stack is running with --store /mine; gptmill deploy"):
        up(False, light.chosen, "/other", None, lambda *forms: deployed.append(forms))
    assert not started
    remember({"store": "/deployed", "datasets": "/rows"})
    with pytest.raises(RuntimeError) if fails else nullcontext():
        up(False, light.chosen, "/deployed", None, lambda *forms: deployed.append(forms))
    assert (home / "logs").stat().st_mode & 0o777 == 0o700  # the S3 server writes key ids to its log
    assert started == ["mlflow", "worker-cpu"]
    left = read_json(stack_file())["processes"]
    assert read_json(stack_file())["forms"] == {"store": "/deployed", "datasets": "/rows"}
    if fails:
        assert stopped == [[there["mlflow"]], [fresh, fresh]]  # what a killed server left; what this start has started
        assert left == {name: there[name] for name in ("prefect", "worker-training")}
    else:
        assert stopped == [[there["mlflow"]]]
        assert deployed == [("/deployed", "/rows")]
        assert left == {**there, "mlflow": fresh, "worker-cpu": fresh}


def test_status_of_dead_processes_and_wipe(home: Path, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    made(layout)
    (home / "postgres").mkdir()
    (home / "logs").mkdir()
    recorded(layout)
    status()
    shown = capsys.readouterr().out
    assert shown.count("NOT running") == len(layout.names) == 6
    assert not [secret for secret in secrets_of(read_credentials()) if secret in shown]
    down(wipe=True)
    said = capsys.readouterr().out
    assert "databases of Prefect and MLflow" in said
    assert "passwords and keys" in said
    assert {path.name for path in home.iterdir()} == {".up.lock"}


@pytest.mark.slow
def test_postgres_starts_keeps_its_data_and_comes_back_after_a_kill(home: Path, layout: Layout) -> None:
    import psycopg2

    found = made(layout)
    postgres.prepare(found)
    server = postgres.postgres(layout.postgres_port, found)
    process = running(server, home)
    try:
        for _ in range(2):
            postgres.create_databases(layout.postgres_port, found)

        def ask(password: str, database: str, query: str) -> object:
            connection = psycopg2.connect(
                host="127.0.0.1", port=layout.postgres_port, user="prefect", dbname=database, password=password
            )
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall() if cursor.description else None

        password = found[credentials.PREFECT_DATABASE_PASSWORD]
        ask(password, "prefect", "CREATE EXTENSION pg_trgm")  # as Prefect's migrations do, by the same role
        ask(password, "prefect", "CREATE TABLE kept AS SELECT 7 AS n")
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            ask("wrong", "prefect", "SELECT 1")
        with pytest.raises(psycopg2.OperationalError, match="permission denied"):
            ask(password, "mlflow", "SELECT 1")
        stop([(process, signal.SIGKILL)])
        lock = postgres.data_folder() / "postmaster.pid"
        lock.write_text(f"{os.getpid()}\n")  # its pid is another program's by now
        postgres.prepare(found)
        process = running(server, home)
        assert ask(password, "prefect", "SELECT n FROM kept") == [(7,)]
        with pytest.raises(InputError, match="works on it already"):
            postgres.prepare(found)
    finally:
        stop([(process, postgres.STOP_SIGNAL)])
    assert not [secret for secret in secrets_of(found) if secret in (home / "postgres.log").read_text()]


def test_the_parts_of_the_s3_server_know_each_other_by_a_file_of_their_owners_alone(home: Path, layout: Layout) -> None:
    found = made(layout)
    s3.prepare(found)
    told = service("s3", layout, found).environment
    (file,) = {told[name] for name in told if name.endswith(("_CERT", "_KEY", "_CA")) and "JWT" not in name}
    assert {f"WEED_HTTPS_{part}_CA" for part in ("MASTER", "VOLUME", "FILER", "CLIENT")} <= set(told)
    assert {f"WEED_GRPC_{part}_CERT" for part in ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")} <= set(told)
    assert Path(file).stat().st_mode & 0o777 == 0o600
    before = Path(file).read_bytes()
    s3.prepare(found)
    assert Path(file).read_bytes() != before, "anew with every start"


@pytest.fixture
def bucket(home: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    found = made(layout)
    s3.prepare(found)
    process = running(service("s3", layout, found), home)
    for name in credentials.S3:
        monkeypatch.setenv(name, found[name])
    ANSWERED.clear()
    yield found
    stop([(process, signal.SIGKILL)])


@pytest.mark.slow
def test_a_store_in_the_bucket_and_every_way_to_miss_it(
    bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def fresh() -> None:
        ANSWERED.clear()
        fsspec.get_filesystem_class("s3").clear_instance_cache()

    fresh()
    store = Store(s3.STORE)
    recipe = Recipe("corpus", 1, {"a": 1})
    built = store.build(recipe, lambda folder: {"bytes": (folder / "x").write_text("hello")})
    assert store.resolve("latest", "corpus") == built.artifact
    assert (store.local(built.artifact) / "x").read_text() == "hello"
    with pytest.raises(InputError, match="typo"):
        Store("s3://typo/runs").list("corpus")
    for name, words in {
        "AWS_SECRET_ACCESS_KEY": "permission denied",
        "AWS_ACCESS_KEY_ID": "permission denied",
        "AWS_ENDPOINT_URL": "does not answer; check AWS_ENDPOINT_URL",
    }.items():
        with monkeypatch.context() as changed:
            changed.setenv(name, "http://127.0.0.1:9" if name == "AWS_ENDPOINT_URL" else "wrong")
            fresh()
            with pytest.raises(InputError, match=words) as error:
                Store(s3.STORE).list("corpus")
            assert "\n" not in str(error.value)
            assert bucket["AWS_SECRET_ACCESS_KEY"] not in str(error.value)
    fresh()


def running(server: Service, home: Path) -> Process:
    process = start(server, home)
    wait_until_ready(server, process, home)
    assert alive(process)
    return process
