from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sluice.conf import MissingJarsError
from sluice.conf.jars import DELTA_ARTIFACTS, Artifact, ResolveError, ensure_jars, jars_folder, resolve_with_ivy

FILE_NAMES = ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


def make_jar(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")


class FakeRepository:
    """Resolves every artifact except `refused`; remembers what it was asked for."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.asked: list[str] = []

    def __call__(self, artifact: Artifact, folder: Path) -> None:
        self.asked.append(artifact.name)
        if artifact.name == self.refused:
            raise ResolveError("no route to host")
        make_jar(folder / artifact.file_name)


def test_the_first_use_fetches_and_says_so(tmp_path, capsys):
    jars = ensure_jars(tmp_path / "jars", FakeRepository())
    assert [jar.name for jar in jars] == FILE_NAMES
    assert sorted(p.name for p in (tmp_path / "jars").iterdir()) == FILE_NAMES, "no scratch folder is left"
    assert str(tmp_path / "jars") in capsys.readouterr().err


def test_the_second_use_asks_nobody_and_is_silent(tmp_path, capsys):
    ensure_jars(tmp_path, FakeRepository())
    capsys.readouterr()
    repository = FakeRepository()
    ensure_jars(tmp_path, repository)
    assert repository.asked == []
    assert capsys.readouterr().err == ""


def test_a_jar_cut_short_is_fetched_again(tmp_path):
    ensure_jars(tmp_path, FakeRepository())
    (tmp_path / FILE_NAMES[1]).write_bytes(b"PK")
    repository = FakeRepository()
    ensure_jars(tmp_path, repository)
    assert repository.asked == ["delta-storage"]
    assert zipfile.is_zipfile(tmp_path / FILE_NAMES[1])


def test_without_network_the_error_says_what_to_put_where(tmp_path):
    with pytest.raises(MissingJarsError) as caught:
        ensure_jars(tmp_path, FakeRepository(refused="delta-storage"))
    message = str(caught.value)
    for part in (FILE_NAMES[1], "io.delta:delta-storage:4.4.0", str(tmp_path), "SLUICE_JARS_DIR", "no route to host"):
        assert part in message
    assert "-dependency io.delta delta-storage 4.4.0 -notransitive" in message, "the command to run elsewhere"
    assert FILE_NAMES[0] not in message, "what did arrive is not called missing"


def test_a_resolver_that_brings_no_jar_is_not_believed(tmp_path):
    with pytest.raises(MissingJarsError, match="not a readable jar"):
        ensure_jars(tmp_path, lambda artifact, folder: (folder / artifact.file_name).touch())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingJarsError, match="file/jars"):
        ensure_jars(tmp_path / "file" / "jars", FakeRepository())


def test_missing_java_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ResolveError, match="java was not found"):
        resolve_with_ivy(DELTA_ARTIFACTS[0], tmp_path)


def test_what_ivy_says_about_a_failure_is_passed_on(tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho fetching\necho 'ERROR: connection refused'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ResolveError, match="ERROR: connection refused"):
        resolve_with_ivy(DELTA_ARTIFACTS[0], tmp_path)


@pytest.mark.parametrize(
    ("configured", "env", "expected"),
    [
        ("/set", {"SLUICE_JARS_DIR": "/env", "XDG_CACHE_HOME": "/xdg"}, "/set"),
        ("", {"SLUICE_JARS_DIR": "/env", "XDG_CACHE_HOME": "/xdg"}, "/env"),
        ("", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/sluice/jars"),
        ("", {"XDG_CACHE_HOME": "relative"}, "~/.cache/sluice/jars"),
        ("", {}, "~/.cache/sluice/jars"),
    ],
)
def test_where_the_jars_are(configured, env, expected):
    assert jars_folder(configured, env) == Path(expected).expanduser()
