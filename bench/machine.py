"""The machine that was measured: its shape, without names of hosts or folders."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

JAVA_S = 30.0


def shape(scratch: Path) -> dict[str, Any]:
    """`scratch` is a folder on the file system that is written to. What cannot be told is left out."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = java_path(os.environ)
    told = {
        "cores": os.cpu_count(),
        "cpu": cpu_model(_text("/proc/cpuinfo")),
        "memory_gib": round(memory / 2**30, 1),
        "file_system": file_system(_text("/proc/self/mounts"), scratch.resolve()),
        "python": platform.python_version(),
        "java": None if java is None else _java_version_of(java),
    }
    return {name: value for name, value in told.items() if value is not None}


def described(machine: Mapping[str, Any]) -> str:
    """In a line. Older results know less."""
    parts = [f"{machine['cores']} cores" + (f" ({machine['cpu']})" if "cpu" in machine else "")]
    parts.append(f"{machine['memory_gib']} GiB")
    parts += [machine["file_system"]] if "file_system" in machine else []
    parts.append(f"Python {machine['python']}")
    parts += [f"Java {machine['java']}"] if "java" in machine else []
    return ", ".join(parts)


def java_path(environment: Mapping[str, str]) -> str | None:
    """The java of JAVA_HOME where that is set and has one, else the one on the PATH: what Spark does as well."""
    home = environment.get("JAVA_HOME", "")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    return found or shutil.which("java", path=environment.get("PATH"))


def java_version(told: str) -> str | None:
    """Of what `java -version` prints."""
    found = re.search(r'version "([^"]+)"', told)
    return None if found is None else found[1]


@cache
def _java_version_of(java: str) -> str | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return java_version(done.stderr + done.stdout)


def cpu_model(cpuinfo: str) -> str | None:
    """Of /proc/cpuinfo."""
    found = re.search(r"^model name\s*:\s*(.+?)\s*$", cpuinfo, flags=re.MULTILINE)
    return None if found is None else " ".join(found[1].split())


def file_system(mounts: str, folder: Path) -> str | None:
    """The kind of file system that a folder is on, of /proc/self/mounts: of the innermost mount, and there the last."""
    found, depth = None, 0
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        at = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), place))
        if folder.is_relative_to(at) and len(at.parts) >= depth:
            found, depth = kind, len(at.parts)
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
