"""When a client repeats a request, after how long, and when it stops: with a clock that moves only when it waits."""

from __future__ import annotations

import httpx
import pytest

from sluice.api.client import BufferLimits, RetryPolicy, SluiceClient
from sluice.log_store.clock import ManualClock
from sluice.log_store.errors import Overloaded, RequestTimedOut, SluiceError, StorageError, UnknownTopicOrPartition
from sluice.streaming.http_errors import ConnectionFailed, NoAnswerInTime, RequestFailed, failure, failure_of

BUSY = {"error_code": 42901, "message": "full", "error": "THROTTLING_QUOTA_EXCEEDED", "retriable": True}
BROKEN = {"error_code": 50302, "message": "disk", "error": "KAFKA_STORAGE_ERROR", "retriable": True}
GONE = {"error_code": 40403, "message": "no t", "error": "UNKNOWN_TOPIC_OR_PARTITION", "retriable": True}
TOPICS = {"data": []}
AT_ONCE = BufferLimits(linger_ms=0)


class Script:
    """A server that answers in a given order, and a client whose waiting is noted instead of done."""

    def __init__(self, *answers: httpx.Response | Exception, **policy: float | bool) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []
        self.clock = ManualClock()
        self.client = SluiceClient(
            "http://test",
            retry=RetryPolicy(**policy),
            transport=httpx.MockTransport(self._answer),
            clock=self.clock,
            wait=self._wait,
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)


def answer(status: int, body: object, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def error_of(status: int, body: object = None, **headers: str) -> RequestFailed:
    return failure_of(answer(status, body, **headers))


def test_the_pause_doubles_up_to_the_longest_with_a_fifth_of_jitter():
    policy, busy = RetryPolicy(first_s=0.1, longest_s=1.0, budget_s=100), error_of(503, BROKEN)
    middle = [policy.delay(attempt, busy, 0, 0.5) for attempt in range(6)]
    assert middle == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert policy.delay(0, busy, 0, 0.0) == pytest.approx(0.08)
    assert policy.delay(0, busy, 0, 1.0) == pytest.approx(0.12)
    assert policy.delay(10_000, busy, 0, 0.5) == pytest.approx(1.0)


def test_retry_after_is_a_lower_bound():
    script = Script(answer(429, BUSY, Retry_After="7"), answer(503, BROKEN, Retry_After="0"), answer(200, TOPICS))
    assert script.client.topics.list() == []
    first, second = script.waits
    assert first == 7
    assert 0.16 <= second <= 0.24


def test_a_retry_after_beyond_the_budget_gives_up_at_once():
    script = Script(answer(429, BUSY, Retry_After="3600"))
    with pytest.raises(Overloaded) as caught:
        script.client.topics.list()
    assert script.waits == []
    assert isinstance(caught.value, RequestFailed)
    assert (caught.value.status, caught.value.error_code, caught.value.retry_after_s) == (429, 42901, 3600)


def test_a_retry_after_that_is_a_date_or_nonsense_is_passed_over():
    assert error_of(503, BROKEN, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s is None
    assert error_of(503, BROKEN, Retry_After="-5").retry_after_s == 0


def test_it_gives_up_when_the_next_try_would_lie_beyond_the_budget():
    script = Script(answer(503, BROKEN), budget_s=10.0)
    with pytest.raises(StorageError):
        script.client.topics.list()
    assert sum(script.waits) <= 10
    assert sum(script.waits) + 5 * 1.2 > 10
    assert len(script.requests) == len(script.waits) + 1


def test_a_read_is_repeated_after_a_lost_answer():
    script = Script(httpx.ReadTimeout("slow"), httpx.ReadError("cut"), answer(200, TOPICS))
    assert script.client.topics.list() == []
    assert len(script.requests) == 3


@pytest.mark.parametrize("lost", [httpx.ReadTimeout("slow"), httpx.ReadError("cut"), httpx.RemoteProtocolError("bye")])
def test_a_change_is_not_repeated_after_a_lost_answer(lost):
    script = Script(lost)
    with pytest.raises(ConnectionFailed if not isinstance(lost, httpx.ReadTimeout) else NoAnswerInTime) as caught:
        script.client.topics.create("t")
    assert len(script.requests) == 1
    assert caught.value.sent
    assert caught.value.retriable


def test_a_change_is_repeated_while_the_server_refuses_it_or_cannot_be_reached():
    created = answer(201, {"topic_name": "t", "partitions_count": 1})
    script = Script(httpx.ConnectError("refused"), answer(429, BUSY), answer(503, BROKEN), created)
    assert script.client.topics.create("t").name == "t"
    assert len(script.requests) == 4


def test_a_change_whose_outcome_is_not_known_is_not_repeated():
    script = Script(answer(503, {"error": "REQUEST_TIMED_OUT", "message": "?", "error_code": 503, "retriable": True}))
    with pytest.raises(RequestTimedOut):
        script.client.topics.create("t")
    assert len(script.requests) == 1


def test_a_wrong_address_can_be_told_at_once():
    script = Script(httpx.ConnectError("refused"), refused_connection=False)
    with pytest.raises(ConnectionFailed, match="cannot reach http://test"):
        script.client.topics.list()
    assert script.waits == []


def test_a_missing_topic_is_not_waited_for_although_kafka_calls_it_retriable():
    script = Script(answer(404, GONE))
    with pytest.raises(UnknownTopicOrPartition) as caught:
        script.client.topics.describe("t")
    assert script.waits == []
    assert caught.value.retriable


def test_the_producer_repeats_the_same_body_under_the_same_number():
    told = {"offsets": [{"partition": 0, "offset": 7, "error_code": None, "error": None}]}
    identity = answer(200, {"producer_id": 5, "producer_epoch": 0})
    script = Script(identity, httpx.ReadError("cut"), answer(503, BROKEN), answer(200, told))
    with script.client.producer(limits=AT_ONCE) as producer:
        assert producer.send("t", b"v").result(60).offset == 7
    _, *tries = script.requests
    assert len(tries) == 3
    assert len({(request.content, request.headers["Sluice-Sequence"]) for request in tries}) == 1


def test_after_a_failure_for_good_the_producer_goes_on_under_a_new_identity():
    told = {"offsets": [{"partition": 0, "offset": 7, "error_code": None, "error": None}]}
    bad = {"error_code": 42206, "message": "no", "error": "INVALID_RECORD", "retriable": False}
    script = Script(
        answer(200, {"producer_id": 5, "producer_epoch": 0}),
        answer(422, bad),
        answer(200, {"producer_id": 6, "producer_epoch": 0}),
        answer(200, told),
    )
    with script.client.producer(limits=AT_ONCE) as producer:
        assert isinstance(producer.send("t", b"bad").exception(60), SluiceError)
        assert producer.send("t", b"good").result(60).offset == 7
    last = script.requests[-1].headers
    assert (last["Sluice-Producer-Id"], last["Sluice-Sequence"]) == ("6", "0")


def test_a_fenced_producer_sends_nothing_more():
    fenced = {"error_code": 409, "message": "newer", "error": "PRODUCER_FENCED", "retriable": False}
    script = Script(answer(200, {"producer_id": 5, "producer_epoch": 0}), answer(409, fenced))
    with script.client.producer(name="p", limits=AT_ONCE) as producer:
        first = producer.send("t", b"v").exception(60)
        with pytest.raises(type(first)):
            producer.send("t", b"v")
    assert len(script.requests) == 2


def test_records_that_failed_for_now_are_repeated_with_the_whole_request():
    parts = [{"partition": 0, "offset": 1, "error_code": None, "error": None}]
    half = {
        "offsets": [*parts, {"partition": 1, "offset": -1, "error_code": 50302, "error": "KAFKA_STORAGE_ERROR: disk"}]
    }
    whole = {"offsets": [*parts, {"partition": 1, "offset": 4, "error_code": None, "error": None}]}
    script = Script(answer(200, {"producer_id": 5, "producer_epoch": 0}), answer(200, half), answer(200, whole))
    with script.client.producer(limits=BufferLimits(linger_ms=50)) as producer:
        futures = [producer.send("t", b"a"), producer.send("t", b"b")]
        producer.flush()
    assert [future.result().offset for future in futures] == [1, 4]


def test_an_answer_that_is_not_ours_still_has_a_status():
    error = failure_of(httpx.Response(502, text="<html>Bad Gateway</html>"))
    assert (error.status, error.retriable, error.error_code) == (502, True, 502)
    assert "502" in error.message


def test_an_unknown_name_is_kept():
    error = failure("TOPIC_AUTHORIZATION_FAILED", "no", retriable=False)
    assert (error.error, error.retriable) == ("TOPIC_AUTHORIZATION_FAILED", False)
    assert type(error) is not RequestFailed
    assert isinstance(error, RequestFailed)
