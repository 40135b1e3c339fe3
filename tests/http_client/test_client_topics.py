from __future__ import annotations

import pytest

from sluice.api.client import RequestFailed, SluiceClient
from sluice.log_store.errors import InvalidConfig, InvalidPartitions, TopicAlreadyExists, UnknownTopicOrPartition


def test_a_topic_is_created_listed_described_and_deleted(client: SluiceClient, topic: str):
    assert client.topics.describe(topic).partitions == 3
    assert topic in {info.name for info in client.topics.list()}
    client.topics.delete(topic)
    with pytest.raises(UnknownTopicOrPartition):
        client.topics.describe(topic)


def test_configs_are_set_and_unset(client: SluiceClient, topic: str):
    client.topics.alter(topic, {"retention.ms": "1000", "segment.bytes": "2000"})
    client.topics.alter(topic, {"segment.bytes": None})
    changed = {config.name: config.value for config in client.topics.configs(topic) if not config.is_default}
    assert changed == {"retention.ms": "1000"}


def test_a_topic_grows_but_does_not_shrink(client: SluiceClient, topic: str):
    client.topics.grow(topic, 5)
    assert client.topics.describe(topic).partitions == 5
    with pytest.raises(InvalidPartitions):
        client.topics.grow(topic, 4)


def test_errors_are_those_of_the_log_with_what_http_said(client: SluiceClient, topic: str):
    with pytest.raises(TopicAlreadyExists) as exists:
        client.topics.create(topic)
    with pytest.raises(InvalidConfig) as config:
        client.topics.alter(topic, {"retention.ms": "soon"})
    for caught in (exists.value, config.value):
        assert isinstance(caught, RequestFailed)
        assert (caught.status, caught.error_code, caught.retriable) == (400, 40002, False)


def test_a_name_cannot_leave_its_place_in_the_path(client: SluiceClient):
    for name in ("../../healthz", "a/b", "a?b", "%2e%2e", "ü"):
        with pytest.raises(RequestFailed) as caught:
            client.topics.describe(name)
        assert caught.value.status in (400, 404)
