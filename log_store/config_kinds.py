"""Kinds of config values: from text, to canonical text, and the rule to tell the person who got it wrong."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Not int(): that takes "1_000" and Arabic digits too.
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class Kind(Protocol):
    @property
    def rule(self) -> str:
        """Ends the sentence "must be …"."""

    def parse(self, text: str) -> Any:
        """The value; ValueError when the text breaks the rule."""

    def text(self, value: Any) -> str:
        """The one spelling that is stored and shown."""


@dataclass(frozen=True, slots=True)
class IntRange:
    low: int
    high: int

    @property
    def rule(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        if not _INTEGER.fullmatch(text) or not self.low <= int(text) <= self.high:
            raise ValueError(text)
        return int(text)

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class FloatRange:
    low: float
    high: float

    @property
    def rule(self) -> str:
        return f"a number from {self.low} to {self.high}"

    def parse(self, text: str) -> float:
        value = float(text) if _DECIMAL.fullmatch(text) else math.nan
        if not self.low <= value <= self.high:  # false for nan
            raise ValueError(text)
        return value + 0.0  # -0.0 is 0.0

    def text(self, value: Any) -> str:
        return repr(float(value))


@dataclass(frozen=True, slots=True)
class Boolean:
    @property
    def rule(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    def text(self, value: Any) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def rule(self) -> str:
        return "one of " + ", ".join((*self.values, *(alias for alias, _ in self.aliases)))

    def parse(self, text: str) -> str:
        value = dict(self.aliases).get(text, text)
        if value not in self.values:
            raise ValueError(text)
        return value

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class ListOf:
    """Comma-separated, at least one, each once, in the order given."""

    values: tuple[str, ...]

    @property
    def rule(self) -> str:
        return "a comma-separated list of " + ", ".join(self.values)

    def parse(self, text: str) -> tuple[str, ...]:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(",")))
        if not set(items) <= set(self.values):
            raise ValueError(text)
        return items

    def text(self, value: Any) -> str:
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class DottedName:
    """Empty, or the name of a Python class with its module. Whether it exists and may be loaded is not asked here."""

    @property
    def rule(self) -> str:
        return "empty or a dotted name like package.module.Class, up to 200 characters"

    def parse(self, text: str) -> str:
        if text and (len(text) > 200 or not _DOTTED.fullmatch(text)):
            raise ValueError(text)
        return text

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class ShortText:
    """Anything that fits on a line; may be empty."""

    @property
    def rule(self) -> str:
        return "text of up to 500 printable characters"

    def parse(self, text: str) -> str:
        if len(text) > 500 or not text.isprintable():
            raise ValueError(text)
        return text

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class DottedNames:
    """Comma-separated, each once, in the order given; may be empty."""

    @property
    def rule(self) -> str:
        return "empty or a comma-separated list of dotted names like package.module.Class"

    def parse(self, text: str) -> tuple[str, ...]:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
        if "" in items:
            raise ValueError(text)
        return tuple(map(DottedName().parse, items))

    def text(self, value: Any) -> str:
        return ",".join(value)
