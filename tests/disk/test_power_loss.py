"""Power loss on a real file system: what ext4 had not put on its device when the power went is gone.

The kernel's own switch for such tests (`EXT4_IOC_SHUTDOWN`) stops the file system at once: dirty pages and the open
transaction of its journal are dropped. After the next mount there is what the device had: acknowledged records, with
acks=1 as well as with acks=all, must be among it, for both wait for an fsync.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests import counts
from tests.disk.conftest import Bench, need_ext4
from tests.disk.test_full import PARTITIONS, PRODUCERS, SPEC
from tests.support.harness import SMALL, boottime, wait_until

CUTS_PER_DISK = 10
"""A disk that met more would spend its time on reading what was written before."""
LAZY = "commit=300"
"""The journal writes by itself every 5 s; with this only when an fsync asks for it, so more is lost."""


def _cases() -> list[tuple[str, bool, int]]:
    """Half with the journal's own pace, half with a lazy one; the WAL on the same disk, or on one of its own."""
    cases, left = [], counts.POWER_CUTS
    while left > 0:
        number = len(cases)
        cases.append((LAZY if number % 2 == 0 else "", number % 4 >= 2, min(left, CUTS_PER_DISK)))
        left -= CUTS_PER_DISK
    return cases


def test_what_was_not_synced_is_lost(bench: Bench, tmp_path: Path) -> None:
    """Else the test below would show nothing."""
    need_ext4()
    bench.disks.mount_ext4(tmp_path / "root.img", bench.root, 16, LAZY)
    folder = bench.disks.seen(bench.root)
    with (folder / "synced").open("wb") as file:
        file.write(b"there")
        file.flush()
        os.fsync(file.fileno())
    (folder / "written").write_bytes(b"gone")
    bench.disks.power_off(bench.root)
    bench.disks.unmount(bench.root)
    bench.disks.mount_image(tmp_path / "root.img", bench.root, LAZY)
    assert (folder / "synced").read_bytes() == b"there"
    assert not (folder / "written").exists() or (folder / "written").read_bytes() == b""


@pytest.mark.parametrize(("option", "wal_apart", "cuts"), _cases())
def test_power_loss(bench: Bench, tmp_path: Path, option: str, wal_apart: bool, cuts: int) -> None:
    need_ext4()
    dice = random.Random(f"{option}{wal_apart}{cuts}")
    disks = {bench.root: tmp_path / "root.img"} | ({bench.wal: tmp_path / "wal.img"} if wal_apart else {})
    settings = SMALL | ({"wal_dir": str(bench.wal)} if wal_apart else {})
    for at, image in disks.items():
        bench.disks.mount_ext4(image, at, 128, option)
    for _ in range(cuts):
        process = bench.start(settings=settings, **SPEC)
        for name, *_ in PRODUCERS:
            process.wait_for("ack", count=dice.randint(1, 10), name=name)
        deadline = boottime() + 0.5 * dice.random()
        wait_until(lambda deadline=deadline: boottime() > deadline, "its time")
        # The power of all disks goes at once, as far as one process can do that.
        for at in disks:
            bench.disks.power_off(at)
        process.kill()
        for at, image in disks.items():
            bench.disks.unmount(at)
            bench.disks.mount_image(image, at, option)
    last = bench.start(settings=settings, **SPEC)
    for name, *_ in PRODUCERS:
        last.wait_for("ack", name=name)
    last.stop()
    verdict = bench.judge(partitions=PARTITIONS, settings=settings)
    assert verdict["acked"] > cuts * len(PRODUCERS)
