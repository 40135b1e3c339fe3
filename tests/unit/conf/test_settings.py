from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sluice.conf import ConfigurationError, LogSettings, Settings, load_settings
from sluice.conf.declare import keys_of
from sluice.conf.settings import GROUPS, load_settings_with_origins

ALL_KEYS = [key for group in GROUPS.values() for _, key in keys_of(group)]


@pytest.fixture
def toml(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "sluice.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(path: Path | None, env: dict[str, str] | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, env or {})
    return caught.value


def test_without_file_and_variables_everything_has_its_default():
    assert load_settings(None, {}) == Settings()
    assert Settings().log == LogSettings()


def test_every_default_obeys_its_own_rule():
    for key in ALL_KEYS:
        assert key.parse(key.default) == key.default, key.name
        assert key.doc, key.name


def test_the_attribute_is_the_key_without_the_group():
    for group_name, group in GROUPS.items():
        for attribute, key in keys_of(group):
            assert attribute == key.name.removeprefix(f"{group_name}.").replace(".", "_")


def test_no_key_hides_another():
    names = [key.name for key in ALL_KEYS]
    assert len(set(names)) == len(names)
    assert len({key.env_name for key in ALL_KEYS}) == len(names)
    assert not [(a, b) for a in names for b in names if b.startswith(f"{a}.")], "one key is a table of another"


def test_groups_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogSettings().commit_threads = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    "text",
    [
        "wal.file.bytes = 2097152",
        'wal.file.bytes = "2 MiB"',
        'wal.file.bytes = "2MiB"',
        "[wal]\nfile.bytes = 2097152",
        "[wal.file]\nbytes = 2097152",
        '"wal.file.bytes" = 2097152',
    ],
)
def test_a_key_may_be_dotted_or_nested_and_a_size_may_carry_a_unit(toml, text):
    assert load_settings(toml(text), {}).wal.file_bytes == 2 << 20


def test_the_environment_wins_over_the_file(toml):
    path = toml("commit.interval.ms = 100\ncommit.threads = 8")
    settings, origins = load_settings_with_origins(path, {"SLUICE_COMMIT_INTERVAL_MS": "7"})
    assert (settings.log.commit_interval_ms, settings.log.commit_threads) == (7, 8)
    assert origins["commit.interval.ms"] == "environment variable SLUICE_COMMIT_INTERVAL_MS"
    assert origins["commit.threads"] == f"file {path}"
    assert origins["fsync"] == "default"


@pytest.mark.parametrize(("text", "value"), [("false", False), ("TRUE", True), ("true", True)])
def test_flags_from_the_environment(text, value):
    assert load_settings(None, {"SLUICE_FSYNC": text}).storage.fsync is value


def test_acks_may_be_a_toml_number(toml):
    assert load_settings(toml("default.acks = 1"), {}).topics.default_acks == "1"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("commit.interval.ms", "-1"),
        ("commit.interval.ms", "60001"),
        ("commit.interval.ms", "50ms"),
        ("commit.interval.ms", "64 MiB"),
        ("commit.interval.ms", "1.5"),
        ("commit.interval.ms", ""),
        ("wal.max.bytes", "15 MiB"),
        ("wal.max.bytes", "1 GB"),
        ("fsync", "yes"),
        ("default.acks", "2"),
        ("storage.root", ""),
        ("spark.driver.memory", "2 g"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_origin_and_rule(key, value):
    variable = "SLUICE_" + key.upper().replace(".", "_")
    error = refused(None, {variable: value})
    assert (error.key, error.value) == (key, value)
    rule = next(k.rule for k in ALL_KEYS if k.name == key)
    for part in (key, repr(value), variable, rule):
        assert part in str(error)


@pytest.mark.parametrize(
    "text",
    ["commit.threads = true", "commit.threads = 1.0", "commit.threads = [1]", "fsync = 1", "storage.root = 5"],
)
def test_a_wrong_toml_type_is_refused(toml, text):
    path = toml(text)
    error = refused(path)
    assert error.key == text.split(" ", maxsplit=1)[0]
    assert str(path) in str(error)


def test_bounds_are_inclusive():
    for value in ("0", "60000"):
        assert load_settings(None, {"SLUICE_COMMIT_INTERVAL_MS": value}).log.commit_interval_ms == int(value)


def test_an_unknown_key_is_refused_with_a_suggestion(toml):
    error = refused(toml('[wal]\nmax.byte = "1 GiB"'))
    assert error.key == "wal.max.byte"
    assert "did you mean wal.max.bytes?" in str(error)


def test_a_table_that_is_no_group_is_unknown_too(toml):
    assert refused(toml("[nonsense]\nx = 1")).key == "nonsense.x"


def test_an_unknown_variable_is_refused_with_a_suggestion():
    error = refused(None, {"SLUICE_WAL_MAXBYTES": "1"})
    assert error.key == "SLUICE_WAL_MAXBYTES"
    assert "did you mean SLUICE_WAL_MAX_BYTES?" in str(error)


def test_variables_that_are_not_settings_are_left_alone():
    names = ["SERVER", "TOKEN", "CONFIG", "JARS_DIR", "TEST_FULL", "TEST_ANYTHING"]
    assert load_settings(None, {f"SLUICE_{name}": "x" for name in names} | {"PATH": "/bin"}) == Settings()


def test_a_key_given_twice_is_refused(toml):
    assert "twice" in str(refused(toml("commit.threads = 1\n'commit.threads' = 2")))


def test_a_file_that_is_missing_or_not_toml_is_refused(toml, tmp_path):
    missing = tmp_path / "none.toml"
    assert str(missing) in str(refused(missing))
    assert "TOML" in str(refused(toml("a = = 1")))


@pytest.mark.parametrize(
    ("env", "key", "other"),
    [
        ({"SLUICE_CLAIM_RENEW_MS": "5001"}, "claim.timeout.ms", "claim.renew.ms"),
        ({"SLUICE_FILE_DELETE_DELAY_MS": "21600001"}, "log.json.retention.ms", "file.delete.delay.ms"),
        ({"SLUICE_WAL_MAX_BYTES": "16 MiB"}, "wal.max.bytes", "wal.file.bytes"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_and_both_named(env, key, other):
    error = refused(None, env)
    assert error.key == key
    assert other in str(error)
    assert next(iter(env)) in str(error)


def test_a_relation_is_met_at_its_limit():
    assert load_settings(None, {"SLUICE_CLAIM_RENEW_MS": "5000"}).cluster.claim_timeout_ms == 15_000
