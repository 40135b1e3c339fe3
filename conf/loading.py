"""Reads settings from a TOML file and the environment into declared groups, and refuses what is wrong."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sluice.conf.declare import Key, Scalar, keys_of
from sluice.conf.errors import ConfigurationError

ENV_PREFIX = "SLUICE_"
# Variables that are not settings: they belong to clients, to the tests, or say where the settings are.
NOT_SETTINGS = frozenset({"SLUICE_SERVER", "SLUICE_TOKEN", "SLUICE_CA_FILE", "SLUICE_CONFIG", "SLUICE_JARS_DIR"})
TEST_PREFIX = "SLUICE_TEST_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """A relation between two keys: key >= factor × other."""

    key: str
    factor: int
    other: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A raw value and where it was found. `spelled` is the key as the user wrote it."""

    spelled: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    groups: Mapping[str, Any]
    origins: Mapping[str, str]


def load(
    groups: Mapping[str, type[object]], relations: Iterable[AtLeast], path: Path | None, env: Mapping[str, str]
) -> Loaded:
    keys = {key.name: key for group in groups.values() for _, key in keys_of(group)}
    given = _from_file(path, keys) | _from_env(env, keys)  # the environment wins
    values = {name: _value(key, given.get(name)) for name, key in keys.items()}
    origins = {name: given[name].origin if name in given else "default" for name in keys}
    for relation in relations:
        _check(relation, values, origins)
    built = {
        name: group(**{attribute: values[key.name] for attribute, key in keys_of(group)})
        for name, group in groups.items()
    }
    return Loaded(groups=built, origins=origins)


def _from_file(path: Path | None, keys: Mapping[str, Key]) -> dict[str, Given]:
    if path is None:
        return {}
    origin = f"file {path}"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        rule = f"the settings file must be readable TOML: {error}"
        raise ConfigurationError(key="SLUICE_CONFIG", value=str(path), origin=origin, rule=rule) from error
    given: dict[str, Given] = {}
    for name, value in _flatten(document):
        entry = Given(spelled=name, value=value, origin=origin)
        if name not in keys:
            raise _unknown(entry, keys)
        if name in given:  # TOML itself cannot see that "a.b" and a.b are one key
            raise ConfigurationError(key=name, value=value, origin=origin, rule="the key is given twice")
        given[name] = entry
    return given


def _from_env(env: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Given]:
    by_env_name = {key.env_name: name for name, key in keys.items()}
    given = {}
    for variable in sorted(env):
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS or variable.startswith(TEST_PREFIX):
            continue
        entry = Given(spelled=variable, value=env[variable], origin=f"environment variable {variable}")
        if variable not in by_env_name:
            raise _unknown(replace(entry, origin="environment"), by_env_name)
        given[by_env_name[variable]] = entry
    return given


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _unknown(entry: Given, known: Iterable[str]) -> ConfigurationError:
    close = difflib.get_close_matches(entry.spelled, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return ConfigurationError(
        key=entry.spelled, value=entry.value, origin=entry.origin, rule=f"there is no such setting{hint}"
    )


def _value(key: Key, given: Given | None) -> Scalar:
    if given is None:
        return key.default
    try:
        return key.parse(given.value)
    except ValueError as error:
        rule = f"must be {key.rule}"
        raise ConfigurationError(key=key.name, value=given.value, origin=given.origin, rule=rule) from error


def _check(relation: AtLeast, values: Mapping[str, Scalar], origins: Mapping[str, str]) -> None:
    value, other = int(values[relation.key]), int(values[relation.other])
    if value >= relation.factor * other:
        return
    times = "" if relation.factor == 1 else f"{relation.factor} × "
    rule = f"must be at least {times}{relation.other}, which is {other} ({origins[relation.other]})"
    raise ConfigurationError(key=relation.key, value=value, origin=origins[relation.key], rule=rule)
