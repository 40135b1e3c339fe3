"""Storage that becomes read-only under the service: no ack after the error, reads go on, and it resumes by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.conftest import Bench, need_ext4
from tests.disk.test_full import PARTITIONS, PRODUCERS, QUICK, SPEC, WAITING, _acked_again
from tests.support.harness import SMALL, boottime, wait_until

READ_ONLY = "the file system is read-only"


@pytest.mark.parametrize("wal_apart", [False, True])
def test_read_only_and_writable_again(bench: Bench, wal_apart: bool) -> None:
    bench.disks.mount_tmpfs(bench.root, 64)
    settings = SMALL | ({"wal_dir": str(bench.wal)} if wal_apart else {})
    process = bench.start(settings=settings, **SPEC)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)

    bench.disks.read_only(bench.root)
    names = WAITING if wal_apart else [*WAITING, *QUICK]
    for name in names:
        wait_until(
            lambda name=name: any(READ_ONLY in event["text"] for event in process.events("error", name=name)),
            f"{READ_ONLY!r} told to {name}",
        )
    # acks=all stays refused for as long as it lasts, whoever asks.
    before = {name: len(process.events("ack", name=name)) for name in WAITING}
    counts = {name: len(process.events("error", name=name)) for name in WAITING}
    for name in WAITING:
        process.wait_for("error", count=counts[name] + 2, name=name)
    assert {name: len(process.events("ack", name=name)) for name in WAITING} == before
    assert process.ask("read 0", "read")["rows"] > 0
    assert any(READ_ONLY in trouble for trouble in process.ask("troubles", "troubles")["troubles"])

    bench.disks.writable(bench.root)
    _acked_again(process, boottime())
    wait_until(lambda: process.ask("troubles", "troubles")["troubles"] == [], "no troubles")
    process.stop()
    bench.judge(partitions=PARTITIONS, settings=settings)


def test_the_kernel_gives_the_file_system_up(bench: Bench, tmp_path: Path) -> None:
    """ext4 after an I/O error: read-only until it is unmounted. Section 2: what was acknowledged is on disk."""
    need_ext4()
    image = tmp_path / "disk.img"
    bench.disks.mount_ext4(image, bench.root, 64)
    process = bench.start(settings=SMALL, **SPEC)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", count=5, name=name)
    bench.disks.abort(bench.root)
    for name, *_ in PRODUCERS:
        process.wait_for("error", name=name)
    aborted = boottime()
    before = len(process.events("ack"))
    process.wait_for("error", count=len(process.events("error")) + 20)
    assert len(process.events("ack")) == before, f"acknowledged after {aborted}"
    assert process.ask("troubles", "troubles")["troubles"]
    assert process.ask("read 0", "read")["rows"] > 0
    process.kill()

    bench.disks.unmount(bench.root)
    bench.disks.mount_image(image, bench.root)
    last = bench.start(settings=SMALL, **SPEC)
    for name, *_ in PRODUCERS:
        last.wait_for("ack", name=name)
    last.stop()
    bench.judge(partitions=PARTITIONS, settings=SMALL)
