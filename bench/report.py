"""`python -m bench.report`: writes docs/performance.md from bench/results. No figure in it is typed by hand.

`--check` changes nothing and says whether the document is what the results make of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.charts import RATIO, amount
from bench.figures import REPOSITORY, RESULTS
from bench.machine import described
from bench.peers.jars import taken_instead
from bench.peers.names import NAMES
from bench.reasons import reason_for

DOCUMENT = REPOSITORY / "docs" / "performance.md"
NOT_MEASURED = "not measured"
Result = Mapping[str, Any]

_INTRODUCTION = """# Performance

<!-- Written by `make performance` from bench/results. Do not edit: change the benchmark or run it again. -->

Every figure here comes from a file in [bench/results](../bench/results) and belongs to the commit and the machine that
are named with it. "uncommitted" is a tree with changes that no commit has. Medians count; the quartiles of the rounds
beside them say how far to trust one. Rates of different runs cannot be compared: other processes share the machine, and
each table says how many cores they took (kernel threads that write pages are among them; in results that do not say
how long they took, which are older, so may be processes of the benchmark itself). Ratios can, because both sides of a
ratio ran in turns.

| command | what it measures |
|---|---|
| `make bench-peers` | Sluice and a Kafka broker in turns, with Kafka's own tools and Spark's own Kafka source |
| `make bench` | Sluice beside the bare operations that it is made of |
| `make performance` | nothing: it writes this page again |
"""
_PEERS = """## Beside Kafka

One broker (KRaft, one node, the settings of its distribution) and one service on the same machine, started, loaded and
stopped in turns. A ratio is Sluice / peer. **Behind** means that the peer is better; level, that the spread of the
rounds lies on both sides of 1 and the median within 5 % of it.
"""
_BENCHES = """## Sluice alone

What each part costs, most of them beside the bare operation below it. What the steps of a produce request cost that
is alone is in the table [steps](#steps): it is committed alone, too. A service under load commits many requests in one
version; the processor time of a request there is in [http](#http).
"""


def render(peers: Mapping[str, Result | None], benches: Mapping[str, Result | None], charts: frozenset[str]) -> str:
    """The document. None is a figure that there is no result of; `charts` are the peers' figures with a picture."""
    parts = [_INTRODUCTION, _targets(peers, benches), _losses(peers), _reasons(peers, benches), _PEERS]
    parts += [_peer(name, result, name in charts) for name, result in peers.items()]
    parts.append(_BENCHES)
    parts += [_bench(name, result) for name, result in benches.items()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _targets(peers: Mapping[str, Result | None], benches: Mapping[str, Result | None]) -> str:
    aimed = [
        (section, one)
        for kind in (peers, benches)
        for section, result in kind.items()
        if result is not None
        for one in result["figures"]
        if "target" in one
    ]
    rows = [
        [section, one["what"], _with_unit(one), one["target"], "yes" if one["met"] else "**no**"]
        for section, one in sorted(aimed, key=lambda pair: pair[1]["met"])  # those that were missed come first
    ]
    missing = [name for kind in (peers, benches) for name, result in kind.items() if result is None]
    lines = ["## Targets\n", _table(["benchmark", "what", "median", "target", "met"], rows)]
    if missing:
        lines.append(f"\n{NOT_MEASURED.capitalize()}: {', '.join(missing)}.")
    return "\n".join(lines)


def _losses(peers: Mapping[str, Result | None]) -> str:
    rows = [
        [section, one["what"], _value(one)]
        for section, result in peers.items()
        if result is not None
        for one in result["figures"]
        if one.get("verdict") == "behind"
    ]
    lines = ["## Where Sluice is behind\n"]
    if rows:
        lines.append(_table(["figure", "Sluice / peer", "median"], rows))
    elif any(peers.values()):
        lines.append("In none of the ratios that were measured.")
    else:
        lines.append(f"{NOT_MEASURED.capitalize()}: no comparison has a result.")
    return "\n".join(lines)


def unexplained(peers: Mapping[str, Result | None], benches: Mapping[str, Result | None]) -> list[str]:
    """What was missed or lost and has no reason in `bench.reasons`."""
    return [f"{section}: {what}" for section, what, why in _missed(peers, benches) if why is None]


def _missed(
    peers: Mapping[str, Result | None], benches: Mapping[str, Result | None]
) -> Iterator[tuple[str, str, str | None]]:
    """(benchmark, figure, where the rest goes) of what missed its target or is behind a peer."""
    results = {**peers, **benches}

    def value(section: str, what: str) -> str:
        found = [one for one in (results.get(section) or {"figures": ()})["figures"] if one["what"] == what]
        return _with_unit(found[0]) if found else NOT_MEASURED

    for section, result in results.items():
        for one in () if result is None else result["figures"]:
            if one.get("met") is False or one.get("verdict") == "behind":
                yield section, one["what"], reason_for(section, one["what"], value)


def _reasons(peers: Mapping[str, Result | None], benches: Mapping[str, Result | None]) -> str:
    """One item for each reason, with all that it explains."""
    explained: dict[str, dict[str, list[str]]] = {}
    for section, what, why in _missed(peers, benches):
        if why is not None:
            ours, _, theirs = what.partition(" / ")
            explained.setdefault(why, {}).setdefault(f"{section}: {ours}", []).append(theirs)
    lines = ["## Where the rest of the time goes\n"]
    for why, figures in explained.items():
        told = [f"{ours} / {' and '.join(theirs)}" if any(theirs) else ours for ours, theirs in figures.items()]
        lines.append(f"- *{'; '.join(told)}*. {why}")
    if not explained:
        lines.append("No target was missed for which a reason is known.")
    return "\n".join(lines)


def _peer(name: str, result: Result | None, has_chart: bool) -> str:
    if result is None:
        return _missing(name, "make bench-peers")
    lines = [f"### {name}\n", f"{_sentence(result['title'])}\n"]
    if has_chart:
        lines.append(f"![{result['title']}](../bench/results/peers/{name}.svg)\n")
    ratios = [one for one in result["figures"] if one["unit"] == RATIO]
    measures = [one for one in result["figures"] if one["unit"] != RATIO]
    rows = [[one["what"], _value(one), _spread(one), _target(one), _verdict(one)] for one in ratios]
    lines.append(_table(["Sluice / peer", "median", "quartiles", "target", "Sluice is"], rows) + "\n")
    rows = [[one["what"], _with_unit(one), _spread(one)] for one in measures]
    lines.append(_table(["measured", "median", "quartiles"], rows) + "\n")
    return "\n".join([*lines, _about(result)])


def _bench(name: str, result: Result | None) -> str:
    if result is None:
        return _missing(name, f"python -m bench {name}")
    rows = [[one["what"], _with_unit(one), _spread(one), _target(one)] for one in result["figures"]]
    table = _table(["what", "median", "quartiles", "target"], rows)
    return "\n".join([f"### {name}\n", f"{_sentence(result['title'])}\n", table + "\n", _about(result)])


def _missing(name: str, command: str) -> str:
    return f"### {name}\n\n{NOT_MEASURED.capitalize()} (`{command}`)."


def _about(result: Result) -> str:
    machine, rounds = result["machine"], max(len(one["rounds"]) for one in result["figures"])
    count = f"{rounds} {'round' if rounds == 1 else 'rounds'}"
    took = f" in {result['took_s']:,.0f} s" if "took_s" in result else ""
    busy = f"other processes used {machine['cores_busy_elsewhere']} cores"
    facts = f"Commit {result['commit']}; {described(machine)}; {count}{took}; {busy}."
    if result.get("quick"):
        facts += " **A quick run: it shows that the benchmark works, not how fast anything is.**"
    notes = list(result["notes"])
    if jars := result.get("settings", {}).get("jars_of_the_kafka_source"):  # not all are to be had in one version
        notes.append(f"Spark's Kafka source is {', '.join(jars)}")
        notes += [instead] if (instead := taken_instead(jars)) else []
    return "\n".join([facts, *([""] if notes else []), *(f"- {note}" for note in notes)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _value(one: Mapping[str, Any]) -> str:
    return amount(one["median"])


def _with_unit(one: Mapping[str, Any]) -> str:
    return _value(one) if one["unit"] == RATIO else f"{_value(one)} {one['unit']}"


def _spread(one: Mapping[str, Any]) -> str:
    low, high = one["quartiles"]
    return f"{amount(low)} … {amount(high)}"


def _target(one: Mapping[str, Any]) -> str:
    return f"{one['target']} {'met' if one['met'] else '**missed**'}" if "target" in one else ""


def _verdict(one: Mapping[str, Any]) -> str:
    """Nothing for a ratio between two ways to run Sluice."""
    found = one.get("verdict", "")
    return "**behind**" if found == "behind" else str(found)


def _sentence(title: str) -> str:
    return title[0].upper() + title[1:] + "."


# --- files -----------------------------------------------------------------------------------------


def load(folder: Path, names: Sequence[str]) -> dict[str, Result | None]:
    """The results of these names, then whatever else the folder holds that is one."""
    found: dict[str, Result | None] = dict.fromkeys(names)
    for path in sorted(folder.glob("*.json")):
        body = json.loads(path.read_text())
        if isinstance(body, dict) and {"title", "commit", "machine", "figures", "notes"} <= body.keys():
            found[path.stem] = body
    return found


def results(folder: Path = RESULTS) -> tuple[dict[str, Result | None], dict[str, Result | None]]:
    """Of the peers and of the benchmarks."""
    from bench.__main__ import BENCHES  # all benchmarks, with Spark: only who writes the whole page needs them

    return load(folder / "peers", NAMES), load(folder, tuple(BENCHES))


def document(folder: Path = RESULTS) -> str:
    return render(*results(folder), frozenset(path.stem for path in (folder / "peers").glob("*.svg")))


def main(arguments: Sequence[str]) -> int:
    text = document()
    if "--check" in arguments:
        same = DOCUMENT.is_file() and DOCUMENT.read_text() == text
        print("docs/performance.md is up to date" if same else "docs/performance.md is old: run make performance")
        return 0 if same else 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
