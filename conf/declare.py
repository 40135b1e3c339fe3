"""How a setting is declared: name, default, doc and bounds side by side, as dataclass field metadata."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast

Scalar = bool | int | str
T = TypeVar("T", bool, int, str)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

_METADATA_KEY = "sluice.setting"
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1 << 40}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One declared setting. Its kind follows from the default; `*.bytes` is a size, `*.ms` a duration."""

    name: str
    default: Scalar
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    pattern_doc: str = ""
    secret: bool = False
    """Never shown, neither by `sluice config` nor in an error."""

    @property
    def env_name(self) -> str:
        return "SLUICE_" + self.name.upper().replace(".", "_")

    @property
    def is_size(self) -> bool:
        return self.name.endswith(".bytes")

    @property
    def rule(self) -> str:
        """The rule in words, for error messages and for defaults.toml."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            if self.choices:
                return "one of " + ", ".join(self.choices)
            return self.pattern_doc or "any text"
        return f"{self._number_kind()}{self._bounds()}"

    def _number_kind(self) -> str:
        if self.is_size:
            return "bytes, as a whole number or like 64 MiB"
        return "milliseconds" if self.name.endswith(".ms") else "a whole number"

    def _bounds(self) -> str:
        low = None if self.minimum is None else self._show(self.minimum)
        high = None if self.maximum is None else self._show(self.maximum)
        if low is not None and high is not None:
            return f", {low} to {high}"
        if low is not None:
            return f", at least {low}"
        return "" if high is None else f", at most {high}"

    def _show(self, number: int) -> str:
        return format_size(number) if self.is_size else str(number)

    def parse(self, raw: object) -> Scalar:
        """The typed value of `raw` (TOML value or environment text). ValueError if it breaks the rule."""
        if isinstance(self.default, bool):
            return _parse_flag(raw)
        if isinstance(self.default, str):
            return self._parse_text(raw)
        number = _parse_number(raw, sizes=self.is_size)
        if (self.minimum is not None and number < self.minimum) or (self.maximum is not None and number > self.maximum):
            raise ValueError("out of bounds")
        return number

    def _parse_text(self, raw: object) -> str:
        # `default.acks = 1` is how anybody would write it in TOML.
        if self.choices and isinstance(raw, int) and not isinstance(raw, bool):
            raw = str(raw)
        if not isinstance(raw, str):
            raise ValueError("not a text")
        if self.choices and raw not in self.choices:
            raise ValueError("not one of the choices")
        if self.pattern and re.fullmatch(self.pattern, raw) is None:
            raise ValueError("does not match")
        return raw


def setting(
    name: str,
    default: T,
    doc: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    pattern_doc: str = "",
    secret: bool = False,
) -> T:
    """A dataclass field that carries its `Key`. Typed as its default, so that groups read like plain dataclasses."""
    key = Key(
        name=name,
        default=default,
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        pattern=pattern,
        pattern_doc=pattern_doc,
        secret=secret,
    )
    field: Any = dataclasses.field(default=default, metadata={_METADATA_KEY: key})
    return cast("T", field)


def keys_of(group: type[Any]) -> Iterator[tuple[str, Key]]:
    """(attribute name, key) of every setting of a group, in declared order."""
    for field in dataclasses.fields(group):
        yield field.name, field.metadata[_METADATA_KEY]


def format_size(number: int) -> str:
    """The shortest exact form: 67108864 -> '64 MiB'."""
    for unit, factor in reversed(_UNITS.items()):
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} B"


def _parse_flag(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    raise ValueError("not true or false")


def _parse_number(raw: object, *, sizes: bool) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        text = raw.strip()
        if re.fullmatch(r"-?\d+", text, re.ASCII):
            return int(text)
        if sizes and (match := _SIZE.fullmatch(text)):
            return int(match[1]) * _UNITS[match[2]]
    raise ValueError("not a number")
