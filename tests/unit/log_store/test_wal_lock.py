"""One process owns the folder; what it acknowledged outlives its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store.errors import StorageError
from sluice.log_store.wal import WalLocked
from tests.support.wal import bases, numbered, open_wal, read_all, ref

OWNER = textwrap.dedent(
    """
    import sys, threading
    from pathlib import Path
    from tests.support.wal import *

    wal = open_wal(Path(sys.argv[1]), fsync=True)
    print("open", flush=True)
    sys.stdin.readline()
    lock = threading.Lock()

    def produce(partition):
        for base in range(10**9):
            append(wal, batch(base, ref(partition)))
            with lock:
                print(partition, base, flush=True)

    for partition in range(4):
        threading.Thread(target=produce, args=(partition,), daemon=True).start()
    threading.Event().wait()
    """
)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    with pytest.raises(WalLocked, match=f"{tmp_path} is in use by process {owner.pid}") as caught:
        open_wal(tmp_path)
    assert isinstance(caught.value, StorageError)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    open_wal(tmp_path).close()


def test_the_same_process_is_refused_as_well(tmp_path: Path) -> None:
    with open_wal(tmp_path), pytest.raises(WalLocked):
        open_wal(tmp_path)
    open_wal(tmp_path).close()


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    assert owner.stdin is not None
    assert owner.stdout is not None
    owner.stdin.write("go\n")
    owner.stdin.flush()
    acked: dict[int, int] = {}
    for _ in range(400):
        partition, base = map(int, owner.stdout.readline().split())
        acked[partition] = base
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with open_wal(tmp_path, max_bytes=1 << 30) as wal:
        for partition, base in acked.items():
            of = ref(partition)
            assert len(bases(wal, of)) > base
            assert read_all(wal, of) == list(numbered(len(bases(wal, of)), of))
        assert [f for f in wal.recovered.findings if f.severity == "middle"] == []
