"""A folder of jars is there whole or not at all, and is asked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.jars import SparkKafka, filled, peers_folder
from sluice.conf.jars import ResolveError


def resolve(scratch: Path) -> None:
    for name in ("a-1.jar", "b-2.jar", "ivy.xml"):
        (scratch / name).write_text(name)
    (scratch / "ivy-cache").mkdir()
    (scratch / "ivy-cache" / "a-1.jar").write_text("a copy")


def test_the_jars_are_kept_and_what_resolving_left_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "peers" / "kafka"
    filled(folder, "a broker", resolve)
    assert sorted(path.name for path in folder.iterdir()) == ["a-1.jar", "b-2.jar"]
    assert [path.name for path in folder.parent.iterdir()] == ["kafka"]
    assert "fetching a broker" in capsys.readouterr().err


def test_nobody_is_asked_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    filled(tmp_path / "kafka", "a broker", resolve)
    capsys.readouterr()

    def refuse(_: Path) -> None:
        raise AssertionError("asked again")

    filled(tmp_path / "kafka", "a broker", refuse)
    assert capsys.readouterr().err == ""


def test_a_failure_leaves_no_half_filled_folder(tmp_path: Path):
    def fail(scratch: Path) -> None:
        resolve(scratch)
        raise ResolveError("no route to host")

    with pytest.raises(ResolveError, match="no route"):
        filled(tmp_path / "peers" / "kafka", "a broker", fail)
    assert list((tmp_path / "peers").iterdir()) == []


def test_the_folder_is_the_caches_own_and_never_mavens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SLUICE_JARS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert peers_folder() == tmp_path / "sluice" / "peers"


def test_the_versions_that_were_taken_can_be_told():
    assert SparkKafka((Path("x/provider-4.0.0.jar"), Path("x/source-4.2.0.jar"))).names == [
        "provider-4.0.0",
        "source-4.2.0",
    ]
