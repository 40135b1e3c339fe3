from __future__ import annotations

import dataclasses
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


def test_doctor_shows_the_write_ahead_log_of_wal_dir(run, tmp_root: Path, tmp_path: Path):
    wal = tmp_path / "wal"
    with folder_cluster(tmp_root) as cluster:
        settings = dataclasses.replace(cluster.settings, wal=dataclasses.replace(cluster.settings.wal, dir=str(wal)))
        log = cluster.open(settings=settings)
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        folder = tmp_root / folder_of(log, "t")
    (wal / "parked").mkdir(exist_ok=True)
    (wal / "parked" / "t-0.wal").write_bytes(b"waits")
    (folder / "_delta_log" / "00000000000000000001.crc").write_bytes(b"delta-spark's")
    (folder / "_sluice").mkdir(exist_ok=True)
    (folder / "_sluice" / ".x-1.tmp").write_bytes(b"left")

    def checks(wal_dir: Path) -> dict[str, dict[str, str]]:
        result = run("doctor", "--json", "--root", str(tmp_root), SLUICE_WAL_DIR=str(wal_dir))
        assert result.exit_code == 0
        return {check["name"]: check for check in json.loads(result.stdout)}

    found = checks(wal)
    assert found[f"WAL {wal}"]["verdict"] == "warn"
    assert " 1 parked" in found[f"WAL {wal}"]["text"]
    assert found["leftovers"]["text"].startswith("1 sidecars and temporaries")
    assert "1 version checksums (n.crc)" in found["leftovers"]["text"]
    assert "does not exist" in checks(tmp_path / "nowhere")["WAL"]["text"]


def test_commands_that_ask_no_service_take_its_options(run, tmp_path: Path):
    question = tmp_path / "question.json"
    question.write_text('{"partitions_per_topic": {"t": 1}, "subscriptions": {"c": ["t"]}}')
    root = ("--root", str(tmp_path))
    for command in (["config"], ["doctor", *root], ["assign", "--input", str(question)]):
        found = run(*command, "--server", "http://nowhere", "--token=none", "--json")
        assert (found.exit_code, found.stderr) == (0, ""), command
        assert json.loads(found.stdout)
    dumped = run("dump", "t/0", *root, "--server=http://nowhere", "--token", "none", "--json")
    assert (dumped.exit_code, "no " in dumped.stderr) == (1, True)


@pytest.mark.parametrize(
    ("given", "handed_on"),
    [
        (["jobs", "list", "--server", "http://x", "--json"], ["-m", "sluice.jobs", "list", "--json"]),
        (["jobs", "run", "vacuum", "--server", "x"], ["-m", "sluice.jobs", "run", "vacuum", "--server", "x"]),
        (["backup", "--token=x", "a", "b"], ["-m", "sluice.jobs.backup_command", "backup", "a", "b"]),
        (["restore", "a", "--server", "x", "b"], ["-m", "sluice.jobs.backup_command", "restore", "a", "b"]),
    ],
)
def test_a_job_is_handed_what_it_takes(run, monkeypatch, given: list[str], handed_on: list[str]):
    called: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _path, arguments: called.append(arguments[1:]))
    run(*given)
    assert called == [handed_on]


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
