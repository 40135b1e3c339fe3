"""What uvicorn itself can do: a body is received and parsed, nothing is stored. `python -m bench.http_ceiling PORT`"""

from __future__ import annotations

import sys
from typing import Any

import orjson
import pyarrow as pa
import uvicorn

ARROW = b"application/vnd.apache.arrow.stream"


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    pieces = []
    while True:
        message = await receive()
        pieces.append(message["body"])
        if not message.get("more_body"):
            break
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if (b"content-type", ARROW) in scope["headers"]:
        count = pa.ipc.open_stream(body).read_all().num_rows
    else:
        count = len(orjson.loads(body)["records"])
    answer = b'{"partitions":[{"partition":0,"base_offset":0,"count":%d}]}' % count
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    config = uvicorn.Config(
        application,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        backlog=4096,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
