"""The tree of deadlines against a plain dictionary."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.streaming.groups.deadlines import NEVER, NO_DEADLINES, Deadlines
from tests.counts import HYPOTHESIS_EXAMPLES

times = st.integers(0, 50) | st.just(NEVER)
changes = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "set", "drop"]), st.integers(0, 10_000), times))


@settings(max_examples=HYPOTHESIS_EXAMPLES)
@given(changes, st.integers(0, 400))
def test_it_agrees_with_a_dictionary(steps: list[tuple[str, int, int]], start: int):
    tree, plain = NO_DEADLINES, dict[int, int]()
    for at in range(start):
        tree, slot = tree.add(at)
        plain[slot] = at
    for what, which, deadline in steps:
        if what == "add":
            tree, slot = tree.add(deadline)
            assert slot not in plain
            plain[slot] = deadline
        elif plain:
            slot = sorted(plain)[which % len(plain)]
            tree = tree.set(slot, deadline) if what == "set" else tree.drop(slot)
            plain[slot] = deadline
            if what == "drop":
                del plain[slot]
        assert tree.earliest == min(plain.values(), default=NEVER)
    assert {slot: tree.get(slot) for slot in plain} == plain
    for now in (0, 10, 49):
        assert tree.due(now) == {slot for slot, deadline in plain.items() if deadline <= now}


def test_old_values_stay():
    first, slot = NO_DEADLINES.add(5)
    later = first.set(slot, 9)
    assert (first.get(slot), later.get(slot)) == (5, 9)
    assert (first.earliest, later.earliest) == (5, 9)


def test_slots_are_used_again():
    tree = NO_DEADLINES
    for _ in range(100):
        tree, slot = tree.add(1)
        assert slot == 0
        tree = tree.drop(slot)


def _nodes_copied(before: Deadlines, after: Deadlines) -> int:
    """Nodes of the new tree that the old one does not share."""

    def nodes(node: object) -> set[int]:
        children = getattr(node, "children", ())
        return {id(node)}.union(*(nodes(child) for child in children))

    return len(nodes(after._root) - nodes(before._root))


def test_a_change_copies_one_path():
    tree = NO_DEADLINES
    for at in range(4_000):
        tree, _ = tree.add(at)
    assert _nodes_copied(tree, tree.set(2_345, 7)) == 3
