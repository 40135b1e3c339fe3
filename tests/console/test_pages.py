"""The console as a person uses it: buttons are pressed in a real Chromium, and the service is asked what came of it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console.conftest import Console, Service
from tests.http.checks import V3
from tests.support.group_http import Member
from tests.support.jobs import ran

# --- topics and records --------------------------------------------------------------------------


def test_a_topic_from_its_making_to_its_end(console: Console, service: Service) -> None:
    page = console.sign_in().page
    console.open("topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("lamps")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("link", name="lamps", exact=True)).to_be_visible()
    assert service.server.client.get(f"{V3}/topics/lamps").json()["partitions_count"] == 2

    console.refusals = True
    page.get_by_role("button", name="Create topic").click()
    dialog.get_by_label("Name").fill("lamps")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("TOPIC_ALREADY_EXISTS")
    page.keyboard.press("Escape")
    console.refusals = False

    page.get_by_role("link", name="lamps", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="lamps")).to_be_focused()
    page.get_by_role("button", name="Edit retention.ms").click()
    dialog.get_by_label("Value").fill("60000")
    dialog.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row").filter(has_text="retention.ms").filter(has_text="set here")).to_contain_text("60000")
    service.produce("lamps", *({"value": one} for one in range(7)), partition=1)
    row = page.get_by_role("region", name="Partitions", exact=True).get_by_role("row").nth(2)
    expect(row.get_by_role("cell").nth(1)).to_have_text("7")
    expect(page.get_by_role("img", name=re.compile("Partition 1 1 file, .*, 1 segment"))).to_be_visible()

    page.get_by_role("button", name="Delete topic").click()
    dialog.get_by_label("Type the name of the topic").fill("lamp")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("NOT_CONFIRMED")
    dialog.get_by_label("Type the name of the topic").fill("lamps")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()
    assert service.server.client.get(f"{V3}/topics/lamps").status_code == 404


def test_produced_by_hand_and_found_four_ways(console: Console, service: Service) -> None:
    topic = service.topic("browsed", 2)
    service.produce(topic, *({"key": f"k{one}", "value": one, "timestamp": 1_000_000 * one} for one in range(1, 6)))
    page = console.sign_in().page
    console.open("produce", topic)
    page.get_by_label("Partition").fill("0")
    page.get_by_label("Key", exact=True).fill("c-7")
    page.get_by_label("Value", exact=True).fill('{"item":"lamp","id":12345678901234567890,"id":1.10}')
    page.get_by_role("button", name="Add header").click()
    page.get_by_label("Header name").fill("trace")
    page.get_by_label("Header value").fill("äöü")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Stored in partition 0 at offset 5.")).to_be_visible()
    page.get_by_label("Value is").select_option("tombstone")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Stored in partition 0 at offset 6.")).to_be_visible()
    page.get_by_label("Value is").select_option("string")
    page.get_by_label("Value", exact=True).fill("no json")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Stored in partition 0 at offset 7.")).to_be_visible()
    page.get_by_label("Value is").select_option("json")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("INVALID_RECORD")

    console.open("messages", topic)
    records = page.get_by_role("region", name="Records").locator("tbody tr:not(.detail)")
    show = page.get_by_role("button", name="Show")
    expect(records).to_have_count(8)  # from the end
    expect(records.nth(0)).to_contain_text("no json")
    expect(records.filter(has_text="tombstone")).to_have_count(1)
    page.get_by_role("button", name="Record 0:5").click()
    value = page.get_by_role("region", name="Value")
    expect(value).to_have_text('{\n  "item": "lamp",\n  "id": 12345678901234567890,\n  "id": 1.10\n}')
    expect(page.locator(".detail:visible")).to_contain_text("trace = äöü")

    page.get_by_label("Start").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("6")
    show.click()
    expect(page.get_by_text("2 records, newest first.")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("6 records, newest first.")).to_be_visible()

    page.get_by_label("Start").select_option("time")
    page.get_by_label("Time (UTC)").fill("1970-01-01T01:06:40")  # 4,000,000 ms
    show.click()
    expect(page.get_by_text("5 records, newest first.")).to_be_visible()

    page.get_by_label("Start").select_option("key")
    page.get_by_label("Partition").select_option("0")
    page.get_by_label("Key", exact=True).fill("c-7")
    show.click()
    expect(page.get_by_text("3 records found in partition 0; 8 looked at, to the start of the log.")).to_be_visible()
    page.get_by_label("Key", exact=True).fill("nobody")
    show.click()
    expect(page.get_by_text("0 records found in partition 0")).to_be_visible()
    expect(page.get_by_text("No records here.")).to_be_visible()


def test_the_live_tail_shows_what_comes(console: Console, service: Service) -> None:
    topic = service.topic("tailed", 2)
    service.produce(topic, {"value": "old"})
    page = console.sign_in().page
    console.open("messages", topic)
    expect(page.get_by_text("1 record, newest first.")).to_be_visible()
    page.get_by_role("button", name="Live tail").click()
    expect(page.get_by_text("Live: waiting for new records.")).to_be_visible()
    service.produce(topic, {"value": "first"}, partition=1)
    service.produce(topic, {"value": "second"})
    expect(page.get_by_text("Live: 2 new records, newest first.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="first")).to_be_visible()
    page.get_by_role("button", name="Live tail").click()
    expect(page.get_by_text("The live tail is stopped.")).to_be_visible()


# --- groups --------------------------------------------------------------------------------------


def test_lag_moves_while_one_looks_and_a_reset_is_seen_before_it_is_done(console: Console, service: Service) -> None:
    topic = service.topic("billed")
    service.produce(topic, *({"value": one} for one in range(10)))
    service.commit("billing", topic, 4)
    page = console.sign_in().page
    console.open("groups")
    page.get_by_role("link", name="billing", exact=True).click()
    tile = page.locator(".tile").filter(has_text="Lag in records")
    expect(tile).to_contain_text("6")
    service.produce(topic, *({"value": one} for one in range(5)))
    expect(tile).to_contain_text("11")
    service.commit("billing", topic, 15)
    expect(tile).to_contain_text("0")
    expect(page.get_by_role("img", name=re.compile("^Lag in records: lag 0; highest 11$"))).to_be_visible()

    page.get_by_label("Move").select_option("shift_by")
    page.get_by_label("Value").fill("-5")
    expect(page.get_by_role("button", name="Execute")).to_be_disabled()
    page.get_by_role("button", name="Preview").click()
    plan = page.get_by_role("region", name="Plan of the reset").get_by_role("row").nth(1)
    expect(plan).to_have_text("billed01510-5")
    assert service.committed("billing") == [15]
    page.get_by_label("Value").fill("-6")  # what was seen is not what would be done any more
    expect(page.get_by_role("button", name="Execute")).to_be_disabled()
    page.get_by_label("Value").fill("-5")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.get_by_text("Done: 1 partition moved.")).to_be_visible()
    assert service.committed("billing") == [10]
    expect(tile).to_contain_text("5")
    page.get_by_role("button", name="Delete group").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1, name="Consumer groups")).to_be_visible()
    assert service.server.client.get(f"{V3}/consumer-groups/billing").status_code == 404


def test_who_reads_what(console: Console, service: Service) -> None:
    topic = service.topic("shared-out", 3)
    member = Member(service.server.client, "readers", [topic])
    member.enter()
    page = console.sign_in().page
    console.open("groups", "readers")
    matrix = page.get_by_role("region", name="Assignment")
    expect(matrix.get_by_role("cell", name="reads it")).to_have_count(3)
    console.refusals = True
    page.get_by_label("Topic").select_option("")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("NON_EMPTY_GROUP")
    left = service.server.client.post(
        f"{V3}/consumer-groups/readers/members:leave", json={"members": [{"member_id": member.member_id}]}
    )
    assert left.status_code == 200
    expect(page.get_by_text("No members, so nobody reads anything.")).to_be_visible()


# --- jobs and tokens -----------------------------------------------------------------------------


def test_a_run_of_a_job_is_shown(console: Console, service: Service) -> None:
    topic = service.topic("expired", retention_ms=1_000)
    service.produce(topic, *({"value": one, "timestamp": 1_700_000_000_000} for one in range(3)))
    report = ran("retention", service.server.root, "--topic", topic, "--token", service.admin).report
    assert (report.outcome, report.done, report.records) == ("done", 1, 3)
    page = console.sign_in().page
    console.open("jobs")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="retention"))
    expect(row).to_contain_text(report.outcome)
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1, name="Job retention")).to_be_visible()
    expect(page.get_by_text(f"{report.planned} steps: {report.done} done, 0 came too late").first).to_be_visible()
    console.open("jobs", "merge")
    expect(page.get_by_text("This job has not run yet.")).to_be_visible()


def test_tokens_are_made_and_revoked(console: Console, service: Service) -> None:
    page = console.sign_in().page
    console.open("tokens")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("loader")
    dialog.get_by_label("Grants").fill("produce:topic:loads*\nconsume:topic:loads*")
    dialog.get_by_role("button", name="Create").click()
    secret = page.locator(".secret").inner_text()
    assert re.fullmatch(r"sluice_\w+_\w+", secret)
    headers = {"Authorization": f"Bearer {secret}"}
    assert service.server.client.get("/topics", headers=headers).status_code == 200
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("row").filter(has_text="loader")).to_contain_text("produce:topic:loads*")
    expect(page.locator("dialog")).to_have_count(0)
    assert secret not in page.content()
    page.get_by_role("button", name="Revoke loader").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row").filter(has_text="loader")).to_have_count(0)
    assert service.server.client.get("/topics", headers=headers).status_code == 401
    console.refusals = True
    page.get_by_role("button", name="Revoke root").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog.get_by_role("alert")).to_contain_text("POLICY_VIOLATION")
