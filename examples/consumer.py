"""A consumer group in one file: two members share a topic, one leaves, and nothing is dealt with twice or missed.

Start a service, then run this against it::

    sluice serve --root /tmp/sluice-example &
    python examples/consumer.py http://127.0.0.1:8080

Results and the offsets behind them are kept together here, in a dictionary that stands for a database: that, and
`seek` when a partition arrives, is what makes processing exactly-once. It exits with 0 only if every order was counted
exactly once.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections import Counter

from sluice.api.client import Consumer, Record, SluiceClient, TopicPartition
from sluice.log_store.errors import SluiceError

ORDERS, PARTITIONS = 600, 4


class Database:
    """Stands for one with transactions: a result is stored with its offset, or not at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[TopicPartition, int] = {}
        self.counted: Counter[bytes] = Counter()

    def total(self) -> int:
        with self._lock:
            return self.counted.total()

    def next_offset(self, partition: TopicPartition) -> int:
        with self._lock:
            return self._next.get(partition, 0)

    def store(self, partition: TopicPartition, offset: int, order: bytes) -> None:
        with self._lock:
            if offset != self._next.get(partition, 0):
                return  # a member that lost the partition and does not know it yet
            self._next[partition] = offset + 1
            self.counted[order] += 1


def work(consumer: Consumer, topic: str, database: Database, until: int) -> int:
    """Count orders until the database has so many. How many records this member saw."""

    def begin(partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            consumer.seek(partition, database.next_offset(partition))

    consumer.subscribe([topic], on_assigned=begin)
    seen = 0
    while database.total() < until:
        for record in consumer.poll(timeout=0.5):
            seen += 1
            database.store(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")
        try:
            consumer.commit()  # only so that others see the progress: the database is what counts
        except SluiceError as error:
            print(f"  not committed, the group rebalances: {error.error}")
    return seen


def main(server: str) -> int:
    topic, group = f"orders-{uuid.uuid4().hex[:6]}", f"billing-{uuid.uuid4().hex[:6]}"
    database, seen = Database(), Counter[str]()

    def member(name: str, until: int) -> None:
        with SluiceClient(server) as client, client.consumer(group=group, enable_auto_commit=False) as consumer:
            seen[name] = work(consumer, topic, database, until)
            print(f"  {name} read {seen[name]} records and leaves")

    with SluiceClient(server) as client:
        client.topics.create(topic, partitions=PARTITIONS)
        client.produce(topic, [Record(value=b"%d" % n, partition=n % PARTITIONS) for n in range(ORDERS // 2)])
        threads = [
            threading.Thread(target=member, args=("the first member", ORDERS // 2)),
            threading.Thread(target=member, args=("the second member", ORDERS)),
        ]
        for thread in threads:
            thread.start()
        threads[0].join()
        client.produce(topic, [Record(value=b"%d" % n, partition=n % PARTITIONS) for n in range(ORDERS // 2, ORDERS)])
        threads[1].join()
        lag = sum(one.lag or 0 for one in client.groups.lags(group))
        client.groups.delete(group)
        client.topics.delete(topic)
    exactly_once = database.counted == Counter({b"%d" % n: 1 for n in range(ORDERS)})
    print(f"{len(database.counted)} orders, each counted once: {exactly_once}; lag {lag}")
    return 0 if exactly_once else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
