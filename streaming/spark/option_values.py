"""Options as Spark hands them over: names without case, values as text. What is wrong is refused by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from sluice.log_store.errors import InvalidConfig

LONG_MAX = 2**63 - 1

_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
# Spark's own duration texts, as `maxTriggerDelay` of its Kafka source takes them.
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_FLAGS = {"true": True, "false": False}


def wrong(name: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"option {name!r}: {why}", name=name)


class OptionValues:
    """Typed looks at the given options. Whatever is not among the known names is refused at once.

    `prefixes` are families such as `storage.`: every name that begins with one is known.
    """

    def __init__(self, given: Mapping[str, str], known: Collection[str], prefixes: Iterable[str] = ()) -> None:
        spelled = {name.lower(): name for name in known}
        self._prefixes = tuple(prefixes)
        self._values = {str(name).lower(): str(value) for name, value in given.items()}
        for name in self._values:
            if name not in spelled and not name.startswith(self._prefixes):
                raise _unknown(name, spelled)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def family(self, prefix: str) -> dict[str, str]:
        """The options that begin with `prefix`, without it."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix)}

    def text(self, name: str) -> str | None:
        """None if it is not given; given and empty is an error, because no option means anything by that."""
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise wrong(name, "must not be empty")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if (found := _FLAGS.get(value.strip().lower())) is None:
            raise wrong(name, f"must be true or false, not {value!r}")
        return found

    def whole(self, name: str, *, minimum: int, maximum: int = LONG_MAX) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        bounds = f"at least {minimum}" if maximum == LONG_MAX else f"{minimum} to {maximum}"
        try:
            number = int(value)
        except ValueError:
            raise wrong(name, f"must be a whole number, {bounds}, not {value!r}") from None
        if not minimum <= number <= maximum:
            raise wrong(name, f"must be {bounds}, not {number}")
        return number

    def duration_ms(self, name: str, *, minimum: int = 0) -> int | None:
        """Milliseconds, or a number with a unit: `500ms`, `30s`, `15m`, `2h`, `1d`."""
        value = self.text(name)
        if value is None:
            return None
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None or match[2] not in _UNITS_MS:
            raise wrong(name, f"must be a duration such as 500ms, 30s or 15m, not {value!r}")
        duration = int(match[1]) * _UNITS_MS[match[2]]
        if duration < minimum:
            raise wrong(name, f"must be at least {minimum} ms, not {value!r}")
        return duration

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        if (found := value.strip().lower()) not in choices:
            raise wrong(name, f"must be {' or '.join(choices)}, not {value!r}")
        return found

    def names(self, name: str) -> tuple[str, ...] | None:
        """A list separated by commas, without empty parts and repeats."""
        value = self.text(name)
        if value is None:
            return None
        found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not found:
            raise wrong(name, f"must name at least one, not {value!r}")
        return found

    def json_object(self, name: str) -> dict[str, object] | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            found = json.loads(value, object_pairs_hook=_without_repeats)
        except _RepeatedName as repeated:
            raise wrong(name, f"names {repeated} twice") from None
        except ValueError as error:
            raise wrong(name, f"is not valid JSON ({error})") from None
        if not isinstance(found, dict):
            raise wrong(name, "must be a JSON object")
        return found


class _RepeatedName(ValueError):
    pass


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Python would keep the last one and say nothing."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise _RepeatedName(repr(name))
        found[name] = value
    return found


def _unknown(name: str, spelled: Mapping[str, str]) -> InvalidConfig:
    near = get_close_matches(name, spelled, n=1, cutoff=0.7)
    hint = f", did you mean {spelled[near[0]]!r}?" if near else ""
    return InvalidConfig(f"unknown option {name!r}{hint}", name=name)
