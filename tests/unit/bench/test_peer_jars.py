"""A folder of jars is there whole or not at all, and is asked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.jars import SPARK_VERSION, SparkKafka, filled, first_of, peers_folder, taken_instead
from sluice.conf.jars import Artifact, ResolveError, Resolver


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


OLD, NEW = Artifact("org", "provider", "1"), Artifact("org", "provider", "2")
MISSING = "org:provider:2: Ivy ended with 1\n:: org#provider;2: not found"
TROUBLES = (
    f"{MISSING}\n:::: ERRORS\nServer access error at url https://registry/x (java.net.ConnectException: refused)",
    f"{MISSING}\nSERVER ERROR: Bad Gateway url=https://registry/provider",
    f"Host registry not found. url=https://registry/provider\n{MISSING}",
    "org:provider:2: no answer within 300 s",
)


def asked_for(answers: dict[Artifact, str | None]) -> tuple[list[Artifact], Resolver]:
    asked: list[Artifact] = []

    def resolve(artifact: Artifact, _: Path) -> None:
        asked.append(artifact)
        if (trouble := answers[artifact]) is not None:
            raise ResolveError(trouble)

    return asked, resolve


def test_another_version_is_taken_where_the_registries_have_none(tmp_path: Path):
    asked, resolve_one = asked_for({NEW: MISSING, OLD: None})
    first_of([NEW, OLD], tmp_path, resolve_one)
    assert asked == [NEW, OLD]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_registry_that_cannot_be_asked_is_no_reason_to_take_another_version(trouble: str, tmp_path: Path):
    asked, resolve_one = asked_for({NEW: trouble, OLD: None})
    with pytest.raises(ResolveError):
        first_of([NEW, OLD], tmp_path, resolve_one)
    assert asked == [NEW]


def test_no_version_at_all_is_an_error(tmp_path: Path):
    _, resolve_one = asked_for({NEW: MISSING, OLD: MISSING})
    with pytest.raises(ResolveError, match="not found"):
        first_of([NEW, OLD], tmp_path, resolve_one)


def test_what_was_taken_instead_is_said_in_a_sentence():
    told = taken_instead(["source-4.2.0", "spark-token-provider-kafka-0-10_2.13-4.0.0"])
    assert told is not None
    assert told.startswith(f"spark-token-provider-kafka-0-10_2.13 {SPARK_VERSION}, which that source asks for")
    assert "4.0.0 was taken instead" in told
    assert taken_instead(["source-4.2.0", f"spark-token-provider-kafka-0-10_2.13-{SPARK_VERSION}"]) is None
    assert taken_instead([]) is None
