"""The limit of open files follows the number of connections."""

from __future__ import annotations

import logging
import resource

import pytest

from sluice.api.open_files import OWN_FILES, allow_connections


def fake(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: done.append(limits))
    return done


def test_it_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = fake(monkeypatch, 1024, 1_000_000)
    allow_connections(30_000)
    assert done == [(30_000 + OWN_FILES, 1_000_000)]


def test_what_is_enough_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft in (100_000, resource.RLIM_INFINITY):
        done = fake(monkeypatch, soft, resource.RLIM_INFINITY)
        allow_connections(30_000)
        assert done == []


def test_too_low_a_limit_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    done = fake(monkeypatch, 1024, 4096)
    with caplog.at_level(logging.WARNING):
        allow_connections(30_000)
    assert done == [(4096, 4096)]
    assert "only 4096 files" in caplog.text
