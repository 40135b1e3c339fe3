"""The client keeps to what a quota tells it; `sluice quotas` from set to remove."""

from __future__ import annotations

import json

import httpx
import pytest

from sluice.api.client import Record, RetryPolicy, SluiceClient
from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.errors import Overloaded

BUSY = {"error_code": 42901, "message": "wait", "error": "THROTTLING_QUOTA_EXCEEDED", "retriable": True}
DONE = {"offsets": [{"partition": 0, "offset": 0, "error_code": None, "error": None}]}


class Script:
    """Answers in order; waiting is noted, and moves the clock."""

    def __init__(self, *answers: httpx.Response, **policy: float) -> None:
        self.waits: list[float] = []
        self.seen: list[httpx.Request] = []
        left, clock = list(answers), ManualClock()

        def answer(request: httpx.Request) -> httpx.Response:
            self.seen.append(request)
            return left.pop(0)

        def wait(seconds: float) -> None:
            self.waits.append(seconds)
            clock.advance(seconds)

        self.client = SluiceClient(
            "http://test",
            client_id="app",
            retry=RetryPolicy(**policy),
            transport=httpx.MockTransport(answer),
            clock=clock,
            wait=wait,
        )


def busy(**headers: str) -> httpx.Response:
    return httpx.Response(429, json=BUSY, headers={name.replace("_", "-"): text for name, text in headers.items()})


def test_a_refusal_is_repeated_when_its_time_is_over_to_the_millisecond():
    script = Script(busy(Retry_After="3", Sluice_Throttle_Time_Ms="2345"), httpx.Response(200, json=DONE))
    script.client.produce("t", [Record(value=b"a")])
    assert script.waits == [2.345]
    assert script.seen[0].headers["Sluice-Client-Id"] == "app"


def test_without_the_exact_time_retry_after_counts():
    script = Script(busy(Retry_After="3"), httpx.Response(200, json=DONE))
    script.client.produce("t", [Record(value=b"a")])
    assert script.waits == [3.0]


def test_a_wait_that_is_too_long_is_told_at_once():
    script = Script(busy(Sluice_Throttle_Time_Ms="60000"), budget_s=30)
    with pytest.raises(Overloaded):
        script.client.produce("t", [Record(value=b"a")])
    assert script.waits == []


def test_after_a_throttled_success_the_next_records_are_held_back():
    throttled = httpx.Response(200, json=DONE, headers={"Sluice-Throttle-Time-Ms": "1500"})
    script = Script(throttled, httpx.Response(200, json={"data": []}), *[httpx.Response(200, json=DONE)] * 2)
    script.client.produce("t", [Record(value=b"a")])
    assert script.client.topics.list() == []
    assert script.waits == []
    script.client.produce("t", [Record(value=b"b")])
    assert script.waits == [1.5]
    script.client.produce("t", [Record(value=b"c")])
    assert script.waits == [1.5]


def test_a_real_service_and_a_producer_that_is_too_fast(server, topic: str):
    with SluiceClient(server.url, client_id="fast") as client:
        body = {"entries": [{"entity": {"client_id": "fast"}, "values": {"producer_byte_rate": 2000}}]}
        client.connection.json("POST", "/v3/clusters/-/quotas", repeatable=True, body=body)
        clock = SystemClock()
        begun = clock.boottime()
        for _ in range(3):
            client.produce(topic, [Record(value=b"x" * 15_500)])  # 21 KB in base64: 20 KB are ten seconds' worth
            if clock.boottime() - begun > 0.3:
                break
        else:
            pytest.fail("nothing slowed it down")
        body["entries"][0]["values"] = {"producer_byte_rate": None}
        client.connection.json("POST", "/v3/clusters/-/quotas", repeatable=True, body=body)


def test_the_command_from_set_to_remove(sluice):
    def shown(*arguments: str) -> list[dict[str, object]]:
        result = sluice(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    entity = ("--user", "cli-user", "--client-id", "*")
    told = {"user": "cli-user", "client_id": None}
    assert shown("quotas", "set", *entity, "producer_byte_rate=1e6", "controller_mutation_rate=5") == [
        {"entity": told, "values": {"producer_byte_rate": 1e6, "controller_mutation_rate": 5.0}}
    ]
    assert [one["entity"] for one in shown("quotas", "list", *entity)] == [told]
    assert "1000000" in sluice("quotas", "list").stdout
    assert shown("quotas", "remove", *entity, "producer_byte_rate")[0]["values"] == {"controller_mutation_rate": 5.0}
    assert shown("quotas", "remove", *entity)[0]["values"] == {}
    assert shown("quotas", "list", "--user", "cli-user") == []
    assert shown("quotas", "set", "--topic", "*", "consumer_byte_rate=7")[0]["entity"] == {"topic": None}
    assert shown("quotas", "remove", "--topic", "*")[0]["values"] == {}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("set", "producer_byte_rate=1"), 2, "for whom"),
        (("set", "--user", "u", "producer_byte_rate"), 2, "NAME=VALUE"),
        (("set", "--user", "u", "producer_byte_rate=fast"), 2, "must be a number"),
        (("set", "--user", "u", "request_percentage=5"), 1, "must be one of"),
        (("set", "--user", "u", "producer_byte_rate=0"), 1, "above 0"),
        (("remove",), 2, "for whom"),
    ],
)
def test_wrong_usage_is_named(sluice, arguments: tuple[str, ...], code: int, told: str):
    result = sluice("quotas", *arguments)
    assert (result.exit_code, told in result.stderr) == (code, True), result.stderr
