from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sluice.api.cli import app
from sluice.log_store.delta_log import commit_path
from tests.support.logs import append, batch, folder_cluster, folder_of


@pytest.fixture
def run(monkeypatch):
    def invoke(*arguments: str, **env: str):
        return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", **env})

    return invoke


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, "sluice 0.1.0\n")


def test_config_as_json_names_value_and_origin(run, tmp_path: Path):
    path = tmp_path / "s.toml"
    path.write_text('wal.max.bytes = "2 GiB"')
    result = run("config", "--json", "--config", str(path), SLUICE_FSYNC="false")
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["wal.max.bytes"] == {"key": "wal.max.bytes", "value": 2 << 30, "origin": f"file {path}"}
    assert rows["fsync"]["value"] is False
    assert rows["fsync"]["origin"] == "environment variable SLUICE_FSYNC"
    assert rows["commit.threads"]["origin"] == "default"


def test_config_finds_the_file_through_the_variable(run, tmp_path: Path):
    path = tmp_path / "s.toml"
    path.write_text("commit.threads = 9")
    rows = {row["key"]: row for row in json.loads(run("config", "--json", SLUICE_CONFIG=str(path)).stdout)}
    assert rows["commit.threads"]["value"] == 9


def test_config_as_a_table(run):
    result = run("config")
    assert result.exit_code == 0
    assert "commit.interval.ms" in result.stdout
    assert "default" in result.stdout


def test_a_wrong_setting_is_one_line_and_exit_code_2(run):
    result = run("config", SLUICE_COMMIT_THREADS="none")
    assert result.exit_code == 2
    assert result.stderr.startswith("sluice: commit.threads = 'none'")
    assert result.stderr.count("\n") == 1


def test_serve_refuses_an_address_that_others_can_reach(run, tmp_path: Path):
    result = run("serve", "--root", str(tmp_path / "root"), "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == 2
    assert "only loopback is allowed; --insecure" in result.stderr
    assert not (tmp_path / "root").exists()


def test_a_secret_setting_is_not_shown(run):
    result = run("config", "--json", SLUICE_S3_SECRET_ACCESS_KEY="hush")
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["s3.secret.access.key"]["value"] == "***"
    assert "hush" not in result.stdout


def test_doctor_of_a_root_that_does_not_exist_warns_and_makes_nothing(run, tmp_path: Path):
    result = run("doctor", "--json", "--root", str(tmp_path / "none"))
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert result.exit_code == 0
    assert checks["storage"]["verdict"] == "warn"
    assert not (tmp_path / "none").exists()


def test_doctor_finds_a_damaged_partition_and_fails(run, tmp_root: Path):
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        folder = folder_of(log, "t")
    healthy = run("doctor", "--root", str(tmp_root))
    (tmp_root / commit_path(folder, 1)).write_bytes(b"")
    damaged = run("doctor", "--root", str(tmp_root))
    assert (healthy.exit_code, damaged.exit_code) == (0, 1)
    assert "t-0" in damaged.stdout


def _commands(group: Any, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def test_the_manual_names_every_command_and_no_other():
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = [
        row.split("|")[1] for row in re.findall(r"^\| `.*\|.*\|.*\|$", text.partition("## ")[0], flags=re.MULTILINE)
    ]
    named = {name for row in rows for name in re.findall(r"`([a-z -]+)`", row)}
    assert named == set(_commands(typer.main.get_command(app)))
