"""What a job tells its source: its own flags under the names of the source, and `--option` for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.log_store.errors import InvalidConfig, InvalidTopic
from sluice.log_store.topic import validate_topic_name
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.subscriptions import Subscription, TopicPattern, Topics

FLAGS = {
    "server": "--server",
    "path": "--path",
    "token": "--token",
    "ca.file": "--ca-file",
    "subscribe": "--topics",
    "subscribePattern": "--topics-pattern",
    "group.id": "--group",
    "startingOffsets": "--starting-offsets",
    "maxOffsetsPerTrigger": "--max-offsets-per-trigger",
}
"""By the name of the source. The job itself must know these: a group that it did not know of would be written to by
appends instead of merges, and letters would be sent to another service."""
_FLAG_OF = {name.lower(): flag for name, flag in FLAGS.items()}


def with_extra(source: Mapping[str, str], pairs: Sequence[str]) -> dict[str, str]:
    """`pairs` are the values of `--option`. InvalidConfig says what is wrong with one."""
    found = dict(source)
    given: set[str] = set()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidConfig(f"--option {pair!r}: must be NAME=VALUE")
        if flag := _FLAG_OF.get(name.lower()):
            raise InvalidConfig(f"--option {name}: use {flag}")
        if name.lower() == "columns":
            raise InvalidConfig(f"--option {name}: the job needs all of them")
        if name.lower() in given:
            raise InvalidConfig(f"--option {name}: is given twice")
        given.add(name.lower())
        found[name] = value
    # Dead letters keep the headers of their records, and a table without them would have lost something.
    return found if "includeheaders" in given else found | {"includeHeaders": "true"}


def check_source(source: Mapping[str, str], dead_letter: str | None, environment: Mapping[str, str]) -> None:
    """As the source itself will, but before there is a Spark session, and in the words of the command line."""
    try:
        options = SourceOptions.parse(source, streaming=True, environ=environment)
    except InvalidConfig as error:
        name = str(error.fields.get("name", ""))
        flag = FLAGS.get(name, f"--option {name}")
        raise InvalidConfig(error.message.replace(f"option {name!r}", flag, 1)) from None
    if dead_letter is not None:
        _check_dead_letter(dead_letter, options.subscription)


def _check_dead_letter(topic: str, subscription: Subscription) -> None:
    try:
        validate_topic_name(topic)
    except InvalidTopic as error:
        raise InvalidConfig(f"--dead-letter {topic!r}: {error.message}") from None
    if isinstance(subscription, TopicPattern):
        read = subscription.pattern.fullmatch(topic) is not None
    else:
        read = topic in (subscription.names if isinstance(subscription, Topics) else subscription.partitions)
    if read:
        raise InvalidConfig(f"--dead-letter {topic}: is one of the topics that are read, which would never end")
