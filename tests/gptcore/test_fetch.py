"""Fetching: identical bytes whatever breaks, nothing half-written, and archives that are not trusted."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from gptcore.evaluation.submission import SUBMISSION
from gptcore.fetch.datasets import cut_mrpc, get_dataset, unpack
from gptcore.fetch.download import FetchError, download
from gptcore.nlu import REGISTRY, available, load_task
from gptcore.nlu.blimp import blimp_fingerprint
from gptcore.nlu.origins import ORIGINS, Download, Origin, origins_named
from gptcore.nlu.readers.winograd import read_dprd
from tests.gptcore import datasets as written
from tests.gptcore.file_server import FileServer, file_server
from tests.gptcore.tiny_blimp import write_blimp
from tests.realdata import real_data

DATA = bytes(range(256)) * 2000  # several chunks
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def server() -> Iterator[FileServer]:
    with file_server() as served:
        yield served


def fetch(server: FileServer, path: Path, sha256: str = "") -> str:
    return download(f"{server.url}/{path.name}", path, sha256, pause=0.001)


def failed(server: FileServer, path: Path, sha256: str = "") -> str:
    with pytest.raises(FetchError) as raised:
        fetch(server, path, sha256)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{server.url}/{path.name}: ")
    return message


def test_a_file_arrives(server: FileServer, tmp_path: Path) -> None:
    server.add("a", DATA)
    seen: list[tuple[int, int]] = []
    path = tmp_path / "a"
    assert download(f"{server.url}/a", path, SHA, lambda there, whole: seen.append((there, whole))) == SHA
    assert path.read_bytes() == DATA
    assert list(tmp_path.iterdir()) == [path]
    assert seen == sorted(seen)
    assert seen[-1] == (len(DATA), len(DATA))


@pytest.mark.parametrize("etag", ['"one"', 'W/"weak"', ""])
def test_a_transfer_that_breaks_goes_on_where_it_broke(server: FileServer, etag: str, tmp_path: Path) -> None:
    file = server.add("b", DATA, cuts=[100_000, 70_000, 0, 1], etag=etag)
    assert fetch(server, tmp_path / "b", SHA) == SHA
    assert (tmp_path / "b").read_bytes() == DATA
    assert file.asked == ["", "bytes=100000-", "bytes=170000-", "bytes=170000-", "bytes=170001-"]


def test_the_next_call_goes_on_too(server: FileServer, tmp_path: Path) -> None:
    file = server.add("c", DATA, cuts=[200_000, 0, 0, 0, 0, 0])
    assert "broken off after 200000 bytes; the same command goes on from there" in failed(server, tmp_path / "c", SHA)
    assert not (tmp_path / "c").exists()
    file.cuts.clear()
    file.asked.clear()
    fetch(server, tmp_path / "c", SHA)
    assert file.asked == ["bytes=200000-"]
    assert (tmp_path / "c").read_bytes() == DATA
    assert len(list(tmp_path.iterdir())) == 1


def interrupted(server: FileServer, path: Path, **behaviour: object) -> None:
    """Leave the first 200,000 bytes of DATA as an earlier call would."""
    server.add(path.name, DATA, cuts=[200_000, 0, 0, 0, 0, 0], **behaviour)
    failed(server, path)


@pytest.mark.parametrize("etag", ['"one"', ""])
def test_a_server_without_ranges_sends_all_of_it(server: FileServer, etag: str, tmp_path: Path) -> None:
    interrupted(server, tmp_path / "d", ranges=False, etag=etag)
    server.add("d", DATA, ranges=False, etag=etag)
    fetch(server, tmp_path / "d", SHA)
    assert (tmp_path / "d").read_bytes() == DATA


@pytest.mark.parametrize(("before", "after"), [('"one"', '"two"'), ("", ""), ('"one"', "")])
@pytest.mark.parametrize("other", [DATA[::-1] + b"more", b"short"])
def test_a_file_that_changed_in_between_starts_again(
    server: FileServer, before: str, after: str, other: bytes, tmp_path: Path
) -> None:
    interrupted(server, tmp_path / "e", etag=before)
    server.add("e", other, etag=after)
    fetch(server, tmp_path / "e")
    assert (tmp_path / "e").read_bytes() == other


def test_a_change_that_nothing_shows_is_caught_by_the_digest(server: FileServer, tmp_path: Path) -> None:
    interrupted(server, tmp_path / "f", etag="")
    server.add("f", DATA[::-1], etag="")  # of the same size
    assert "expected" in failed(server, tmp_path / "f", hashlib.sha256(DATA[::-1]).hexdigest())
    assert list(tmp_path.iterdir()) == []
    fetch(server, tmp_path / "f", hashlib.sha256(DATA[::-1]).hexdigest())


def test_all_of_it_had_arrived(server: FileServer, tmp_path: Path) -> None:
    file = server.add("g", DATA)
    (tmp_path / "g.part").write_bytes(DATA)
    note = {"url": f"{server.url}/g", "version": '"one"', "size": len(DATA)}
    (tmp_path / "g.part.json").write_text(json.dumps(note), encoding="utf-8")
    assert fetch(server, tmp_path / "g") == SHA
    assert file.asked == []


def test_a_crash_between_two_versions_mixes_nothing(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(server, tmp_path / "m")
    server.add("m", DATA[::-1] + b"more", etag='"two"')

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gptcore.fetch.download.write_json_atomic", crash)
        with pytest.raises(KeyboardInterrupt):
            fetch(server, tmp_path / "m")
    fetch(server, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == DATA[::-1] + b"more"


def test_a_part_of_unknown_origin_is_not_trusted(server: FileServer, tmp_path: Path) -> None:
    server.add("h", DATA)
    (tmp_path / "h.part").write_bytes(b"something else")
    assert fetch(server, tmp_path / "h") == SHA


def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    file = server.add("i", DATA, statuses=[503, 429, 500])
    assert fetch(server, tmp_path / "i") == SHA
    assert len(file.asked) == 4


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (403, "Forbidden"), (503, "Service Unavailable")])
def test_a_refusal_is_one_line(server: FileServer, status: int, reason: str, tmp_path: Path) -> None:
    server.add("j", DATA, statuses=[status] * 10)
    assert f"found HTTP {status} {reason}, expected the file" in failed(server, tmp_path / "j")
    assert list(tmp_path.iterdir()) == []


def test_no_server_at_all_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"http://127\.0\.0\.1:9/x: broken off after 0 bytes.*refused") as raised:
        download("http://127.0.0.1:9/x", tmp_path / "x", pause=0.001)
    assert "\n" not in str(raised.value)


def test_another_digest_than_expected_is_one_line(server: FileServer, tmp_path: Path) -> None:
    server.add("k", DATA)
    assert f"found SHA-256 {SHA}, expected {'0' * 64}; nothing is kept" in failed(server, tmp_path / "k", "0" * 64)
    assert list(tmp_path.iterdir()) == []


# --- archives --------------------------------------------------------------------------------------------------------


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], links: dict[str, str] | None = None, kind: bytes = tarfile.SYMTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_only_what_is_asked_for_is_unpacked(tmp_path: Path) -> None:
    names = ["S/a.tsv", "S/deep/b.tsv", "S/._a.tsv", "S/LICENSE.txt", "__MACOSX/S/a.tsv", "T/readme.txt"]
    for name, data in (("x.zip", zipped(dict.fromkeys(names, b"x"))), ("x.tar.gz", tarred(dict.fromkeys(names, b"x")))):
        (tmp_path / name).write_bytes(data)
        assert unpack(tmp_path / name, "S/*.tsv", tmp_path / f"{name}-out") == 1
        assert sorted(path.name for path in (tmp_path / f"{name}-out").rglob("*")) == ["LICENSE.txt", "a.tsv"]


def _zip_with_a_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("S/a.tsv")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def _twice() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("S/a.tsv"), io.BytesIO())
    return buffer.getvalue()


GOOD = {"S/a.tsv": b"x"}
HOSTILE = {
    "up.zip": (zipped({**GOOD, "S/../../evil.tsv": b"x"}), "found the name 'S/../../evil.tsv'"),
    "root.zip": (zipped({"/evil.tsv": b"x"}), "found the name '/evil.tsv'"),
    "drive.zip": (zipped({"C:/evil.tsv": b"x"}), "found the name 'C:/evil.tsv'"),
    "link.zip": (_zip_with_a_link(), "found the link 'S/a.tsv'"),
    "up.tar.gz": (tarred({**GOOD, "../evil.tsv": b"x"}), "found the name '../evil.tsv'"),
    "backslash.tar.gz": (tarred({"S/..\\..\\evil.tsv": b"x"}), "evil.tsv', expected none that leads out of it"),
    "link.tar.gz": (tarred(GOOD, {"S/a": "/etc"}), "found the link 'S/a'"),
    "hard.tar.gz": (tarred(GOOD, {"S/a": "/etc/passwd"}, tarfile.LNKTYPE), "found the link 'S/a'"),
    "device.tar.gz": (tarred(GOOD, {"S/a": ""}, tarfile.CHRTYPE), "found the link 'S/a'"),
    "none.zip": (zipped({"T/a.tsv": b"x"}), "found no file S/*.tsv, expected some"),
    "cut.zip": (zipped(GOOD)[:-10], "expected a whole archive"),
    "cut.tar.gz": (tarred(dict.fromkeys(["S/a.tsv", "S/b.tsv"], DATA))[:900], "expected a whole archive"),
    "damaged.zip": (zipped({"S/a.tsv": DATA}).replace(zipped({"S/a.tsv": DATA})[60:90], b"x" * 30), "a whole archive"),
    "twice.tar.gz": (_twice(), "FileExistsError"),
    "text.tar.gz": (b"<html>not found</html>", "expected a whole archive"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    data, message = HOSTILE[name]
    (tmp_path / "in" / "deep").mkdir(parents=True)
    archive = tmp_path / "in" / "deep" / name
    archive.write_bytes(data)
    with pytest.raises(FetchError) as raised:
        unpack(archive, "S/*.tsv", tmp_path / "in" / "deep" / "out")
    assert message in str(raised.value)
    assert not list(tmp_path.rglob("evil*"))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


# --- datasets --------------------------------------------------------------------------------------------------------


def offered(server: FileServer, origin: Origin, files: dict[str, dict[str, bytes]]) -> Origin:
    """The origin with its downloads at the server; each given by its files without the archive's first folder."""
    downloads = []
    for wanted in origin.downloads:
        root = wanted.take.partition("/")[0]
        inside = {f"{root}/{name}": data for name, data in files[wanted.name].items()}
        data = next(iter(files[wanted.name].values()))
        if wanted.name.endswith((".zip", ".tar.gz")):
            data = zipped(inside) if wanted.name.endswith(".zip") else tarred(inside)
        server.add(wanted.name, data)
        digest = hashlib.sha256(data).hexdigest() if wanted.sha256 else ""
        downloads.append(replace(wanted, url=f"{server.url}/{wanted.name}", sha256=digest, size=len(data)))
    return replace(origin, downloads=tuple(downloads))


def task_files(task: str, tmp_path: Path) -> dict[str, bytes]:
    """Generated rows of a task in its public files, by their names in the dataset's folder."""
    spec = REGISTRY[task]
    written.write_task(str(tmp_path / "rows"), spec, rows=4)
    home = tmp_path / "rows" / spec.folder.partition("/")[0]
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("task", [name for name in REGISTRY if name not in ("mrpc", "storycloze")])
def test_a_fetched_task_is_read(task: str, server: FileServer, tmp_path: Path) -> None:
    files = task_files(task, tmp_path)
    (wanted,) = ORIGINS[task].downloads
    origin = offered(server, ORIGINS[task], {wanted.name: files})
    assert get_dataset(origin, tmp_path / "data") == "fetched"
    assert available(str(tmp_path / "data")) == [task]
    for split in REGISTRY[task].splits:
        ours, theirs = (load_task(task, str(tmp_path / root), split) for root in ("data", "rows"))
        assert ours == theirs
        assert ours
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == sorted(
        [".origins", REGISTRY[task].folder.partition("/")[0]]
    )
    assert [path.name for path in (tmp_path / "data" / ".origins").iterdir()] == [f"{task}.json"]
    record = json.loads((tmp_path / "data" / ".origins" / f"{task}.json").read_text(encoding="utf-8"))
    (fetched,) = record["downloads"]
    assert (fetched["url"], fetched["sha256"]) == (origin.downloads[0].url, origin.downloads[0].sha256)
    assert record["licence"] == ORIGINS[task].licence


@pytest.mark.parametrize("name", ["wnli", "diagnostic"])
def test_a_fetched_test_set_lies_where_it_is_read(name: str, server: FileServer, tmp_path: Path) -> None:
    path = next(file.path for file in SUBMISSION if file.path.startswith(f"{ORIGINS[name].folder}/"))
    origin = offered(server, ORIGINS[name], {ORIGINS[name].downloads[0].name: {path.partition("/")[2]: b"rows"}})
    get_dataset(origin, tmp_path)
    assert (tmp_path / path).read_bytes() == b"rows"


def test_fetched_minimal_pairs_are_read(server: FileServer, tmp_path: Path) -> None:
    written_pairs = write_blimp(str(tmp_path / "rows"), pairs=1)
    files = {path.name: {"": path.read_bytes()} for path in written_pairs.iterdir()}
    get_dataset(offered(server, ORIGINS["blimp"], files), tmp_path / "data")
    assert blimp_fingerprint(str(tmp_path / "data")) == blimp_fingerprint(str(tmp_path / "rows"))


def mrpc_files() -> dict[str, dict[str, bytes]]:
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = [f'{at % 2}\t{at}\t{at + 1}\tsay "{at}\tsay {at} .' for at in range(6)]
    train, test, ids = (wanted.name for wanted in ORIGINS["mrpc"].downloads)
    return {
        train: {"": (header + "\r\n".join(rows)).encode()},
        test: {"": (header + "\r\n".join(rows[:2])).encode()},
        ids: {"": b"4\t5\n1\t2\n"},
    }


def test_mrpc_is_cut_as_glue_does(server: FileServer, tmp_path: Path) -> None:
    get_dataset(offered(server, ORIGINS["mrpc"], mrpc_files()), tmp_path)
    rows = {split: load_task("mrpc", str(tmp_path), split) for split in ("train", "dev")}
    assert [row.fields[0] for row in rows["dev"]] == ['say "1', 'say "4']
    assert [row.fields[0] for row in rows["train"]] == ['say "0', 'say "2', 'say "3', 'say "5']
    assert (tmp_path / "MRPC" / "test.tsv").read_text(encoding="utf-8").splitlines()[:2] == [
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '0\t0\t1\tsay "0\tsay 0 .',
    ]
    assert sorted(path.name for path in (tmp_path / "MRPC").iterdir()) == ["dev.tsv", "test.tsv", "train.tsv"]


def test_real_mrpc_comes_out_as_glue_serves_it(tmp_path: Path) -> None:
    real = {split: (real_data("MRPC") / f"{split}.tsv").read_text(encoding="utf-8") for split in ("train", "dev")}
    header, *train = real["train"].splitlines()
    dev = real["dev"].splitlines()[1:]
    (tmp_path / "dev_ids.tsv").write_text("".join("\t".join(row.split("\t")[1:3]) + "\n" for row in dev))
    (tmp_path / "msr_paraphrase_train.txt").write_text("\n".join([header, *dev[:100], *train, *dev[100:]]))
    (tmp_path / "msr_paraphrase_test.txt").write_text(header)
    cut_mrpc(tmp_path)
    for split in real:
        assert (tmp_path / f"{split}.tsv").read_text(encoding="utf-8").splitlines() == real[split].splitlines()


def test_a_dataset_that_is_there_is_only_checked(server: FileServer, tmp_path: Path) -> None:
    origin = offered(server, ORIGINS["rte"], {"RTE.zip": task_files("rte", tmp_path)})
    get_dataset(origin, tmp_path / "data")
    server.files.clear()
    assert get_dataset(origin, tmp_path / "data") == "there"
    (tmp_path / "data" / "RTE" / "dev.tsv").write_text("changed", encoding="utf-8")
    with pytest.raises(InputError, match=r"data/RTE: found files that changed since they were fetched \(20"):
        get_dataset(origin, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / ".origins")
    with pytest.raises(InputError, match=r"data/RTE: found a folder that was not fetched by this command"):
        get_dataset(origin, tmp_path / "data")


def test_an_interrupted_dataset_is_not_there_and_goes_on(server: FileServer, tmp_path: Path) -> None:
    files = mrpc_files()
    origin = offered(server, ORIGINS["mrpc"], files)
    train, test, _ = (wanted.name for wanted in origin.downloads)
    server.files[test].cuts = [20, 0, 0, 0, 0, 0]
    with pytest.raises(FetchError, match="broken off after 20 bytes"):
        get_dataset(origin, tmp_path, pause=0.001)
    assert [path.name for path in tmp_path.iterdir()] == [".origins"]
    server.files[test].cuts = []
    del server.files[train]  # had arrived whole
    assert get_dataset(origin, tmp_path, pause=0.001) == "fetched"
    assert server.files[test].asked[-1] == "bytes=20-"
    assert len(load_task("mrpc", str(tmp_path))) == 2


def test_a_wrong_archive_leaves_nothing(server: FileServer, tmp_path: Path) -> None:
    origin = offered(server, ORIGINS["rte"], {"RTE.zip": task_files("rte", tmp_path)})
    server.add("RTE.zip", zipped({"RTE/train.tsv": b"other"}))
    with pytest.raises(FetchError, match="nothing is kept"):
        get_dataset(origin, tmp_path / "data")
    assert not (tmp_path / "data" / "RTE").exists()
    assert not list((tmp_path / "data").rglob("*.zip*"))


DPRD = b"Bees sting as they do .\nthey\nBees,wasps\nBees\n\n"


def test_a_file_without_a_known_digest_is_held_to_the_first_one_seen(server: FileServer, tmp_path: Path) -> None:
    files = {"train.c.txt": {"": DPRD}, "test.c.txt": {"": DPRD}}
    origin = offered(server, ORIGINS["dprd"], files)
    get_dataset(origin, tmp_path)
    assert [schema.label for schema in read_dprd(str(tmp_path), "train")] == [0]
    shutil.rmtree(tmp_path / "DPRD")
    assert get_dataset(origin, tmp_path) == "fetched"
    shutil.rmtree(tmp_path / "DPRD")
    server.add("train.c.txt", DPRD * 2)
    with pytest.raises(FetchError, match=r"train\.c\.txt: found SHA-256 .*nothing is kept \(as first fetched, 20"):
        get_dataset(origin, tmp_path)
    assert not (tmp_path / "DPRD").exists()


def test_a_mirror_has_the_files_under_their_own_names(server: FileServer, tmp_path: Path) -> None:
    origin = offered(server, ORIGINS["rte"], {"RTE.zip": task_files("rte", tmp_path)})
    away = replace(origin, downloads=(replace(origin.downloads[0], url="http://127.0.0.1:9/far/RTE.zip"),))
    assert get_dataset(away, tmp_path / "data", mirror=f"{server.url}/") == "fetched"


def test_every_origin_is_complete() -> None:
    assert set(REGISTRY) <= set(ORIGINS)
    for origin in ORIGINS.values():
        assert bool(origin.downloads) != bool(origin.request)
        if origin.name in REGISTRY:
            assert origin.folder == REGISTRY[origin.name].folder.partition("/")[0]
        for wanted in origin.downloads:
            assert len(wanted.sha256) in (0, 64)
            assert wanted.url.startswith("https://") or wanted.sha256 or origin.name == "dprd"
    names = [wanted.name for origin in ORIGINS.values() for wanted in origin.downloads]
    assert len(set(names)) == len(names), "a mirror has one file a name"


def test_names_of_origins() -> None:
    assert [origin.name for origin in origins_named(["rte", "cola"])] == ["rte", "cola"]
    assert len(origins_named(["all"])) == len(ORIGINS)
    with pytest.raises(InputError, match=r"dataset: found 'cloa', did you mean cola\? expected one of mnli, .*, all"):
        origins_named(["cloa"])


def test_real_files_have_the_digests_that_are_expected() -> None:
    for name, wanted in (("diagnostic", ORIGINS["diagnostic"].downloads[0]), ("DPRD", ORIGINS["dprd"].downloads[1])):
        assert isinstance(wanted, Download)
        assert hashlib.sha256(real_data(name, wanted.take).read_bytes()).hexdigest() == wanted.sha256
