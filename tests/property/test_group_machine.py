"""Groups of simulated clients that join, sync, crash, restart and leave, on a coordinator that crashes too."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sluice.log_store.errors import RequestTimedOut, StorageError
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import (
    GroupDead,
    GroupRules,
    Now,
    Persist,
    Phase,
    Refusal,
    Reply,
    assignment_task,
    decode_metadata,
    encode_metadata,
    new_group,
    next_deadline,
    step,
)
from sluice.streaming.groups.deadlines import NEVER
from sluice.streaming.groups.effects import CommitAllowed, Response, Synced
from sluice.streaming.groups.events import (
    ClientGone,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Leave,
    Leaving,
    Persisted,
    PersistFailed,
    Restore,
    Sync,
    Tick,
)
from sluice.streaming.groups.protocols import common_protocols
from sluice.streaming.groups.state import StaticStore, TombstoneStore
from tests.counts import GROUP_RUNS, STATEFUL_STEPS
from tests.support.group_clients import PARTITIONS, Client, dealt

STRIDES = [1, 500, 500, 3_000, 3_000, 5_999, 6_000, 20_000, 100_000]
PROTOCOLS = [("range", "sticky"), ("sticky", "range"), ("range",)]
HAPPENINGS = [
    *["act"] * 12,
    *["stored"] * 4,
    *["time"] * 4,
    *["commit"] * 3,
    *["restart", "ask again", "start"] * 2,
    *["crash", "leave", "subscribe", "store fails", "coordinator crash", "delete"],
]
"""The usual more often than the rest."""
RULES = GroupRules(max_size=4, new_member_join_timeout_ms=30_000)


@dataclass
class Known:
    """What an onlooker has seen, across restarts of the coordinator."""

    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    assigned: int = -1
    """The newest generation in which somebody was given an assignment."""


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = Now(1_000, 1_700_000_000_000)
        self.group = new_group("g", self.now, RULES)
        self.numbers, self.deals = count(), count()
        self.live: list[Client] = []
        self.owner_of_token: dict[str, Client | None] = {}
        """Requests that wait, and who hears the answer; None when nobody does."""
        self.answered: set[str] = set()
        self.stores: list[Persist] = []
        self.durable: bytes | None = None
        self.known = Known()
        self.generation = 0

    # --- plumbing ------------------------------------------------------------------------------

    def send(self, event: Event) -> Response | None:
        self.group, effects, reply = step(self.group, event, self.now)
        if not isinstance(event, Restore):
            assert self.group.generation >= self.generation, "the generation fell"
        self.generation = self.group.generation
        for effect in effects:
            if isinstance(effect, Reply):
                self.deliver(str(effect.token), effect.response)
            elif isinstance(effect, Persist):
                self.stores.append(effect)
            elif isinstance(effect, GroupDead):
                self.forget()
        return reply

    def request(self, client: Client | None, token: str, event: Event) -> None:
        self.owner_of_token[token] = client
        if client:
            client.token = token
        reply = self.send(event)
        if reply is not None:
            self.deliver(token, reply)

    def deliver(self, token: str, response: Response) -> None:
        assert token not in self.answered, f"{token} was answered twice"
        assert token in self.owner_of_token, f"{token} does not wait"
        self.answered.add(token)
        client = self.owner_of_token.pop(token)
        if client is None or client.token != token:
            return
        client.hear(response)
        if isinstance(response, Synced):
            self.see_assignment(client, response.generation)

    def see_assignment(self, client: Client, generation: int) -> None:
        assert generation == self.group.generation
        self.known.assigned = max(self.known.assigned, generation)
        for partition in client.owned or ():
            owner = self.known.owners.setdefault((generation, partition), client.identity)
            assert owner == client.identity, f"{partition} has two owners in generation {generation}"

    def forget(self) -> None:
        """The deletion is stored: the next group of this name starts from nothing."""
        self.durable, self.stores, self.known, self.generation = None, [], Known(), 0
        self.group = new_group("g", self.now, RULES)

    def set_time(self, ms: int) -> None:
        self.now = Now(self.now.boot_ms + ms, self.now.wall_ms + ms)

    def pick(self, which: int) -> Client:
        return self.live[which % len(self.live)]

    def act(self, client: Client) -> None:
        """The client's next natural step."""
        if client.token is not None:
            return
        token = f"{client.name}.{next(self.numbers)}"
        if client.joined is None:
            self.request(client, token, client.join(token, f"m{token}"))
        elif client.owned is None:
            sync = client.sync(token, next(self.deals))
            task = assignment_task(self.group, sync)
            if task:
                sync = Sync(
                    **{name: getattr(sync, name) for name in sync.__slots__ if name != "assignments"},
                    assignments=dealt(list(task.members), next(self.deals)),
                )
            self.request(client, token, sync)
        else:
            beat = Heartbeat(member_id=client.member_id, generation=client.generation, instance_id=client.instance_id)
            reply = self.send(beat)
            if isinstance(reply, Refusal):
                client.hear(reply)

    # --- clients -------------------------------------------------------------------------------

    @initialize(number=st.integers(1, 4), static=st.integers(0, 15), by_coordinator=st.integers(0, 15))
    def some_clients_start(self, number: int, static: int, by_coordinator: int) -> None:
        for at in range(number):
            self.client_starts(bool(static >> at & 1), PROTOCOLS[at % len(PROTOCOLS)], bool(by_coordinator >> at & 1))

    # One step is several happenings: deep states, few steps.
    @rule(happenings=st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 60)), min_size=1, max_size=8))
    def things_happen(self, happenings: list[tuple[str, int]]) -> None:
        for what, number in happenings:
            if self.live:
                self.to_a_client(what, number, self.pick(number))
            self.to_the_coordinator(what, number)

    def to_a_client(self, what: str, number: int, client: Client) -> None:
        odd = bool(number // 5 % 2)
        match what:
            case "act":
                self.act(client)
            case "crash":
                self.client_crashes(client, noticed=odd)
            case "restart":
                self.client_restarts(client, noticed=odd)
            case "ask again":
                self.client_asks_again(client)
            case "leave":
                self.client_leaves(client)
            case "subscribe":
                self.client_changes_its_subscription(client, ("t", "u") if odd else ("t",))
            case "commit":
                self.client_commits(client, back=number // 5 % 3)

    def to_the_coordinator(self, what: str, number: int) -> None:
        if what == "start" and len(self.live) < 5:
            self.client_starts(bool(number % 2), PROTOCOLS[number % len(PROTOCOLS)], bool(number // 2 % 2))
        elif what == "time":
            self.time_passes(STRIDES[number % len(STRIDES)], prompt=bool(number % 2))
        elif what == "stored" and self.stores:
            self.store_succeeds()
        elif what == "store fails" and self.stores:
            self.store_fails(written=bool(number % 2))
        elif what == "coordinator crash":
            self.coordinator_crashes(written=number % 4)
        elif what == "delete" and self.group.phase is Phase.EMPTY and self.group.generation:
            self.group_is_deleted()

    def client_starts(self, static: bool, protocols: tuple[str, ...], by_coordinator: bool) -> None:
        number = next(self.numbers)
        instance = f"i{number}" if static else None
        self.live.append(Client(f"c{number}", instance, protocols, by_coordinator=by_coordinator))

    def client_crashes(self, client: Client, noticed: bool) -> None:
        self.live.remove(client)
        self.hang_up(client, noticed)

    def client_restarts(self, client: Client, noticed: bool) -> None:
        """A static one comes back as itself, a dynamic one as somebody new."""
        self.hang_up(client, noticed)
        client.restart()

    def client_asks_again(self, client: Client) -> None:
        """Its connection broke: the same request goes out again, the first answer is lost."""
        self.hang_up(client, noticed=False)
        client.token = None
        self.act(client)

    def client_leaves(self, client: Client) -> None:
        self.live.remove(client)
        self.hang_up(client, noticed=True)
        if client.member_id:
            self.send(Leave((Leaving(member_id=client.member_id, instance_id=client.instance_id),)))

    def client_changes_its_subscription(self, client: Client, topics: tuple[str, ...]) -> None:
        client.topics = topics
        if client.token is None:
            client.rejoin()

    def client_commits(self, client: Client, back: int) -> None:
        """Also by one that was away and does not know how old its generation is."""
        generation = client.last_generation - back
        if generation < 0:
            return
        commit = Commit(member_id=client.member_id, generation=generation, instance_id=client.instance_id)
        if isinstance(self.send(commit), CommitAllowed):
            assert generation == self.group.generation
            assert generation >= self.known.assigned, "a stale generation has committed"

    def hang_up(self, client: Client, noticed: bool) -> None:
        if client.token is None:
            return
        if noticed:
            self.owner_of_token.pop(client.token)
            self.send(ClientGone(client.token))
        else:
            self.owner_of_token[client.token] = None

    # --- coordinator ---------------------------------------------------------------------------

    def time_passes(self, ms: int, prompt: bool) -> None:
        if prompt:
            self.pass_promptly(ms)
        else:
            self.set_time(ms)
            self.send(Tick())

    def pass_promptly(self, ms: int) -> None:
        end = self.now.boot_ms + ms
        while (due := next_deadline(self.group)) is not None and due <= end:
            self.set_time(max(due - self.now.boot_ms, 0))
            self.send(Tick())
        self.set_time(end - self.now.boot_ms)

    def store_succeeds(self) -> None:
        store = self.stores.pop(0)
        self.keep(store)
        self.send(Persisted(store.ticket))

    def store_fails(self, written: bool) -> None:
        """A store that timed out may have been written all the same."""
        store = self.stores.pop(0)
        if written:
            self.keep(store)
        error = RequestTimedOut("slow") if written else StorageError("disk")
        self.send(PersistFailed(store.ticket, error))

    def keep(self, store: Persist) -> None:
        if store.metadata is None:
            self.durable, self.known = None, Known()
            return
        self.durable = encode_metadata(store.metadata)
        assert decode_metadata(self.durable) == store.metadata

    def coordinator_crashes(self, written: int) -> None:
        """Some of what was being stored got through; nobody who waited hears anything."""
        for store in self.stores[:written]:
            self.keep(store)
        self.stores, self.owner_of_token = [], {}
        for client in self.live:
            if client.token is not None:
                client.token = None
                client.rejoin()
        self.group = new_group("g", self.now, RULES)
        if self.durable is None:
            assert self.known.assigned == -1, "a group that had owners is forgotten"
            self.generation = 0
            return
        self.send(Restore(decode_metadata(self.durable)))
        assert self.group.generation >= self.known.assigned, "a generation that had owners is forgotten"
        for member_id, member in self.group.members.items():
            assert self.group.session_deadline(member_id) == self.now.boot_ms + member.session_timeout_ms

    def group_is_deleted(self) -> None:
        token = f"delete.{next(self.numbers)}"
        self.request(None, token, Delete(token))

    @rule(seconds=st.integers(1, 8))
    def all_goes_well(self, seconds: int) -> None:
        """For a while. Without it hardly any run would get as far as a second generation."""
        for _ in range(seconds):
            for client in list(self.live):
                self.act(client)
            while self.stores:
                self.store_succeeds()
            self.pass_promptly(1_000)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def exactly_the_open_requests_wait(self) -> None:
        group = self.group
        deletions = [store.token for store in group.stores.values() if isinstance(store, TombstoneStore)]
        waiting = [*group.join_waiters.values(), *group.sync_waiters.values(), *deletions]
        assert sorted(map(str, waiting)) == sorted(self.owner_of_token)

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group
        members = group.members.keys()
        assert group.slots.keys() == members | group.pending
        assert not members & group.pending
        assert len(set(group.slots.values())) == len(group.slots)
        assert group.instances == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
        assert (group.leader in members) if members else group.leader is None
        assert group.join_waiters.keys() <= members
        assert group.sync_waiters.keys() <= members
        assert group.unsynced <= members
        assert group.newcomers <= members
        assert group.unheard <= members
        assert len(group.join_waiters) <= RULES.max_size
        assert group.common_protocols == common_protocols(group.members.values())
        assert bool(group.common_protocols) == bool(members)

    @invariant()
    def each_state_waits_for_what_it_should(self) -> None:
        group = self.group
        if group.phase in (Phase.EMPTY, Phase.DEAD):
            assert not group.members
        assert (group.join_timer is not None) == (group.phase is Phase.PREPARING)
        assert (group.sync_deadline != NEVER) == bool(group.unsynced)
        if group.sync_waiters:
            assert group.phase is Phase.COMPLETING
        if group.phase is Phase.STABLE:
            renamed = {store.member_id for store in group.stores.values() if isinstance(store, StaticStore)}
            assert group.join_waiters.keys() <= renamed
        if group.phase is Phase.COMPLETING:
            assert group.unsynced or group.stores
            assert not group.join_waiters

    @invariant()
    def who_does_not_wait_has_a_session(self) -> None:
        group = self.group
        for member_id in group.slots:
            waits = member_id in group.join_waiters or member_id in group.sync_waiters
            if not waits or member_id in group.newcomers:
                assert group.session_deadline(member_id) != NEVER

    def teardown(self) -> None:
        """After quiet and enough time the group is Stable and holds exactly those who live, or is Empty."""
        self.live = self.live[: RULES.max_size]
        self.all_goes_well(seconds=120)
        assert self.group.phase is (Phase.STABLE if self.live else Phase.EMPTY)
        assert self.group.members.keys() == {client.member_id for client in self.live}
        assert not self.owner_of_token
        if self.live:
            owned = [partition for client in self.live for partition in client.owned or ()]
            assert sorted(map(str, owned)) == sorted(map(str, PARTITIONS))


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=GROUP_RUNS, stateful_step_count=STATEFUL_STEPS, deadline=None)
