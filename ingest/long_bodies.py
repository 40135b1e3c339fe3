"""Long JSON bodies, `{"records": […]}`, cut between their records: each piece is parsed by a call of its own.

One call of the parser keeps Python's lock until it is done. With a whole body of 64 MiB everybody else would wait for a
fifth of a second; with a piece they wait for a millisecond.

All pieces are right if and only if the body is. Each is parsed as a list, between two of them stands one comma, and
what stands around them is parsed as a body without records. The scan only says where to cut: in text that is no JSON
it may be wrong, but then some piece, or what is around them, does not parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from sluice.ingest.json_scan import PIECE, Brackets, Scanner
from sluice.ingest.json_text import check_names, check_utf8, parse
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import NOT_GIVEN, Bools, Decoded, Int32s, Int64s, assemble, binary_of, refuse_empty
from sluice.log_store.errors import ClientError, InvalidRequest, MessageTooLarge, RecordListTooLarge

LONG = 2 << 20
"""Bytes above which a body is parsed in pieces. Below, a call takes about as long as threads wait for their turn."""
_WORD = 16
"""Bytes of the longest word that JSON has outside of strings, numbers aside, and some."""
_AROUND = 64 << 10
"""What may stand around the list of a long body, at most."""

_SPACES = rb"[ \t\n\r]{0,4096}+"
_HEAD = re.compile(_SPACES.join([b"", rb"\{", rb'("(?:[^"\\]|\\.){1,100}+")', b":", rb"\["]), re.DOTALL)
_COMMA = re.compile(_SPACES + b",")
_BLANK = re.compile(rb"[ \t\n\r]*+")
_BETWEEN = re.compile(rb'\}[ \t\n\r]{0,64}+,[ \t\n\r]{0,64}+\{[ \t\n\r]{0,64}+"[^"\\]{1,20}+"')
_NAME = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder(list[msgspec.Raw])
_INDEX = re.compile(r"^(?:\w+)?\[(\d+)\]")
_BYTE = re.compile(r"\(byte (\d+)\)$")

T = TypeVar("T")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Elements(Generic[T]):
    """What the elements of a list are parsed into, many at a time or one."""

    listed: msgspec.json.Decoder[list[T]]
    one: msgspec.json.Decoder[T]

    @classmethod
    def of(cls, kind: type[T]) -> Elements[T]:
        return cls(msgspec.json.Decoder(list[kind]), msgspec.json.Decoder(kind))  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True)
class ListBody(Generic[T]):
    """A kind of body that is one object with one list in it."""

    name: str
    whole: msgspec.json.Decoder[Any]
    elements: Elements[T]


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    text: bytes | memoryview
    """A JSON list; a view of the body where it is one long element; empty where it has been parsed already."""
    name: str
    first: int
    """Index in the body's list of its first element."""
    start: int
    """Where in the body its first element begins, or the white space in front of it."""
    guessed: list[T] | None = None

    def parsed(self, elements: Elements[E]) -> list[E]:
        try:
            if isinstance(self.text, memoryview):
                return [parse(elements.one, self.text, "[0]")]
            return parse(elements.listed, self.text)
        except InvalidRequest as error:
            raise self.placed(error) from None

    def placed(self, error: ClientError) -> ClientError:
        """The same error, with the places that it has in the body."""
        return _moved(error, self.name, self.first, self.start - isinstance(self.text, bytes))


def _moved(error: ClientError, name: str, first: int, by: int) -> ClientError:
    def place(found: re.Match[str]) -> str:
        return f"{name}[{int(found[1]) + first}]"

    field = _INDEX.sub(place, str(error.fields.get("field", "body")))
    message = _BYTE.sub(lambda found: f"(byte {int(found[1]) + by})", _INDEX.sub(place, error.message))
    return type(error)(message, **{**error.fields, "field": field})


def pieces_of(body: bytes, kind: ListBody[T], *, most: int, longest: int, size: int = PIECE) -> Iterator[Piece[T]]:
    """Of about `size` bytes each, or one record. More than `most` records, or one whose text is longer than `longest`,
    are refused before they are parsed, and before anything behind them is looked at."""
    name = kind.name
    begin = cut = _begin_of_list(body, kind)
    first, between = 0, b""
    while True:
        guessed = _guessed(body, cut, kind, between, size) if between else None
        found = guessed or _scanned(body, cut, f"{name}[%d]", first, longest, size)
        if first + found.count > most:
            raise RecordListTooLarge(f"{name}: must not be more than {most}", field=name, limit=most)
        if guessed is not None:
            yield Piece(b"", name, first, cut, guessed.elements)
        elif not (found.over and cut == begin and _BLANK.fullmatch(body, cut, found.end)):
            text = _list_of(body, cut, found, size)
            check_utf8(text)
            check_names(text)
            yield Piece(text, name, first, cut)
            del text  # it may be large, and its reader is done with it
        if found.over:
            _check_rest(body, found.end, kind)
            return
        first, cut, between = first + found.count, found.next, found.between


def _list_of(body: bytes, cut: int, found: _Found[Any], size: int) -> bytes | memoryview:
    text = memoryview(body)[cut : found.end]
    if len(text) > size and found.count == 1:
        return text  # as it is: a copy would need the memory once more
    if found.over and _BLANK.fullmatch(body, cut, found.end):
        text = memoryview(b",")  # behind a comma there must be something, which the parser will say
    return b"".join((b"[", text, b"]"))


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    end: int
    """Of the last record in front of the cut, or of the list."""
    next: int
    """Behind the comma."""
    count: int
    over: bool = False
    """The list ends here."""
    between: bytes = b""
    """How a record ends and the next one begins."""
    elements: list[T] | None = None


def _guessed(body: bytes, cut: int, kind: ListBody[T], between: bytes, size: int) -> _Found[T] | None:
    """Where the text looks as it did between two records before. If what is in front of it is a list, it was right."""
    at = body.rfind(between, cut + size // 2, cut + size)
    if at < 0:
        return None
    text = b"[" + body[cut : at + 1] + b"]"
    check_utf8(text)
    try:
        elements = kind.elements.listed.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    comma = cast("re.Match[bytes]", _COMMA.match(body, at + 1))
    return _Found(at + 1, comma.end(), len(elements), between=between, elements=elements)


def _scanned(body: bytes, cut: int, place: str, first: int, longest: int, size: int) -> _Found[T]:
    scanner, end, count, between = Scanner(2), cut, 0, b""
    for at in range(cut, len(body), size):
        ends, over = _ends(scanner.step(body[at : at + size]), at)
        seen = min(at + size, len(body)) if over is None else over
        lengths = np.diff(np.concatenate([[end], ends, [seen]]))
        if int(lengths.max()) > longest:
            _check_syntax(body, cut, end, size)
            raise _too_long(place % (first + count + int(np.argmax(lengths > longest))), longest)
        count += len(ends)
        if len(ends):
            end = int(ends[-1])
            between = between or _between(body, int(ends[0]))
        if over is not None:
            return _Found(over, over, count, over=True)
        if len(ends) and (comma := _COMMA.match(body, end)):
            return _Found(end, comma.end(), count, between=between)
        if seen - cut > longest + 2 * size:
            _check_syntax(body, cut, end, size)
            field = place % (first + count)
            raise InvalidRequest(f"{field}: has too much white space in front of it", field=field)
    _check_syntax(body, cut, end, size)
    raise InvalidRequest("body: Input data was truncated", field="body")


def _check_syntax(body: bytes, cut: int, end: int, size: int) -> None:
    """In text that is no JSON the scan goes astray: say what is wrong, if that is near where it was sure of its way."""
    for head, start in ((b"[", cut), (b"[0", end))[: 1 + (end > cut)]:
        try:
            parse(_ANY, head + body[start : start + 2 * size])
        except InvalidRequest as error:
            if not _at_the_cut(error.message, len(head) + len(body[start : start + 2 * size])):
                raise _moved(error, "", 0, start - len(head)) from None


def _at_the_cut(message: str, length: int) -> bool:
    """Whether this is no more than what a parser says of a text that ends too early: in a word, or behind a sign."""
    at = _BYTE.search(message)
    return "truncated" in message or "trailing" in message or (at is not None and int(at[1]) > length - _WORD)


def _ends(brackets: Brackets, at: int) -> tuple[Int64s, int | None]:
    """Where records end, and where their list does."""
    closing = brackets.steps < 0
    outside = np.flatnonzero(closing & (brackets.depths < 2))
    ends = brackets.at[closing & (brackets.depths == 2)] + (at + 1)
    if not len(outside):
        return ends, None
    over = int(brackets.at[outside[0]]) + at
    return ends[ends <= over], over


def _between(body: bytes, end: int) -> bytes:
    found = _BETWEEN.match(body, end - 1)
    return b"" if found is None else found[0]


def _begin_of_list(body: bytes, kind: ListBody[Any]) -> int:
    found = _HEAD.match(body)
    if found is not None and _is_named(found, kind.name):
        return found.end()
    try:
        parse(kind.whole, body[:_AROUND])  # says what is wrong, if that is not its length
    except InvalidRequest as error:
        if "truncated" not in error.message:
            raise
    raise InvalidRequest(f'body: must begin with {{"{kind.name}":[', field="body")


def _is_named(head: re.Match[bytes], name: str) -> bool:
    try:
        return parse(_NAME, head[1]) == name
    except InvalidRequest as error:
        raise _moved(error, name, 0, head.start(1)) from None


def _check_rest(body: bytes, over: int, kind: ListBody[Any]) -> None:
    head, rest = b'{"%b":[' % kind.name.encode(), body[over : over + _AROUND]
    if len(body) - over > _AROUND:
        raise InvalidRequest(f"body: must end behind its {kind.name}", field="body")
    try:
        parse(kind.whole, head + rest)
    except InvalidRequest as error:
        raise _moved(error, kind.name, 0, over - len(head)) from None
    if b'"' in rest:  # of all names there are, only the same one again is no error
        raise InvalidRequest(f"{kind.name}: must be given once", field=kind.name)


def _too_long(place: str, limit: int) -> MessageTooLarge:
    rule = f"must not be larger than {limit} bytes of JSON, with the white space around it"
    return MessageTooLarge(f"{place}: {rule}", field=place, limit=limit)


# --- records to columns, piece by piece ----------------------------------------------------------


def decode_long(
    body: bytes,
    kind: ListBody[T],
    columns_of: Callable[[list[T], int, IngestLimits], Decoded],
    *,
    now_ms: int,
    limits: IngestLimits,
    size: int = PIECE,
) -> Decoded:
    gathered = _Gathered()
    for piece in pieces_of(body, kind, most=limits.max_records, longest=limits.max_text_bytes, size=size):
        gathered.add(_decoded(piece, kind, columns_of, now_ms, limits))
        if gathered.headers > (most := limits.max_request_headers):
            raise RecordListTooLarge(f"headers: a request must not have more than {most}", field="headers", limit=most)
    refuse_empty(gathered.count, kind.name)
    return gathered.decoded()


def _decoded(
    piece: Piece[T],
    kind: ListBody[T],
    columns_of: Callable[[list[T], int, IngestLimits], Decoded],
    now_ms: int,
    limits: IngestLimits,
) -> Decoded:
    records = piece.parsed(kind.elements) if piece.guessed is None else piece.guessed
    try:
        return columns_of(records, now_ms, limits)
    except InvalidRequest as error:
        raise piece.placed(error) from None


class _Gathered:
    """Columns that grow: joining those of all pieces in the end would need the memory of a body once more."""

    def __init__(self) -> None:
        self.count = self.headers = 0
        self._only: Decoded | None = None
        """One piece may be all there is: then nothing is copied."""
        self._keys, self._values = _GrowingBinary(), _GrowingBinary()
        self._times: list[pa.Array] = []
        self._headers: list[pa.Array] = []
        self._partitions: list[Int32s | None] = []

    def add(self, decoded: Decoded) -> None:
        self.headers += len(decoded.batch.column("headers").flatten())
        if not self.count:
            self._only = decoded
        else:
            if self._only is not None:
                self._append(self._only)
                self._only = None
            self._append(decoded)
        self.count += decoded.count

    def _append(self, decoded: Decoded) -> None:
        times, keys, values, headers = decoded.batch.columns
        self._keys.add(keys)
        self._values.add(values)
        self._times.append(times)
        self._headers.append(headers)
        self._partitions.append(decoded.explicit_partitions)

    def decoded(self) -> Decoded:
        if self._only is not None:
            return self._only
        batch = assemble(
            pa.concat_arrays(self._times),
            self._keys.column(),
            self._values.column(),
            pa.concat_arrays(self._headers),
        )
        return Decoded(batch, _joined(self._partitions, [len(times) for times in self._times]))


class _GrowingBinary:
    def __init__(self) -> None:
        self._data = BytesIO()  # getvalue() hands its memory over
        self._lengths: list[Int32s] = []
        self._valid: list[Bools] = []

    def add(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32, len(column) + 1)
        if data is not None:
            self._data.write(memoryview(data)[: int(ends[-1])])
        self._lengths.append(np.diff(ends))
        self._valid.append(column.is_valid().to_numpy(zero_copy_only=False))

    def column(self) -> pa.Array:
        valid = np.concatenate(self._valid)
        offsets: Int32s = np.zeros(len(valid) + 1, np.int32)
        np.cumsum(np.concatenate(self._lengths), out=offsets[1:])
        return binary_of(self._data.getvalue(), offsets, None if valid.all() else valid)


def _joined(given: Sequence[Int32s | None], counts: Sequence[int]) -> Int32s | None:
    if all(one is None for one in given):
        return None
    filled = [
        np.full(count, NOT_GIVEN, np.int32) if one is None else one for one, count in zip(given, counts, strict=True)
    ]
    return np.concatenate(filled)
