"""What a folder as root does beyond the contract: full disks, lost volumes, leftovers."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.log_store.local_store import LocalStore
from sluice.log_store.store import StoreConflict, StoreError, StoreNotFound


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def refuse(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# --- disks that refuse --------------------------------------------------------------------------

WRITES: dict[str, Callable[[LocalStore], None]] = {
    "put": lambda store: store.put("t/file", b"x" * 100_000),
    "put_if_absent": lambda store: store.put_if_absent("t/file", b"x" * 100_000),
    "replace": lambda store: store.replace("t/file", b"x" * 100_000),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full (ENOSPC)"),
        (errno.EDQUOT, "the disk quota is used up (EDQUOT)"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_write_that_the_disk_refuses(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, write: str, number: int, message: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", refuse(number))
        with pytest.raises(StoreError) as caught:
            WRITES[write](store)

    assert message in str(caught.value)
    assert caught.value.fields == {"operation": write, "path": "t/file", "errno": number}
    assert isinstance(caught.value.__cause__, OSError)
    assert files(store.local_path) == []
    WRITES[write](store)  # the name is still free


@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_file_system(store: LocalStore, monkeypatch: pytest.MonkeyPatch, write: str) -> None:
    monkeypatch.setattr(os, "open", refuse(errno.EROFS))

    with pytest.raises(StoreError, match=r"the file system is read-only \(EROFS\)"):
        WRITES[write](store)


@contextmanager
def small_files() -> Iterator[None]:
    """A real short write: the kernel takes what fits and refuses the rest.

    Only around the write itself: the limit is the whole process', and the test report may go to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("write", WRITES)
def test_a_file_that_fits_only_in_part_is_taken_back(store: LocalStore, write: str) -> None:
    with small_files(), pytest.raises(StoreError) as caught:
        WRITES[write](store)

    assert caught.value.fields["errno"] == errno.EFBIG
    assert files(store.local_path) == []


def test_short_writes_are_continued(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, views: real(fd, [memoryview(b"".join(views))[:7]]))
    parts = [b"abc", b"defgh", b"i", b"jklmnopqrstuvwxyz"]

    store.put("file", parts)

    assert store.get("file") == b"".join(parts)


def test_a_root_that_is_gone_is_not_made_again(store: LocalStore) -> None:
    """An unmounted volume must not turn into a folder of the disk below it."""
    store.local_path.rmdir()

    with pytest.raises(StoreError):
        store.put("t/0/file", b"x")
    assert not store.local_path.exists()


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="open"):
        LocalStore(tmp_path / "file" / "root")


# --- leftovers ----------------------------------------------------------------------------------


def test_hidden_leftovers_are_invisible(store: LocalStore) -> None:
    store.put("t/file", b"x")
    (store.local_path / "t" / ".dead-1-0.tmp").write_bytes(b"half")
    (store.local_path / "t" / ".00000000000000000000.json.crc").write_bytes(b"crc")
    (store.local_path / ".trash").mkdir()

    assert [item.name for item in store.list("t")] == ["file"]
    assert store.list_folders("") == ["t"]
    store.delete_folder("t")
    assert files(store.local_path) == []


def test_a_killed_put_if_absent_leaves_only_a_hidden_file(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse(errno.EIO))
        patch.setattr(os, "unlink", refuse(errno.EIO))
        with pytest.raises(StoreError):
            store.put_if_absent("t/file", b"x")

    assert len(files(store.local_path)) == 1
    assert store.list("t") == []
    with pytest.raises(StoreNotFound):
        store.get("t/file")
    store.put_if_absent("t/file", b"y")
    assert store.get("t/file") == b"y"


def test_two_stores_on_one_root_share_names_but_not_hidden_ones(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    first.put_if_absent("a", b"first")

    with pytest.raises(StoreConflict):
        second.put_if_absent("a", b"second")
    assert files(tmp_path) == ["a"]


def test_files_are_readable_for_others(store: LocalStore) -> None:
    old = os.umask(0o022)
    try:
        for name, write in (("a", store.put), ("b", store.put_if_absent), ("c", store.replace)):
            write(name, b"x")  # type: ignore[operator]
            assert (store.local_path / name).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)
