"""Small real file systems in a mount namespace of their own: the rest of the machine never sees them.

A holder process keeps the namespace; workers enter it, and when the holder ends, the kernel unmounts everything.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

BALLAST = "ballast"
_BLOCK = 64 * 1024
_SHUTDOWN, _WITHOUT_LOG = 0x8004587D, 2
"""`EXT4_IOC_SHUTDOWN` and its flag `EXT4_GOING_FLAGS_NOLOGFLUSH`, of <linux/ext4.h>."""
_NAMESPACE = ("unshare", "--mount", "--propagation", "private")


@cache
def why_not() -> str:
    """Why this machine cannot mount; empty if it can."""
    missing = [tool for tool in ("unshare", "nsenter", "mount", "umount", "env") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    tried = subprocess.run(
        [*_NAMESPACE, "mount", "-t", "tmpfs", "sluice-test", "/mnt"], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip() if tried.returncode else ""


class Disks:
    def __init__(self) -> None:
        # It ends with its standard input, so even a killed test run leaves nothing behind.
        self._holder = subprocess.Popen(
            [*_NAMESPACE, "sh", "-c", "echo ready && exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    def within(self, folder: Path) -> list[str]:
        """The beginning of a command line that is run in the namespace; the process keeps its id."""
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "env", "-C", str(folder)]

    def seen(self, path: Path) -> Path:
        """The same path for a process outside of the namespace."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def run(self, *command: str) -> None:
        subprocess.run([*self.within(Path("/")), *command], check=True, capture_output=True, timeout=60)

    def mount_tmpfs(self, at: Path, mib: int) -> None:
        at.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "sluice-test", str(at))

    def mount_ext4(self, image: Path, at: Path, mib: int, option: str = "") -> None:
        """A new file system in a file."""
        with image.open("wb") as file:
            file.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True, capture_output=True)
        self.mount_image(image, at, option)

    def mount_image(self, image: Path, at: Path, option: str = "") -> None:
        at.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-o", f"loop,errors=remount-ro{',' if option else ''}{option}", str(image), str(at))

    def unmount(self, at: Path) -> None:
        self.run("umount", str(at))

    def fill(self, at: Path) -> None:
        """Take every byte that is left."""
        fd = os.open(self.seen(at) / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        size = _BLOCK
        try:
            while size:
                try:
                    os.write(fd, bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        finally:
            os.close(fd)

    def empty(self, at: Path) -> None:
        (self.seen(at) / BALLAST).unlink()

    def read_only(self, at: Path) -> None:
        """Every path below becomes read-only. A plain remount is refused while a file is open for writing."""
        aside = at.with_name(f"{at.name}-aside")
        aside.mkdir(exist_ok=True)
        self.run("mount", "--bind", str(at), str(aside))
        self.run("mount", "-o", "remount,bind,ro", str(aside))
        self.run("mount", "--move", str(aside), str(at))

    def writable(self, at: Path) -> None:
        self.unmount(at)

    def abort(self, at: Path) -> None:
        """What the kernel does to an ext4 whose disk answers with errors: read-only at once, until it is unmounted."""
        self.run("mount", "-o", "remount,abort", str(at))

    def power_off(self, at: Path) -> None:
        """An ext4 stops at once: what it had not yet put on its device is lost, its journal's open part as well."""
        fd = os.open(self.seen(at), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(fd)

    def close(self) -> None:
        assert self._holder.stdin is not None
        with suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.wait(60)
        assert self._holder.stdout is not None
        self._holder.stdout.close()
