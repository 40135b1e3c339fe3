"""The shape of the machine: what can be told is told, without paths and names of hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.machine import cpu_model, described, file_system, java_path, java_version, shape

MOUNTS = """proc /proc proc rw 0 0
/dev/vda / ext4 rw 0 0
tmpfs /data tmpfs rw 0 0
/dev/vdb /data xfs rw 0 0
/dev/vdc /data/with\\040space btrfs rw 0 0
"""


def fake_java(folder: Path) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_the_java_of_java_home_goes_before_the_one_on_the_path(tmp_path: Path):
    home, other = fake_java(tmp_path / "home"), fake_java(tmp_path / "other")
    path = {"PATH": str(other.parent)}
    assert java_path(path) == str(other)
    assert java_path(path | {"JAVA_HOME": str(tmp_path / "home")}) == str(home)


def test_a_java_home_without_java_is_passed_over(tmp_path: Path):
    other = fake_java(tmp_path / "other")
    assert java_path({"PATH": str(other.parent), "JAVA_HOME": str(tmp_path / "empty")}) == str(other)
    assert java_path({"PATH": str(tmp_path), "JAVA_HOME": ""}) is None


@pytest.mark.parametrize(
    ("told", "version"),
    [('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', "17.0.15"), ("no such file", None), ("", None)],
)
def test_the_version_of_java(told: str, version: str | None):
    assert java_version(told) == version


def test_the_model_of_the_processor():
    assert cpu_model("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz \nmodel name\t: x\n") == "Some CPU @ 2 GHz"
    assert cpu_model("Features : fp asimd\n") is None


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/a", "ext4"),
        ("/data", "xfs"),
        ("/data/a", "xfs"),
        ("/database", "ext4"),
        ("/data/with space/a", "btrfs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount_and_there_the_last(folder: str, kind: str):
    assert file_system(MOUNTS, Path(folder)) == kind


def test_a_machine_that_tells_no_mounts_has_none():
    assert file_system("", Path("/data")) is None


def test_no_path_is_told(tmp_path: Path):
    told = json.dumps(shape(tmp_path))
    assert str(tmp_path) not in told
    assert "/" not in told
    assert shape(tmp_path).keys() >= {"cores", "memory_gib", "python"}


def test_older_results_that_know_less_are_described_as_before():
    old = {"cores": 2, "memory_gib": 23.5, "python": "3.11.7"}
    assert described(old) == "2 cores, 23.5 GiB, Python 3.11.7"
    new = old | {"cpu": "A CPU", "file_system": "ext4", "java": "17.0.15"}
    assert described(new) == "2 cores (A CPU), 23.5 GiB, ext4, Python 3.11.7, Java 17.0.15"
