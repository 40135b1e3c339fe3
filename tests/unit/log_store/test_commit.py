"""One version: put-if-absent, read-back, doubt (I-2, R-4)."""

from __future__ import annotations

import pytest

from sluice.log_store.commit import put_version
from sluice.log_store.errors import StorageError
from sluice.log_store.store import open_store
from tests.support.faulty_store import FaultyStore

PATH = "t/_delta_log/00000000000000000007.json"
OURS, THEIRS = b"ours, with our unique id", b"theirs"


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory://"))


def test_the_first_wins(store: FaultyStore) -> None:
    """I-2: put-if-absent; the loser gets the winner's bytes."""
    assert put_version(store, PATH, OURS) is None
    assert put_version(store, PATH, THEIRS) == OURS
    assert store.get(PATH) == OURS


def test_exists_may_be_our_own_first_try(store: FaultyStore) -> None:
    """I-2: the client of an object store retries by itself; read-back by unique id tells."""
    put_version(store, PATH, OURS)
    assert put_version(store, PATH, OURS) is None


def test_a_lost_answer_is_read_back(store: FaultyStore) -> None:
    """I-2: applied, and the answer was an error."""
    store.fail_after("put_if_absent")
    assert put_version(store, PATH, OURS) is None


def test_an_error_under_which_somebody_else_won(store: FaultyStore) -> None:
    """I-2."""
    store.inner.put(PATH, THEIRS)
    store.fail_before("put_if_absent")
    assert put_version(store, PATH, OURS) == THEIRS


def test_doubt_is_an_error_of_its_own(store: FaultyStore) -> None:
    """R-4: it may yet be applied, so nobody is told that it failed; the same bytes decide later."""
    store.fail_before("put_if_absent")
    with pytest.raises(StorageError, match="injected"):
        put_version(store, PATH, OURS)
    store.conflict("put_if_absent")
    with pytest.raises(StorageError, match="not known yet"):
        put_version(store, PATH, OURS)
    assert put_version(store, PATH, OURS) is None


def test_doubt_when_not_even_the_read_back_answers(store: FaultyStore) -> None:
    """R-4: the first error is the one to report."""
    store.fail_after("put_if_absent")
    store.fail_before("get")
    with pytest.raises(StorageError, match="put_if_absent"):
        put_version(store, PATH, OURS)
    assert put_version(store, PATH, OURS) is None
