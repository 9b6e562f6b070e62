"""Which files hold a dataset: those of its public distribution, or else the hub's parquet.

A dataset's parquet may lie in its own folder (``MNLI/``), with or without the hub's sub-folders, or in a copy of the
hub's repository: the folder of datasets is that copy (``hf://datasets/nyu-mll/glue``), holds it (``glue/``), or holds
its owner (``nyu-mll/glue/``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import exists, file_system, is_folder, names_in
from gptcore.nlu.readers.hub import HUB, HubSet
from gptcore.nlu.readers.text_files import unreadable


@dataclass(frozen=True)
class ParquetLayout:
    """A dataset found in parquet."""

    hub: HubSet
    datasets_url: str
    stems: Mapping[str, str]
    """The public file -> what stands in its place, relative to the folder of datasets: a file's name up to its number
    and ending, or a folder."""

    def has(self, public: str) -> bool:
        """Whether anything holds what the file ``public`` does."""
        return bool(_Folder(self.datasets_url).shards(self.stems[public])[0])

    def urls(self, public: str) -> list[str]:
        """Addresses of the parquet files that hold what the file ``public`` does, in order.

        :raises InputError: there is none, or one of several is missing.
        """
        stem = self.stems[public]
        names, whole = _Folder(self.datasets_url).shards(stem)
        where = f"{self.datasets_url.rstrip('/')}/{stem}"
        require(names, f"{where}-*.parquet: found nothing there, expected the split's parquet files")
        if len(names) != whole:
            raise InputError(f"{where}-*.parquet: found {len(names)} files, expected {whole}, as their names say")
        return [f"{self.datasets_url.rstrip('/')}/{name}" for name in names]


def parquet_layout(folder: str, datasets_url: str) -> ParquetLayout | None:
    """Where the parquet of a dataset is.

    :param folder: the dataset's, relative to the folder of datasets.
    :return: None where any of its public files is there, or no parquet is.
    """
    there = _Folder(datasets_url)
    sets = HUB.get(folder, ())
    if any(there.exists(f"{folder}/{file}") for hub in sets for file in hub.files):
        return None
    for hub in sets:
        for stems in _places(folder, hub):
            if any(there.shards(stem)[0] for stem in stems.values()):
                return ParquetLayout(hub, datasets_url, stems)
    return None


def has_folder(folder: str, datasets_url: str) -> bool:
    """Whether the dataset's own folder is there."""
    return _Folder(datasets_url).is_folder(folder)


def _places(folder: str, hub: HubSet) -> list[dict[str, str]]:
    """The places to look, each as the stems of :class:`ParquetLayout`."""
    home = folder.partition("/")[0]
    name = hub.repo.rpartition("/")[2]
    places = [
        {file: f"{base}{stem}" for file, stem in hub.files.items()}
        for base in (f"{home}/", "", f"{name}/", f"{hub.repo}/")
    ]
    configs = {stem.partition("/")[0] for stem in hub.files.values()}
    if len(configs) == 1:  # its files may lie flat in the dataset's folder
        places.insert(0, {file: f"{home}/{stem.partition('/')[2]}" for file, stem in hub.files.items()})
    return places


_SHARD = re.compile(r"(?:-(?P<number>\d{5})-of-(?P<of>\d{5})(?:-[0-9a-f]+)?)?\.parquet")


class _Folder:
    """What is in a folder of datasets; each part of it is listed once."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, root = file_system(url)
        self._root = root.rstrip("/")
        self._listed: dict[str, list[str]] = {}

    def exists(self, path: str) -> bool:
        return exists(self._fs, f"{self._root}/{path}")

    def is_folder(self, path: str) -> bool:
        return is_folder(self._fs, f"{self._root}/{path}".rstrip("/"))

    def shards(self, stem: str) -> tuple[list[str], int]:
        parent, _, split = stem.rpartition("/")
        matches = {
            name: _SHARD.fullmatch(name.removeprefix(split)) for name in self._names(parent) if name.startswith(split)
        }
        if shards := {name: match for name, match in matches.items() if match}:
            numbers = [match["number"] or "00000" for match in shards.values()]
            if twice := next((number for number in numbers if numbers.count(number) > 1), None):
                names = ", ".join(name for name, number in zip(shards, numbers, strict=True) if number == twice)
                raise InputError(f"{self._url}/{stem}-*.parquet: found part {twice} twice ({names}), expected it once")
            return [f"{parent}/{name}" for name in shards], max(int(match["of"] or 1) for match in shards.values())
        # as the hub itself converts what others uploaded
        parts = [f"{stem}/{name}" for name in self._names(stem) if name.endswith(".parquet")]
        return parts, len(parts)

    def _names(self, folder: str) -> list[str]:
        if folder not in self._listed:
            try:
                self._listed[folder] = names_in(self._fs, f"{self._root}/{folder}".rstrip("/"))
            except OSError as error:
                raise unreadable(f"{self._url}/{folder}", error) from error
        return self._listed[folder]
