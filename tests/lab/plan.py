"""What goes wrong and when: a pure function of the seed, so that a run can be done again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FIRST_S, QUIET_S = 2.0, 3.0
"""Nothing goes wrong at the very beginning, nor at the end: what was not answered yet gets its answer."""

Draw = Callable[[random.Random], dict[str, Any]]


def _for(low: float, high: float) -> Draw:
    return lambda dice: {"seconds": round(dice.uniform(low, high), 2)}


def _fault(**choices: Sequence[Any]) -> Draw:
    return lambda dice: {"seconds": round(dice.uniform(0.5, 2.5), 2)} | {k: dice.choice(v) for k, v in choices.items()}


# Of the service, the network and its clients: on any storage.
COMMON: dict[str, Draw] = {
    "kill": _for(0.0, 0.8),
    "kill-again": lambda dice: {"after": [round(dice.uniform(0.3, 1.6), 2) for _ in range(dice.randint(1, 2))]},
    "stop": _for(0.3, 3.0),
    "take-over": lambda dice: _for(0.5, 2.0)(dice) | {"end": dice.choice(["kill", "term"])},
    "zombie": lambda dice: _for(0.5, 2.0)(dice) | {"end": dice.choice(["kill", "term"])},
    "clock": lambda dice: _for(0.3, 1.5)(dice) | {"jumps": dice.sample([3600, -3600, 30, -30, 86_400], 2)},
    "cut": lambda dice: {"times": dice.randint(1, 5)},
    "slow-network": lambda dice: _for(0.5, 2.0)(dice) | {"delay": round(dice.uniform(0.01, 0.15), 3)},
    "broken-network": lambda dice: _for(0.5, 2.0)(dice) | {"share": round(dice.uniform(0.02, 0.2), 2)},
    "kill-client": lambda dice: {"client": dice.choice(["members", "others", "producers"])},
    "stop-client": lambda dice: _for(0.5, 3.0)(dice) | {"client": dice.choice(["members", "others"])},
}
# Of a local root.
TORN: dict[str, Draw] = {
    "torn-wal": lambda dice: {"bytes": dice.randint(1, 400), "seed": dice.randrange(1 << 30)},
    "torn-commit": lambda dice: {
        "how": dice.choice(["empty", "half", "line", "garbage", "zeros"]),
        "what": dice.choice(["commit", "commit", "data"]),
        "seed": dice.randrange(1 << 30),
    },
}
# Of the calls by which a service reads and writes a local root.
STORE: dict[str, Draw] = {
    "store-fail": _fault(match=["data", "commits", "all"], chance=[0.2, 0.6, 1.0]),
    "store-apply-and-fail": _fault(match=["data", "commits", "all"], chance=[0.2, 0.6, 1.0]),
    "store-slow": _fault(match=["data", "commits", "all"], chance=[0.3, 1.0], delay=[0.05, 0.3, 1.0]),
}
# Of a local root on a disk of its own.
DISK: dict[str, Draw] = {
    "full": lambda dice: _for(0.5, 2.0)(dice) | {"kill": dice.random() < 0.4},
    "read-only": _for(0.5, 2.0),
}
# Of a bucket behind a proxy.
BUCKET: dict[str, Draw] = {
    "drop": _fault(match=["*.parquet", "*/_delta_log/*", "*"], chance=[0.2, 0.6, 1.0]),
    "lose": _fault(match=["*.parquet", "*/_delta_log/*", "*"], chance=[0.2, 0.6, 1.0]),
    "refuse": _fault(status=[500, 503, 429], chance=[0.2, 0.6, 1.0]),
    "apply-and-fail": _fault(status=[500, 503, 409, 412], chance=[0.2, 0.6]),
    "delay": _fault(delay=[0.1, 0.5, 1.5], chance=[0.3, 1.0]),
    "hang": _fault(chance=[0.05, 0.2]),
    "outage": _for(0.3, 3.0),
    "zombie": lambda dice: COMMON["zombie"](dice) | {"lapse": dice.random() < 0.5},
}
KINDS = {"folder": COMMON | TORN | STORE, "disk": COMMON | TORN | STORE | DISK, "bucket": COMMON | BUCKET}


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    """Seconds after the start; later if the step before takes longer."""
    kind: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.at:7.1f} s  {self.kind} {told}".rstrip()


def schedule(seed: int, seconds: float, site: str, pause_s: tuple[float, float] = (0.4, 1.6)) -> list[Step]:
    """Every kind once in a random order, then all of them again."""
    dice = random.Random(f"{seed}/{site}")
    kinds = KINDS[site]
    steps: list[Step] = []
    deck: list[str] = []
    at = FIRST_S
    while at < seconds - QUIET_S:
        if not deck:
            deck = dice.sample(sorted(kinds), len(kinds))
        kind = deck.pop()
        arguments = kinds[kind](dice)
        steps.append(Step(round(at, 2), kind, arguments))
        at += float(arguments.get("seconds", 0.3)) + dice.uniform(*pause_s)
    return steps
