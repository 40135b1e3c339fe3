"""`sluice backup …` and `sluice restore …`: arguments, lease, progress and what is printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings, load_settings
from sluice.jobs.backup import backup_ids, cluster_of, make_backup, prune, read_manifest
from sluice.jobs.backup_copy import Copied
from sluice.jobs.backup_manifest import Manifest
from sluice.jobs.cluster import StoreSpec
from sluice.jobs.command_line import FAILED, OK, USAGE, spark_factory, stop_on_signals
from sluice.jobs.framework import Stopped
from sluice.jobs.leases import Lease
from sluice.jobs.output import Output, Progress, size
from sluice.jobs.restore import restore
from sluice.jobs.verify_run import Scope, Verdict, Verification
from sluice.jobs.verify_workers import LocalWorkers, Workers
from sluice.log_store.clock import SystemClock
from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.log_store.store import Store, open_store

LEASE = "backup"
BACKUP, RESTORE = "backup", "restore"


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m sluice.jobs.backup_command backup|restore …`"""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(given)
    output = Output(as_json=options.as_json)
    stop = stop_on_signals()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    try:
        return int(options.work(options, output, check))
    except ConfigurationError as error:
        output.trouble(str(error))
        return USAGE
    except SluiceError as error:
        output.trouble(f"{error.message} ({error.error})")
        return USAGE if isinstance(error, InvalidRequest) else FAILED
    except Stopped:
        output.trouble("stopped by a signal; the same command completes what is there")
        return FAILED


def _parse(given: list[str]) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    config = os.environ.get("SLUICE_CONFIG")
    shared.add_argument("--config", type=Path, default=Path(config) if config else None, help="settings file (TOML)")
    shared.add_argument(
        "--target-config", type=Path, help="settings file whose storage options are for the other place; default: same"
    )
    shared.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of text")
    if given[:1] == [RESTORE]:
        parser = argparse.ArgumentParser("sluice restore", description="Fill an empty root.", parents=[shared])
        parser.add_argument("source", metavar="SOURCE", help="folder or URL with backups")
        parser.add_argument("root", metavar="EMPTY_ROOT", help="folder or URL of the new root")
        parser.add_argument("--id", help="which backup; default: the newest")
        parser.add_argument("--keep-cluster-id", action="store_true", help="for a root that replaces the old one")
        parser.add_argument("--spark", action="store_true", help="verify the new root with Spark")
        parser.add_argument("--quick", action="store_true", help="verify its logs only: all bytes were checked anyway")
        parser.set_defaults(work=_restore)
        return parser.parse_args(given[1:])
    given = given[1:] if given[:1] == [BACKUP] else given
    if given[:1] == ["list"] or given[:1] == ["prune"]:
        parser = argparse.ArgumentParser(f"sluice backup {given[0]}", parents=[shared])
        parser.add_argument("target", metavar="TARGET", help="folder or URL with backups")
        if given[0] == "prune":
            parser.add_argument("--keep", type=int, required=True, help="how many of the newest stay")
        parser.set_defaults(work=_list if given[0] == "list" else _prune)
        return parser.parse_args(given[1:])
    parser = argparse.ArgumentParser(
        "sluice backup",
        description="Copy a consistent state of a root; also: sluice backup list TARGET, sluice backup prune TARGET.",
        parents=[shared],
    )
    parser.add_argument("root", metavar="ROOT", help="folder or URL of the root; its service may run")
    parser.add_argument("target", metavar="TARGET", help="folder or URL for backups of this cluster")
    parser.set_defaults(work=_backup)
    return parser.parse_args(given)


# --- the commands --------------------------------------------------------------------------------


def _backup(options: argparse.Namespace, output: Output, check: Callable[[], None]) -> int:
    clock = SystemClock()
    source = _existing(options.root, options.config, "ROOT")
    cluster_of(source)  # before a target is made
    if _same(options.root, options.target):
        raise InvalidRequest("TARGET must not be the root itself", field="target")
    target = _store(options.target, options.target_config or options.config)
    began = clock.boottime()
    with Lease(target, clock, LEASE) as lease, _bar(output, "backup") as bar:

        def both() -> None:
            check()
            lease.check()

        made = make_backup(source, target, clock.wall_ms(), check=both, progress=bar.at)
    seconds = clock.boottime() - began
    _print(output, {"backup": made.manifest.id, **_facts(made.manifest, made.copied, seconds)}, made.notes)
    return OK


def _list(options: argparse.Namespace, output: Output, _check: Callable[[], None]) -> int:
    target = _existing(options.target, options.target_config or options.config, "TARGET")
    rows = []
    for identifier in backup_ids(target):
        manifest = read_manifest(target, identifier)
        rows.append(
            {
                "backup": manifest.id,
                "created_ms": manifest.created_ms,
                "cluster": manifest.cluster_id,
                "partitions": len(manifest.partitions),
                "records": manifest.records,
                "files": manifest.files,
                "bytes": manifest.bytes,
            }
        )
    output.table(rows)
    return OK


def _prune(options: argparse.Namespace, output: Output, _check: Callable[[], None]) -> int:
    target = _existing(options.target, options.target_config or options.config, "TARGET")
    with Lease(target, SystemClock(), LEASE):
        gone, files = prune(target, options.keep)
    _print(output, {"pruned": gone, "files": files}, [])
    return OK


def _restore(options: argparse.Namespace, output: Output, check: Callable[[], None]) -> int:
    clock = SystemClock()
    source = _existing(options.source, options.target_config or options.config, "SOURCE")
    manifest = read_manifest(source, options.id)
    settings = _settings(options.config)
    root = _store(options.root, options.config)
    began = clock.boottime()
    with _bar(output, "restore") as bar:
        keep = options.keep_cluster_id
        copied = restore(source, root, manifest, clock.wall_ms(), keep_cluster_id=keep, check=check, progress=bar.at)
    verdict = Verification(root, _workers(options, settings, root), Scope(quick=options.quick)).run()
    facts = {"restored": manifest.id, "cluster_id": cluster_of(root)}
    facts |= _facts(manifest, copied, clock.boottime() - began) | _verified(verdict)
    _print(output, facts, [])
    return FAILED if verdict.violations else OK


def _workers(options: argparse.Namespace, settings: Settings, root: Store) -> Workers:
    if not options.spark or options.quick:
        return LocalWorkers(root)
    from sluice.jobs.verify_spark import SparkWorkers  # a JVM that the usual restore does not need

    storage = settings.storage
    spec = StoreSpec(options.root, storage.fsync, tuple(storage.options.items()))
    return SparkWorkers(spark_factory(settings, "sluice restore")(), spec)


# --- places and printing ---------------------------------------------------------------------------


def _settings(config: Path | None) -> Settings:
    return load_settings(config, os.environ)


def _store(url: str, config: Path | None) -> Store:
    storage = replace(_settings(config).storage, root=url)
    try:
        return open_store(url, fsync=storage.fsync, storage_options=storage.options)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _existing(url: str, config: Path | None, name: str) -> Store:
    """A wrong path must not become an empty folder."""
    if "://" not in url and not os.path.isdir(url):
        raise InvalidRequest(f"{name} {url} does not exist")
    return _store(url, config)


def _same(root: str, target: str) -> bool:
    if "://" in root or "://" in target:
        return root.rstrip("/") == target.rstrip("/")
    inner, outer = Path(target).resolve(), Path(root).resolve()
    return inner == outer or outer in inner.parents


def _facts(manifest: Manifest, copied: Copied, seconds: float) -> dict[str, Any]:
    return {
        "partitions": len(manifest.partitions),
        "records": manifest.records,
        "files": manifest.files,
        "bytes": manifest.bytes,
        "copied_files": copied.files,
        "copied_bytes": copied.bytes,
        "seconds": round(seconds, 3),
    }


def _verified(verdict: Verdict) -> dict[str, Any]:
    return {
        "violations": [finding.to_json() for finding in verdict.violations],
        "notices": len(verdict.notices),
    }


def _print(output: Output, facts: dict[str, Any], notes: Sequence[str]) -> None:
    if output.as_json:
        output.json(facts | {"notes": list(notes)})
        return
    for name, value in facts.items():
        if name == "violations":
            for finding in value:
                output.line(f"violation: {finding['rule']} {finding['topic']} {finding['text']}")
            output.line(f"{name:>13}  {len(value)}")
        else:
            output.line(f"{name:>13}  {size(value) if name.endswith('bytes') else value}")
    for note in notes:
        output.line(f"note: {note}")


class _bar:  # noqa: N801 - used like a function
    """Partitions done, on a terminal."""

    def __init__(self, output: Output, what: str) -> None:
        self._progress = Progress(output, what)
        self._over: Any = None
        self._done = 0

    def __enter__(self) -> _bar:
        self._over = self._progress.over(1)
        self._over.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.__exit__(*error)

    def at(self, done: int, total: int) -> None:
        self._progress.total(total)
        self._progress.advance(done - self._done)
        self._done = done


if __name__ == "__main__":
    sys.exit(main())
