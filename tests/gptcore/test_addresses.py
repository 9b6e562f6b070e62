"""What of an address is refused, what is used but never recorded, and what is shown of either."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.addresses import (
    _PREFIXES,
    _SIGN,
    UNRECORDABLE,
    refuse_password,
    refuse_recorded,
    signed,
    unsigned,
    without_password,
)
from gptcore.base.errors import InputError
from gptcore.base.filesystems import file_system
from gptcore.config import CorpusConfig
from gptcore.fetch.datasets import unpack
from gptcore.fetch.download import FetchError, download
from gptcore.text.decoding import Read
from gptcore.text.sources import find_sources, fingerprint, read_documents
from tests.gptcore.file_server import serving

SECRET = "pl4nted"
WITH_USER = {
    "s3://KEY:pl4/nted@bucket/x": "s3://bucket/x",
    "s3://KEY:12345/pl4/nted@bucket/x": "s3://bucket/x",
    "S3A://KEY:pl4/nt/ed@bucket/x": "S3A://bucket/x",
    "https://pl4nted@host/x": "https://host/x",
    "HTTPS://user%3Apl4nted@host:8080/x": "HTTPS://host:8080/x",
    "https://user:pl4@nted@host/x": "https://host/x",
    "https://user:pl4#nted@host/x": "https://host/x",
    "https:/user:pl4nted@host/x": "https://host/x",
    "https://user:pl4nted%40host": "https://host",
    "https://user:pl4nted%2540host": "https://host",
    "abfss://user%25253Apl4nted%252540host/x": "abfss://host/x",
    "https://user:pl4/nted%40host/x": "https://host/x",
    "HTTPS:\\\\user:pl4nted@host\\x": "HTTPS://host/x",
    "\\\\user:pl4nted%40host/x": "//host/x",
    "\\\\user:pl4nted%2540host/x": "//host/x",
    "https:////user:pl4nted@host/x": "https://host/x",
    "//user:pl4nted@host/x": "//host/x",
    "abfs://user:pl4nted@account/x": "abfs://account/x",
    "simplecache::https://user:pl4nted@host/x": "simplecache::https://host/x",
    "zip://a.txt::s3://KEY:pl4/nted@bucket/x.zip": "zip://a.txt::s3://bucket/x.zip",
    "arrow_hdfs://user:pl4nted@host/x": "arrow_hdfs://host/x",
    "git-x.y://user:pl4nted@host/x": "git-x.y://host/x",
    "postgresql+psycopg://user:pl4nted@127.0.0.1:9/mlflow": "postgresql+psycopg://127.0.0.1:9/mlflow",
}
WITHOUT = (
    *("abfs://books@account.dfs.core.windows.net/x", "hf://datasets/a/b@main/x.jsonl", "s3://bucket/a:b@c"),
    *("http://127.0.0.1:9000/v@2/x", "http://[::1]:80/x", "/a@b:c/d", "./a@b", "file:///home/a:b@c", "~/a@b", "a@b"),
    *("https://host/a%40b?c=d@e", "http://host:80/a%40b", "a\\b@c", "https://h/x,s3://b/y"),
)
SIGNED = {
    "https://h/a.txt?X-Amz-Date=1&X-Amz-Signature=pl4nted": "https://h/a.txt",
    "https://h/a.txt?versionId=3&x%2Damz-signature=pl4nted": "https://h/a.txt?versionId=3",
    "https://h/a.txt?X-Goog-Credential=a&X-Goog-Signature=pl4nted": "https://h/a.txt",
    "https://h/a.txt?AWSAccessKeyId=a&Expires=1&Signature=pl4nted": "https://h/a.txt",
    "https://a.blob.core.windows.net/c/a.txt?sv=2022&sp=r&se=2026&sr=b&sig=pl4nted%3D": "https://a.blob.core.windows.net/c/a.txt",
    "https://h/a.txt?raw=1&token=pl4nted": "https://h/a.txt?raw=1",
    "HTTPS:\\\\h\\a.txt?token=pl4nted": "HTTPS:\\\\h\\a.txt",
}


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_SIGNATURES", "")


@pytest.mark.parametrize(("address", "shown"), WITH_USER.items())
def test_user_information_is_refused_however_it_is_spelt(address: str, shown: str) -> None:
    for refuse in (refuse_password, file_system, refuse_recorded):
        with pytest.raises(InputError) as refused:
            refuse(address)
        assert str(refused.value).startswith(
            f"{shown}: found a password, user or token in the address, expected it in "
        )
    said = without_password(f"GET '{address}' failed: ({address}) and {address}")
    assert not [part for part in ("pl4", "nted", "KEY", "user") if part in said]


@pytest.mark.parametrize("address", WITHOUT)
def test_an_at_elsewhere_is_none(address: str) -> None:
    refuse_recorded(address)
    assert unsigned(address) == without_password(address) == address


@pytest.mark.parametrize(("address", "bare"), SIGNED.items())
def test_what_signs_is_used_and_not_recorded(address: str, bare: str) -> None:
    with pytest.raises(InputError, match="signed in a form"):
        refuse_recorded(address)
    assert without_password(f"see {address}") == f"see {bare}"
    assert unsigned(address) == bare
    assert SECRET in signed(bare)
    assert sorted(signed(bare).partition("?")[2].split("&")) == sorted(address.partition("?")[2].split("&"))
    assert signed(f"{bare.partition('?')[0]}x") == f"{bare.partition('?')[0]}x", "another file's is its own"
    unsigned(f"simplecache::{address}")
    assert SECRET not in without_password(f"max retries exceeded with url: /a.txt?{signed(bare).rpartition('?')[2]}")
    with pytest.raises(InputError, match="several addresses"):
        unsigned(f"{address},{address}")


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """A name that signs, in any case, each letter as it is or as a percent sign and its number, once or again."""
    name = draw(st.sampled_from([*_SIGN, *(f"{prefix}signature" for prefix in _PREFIXES)]))
    spelt = ""
    for letter in name:
        letter = draw(st.sampled_from([letter, letter.upper()]))
        number = draw(st.sampled_from([f"{ord(letter):02x}", f"{ord(letter):02X}"]))
        spelt += draw(st.sampled_from([letter, f"%{number}", f"%25{number}", f"%2525{number}"]))
    return spelt


ORDINARY = st.sampled_from(
    ["versionId=3", "download=true", "policy=strict", "expires=1", "se=1", "tokens=5", "design=sig", "raw", "a;b=c"]
)
"""Parameters that sign nothing, by themselves."""


@given(spellings(), st.lists(ORDINARY), st.lists(ORDINARY), st.sampled_from("?&;#"), st.sampled_from(["", "#x"]))
def test_what_signs_is_refused_and_hidden_however_it_is_spelt(
    name: str, before: list[str], after: list[str], mark: str, fragment: str
) -> None:
    first = f"https://host/R&D/a.txt{'?' if before else ''}{'&'.join(before)}"
    address = f"{first}{'?' if mark == '&' and not before else mark}{name}={SECRET}"
    address += "".join(f"&{each}" for each in after) + fragment
    assert re.search(UNRECORDABLE, address)
    with pytest.raises(InputError, match="signed in a form"):
        refuse_recorded({"corpus": [address]})
    assert SECRET not in without_password(f"GET '{address}' failed")
    assert re.search(UNRECORDABLE, without_password(address)) is None
    assert without_password(address).startswith("https://host/R&D/a.txt")


@given(st.lists(ORDINARY), st.sampled_from(["", "#x", "#a=b"]))
def test_what_signs_nothing_is_recorded_as_it_is(parameters: list[str], fragment: str) -> None:
    address = f"https://host/R&D/a.txt{'?' if parameters else ''}{'&'.join(parameters)}{fragment}"
    assert re.search(UNRECORDABLE, address) is None
    refuse_recorded({"corpus": [address], "jobs": 3})
    assert without_password(address) == address


def test_the_pattern_means_the_same_to_browsers_as_to_python() -> None:
    """No flag, no name, nothing escaped but what both escape, as browsers read it by Unicode's rules."""
    plain = re.sub(r"\[[^]]*\]|\{2\}", "", UNRECORDABLE)
    assert set(plain) <= set("()|*?:=%-_&;#@") | set("0123456789") | set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )
    assert set(re.findall(r"\(\?[^:]", UNRECORDABLE)) == set()
    assert set(re.findall(r"\\.", UNRECORDABLE)) == {r"\\"}


@pytest.mark.parametrize("secret", ["pl4'nted", 'pl4"nted', "pl4<nted>", "pl4 nted", "pl4\tnted"])
def test_a_refusal_shows_nothing_of_a_secret_that_ends_words(secret: str) -> None:
    with pytest.raises(InputError, match=r"^https://host/x: found a password, user or token in the address"):
        refuse_password(f"https://user:{secret}@host/x")


def test_a_port_that_is_none_is_told_before_anything_is_asked() -> None:
    with pytest.raises(InputError, match=r"^https://host:8O80/x: found no such address .Port could not be .*'8O80'"):
        file_system("https://host:8O80/x")


@pytest.fixture
def guarded() -> Iterator[str]:
    """A server that has a file, and a folder, for who has the token."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            there = self.path in (f"/a.txt?raw=1&token={SECRET}", f"/folder/b.txt?token={SECRET}")
            self.send_response(200 if there else 403)
            self.send_header("Content-Length", "7" if there else "0")
            self.send_header("ETag", '"one"')
            self.end_headers()
            if there:
                self.wfile.write(b"A book.")

        do_HEAD = do_GET

    with serving(Handler) as url:
        yield url


def test_a_signed_corpus_is_read_by_the_address_without_its_signature(guarded: str, tmp_path: Path) -> None:
    bare = unsigned(f"{guarded}/a.txt?raw=1&token={SECRET}".replace("?raw=1&", "?"))
    assert bare == f"{guarded}/a.txt"
    folder = unsigned(f"{guarded}/folder?token={SECRET}")
    (source,) = find_sources(f"{folder}/b.txt")
    assert source.url == f"{guarded}/folder/b.txt"
    assert SECRET not in str(fingerprint([source]))
    assert [list(pieces) for pieces in read_documents(source, CorpusConfig(), Read())] == [["A book."]]
    download(f"{folder}/b.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == b"A book."
    for fetch in (lambda: fsspec.open(bare).open().read(), lambda: download(bare, tmp_path / "a.txt", pause=0)):
        with pytest.raises((OSError, FetchError)) as refused:
            fetch()
        told: BaseException | None = refused.value
        while told is not None:
            assert SECRET not in str(told)
            told = told.__cause__ or told.__context__


def test_an_archive_that_becomes_far_larger_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    zeros = bytes(100 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A/a.txt", zeros)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("A/a.txt")
        member.size = len(zeros)
        tar.addfile(member, io.BytesIO(zeros))
    for name in ("a.zip", "a.tar.gz"):
        with pytest.raises(InputError, match=rf"^{name}: found [\d,]+ bytes or more unpacked of .* at most 200 times"):
            unpack(tmp_path / name, "A/*.txt", tmp_path / f"{name}-out")
        most = (64 << 20) + 200 * (tmp_path / name).stat().st_size
        assert sum(path.stat().st_size for path in tmp_path.glob(f"{name}-out/*")) <= most < len(zeros)
