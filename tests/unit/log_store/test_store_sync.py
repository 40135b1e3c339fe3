"""What reaches the disk of a local root, and in which order."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.log_store import local_store, os_files
from sluice.log_store.local_store import LocalStore
from sluice.log_store.store import StoreError


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


@pytest.fixture
def trace(tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, in order; hidden names are shortened to '.tmp'."""
    calls: list[str] = []
    root = str(store.local_path)

    def short(path: str) -> str:
        folder, name = os.path.split(os.path.relpath(path, root))
        return os.path.join(folder, ".tmp" if name.startswith(".") and name != "." else name)

    def spy(name: str, describe: Callable[..., str]) -> None:
        real = getattr(os, name)

        def recorder(*args: object) -> object:
            calls.append(f"{name} {describe(*args)}")
            return real(*args)

        monkeypatch.setattr(os, name, recorder)

    spy("fsync", lambda fd: short(os.readlink(f"/proc/self/fd/{fd}")))
    spy("link", lambda source, target: f"{short(source)} {short(target)}")
    spy("rename", lambda source, target: f"{short(source)} {short(target)}")
    spy("unlink", short)
    return calls


def refuse(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


# --- order on the way to the disk ---------------------------------------------------------------


def test_put_never_syncs(store: LocalStore, trace: list[str]) -> None:
    store.put("t/0/file", b"x")

    assert trace == []


def test_put_if_absent_without_sync(store: LocalStore, trace: list[str]) -> None:
    store.put_if_absent("t/0/file", b"x")

    assert trace == ["link t/0/.tmp t/0/file", "unlink t/0/.tmp"]


def test_put_if_absent_syncs_the_file_before_its_name_and_the_folders_after(
    store: LocalStore, trace: list[str]
) -> None:
    store.put_if_absent("t/0/file", b"x", sync=True)
    assert trace == [
        "fsync t/0/.tmp",
        "link t/0/.tmp t/0/file",
        "unlink t/0/.tmp",
        "fsync t/0",
        "fsync t",
        "fsync .",
    ]

    trace.clear()
    store.put_if_absent("t/0/next", b"x", sync=True)
    assert trace == ["fsync t/0/.tmp", "link t/0/.tmp t/0/next", "unlink t/0/.tmp", "fsync t/0"]


def test_replace_syncs_the_file_before_its_name_and_the_folder_after(store: LocalStore, trace: list[str]) -> None:
    store.replace("hint", b"x", sync=True)

    assert trace == ["fsync .tmp", "rename .tmp hint", "unlink .tmp", "fsync ."]


def test_sync_takes_files_then_folders_then_those_above_once(store: LocalStore, trace: list[str]) -> None:
    for path in ["t/0/a", "t/0/b", "t/1/c"]:
        store.put(path, b"x")

    store.sync(["t/0/a", "t/0/b", "t/1/c", "t/0/a"])
    assert trace == [
        *("fsync t/0/a", "fsync t/0/b", "fsync t/1/c"),
        *("fsync t/0", "fsync t", "fsync ."),
        *("fsync t/1", "fsync t"),
    ]

    trace.clear()
    store.sync(["t/0/a"])
    assert trace == ["fsync t/0/a", "fsync t/0"]


def test_a_folder_made_by_another_process_is_synced_into_its_parents(store: LocalStore, trace: list[str]) -> None:
    """Whoever made it may have died before it synced."""
    LocalStore(store.local_path, fsync=False).put("t/0/a", b"x")

    store.sync(["t/0/a"])

    assert trace == ["fsync t/0/a", "fsync t/0", "fsync t", "fsync ."]


def test_a_folder_that_was_made_anew_is_synced_into_its_parents_again(store: LocalStore, trace: list[str]) -> None:
    store.put_if_absent("t/0/a", b"x", sync=True)
    store.delete_folder("t")
    trace.clear()

    store.put_if_absent("t/0/a", b"x", sync=True)

    assert trace[-3:] == ["fsync t/0", "fsync t", "fsync ."]


def test_with_fsync_off_nothing_is_synced(tmp_path: Path, trace: list[str]) -> None:
    store = LocalStore(tmp_path / "root", fsync=False)
    store.put_if_absent("a", b"x", sync=True)
    store.replace("b", b"x", sync=True)
    store.put("c", b"x")
    store.sync(["a", "b", "c"])

    assert not [call for call in trace if call.startswith("fsync")]


def test_a_new_root_is_synced_into_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(local_store, "fsync_path", synced.append)

    LocalStore(tmp_path / "a" / "root")
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]

    synced.clear()
    LocalStore(tmp_path / "a" / "root")
    assert synced == []


# --- bulk sync ----------------------------------------------------------------------------------


@pytest.fixture
def many(store: LocalStore) -> list[str]:
    paths = [f"t/{i % 3}/{i}" for i in range(local_store.BULK_SYNC_FILES + 1)]
    for path in paths:
        store.put(path, b"x")
    return paths


def test_many_files_are_one_syncfs(store: LocalStore, many: list[str], trace: list[str]) -> None:
    if os_files._syncfs is None:
        pytest.skip("no syncfs here")
    store.sync(many)
    assert trace == []

    store.sync(many[:1])
    assert trace == ["fsync t/0/0", "fsync t/0"]  # syncfs has taken care of the folders above


def test_64_files_are_synced_one_by_one(store: LocalStore, many: list[str], trace: list[str]) -> None:
    store.sync(many[:-1])

    assert trace[: len(many) - 1] == [f"fsync {path}" for path in many[:-1]]


def test_without_syncfs_files_are_synced_one_by_one(
    store: LocalStore, many: list[str], trace: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_files, "_syncfs", None)

    store.sync(many)

    assert trace[: len(many)] == [f"fsync {path}" for path in many]


def test_files_of_another_file_system_are_synced_one_by_one(
    store: LocalStore, many: list[str], trace: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "_on_one_device", lambda *_: False)

    store.sync(many)

    assert trace[: len(many)] == [f"fsync {path}" for path in many]


def test_a_failed_syncfs_is_an_error(store: LocalStore, many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "syncfs", refuse(errno.EIO))

    with pytest.raises(StoreError, match="sync") as caught:
        store.sync(many)

    assert caught.value.fields["errno"] == errno.EIO


def test_syncfs_reports_the_errno_of_the_system() -> None:
    if os_files._syncfs is None:
        pytest.skip("no syncfs here")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os_files.syncfs(-1)


def test_a_failed_fsync_is_an_error_and_the_name_is_not_given(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))

    with pytest.raises(StoreError):
        store.put_if_absent("t/file", b"x", sync=True)

    assert os.listdir(store.local_path / "t") == []


def test_the_descriptor_of_the_root_is_closed_with_the_store(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for i in range(50):
        LocalStore(tmp_path / "root").put_if_absent(str(i), b"x", sync=True)

    assert len(os.listdir("/proc/self/fd")) == before
