"""Many deadlines, of which one changes at a time: a persistent tree that knows its earliest.

A group of 500 members is told 500 times per heartbeat interval that a member lives. Copying a map of all deadlines
each time would cost O(members); here a change copies one path of the tree, O(log members), the earliest deadline is
read off the root, and finding those that are due visits only branches that hold one. Old values stay as they were, so
that a step of the machine can be repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

NEVER = sys.maxsize
_BITS = 4
_WIDTH = 1 << _BITS


class _Leaf(NamedTuple):
    earliest: int
    deadlines: tuple[int, ...]


class _Branch(NamedTuple):
    earliest: int
    children: tuple[_Node, ...]


_Node: TypeAlias = _Leaf | _Branch

_EMPTY_LEAF = _Leaf(NEVER, (NEVER,) * _WIDTH)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines by slot. A slot is a small number that `add` gives out and `drop` takes back."""

    _root: _Node = _EMPTY_LEAF
    _shift: int = 0
    """Bits of a slot below the root's own digit."""
    _slots: int = 0
    _free: tuple[int, ...] = ()

    @property
    def earliest(self) -> int:
        return self._root.earliest

    def add(self, deadline: int) -> tuple[Deadlines, int]:
        if self._free:
            slot = self._free[-1]
            return replace(self, _free=self._free[:-1]).set(slot, deadline), slot
        room = self._grown() if self._slots == _WIDTH << self._shift else self
        return replace(room, _slots=self._slots + 1).set(self._slots, deadline), self._slots

    def set(self, slot: int, deadline: int) -> Deadlines:
        return Deadlines(_put(self._root, self._shift, slot, deadline), self._shift, self._slots, self._free)

    def drop(self, slot: int) -> Deadlines:
        return replace(self.set(slot, NEVER), _free=(*self._free, slot))

    def get(self, slot: int) -> int:
        node, shift = self._root, self._shift
        while isinstance(node, _Branch):
            node = node.children[slot >> shift & (_WIDTH - 1)]
            shift -= _BITS
        return node.deadlines[slot & (_WIDTH - 1)]

    def due(self, now: int) -> frozenset[int]:
        """Slots whose deadline is `now` or earlier."""
        return frozenset(_due(self._root, self._shift, 0, now))

    def _grown(self) -> Deadlines:
        sibling = _empty(self._root)
        root = _Branch(self._root.earliest, (self._root, *(sibling,) * (_WIDTH - 1)))
        return replace(self, _root=root, _shift=self._shift + _BITS)


NO_DEADLINES = Deadlines()


def _put(node: _Node, shift: int, slot: int, deadline: int) -> _Node:
    digit = slot >> shift & (_WIDTH - 1)
    if isinstance(node, _Leaf):
        deadlines = (*node.deadlines[:digit], deadline, *node.deadlines[digit + 1 :])
        return _Leaf(min(deadlines), deadlines)
    child = _put(node.children[digit], shift - _BITS, slot, deadline)
    children = (*node.children[:digit], child, *node.children[digit + 1 :])
    return _Branch(min(c.earliest for c in children), children)


def _due(node: _Node, shift: int, base: int, now: int) -> Iterator[int]:
    if node.earliest > now:
        return
    if isinstance(node, _Leaf):
        yield from (base + digit for digit, deadline in enumerate(node.deadlines) if deadline <= now)
        return
    for digit, child in enumerate(node.children):
        yield from _due(child, shift - _BITS, base + (digit << shift), now)


def _empty(like: _Node) -> _Node:
    """A node of the same height without a deadline; its children are shared."""
    if isinstance(like, _Leaf):
        return _EMPTY_LEAF
    return _Branch(NEVER, (_empty(like.children[0]),) * _WIDTH)
