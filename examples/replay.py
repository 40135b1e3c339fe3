"""Read again from a moment on: without a group, and by moving a group back.

Start a service, then run this against it::

    sluice serve --root /tmp/sluice-example &
    python examples/replay.py http://127.0.0.1:8080

Records stay where they are when they are read, so "again" is only a matter of where to begin. It exits with 0 only if
both ways find exactly the records of the second hour.
"""

from __future__ import annotations

import sys
import uuid
from datetime import UTC, datetime, timedelta

from sluice.api.client import At, Record, SluiceClient

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
READINGS, PARTITIONS = 120, 2
SECOND_HOUR = START + timedelta(hours=1)


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def without_a_group(client: SluiceClient, topic: str) -> list[bytes]:
    """A reader is stateless: it asks each partition for the first record of that time, then page after page."""
    moment = milliseconds(SECOND_HOUR)
    for number in range(PARTITIONS):
        print(f"partition {number}: {SECOND_HOUR:%H:%M} is offset", client.offset_at(topic, number, moment))
    start = At(timestamp_ms=moment)
    return [record.value or b"" for record in client.reader(topic, start=start, stop_at_end=True)]


def read_in_group(client: SluiceClient, topic: str, group: str) -> list[bytes]:
    """Everything that the group has not read yet."""
    found: list[bytes] = []
    with client.consumer(group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not found or sum(one.lag or 0 for one in client.groups.lags(group)):
            found += [record.value or b"" for record in consumer.poll(timeout=0.5)]
            consumer.commit()
    return found


def main(server: str) -> int:
    topic, group = f"readings-{uuid.uuid4().hex[:6]}", f"audit-{uuid.uuid4().hex[:6]}"
    # A reading each minute, for two hours. A client may give timestamps; else it is the time of receipt.
    moments = [START + timedelta(minutes=n) for n in range(READINGS)]
    records = [
        Record(value=b"%d" % n, partition=n % PARTITIONS, timestamp_ms=milliseconds(moment))
        for n, moment in enumerate(moments)
    ]
    wanted = {b"%d" % n for n, moment in enumerate(moments) if moment >= SECOND_HOUR}
    with SluiceClient(server) as client:
        # These records are older than the default of seven days would keep.
        client.topics.create(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        client.produce(topic, records)
        alone = without_a_group(client, topic)
        print("read without a group:", len(alone))

        print("the group read:", len(read_in_group(client, topic, group)))
        # What would change is shown first; the group must have no members.
        back = {"to_datetime": SECOND_HOUR.isoformat()}
        for step in client.groups.reset(group, back, topics=[topic]):
            print(f"partition {step.partition}: from {step.current_offset} to {step.new_offset}")
        client.groups.reset(group, back, topics=[topic], execute=True)
        again = read_in_group(client, topic, group)
        print("the group read again:", len(again))
        client.groups.delete(group)
        client.topics.delete(topic)
    return 0 if set(alone) == set(again) == wanted and len(alone) == len(again) == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
