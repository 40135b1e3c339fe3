"""Where groups are kept (G-1): an internal topic that is made when the first group needs it."""

from __future__ import annotations

import httpx

from sluice.log_store.topic import CONSUMER_OFFSETS
from tests.http.checks import V3
from tests.http.conftest import App
from tests.support.group_http import GROUPS


def test_the_topic_of_groups_is_made_for_the_first_group_compacted_and_with_fifty_partitions(app: App) -> None:
    def is_there() -> bool:
        return app.log.catalog.state.find(CONSUMER_OFFSETS) is not None

    async def first_group(client: httpx.AsyncClient) -> None:
        created = await client.post(f"{V3}/topics", json={"topic_name": "t", "partitions_count": 1})
        assert created.status_code == 201, created.text
        produced = await client.post("/topics/t", json={"records": [{"value": 1}]})
        assert produced.status_code == 200, produced.text
        await client.get(f"{GROUPS}/g/offsets")
        assert not is_there(), "neither records nor a look at a group make it"
        committed = await client.post(
            f"{GROUPS}/g/offsets", json={"offsets": [{"topic_name": "t", "partition_id": 0, "offset": 1}]}
        )
        assert committed.status_code == 200, committed.text

    app.run(first_group)
    made = app.log.catalog.state.find(CONSUMER_OFFSETS)
    assert made is not None
    assert made.partitions == 50
    assert made.config().compact
    assert not made.config().delete
