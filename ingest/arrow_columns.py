"""Columns of an Arrow body, each in the one form the log knows. Their batch has been validated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import MAX_PARTITION, NOT_GIVEN, Bools, Int32s, Int64s
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from sluice.log_store.records import HEADERS, MAX_TIMESTAMP_MS

_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_HEADER_FIELDS = list(HEADERS.value_type)


@dataclass(frozen=True, slots=True)
class Place:
    """A column, and the number of records before its first row."""

    column: str
    start: int

    def wrong_type(self, rule: str, found: pa.DataType) -> InvalidRequest:
        return InvalidRequest(
            f"column {self.column!r}: must be {rule}, not {str(found)[:80]}", field=f"column {self.column}"
        )

    def refuse(self, bad: Bools, rule: str) -> None:
        """Names the first row where `bad` holds."""
        if bad.any():
            field = f"records[{self.start + int(np.argmax(bad))}].{self.column}"
            raise InvalidRequest(f"{field}: {rule}", field=field)


# --- key and value -----------------------------------------------------------------------------


def binary_column(column: pa.Array, place: Place, max_bytes: int) -> pa.Array:
    """As plain binary; a dictionary or a view is unfolded only if all its rows together fit."""
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_dictionary(kind) and _is_bytes(kind.value_type):
        return _unfolded(column, place, max_bytes)
    if not _is_bytes(kind):
        raise place.wrong_type("binary, string, or a dictionary of them", kind)
    if pa.types.is_string(kind):
        return column.view(pa.binary())  # far cheaper than a cast, which counts for small batches
    if _is_view(kind):
        column = _without_hidden_views(column)
        _check_size(_view_bytes(column), place, max_bytes)
    return column.cast(pa.binary())


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary_view(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_fixed_size_binary(kind):
        return int(kind.byte_width) > 0
    plain = types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    return bool(plain) or _is_view(kind)


def _unfolded(column: pa.DictionaryArray, place: Place, max_bytes: int) -> pa.Array:
    values = binary_column(column.dictionary, place, max_bytes)
    lengths = pc.binary_length(values).take(column.indices)
    _check_size(pc.sum(lengths.cast(pa.int64())).as_py() or 0, place, max_bytes)
    return values.take(column.indices)


def _without_hidden_views(column: pa.Array) -> pa.Array:
    """Views of null rows made empty. Arrow does not validate them, and its cast follows them all the same (26.0)."""
    if not column.null_count:
        return column
    valid, _, *data = column.buffers()
    views = _views(column).copy()
    views[column.is_null().to_numpy(zero_copy_only=False)] = 0
    bits = None if valid is None else pa.py_buffer(np.packbits(column.is_valid(), bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [bits, pa.py_buffer(views), *data])


def _views(column: pa.Array) -> Int32s:
    """16 bytes each, of which the first four are the length; many may show the same bytes."""
    rows = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
    return rows[column.offset : column.offset + len(column)]


def _view_bytes(column: pa.Array) -> int:
    return int(_views(column)[:, 0].sum(dtype=np.int64))


def _check_size(size: int, place: Place, max_bytes: int) -> None:
    if size > max_bytes:
        raise RecordListTooLarge(
            f"column {place.column!r}: must not be larger than {max_bytes} bytes without its encoding",
            field=f"column {place.column}",
            limit=max_bytes,
        )


# --- numbers -----------------------------------------------------------------------------------


def timestamp_ms(column: pa.Array, place: Place, now_ms: int) -> Int64s:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
        raise place.wrong_type("an integer (milliseconds) or a timestamp", kind)
    given, valid = _whole_numbers(column)
    seconds = pa.types.is_timestamp(kind) and kind.unit == "s"
    most = MAX_TIMESTAMP_MS // 1000 if seconds else MAX_TIMESTAMP_MS
    # Numpy divides towards minus infinity, so that nothing before 1970 becomes 0.
    ms = given // _UNITS_PER_MS[kind.unit] if pa.types.is_timestamp(kind) and not seconds else given
    bad = (ms < 0) | (ms > most)
    if valid is not None:
        bad &= valid
    place.refuse(bad, f"must be from 0 to {MAX_TIMESTAMP_MS} milliseconds")
    if seconds:
        ms = ms * 1000
    return ms if valid is None else np.where(valid, ms, now_ms)


def partition_numbers(column: pa.Array, place: Place) -> Int32s | None:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if not pa.types.is_integer(kind):
        raise place.wrong_type("an integer", kind)
    given, valid = _whole_numbers(column)
    bad = (given < 0) | (given > MAX_PARTITION)
    if valid is not None:
        bad &= valid
    place.refuse(bad, f"must be from 0 to {MAX_PARTITION}")
    if valid is not None:
        if not valid.any():
            return None
        given = np.where(valid, given, NOT_GIVEN)
    return given.astype(np.int32)


def _whole_numbers(column: pa.Array) -> tuple[Int64s, Bools | None]:
    """As int64, and where it is not null; None: nowhere null."""
    # A cast refuses unsigned numbers that do not fit; a view is cheaper where nothing can go wrong.
    numbers = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    if not numbers.null_count:
        return numbers.to_numpy(zero_copy_only=False), None
    return numbers.fill_null(0).to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)


# --- headers -----------------------------------------------------------------------------------


def header_column(column: pa.Array, place: Place, limits: IngestLimits) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), HEADERS)
    if not ((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_header(kind.value_type)):
        raise place.wrong_type("a list of struct(key or name, value)", kind)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    place.refuse(counts > limits.max_headers, f"must not be more than {limits.max_headers}")
    flat = column.flatten()
    ends: Int64s = np.zeros(len(column) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    names, values = _header_fields(flat, place, ends, limits)
    structs = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), structs, type=HEADERS, mask=mask)


def _header_fields(flat: pa.StructArray, place: Place, ends: Int64s, limits: IngestLimits) -> tuple[pa.Array, pa.Array]:
    """Names and values of all headers, checked; `ends` are those of each record's."""
    first, second = flat.flatten()  # null as well where the header itself is
    given = (second, first) if flat.type.field(0).name == "value" else (first, second)
    names, values = (binary_column(field, place, limits.max_body_bytes) for field in given)
    if names.null_count:
        place.refuse(_per_record(_nulls(names), ends) > 0, "a header must have a name")
    sizes = _lengths(names) + _lengths(values)
    place.refuse(
        _per_record(sizes, ends) > limits.max_header_bytes, f"must not be larger than {limits.max_header_bytes} bytes"
    )
    if pa.types.is_string(given[0].type):
        return given[0], values
    try:
        return names.cast(pa.string()), values
    except pa.ArrowInvalid:
        raise InvalidRequest("column 'headers': names must be UTF-8", field="column headers") from None


def _is_header(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    fields = {kind.field(index).name: kind.field(index).type for index in range(2)}
    name = fields.pop("key", None) or fields.pop("name", None)
    # A column of nulls has a length but no bytes that would bound it, so names may not be one.
    return name is not None and not pa.types.is_null(name) and "value" in fields


def _nulls(column: pa.Array) -> Int64s:
    flags: Int64s = column.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return flags


def _lengths(column: pa.Array) -> Int64s:
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    found: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _per_record(each: Int64s, ends: Int64s) -> Int64s:
    sums: Int64s = np.zeros(len(each) + 1, np.int64)
    np.cumsum(each, out=sums[1:])
    return np.diff(sums[ends])
