"""`sluice groups` and `sluice consume --group` against a real service."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from sluice.api.client import Record, SluiceClient, TopicPartition
from tests.support.server import Server


@pytest.fixture
def group(client: SluiceClient, topic: str) -> str:
    """Nine records in three partitions, of which the group has read two each."""
    name = f"g-{uuid.uuid4().hex[:8]}"
    stamps = [Record(value=b"%d" % n, partition=n % 3, timestamp_ms=(n // 3 + 1) * 1_000) for n in range(9)]
    client.produce(topic, stamps)
    with client.consumer(group=name, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(3)])
        consumer.commit({TopicPartition(topic, n): 2 for n in range(3)})
    return name


def lines(result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def committed(client: SluiceClient, group: str) -> list[int]:
    found = client.groups.offsets(group)
    return [found[where].offset for where in sorted(found, key=lambda one: one.partition)]


def test_consuming_as_a_member_commits(sluice, client: SluiceClient, topic: str, group: str):
    assert sorted(lines(sluice("consume", topic, "--group", group, "-e"))) == ["6", "7", "8"]
    assert committed(client, group) == [3, 3, 3]
    assert lines(sluice("consume", topic, "--group", group, "-e")) == []
    other = f"{group}-b"
    assert len(lines(sluice("consume", topic, "--group", other, "-c", "4"))) == 4
    assert sum(committed(client, other)) == 4
    assert len(lines(sluice("consume", topic, "-G", other, "-e", "-o", "end"))) == 5


def test_groups_are_listed_described_and_deleted(sluice, topic: str, group: str):
    (row,) = [row for row in json.loads(sluice("groups", "list", "--json").stdout) if row["group"] == group]
    assert row["lag"] == 3
    assert row["lag_seconds"] > 0
    assert group in sluice("groups", "list").stdout
    shown = json.loads(sluice("groups", "describe", group, "--json").stdout)
    assert [
        (one["partition"], one["current_offset"], one["log_end_offset"], one["lag"]) for one in shown["partitions"]
    ] == [(n, 2, 3, 1) for n in range(3)]
    text = lines(sluice("groups", "describe", group))
    assert text[0].startswith(f"{group}: ")
    assert text[0].endswith("0 members, lag 3")
    assert any(topic in line for line in text[1:])
    assert lines(sluice("groups", "delete", group)) == [f"deleted {group}"]
    gone = sluice("groups", "delete", group)
    assert gone.exit_code == 1
    assert "GROUP_ID_NOT_FOUND" in gone.stderr


@pytest.mark.parametrize(
    ("scenario", "offsets"),
    [
        (("--to-earliest",), [0, 0, 0]),
        (("--to-latest",), [3, 3, 3]),
        (("--to-current",), [2, 2, 2]),
        (("--to-offset", "1"), [1, 1, 1]),
        (("--to-offset", "99"), [3, 3, 3]),
        (("--shift-by", "-1"), [1, 1, 1]),
        (("--to-datetime", "1970-01-01T00:00:02.000"), [1, 1, 1]),
        (("--by-duration", "PT1H"), [3, 3, 3]),
    ],
)
def test_every_scenario_moves_a_group(sluice, client: SluiceClient, topic: str, group: str, scenario, offsets):
    planned = json.loads(sluice("groups", "reset", group, "--topic", topic, *scenario, "--json").stdout)
    assert planned["executed"] is False
    assert [row["new_offset"] for row in planned["plan"]] == offsets
    assert committed(client, group) == [2, 2, 2]
    assert lines(sluice("groups", "reset", group, "--all-topics", *scenario, "--execute"))[-1] == "done"
    assert committed(client, group) == offsets


def test_an_exported_plan_can_be_carried_out_later(
    sluice, client: SluiceClient, topic: str, group: str, tmp_path: Path
):
    exported = sluice("groups", "reset", group, "--topic", f"{topic}:0,2", "--to-earliest", "--export")
    assert lines(exported) == [f"{topic},0,0", f"{topic},2,0"]
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.stdout)
    assert lines(sluice("groups", "reset", group, "--from-file", str(plan), "--execute"))
    assert committed(client, group) == [0, 2, 0]
    both = lines(sluice("groups", "reset", group, f"{group}-x", "--topic", f"{topic}:1", "--to-latest", "--export"))
    assert both == [f"{group},{topic},1,3", f"{group}-x,{topic},1,3"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("g", "--topic", "t"),
        ("g", "--topic", "t", "--to-earliest", "--to-latest"),
        ("g", "--topic", "t", "--to-earliest", "--dry-run", "--execute"),
        ("g", "--topic", "t", "--all-topics", "--to-earliest"),
        ("g", "--to-earliest"),
        ("--topic", "t", "--to-earliest"),
        ("g", "--all-groups", "--topic", "t", "--to-earliest"),
        ("g", "--from-file", "/no/such/file"),
        ("g", "--topic", "t", "--to-earliest", "--export", "--json"),
    ],
)
def test_wrong_usage_is_told_apart(sluice, arguments):
    assert sluice("groups", "reset", *arguments).exit_code == 2


def test_a_group_with_members_is_not_moved(sluice, client: SluiceClient, topic: str, group: str):
    with client.consumer(group=group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment:
            consumer.poll(0.1)
        refused = sluice("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
        assert refused.exit_code == 1
        assert "1 member, " in sluice("groups", "describe", group).stdout
    assert committed(client, group) == [2, 2, 2]


@pytest.mark.parametrize("arguments", [("-p", "0"), ("-o", "5"), ("-o", "-3")])
def test_a_member_cannot_choose_partitions_or_offsets(sluice, topic: str, arguments):
    assert sluice("consume", topic, "--group", "g", *arguments).exit_code == 2


def test_the_example_runs(server: Server):
    example = Path(__file__).parents[2] / "examples" / "consumer.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), server.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "600 orders, each counted once: True; lag 0" in done.stdout


def test_a_member_that_is_asked_to_stop_leaves_its_group(server: Server, client: SluiceClient, topic: str) -> None:
    """Not by its session, which would keep its partitions from the others."""
    client.produce(topic, [Record(value=b"seen", partition=0)])
    name = f"g-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "sluice.api", "consume", topic, "--group", name, "-o", "beginning"]
    with subprocess.Popen([*command, "--server", server.url], stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"seen\n"
        member.terminate()
        assert member.wait(60) == 0
    assert client.groups.describe(name).state == "EMPTY"
