"""Brackets of JSON text without parsing it: how deep, how many, where an object ends. Vectorised, in pieces.

The scan trusts its text to be JSON. Up to the first error it agrees with the parser, and at the first error the
parser stops, so what is counted here bounds what the parser builds.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sluice.log_store.errors import InvalidRequest, MessageTooLarge

Ints = np.ndarray[Any, np.dtype[np.int64]]

PIECE = 256 << 10
"""Bytes looked at at once: the arrays made for them are up to 30 times as large."""
SHORT = 4 << 10
"""Bytes below which counting costs less than numpy's overhead."""
WHITE_SPACE = b" \t\n\r"
LONG_NAME = 128 << 10

_QUOTE = re.compile(rb'(?<!\\)"')
_SPACES = re.compile(rb"[ \t\n\r]{1,65536}+")

_KINDS = np.zeros(256, np.int8)
_KINDS[[ord("{"), ord("[")]] = 1
_KINDS[[ord("}"), ord("]")]] = -1
_KINDS[ord('"')] = 2


class _Escapes:
    """Blots out escapes, so that every quote that is left begins or ends a string. Remembers a cut one."""

    def __init__(self) -> None:
        self._cut = False

    def blotted(self, piece: bytes) -> bytes:
        """Of the same length."""
        if piece and self._cut:
            piece, self._cut = b"_" + piece[1:], False
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")
            self._cut = piece.endswith(b"\\")
        return piece


class Brackets(NamedTuple):
    at: Ints
    steps: np.ndarray[Any, np.dtype[np.int8]]
    """1 for an opening one, -1 for a closing one."""
    depths: Ints
    """The depth after it."""


class Scanner:
    """Finds the brackets outside strings, piece by piece; remembers depth, open string and open escape."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._escapes = _Escapes()

    def step(self, piece: bytes) -> Brackets:
        codes = np.frombuffer(self._escapes.blotted(piece), np.uint8)
        upper = codes | 0x20  # the only difference between [ and {, ] and }
        at = np.flatnonzero((codes == ord('"')) | (upper == ord("{")) | (upper == ord("}")))
        kinds = _KINDS[codes[at]]
        quotes = kinds == 2
        strings = (np.cumsum(quotes) + self._in_string) & 1  # 1: inside a string after this character
        if len(strings):
            self._in_string = bool(strings[-1])
        outside = ~(quotes | strings.astype(np.bool_))
        steps = kinds[outside]
        depths = np.cumsum(steps, dtype=np.int64) + self._depth
        if len(depths):
            self._depth = int(depths[-1])
        return Brackets(at[outside], steps, depths)


def _pieces(text: bytes | memoryview) -> Iterator[bytes]:
    view = memoryview(text)
    return (bytes(view[start : start + PIECE]) for start in range(0, len(text), PIECE))


def count_openings(text: bytes, depth: int) -> int:
    """Objects and arrays that begin at this depth."""
    scanner, found = Scanner(), 0
    for piece in _pieces(text):
        brackets = scanner.step(piece)
        found += int(np.count_nonzero((brackets.steps > 0) & (brackets.depths == depth)))
    return found


def has_long_name(text: bytes | memoryview) -> bool:
    """Whether a member's name is longer than LONG_NAME: the parser would make a str of it only to complain."""
    half = LONG_NAME // 2
    # A string that long fills an aligned block of half its size; blocks without a quote are rare and looked at closely.
    if all(_QUOTE.search(text, at, at + half) for at in range(0, len(text) - half + 1, half)):
        return False
    escapes, start, opened = _Escapes(), 0, np.empty(0, np.int64)
    for piece in _pieces(text):
        found = np.flatnonzero(np.frombuffer(escapes.blotted(piece), np.uint8) == ord('"')) + start
        quotes = np.concatenate([opened, found])
        whole = len(quotes) & ~1
        ends = quotes[1:whole:2]
        if any(_is_name(text, end + 1) for end in ends[ends - quotes[:whole:2] > LONG_NAME].tolist()):
            return True
        opened, start = quotes[whole:], start + len(piece)
    return False


def _is_name(text: bytes | memoryview, end: int) -> bool:
    """Whether a colon follows. Much white space is passed over step by step, so that others may work meanwhile."""
    while spaces := _SPACES.match(text, end):
        end = spaces.end()
    return text[end : end + 1] == b":"


def without_spacing(text: bytes | memoryview) -> bytes:
    """Valid JSON without white space outside strings."""
    escapes, inside, kept = _Escapes(), 0, io.BytesIO()
    for piece in _pieces(text):
        codes = np.frombuffer(escapes.blotted(piece), np.uint8)
        strings = np.cumsum(codes == ord('"'), dtype=np.int32) + inside
        inside = int(strings[-1]) & 1
        # A control character or a space: nothing else below 0x21 is left in valid JSON.
        keep = (codes > ord(" ")) | ((strings & 1) == 1)
        kept.write(np.frombuffer(piece, np.uint8)[keep])
    return kept.getvalue()


def too_deep(text: bytes, limit: int, longest: int) -> int | None:
    """Where in `text`, values of at most `longest` bytes in a row, one is nested deeper than `limit`; else None.

    Exact, but almost always decided by cheaper questions first: a deep value is long, and its brackets are close.
    """
    if longest < 2 * (limit + 1) or (len(text) < SHORT and text.count(b"{") + text.count(b"[") <= limit):
        return None
    if not _crowded(text, limit, longest):
        return None
    scanner, start = Scanner(), 0
    for piece in _pieces(text):
        brackets = scanner.step(piece)
        if len(brackets.depths) and int(brackets.depths.max()) > limit:
            return start + int(brackets.at[int(np.argmax(brackets.depths > limit))])
        start += len(piece)
    return None


def _crowded(text: bytes, limit: int, longest: int) -> bool:
    """Whether more than `limit` opening brackets stand within `longest` bytes anywhere."""
    data = np.frombuffer(text, np.uint8)
    before = np.empty(0, np.int64)
    for start in range(0, len(data), PIECE):
        openings = np.flatnonzero((data[start : start + PIECE] | 0x20) == ord("{")) + start
        openings = np.concatenate([before, openings])
        if len(openings) > limit and int((openings[limit:] - openings[:-limit]).min()) < longest:
            return True
        before = openings[-limit:]
    return False


class ObjectSplitter:
    """Cuts a stream of concatenated JSON objects. Each byte is looked at once; one unfinished object is held back."""

    def __init__(self, max_object_bytes: int) -> None:
        self._limit = max_object_bytes
        self._scanner = Scanner()
        self._held = bytearray()
        self._found = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The objects that this chunk completes, as they were sent. The decoder says whether they are valid."""
        objects: list[bytes] = []
        for piece in _pieces(chunk):
            brackets = self._scanner.step(piece)
            start = 0
            for end in (brackets.at[brackets.depths == 0] + 1).tolist():
                text = self._checked(piece[start:end])
                if self._held:
                    text = bytes(self._held) + text
                    self._held.clear()
                objects.append(text)
                self._found += 1
                start = end
            self._held += self._checked(piece[start:])
        return objects

    def finish(self) -> None:
        """The stream ended: between objects, or it was cut."""
        if self._held:
            raise InvalidRequest(f"records[{self._found}]: the body ends inside this record", field="body")

    def _checked(self, text: bytes) -> bytes:
        """The next part of an object, without the white space in front of it."""
        if not self._held:
            text = text.lstrip(WHITE_SPACE)
            if text and text[0] != ord("{"):
                raise InvalidRequest(
                    f"records[{self._found}]: must be a JSON object; between records only white space is allowed",
                    field="body",
                )
        if len(self._held) + len(text) > self._limit:
            raise MessageTooLarge(
                f"records[{self._found}]: must not be larger than {self._limit} bytes of JSON",
                field=f"records[{self._found}]",
                limit=self._limit,
            )
        return text
