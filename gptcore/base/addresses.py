"""Addresses are recorded with every run: user information in one is refused, what signs one is used and kept apart.

A presigned address (Amazon's, Google's, CloudFront's, Azure's SAS, a token) loses the parameters that sign it where it
enters, :func:`unsigned`, and gets them back where it is opened, :func:`signed`: by this process and those it starts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from gptcore.base.errors import InputError

_VARIABLE = "GPTMILL_SIGNATURES"
"""An address without its signature -> that, as JSON; of this process, which no job on another machine is given."""
_PREFIXES = ("x-amz-", "x-goog-")
_SIGN = ("sig", "signature", "token", "access_token", "api_key", "apikey", "awsaccesskeyid", "password", "secret")
"""What signs an address, by the names of its parameters: all that refuses and hides is made of these."""
_SAS = {"se", "sp", "sv", "sr", "st", "ss", "srt", "spr", "sip", "skoid", "sktid", "skt", "ske", "sks", "skv"}
_BESIDE = {"expires", "policy", "key-pair-id", "googleaccessid", *_SAS}
"""Parameters that belong to a signature where there is one, and are ordinary words where there is none."""
_CONTAINER = ("abfs", "abfss", "wasb", "wasbs")
"""Azure's, whose address has the container's name where others have the user's."""
_PORTS = ("ftp", "hdfs", "http", "https", "sftp", "smb", "ssh", "webhdfs")
"""Kinds of addresses whose host may have a port; a store's bucket has none."""
_BEGINNING = re.compile(r":[/\\]{2}")
_WORD = re.compile(r"[\w.+-]+:[/\\]+[^\s'\"<>]*|[/\\]{2}[^\s'\"<>]*(?:@|%(?:25)*40)[^\s'\"<>]*")


def _spelt(name: str) -> str:
    """A pattern of a parameter's name in either case, each letter of it as it is or as a percent sign and its number.

    As JSON schemas have it, in Python and in browsers: no flag, and a percent sign encoded again however often.
    """
    letters = []
    for letter in name:
        plain, numbers = {letter, letter.upper()}, {f"{ord(letter):02x}", f"{ord(letter.upper()):02x}"}
        first, last = ("".join(sorted({number[at] for number in numbers})) for at in (0, 1))
        one = f"[{''.join(sorted(plain))}]" if len(plain) > 1 else letter
        end = f"[{last}{last.upper()}]" if last.isalpha() else last
        letters.append(f"(?:{one}|%(?:25)*{f'[{first}]' if len(first) > 1 else first}{end})")
    return "".join(letters)


_SIGNING = f"(?:{'|'.join(map(_spelt, _PREFIXES))}|(?:{'|'.join(map(_spelt, _SIGN))})=)"
_SIGNS = re.compile(_SIGNING)
_PARTS = re.compile(f"([?&]|[;#](?={_SIGNING}))")
"""What parts an address's parameters; a semicolon or a fragment's sign only where one that signs comes after it."""
UNRECORDABLE = rf"[/\\]{{2}}[^/?#]*(@|%(25)*40)|[?&;#]{_SIGNING}"
"""For JSON schemas, which know no other way: what a form in a browser must not send, as it is recorded on its way."""


def refuse_password(address: str) -> None:
    """Refuse an address with a user, a password or a token before its host.

    An `@` of a path is none, but where the part before it has a colon that no port follows: a secret may hold a slash.

    :raises InputError: naming the address without it.
    """
    bare = "::".join(map(_bare_of_user, address.split("::")))
    if bare != address:
        raise InputError(
            f"{_apart(bare)[0]}: found a password, user or token in the address, expected it in the "
            "environment or in fsspec's own settings: an address is recorded with every run"
        )


def refuse_recorded(given: object) -> None:
    """Refuse an address that its form has recorded with what must not be: it was filled in a browser, or by a program.

    :param given: the address, or lists and tables that may hold one.
    :raises InputError: as :func:`refuse_password`, or it is signed.
    """
    if isinstance(given, Mapping):
        given = [*given, *given.values()]
    if isinstance(given, list | tuple):
        for each in given:
            refuse_recorded(each)
    if isinstance(given, str):
        refuse_password(given)
        if _apart(given)[1]:
            raise InputError(f"{_apart(given)[0]}: found it signed in a form, expected that on the command line alone")


def unsigned(address: str) -> str:
    """The address without the parameters that sign it, which :func:`signed` knows from now on.

    :raises InputError: one with a user or password in it, or several addresses of which one is signed.
    """
    bare, signature = _apart(address)
    if signature:
        refuse_password(bare)
        if _BEGINNING.search(signature) or "," in _BEGINNING.split(bare)[0]:
            raise InputError(f"{bare}: found several addresses, expected a signed one alone")
        os.environ[_VARIABLE] = json.dumps({**_kept(), bare.rpartition("::")[2]: signature})
    return bare


def signed(address: str) -> str:
    """The address as it is to be opened: with the signature that it, or a folder above it, came with."""
    for bare, signature in _kept().items():
        if address == bare or address.startswith(f"{bare.rstrip('/')}/"):
            return f"{address}{'&' if '?' in address else '?'}{signature}"
    return address


def without_password(text: str) -> str:
    """Text that may be shown or logged: addresses in it lose user, password and signature."""
    for signature in _kept().values():  # of which libraries tell without the address
        text = text.replace(signature, "***")
    return _WORD.sub(lambda word: "::".join(_bare_of_user(link) for link in _apart(word[0])[0].split("::")), text)


def _kept() -> dict[str, str]:
    return dict(json.loads(os.environ.get(_VARIABLE) or "{}"))


def _apart(address: str) -> tuple[str, str]:
    """An address without its signature, and that: parameters with what parts them; empty where there is none."""
    before, *rest = _PARTS.split(address)
    named = [(mark, part, *part.partition("=")[:2]) for mark, part in zip(rest[::2], rest[1::2], strict=True)]
    sign = [bool(_SIGNS.match(_decoded(name) + equals)) for _, _, name, equals in named]
    if not (_BEGINNING.search(before) and any(sign)):
        return address, ""
    signature, begins = "", False
    for (mark, part, name, _), signs in zip(named, sign, strict=True):
        if signs or _decoded(name).lower() in _BESIDE:
            signature += f"{mark.replace('?', '&')}{part}" if signature else part
            begins = begins or mark == "?"
        else:
            before += f"{'?' if mark == '&' and begins else mark}{part}"
            begins = False
    return before, signature


def _decoded(text: str) -> str:
    """A part of an address without percent signs, however often it was encoded."""
    while (decoded := unquote(text)) != text:
        text = decoded
    return text


def _bare_of_user(address: str) -> str:
    """An address without what stands before its host, but for a container's name; a path on this machine as it is."""
    scheme, colon, rest = address.replace("\\", "/").partition(":")  # as browsers read it
    if not (rest.startswith("/") and re.fullmatch(r"[\w.+-]+", scheme)):
        scheme, colon, rest = "", "", scheme + colon + rest
    if scheme.lower() == "file" or not (scheme or rest.startswith("//")):
        return address
    rest = rest.lstrip("/")
    host = re.split("[/?#]", rest)[0]
    user, at, bare = _decoded(host).rpartition("@")
    path = rest.removeprefix(host)
    if at and (scheme.lower() not in _CONTAINER or {":", "@"} & {*user}):
        return f"{scheme}{colon}//{bare}{path}"
    _, at, bare = _decoded(path).rpartition("@")
    if at and ":" in host and not (scheme.lower() in _PORTS and re.fullmatch(r".*:\d{1,5}", host)):
        return f"{scheme}{colon}//{bare}"
    return address
