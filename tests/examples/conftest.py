"""One service for everything that the documents show: examples, tours, lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Server, running

ROOT_NAME = "shop"
"""As the tours call their root."""
SETTINGS = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "2"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("examples") / ROOT_NAME, **SETTINGS) as found:
        yield found
