"""Hostile bodies, names and headers: refused with a reason or stored whole, never a 5xx."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

from tests import counts
from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.support.bodies import entries, ipc, mutations, v2
from tests.support.server import Server

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
RECORD = b'{"key":"k","value":{"a":[1,2.5,null]},"partition":0,"timestamp":7,"headers":[{"name":"h","value":"YQ=="}]}'
V3_RECORD = (
    b'{"partition_id":0,"key":{"type":"BINARY","data":"YQ=="},"value":{"type":"JSON","data":{"a":1}},"timestamp":7}'
)
TABLE = pa.table({"value": [b"a", None], "key": ["x", "y"], "partition": [0, 0], "timestamp": [7, 8]})
CALLS = {
    "json": ("/topics/t", JSON, v2(RECORD, b'{"value":1}')),
    "binary": ("/topics/t/partitions/0", "application/vnd.kafka.binary.v2+json", v2(b'{"key":"YQ==","value":"YWI="}')),
    "arrow": ("/topics/t", ARROW, ipc(TABLE)),
    "stream": (f"{V3}/topics/t/records", JSON, V3_RECORD + b"\n" + V3_RECORD),
    "batch": (f"{V3}/topics/t/records:batch", JSON, entries(b'{"id":"1",' + V3_RECORD[1:], b'{"id":"2"}')),
}


@pytest.mark.parametrize("call", CALLS)
def test_hostile_bodies(app: App, call: str) -> None:
    path, media, good = CALLS[call]
    app.log.create_topic("t")

    async def work(client: httpx.AsyncClient) -> None:
        for body in mutations([good], counts.HTTP_BODIES, seed=5):
            answer = await client.post(path, content=body, headers={"Content-Type": media})
            if answer.status_code >= 300:
                assert answer.status_code < 500, (body, answer.text)
                error_of(answer, answer.status_code)

    app.run(work)


def test_hostile_names_stay_inside_the_root(server: Server) -> None:
    rng = random.Random(7)
    alphabet = [
        "..",
        "/",
        "\\",
        "%",
        "\0",
        "ä",
        "\ud7ff",
        " ",
        "~",
        "a",
        ".",
        "_",
        ":",
        "\n",
        "*",
        "'",
        '"',
        "<",
        "é" * 99,
    ]
    outside = set(server.root.parent.iterdir())
    for _ in range(100):
        name = quote("".join(rng.choices(alphabet, k=rng.randint(1, 6))), safe="")
        for method, path in (
            ("POST", f"/topics/{name}"),
            ("GET", f"/topics/{name}"),
            ("GET", f"{V3}/topics/{name}/partitions/{name}/records?offset=0"),
            ("DELETE", f"{V3}/topics/{name}"),
        ):
            answer = server.client.request(method, path, content=v2(b'{"value":1}'))
            assert answer.status_code < 500, (method, path, answer.text)
    assert set(server.root.parent.iterdir()) == outside
    assert {path.name for path in Path(server.root).iterdir()} <= {"_sluice", "topics"}


@pytest.mark.parametrize(
    "name", ["Content-Type", "Content-Encoding", "Accept", "X-Request-Id", "Sluice-Sequence", "Host"]
)
def test_hostile_headers(app: App, name: str) -> None:
    for value in (b"", b"\xff\xfe", b"a" * 5000, b"9" * 400, "٣".encode(), b"-", b"1e9", b"gzip, gzip"):
        answer = app.call("POST", "/topics/t", content=v2(b'{"value":1}'), headers={name: value})
        assert answer.status_code < 500, answer.text
