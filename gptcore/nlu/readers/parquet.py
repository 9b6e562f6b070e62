"""The rows of the hub's parquet files, under the registry's names, so that they are checked like any other rows.

Arrow files, of which a folder that `datasets` saved has some, are read in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import fsspec
import numpy as np

from gptcore.base.errors import InputError, did_you_mean, require
from gptcore.base.filesystems import exists, file_system, is_folder, names_in
from gptcore.nlu.examples import Record, show
from gptcore.nlu.forms import form_of, label_text
from gptcore.nlu.readers.hub import HubSet
from gptcore.nlu.readers.text_files import json_object, unreadable
from gptcore.nlu.registry import TaskSpec

_ROWS = 1024  # rows in memory at a time, as Python objects
_STRINGS = "string or list of strings"


def read_parquet(url: str, spec: TaskSpec, hub: HubSet) -> Iterator[Record]:
    """The rows of one file, numbered from 1.

    :param spec: says which columns are read; what else the file has is left alone.
    :raises InputError: no parquet, a column missing or of another type, other classes than published, bytes that are
        not UTF-8; names file, column and row.
    """
    return _told(url, _rows(url, spec, hub))


def _rows(url: str, spec: TaskSpec, hub: HubSet) -> Iterator[Record]:
    choices = {} if hub.options else {column: column for column in spec.choices}
    called = {column: hub.columns.get(column, column) for column in (*spec.text_columns, *choices, spec.label)}
    label_type = _STRINGS if form_of(spec).several else "number or string"
    expected = dict.fromkeys(called.values(), "string") | {called[spec.label]: label_type}
    if hub.options:
        expected[hub.options] = "list of strings"
    number = 0
    with _opened(url, list(expected)) as (schema, batches):
        _check(schema, expected, url, called[spec.label], hub)
        number_type = _number_type(schema.field(called[spec.label]).type)
        for batch in batches:
            columns = {name: _as_bytes(batch.column(name)).to_pylist() for name in expected}
            for row in range(batch.num_rows):
                number += 1
                record = Record(url, str(number), {}, unit="row", called=called)
                values = {name: _text(columns[name][row], record, name) for name in expected}
                yield _record(record, values, spec, hub, number_type)


def read_whole_parquet(url: str) -> Iterator[Record]:
    """The rows of one file with every column that it has, numbered from 1.

    :raises InputError: no parquet, a column of one name twice, or bytes that are not UTF-8; names file and row.
    """
    rows = (row for batch in record_batches(url) for row in batch.to_pylist())
    return _told(url, (Record(url, str(number), row, unit="row") for number, row in enumerate(rows, start=1)))


def record_batches(url: str) -> Iterator[Any]:
    """Arrow's record batches of one file, which hold the rows of :func:`read_whole_parquet`.

    :raises InputError: a column of one name twice.
    """
    with _opened(url) as (schema, batches):
        for name, times in Counter(names := schema.names).items():
            require(times == 1, f"{url}, column {name!r}: found {times} times among {show(names)}, expected once")
        yield from batches


def arrow_files(url: str) -> list[str]:
    """The Arrow files of a folder that `datasets` saved, in order, or the one that is at the address.

    :raises InputError: another folder, or one with a folder for each split.
    """
    fs, root = file_system(url)
    if not is_folder(fs, root):
        return [url]
    found = names_in(fs, root)
    if "state.json" in found:
        state = Record(file := f"{url}/state.json", "1", json_object(file, "_data_files"))
        parts = state.listed("_data_files")
        return [f"{url}/{state.inner(part, '_data_files').text('filename')}" for part in parts]
    splits = [name for name in found if exists(fs, f"{root}/{name}/state.json")]
    remedy = f"; a split is a folder of its own: {url}/{splits[0]}" if splits else ""
    raise InputError(f"{url}: found a folder with {show(found)}, expected one split that `datasets` saved{remedy}")


@contextmanager
def _opened(url: str, columns: Sequence[str] | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema of a parquet or Arrow file, and its record batches.

    :param columns: the batches have no others; looked at when the first batch is asked for.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with fsspec.open(url, "rb") as raw:
        begin = raw.read(6)
        raw.seek(0)
        if begin == b"ARROW1":
            file = pa.ipc.open_file(raw)
            batches = map(file.get_batch, range(file.num_record_batches))
            yield file.schema, _parts(batches, columns)
        elif begin.startswith(b"\xff\xff\xff\xff"):
            stream = pa.ipc.open_stream(raw)
            yield stream.schema, _parts(iter(stream), columns)
        else:
            parquet = pq.ParquetFile(raw, pre_buffer=False)
            yield parquet.schema_arrow, parquet.iter_batches(batch_size=_ROWS, columns=columns)


def _parts(batches: Iterator[Any], columns: Sequence[str] | None) -> Iterator[Any]:
    for batch in batches:
        batch.validate(full=True)  # a damaged one would end the process
        batch = batch if columns is None else batch.select(list(columns))
        yield from (batch.slice(start, _ROWS) for start in range(0, batch.num_rows, _ROWS))


def _told(url: str, rows: Iterator[Record]) -> Iterator[Record]:
    """The rows, and Arrow's errors on the way with the file and the row that they come at."""
    import pyarrow as pa

    number = 0
    try:
        for row in rows:
            yield row
            number += 1
    except FileNotFoundError as error:
        raise unreadable(url, error) from error
    except (pa.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:  # of a name, a page, a length
        reason = " ".join(str(error).split())
        kind = "a parquet" if url.endswith(".parquet") else "a parquet or Arrow"
        found = f"what cannot be read ({reason})"
        raise InputError(f"{url}, after row {number}: found {found}, expected {kind} file") from error


def _check(schema: Any, expected: dict[str, str], url: str, label: str, hub: HubSet) -> None:
    """The file's columns, their types and its own word on the label's classes.

    :param schema: the file's Arrow schema.
    """
    for name, kind in expected.items():
        if (times := schema.names.count(name)) != 1:
            raise InputError(
                f"{url}, column {name!r}: found {times} times among {show(schema.names)}, expected once{_source(hub)}"
                f"{'' if times else did_you_mean(name, schema.names)}"
            )
        its_type = schema.field(name).type
        if not _is(its_type, kind):
            raise InputError(f"{url}, column {name!r}: found type {its_type}, expected {kind}")
    if hub.classes and (classes := _classes(schema, label, url)) and classes != list(hub.classes):
        raise InputError(
            f"{url}, column {label!r}: found the classes {show(classes)}, expected {', '.join(hub.classes)} in this "
            f"order{_source(hub)}"
        )


def _source(hub: HubSet) -> str:
    """Where the expectation is from; an own task's is from its file, which the message need not name."""
    return f" ({hub.repo})" if hub.repo else ""


def _is(its_type: Any, kind: str) -> bool:
    import pyarrow.types as of

    if of.is_dictionary(its_type):
        its_type = its_type.value_type
    if kind == _STRINGS:
        return _is(its_type, "string") or _is(its_type, "list of strings")
    if kind == "list of strings":
        return (of.is_list(its_type) or of.is_large_list(its_type)) and _is(its_type.value_type, "string")
    text = _is_text(its_type) or of.is_null(its_type)
    number = of.is_integer(its_type) or of.is_floating(its_type) or of.is_boolean(its_type) or of.is_decimal(its_type)
    return text or (kind != "string" and number)


def _is_text(its_type: Any) -> bool:
    import pyarrow.types as of

    return bool(of.is_string(its_type) or of.is_large_string(its_type) or of.is_string_view(its_type))


def _classes(schema: Any, label: str, url: str) -> list[str] | None:
    """The label's ClassLabel names in the ``huggingface`` metadata that the hub's library writes; None without."""
    written = (schema.metadata or {}).get(b"huggingface")
    if written is None:
        return None
    try:
        names = json.loads(written)["info"]["features"][label].get("names")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{url}, metadata 'huggingface': found {show(written)}, expected JSON with info.features.{label}"
        ) from error
    return names if names is None else [str(name) for name in names]


def _number_type(its_type: Any) -> type[np.floating[Any]]:
    import pyarrow as pa

    return np.float16 if pa.types.is_float16(its_type) else np.float32 if pa.types.is_float32(its_type) else np.float64


def _as_bytes(column: Any) -> Any:
    """Strings as the bytes they are: whether these are UTF-8 is for us to say, with the row."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        return column.cast(pa.large_string()).cast(pa.large_binary())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column.cast(pa.large_list(pa.large_string())).cast(pa.large_list(pa.large_binary()))
    return column


def _text(value: Any, record: Record, column: str) -> Any:
    if isinstance(value, list):
        return [_text(part, record, column) for part in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise record.error(column, f"byte 0x{value[error.start]:02x}", "UTF-8 text") from error


def _record(
    record: Record, values: dict[str, Any], spec: TaskSpec, hub: HubSet, number_type: type[np.floating[Any]]
) -> Record:
    columns = {ours: values[theirs] for ours, theirs in record.called.items()}
    columns[spec.label] = _label(columns[spec.label], hub, number_type)
    if hub.options:
        choices = values[hub.options]
        if not isinstance(choices, list) or len(choices) != len(spec.choices):
            raise record.error(hub.options, show(choices), f"a list of {len(spec.choices)} options")
        columns |= dict(zip(spec.choices, choices, strict=True))
    return replace(record, columns=columns)


def _label(value: Any, hub: HubSet, number_type: type[np.floating[Any]]) -> Any:
    """A label as the public file has it, a number with no more digits than it was written with."""
    if isinstance(value, list):
        return value
    if value in hub.labels:
        return hub.labels[value]
    if value is None or value != value or (hub.labels and isinstance(value, int)):
        return value  # what is none is told as it stands there
    return label_text(number_type(value) if isinstance(value, float) else value)
