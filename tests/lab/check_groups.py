"""Groups: who owned what, and what they committed."""

from __future__ import annotations

from collections import defaultdict

from tests.lab.facts import Call, Facts, Place, most_before, running_most


class GroupChecks(Facts):
    def check_groups(self) -> None:
        self.check_owners()
        self.check_committed()

    def check_owners(self) -> None:
        """A partition owned twice in a generation; a commit accepted from a stale one."""
        owners: dict[tuple[str, int, Place], tuple[str, str]] = {}
        begun: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for call in self.by["join"]:
            if not call.ok or call.end is None:
                continue
            group, generation, owner = call.began["group"], call.end["generation"], (call.end["member"], call.who)
            self.looked["assignments"] += 1
            begun[group].append((call.answered_at, generation))
            for topic, partition in call.end["partitions"]:
                other = owners.setdefault((group, generation, (topic, partition)), owner)
                if other != owner:
                    what = f"{other} and {owner} of {group} both own it in generation {generation}"
                    self.blame("owned twice", (topic, partition), -1, what)
        newest = {group: running_most(times) for group, times in begun.items()}
        for call in self.by["commit"]:
            generation, group = call.began["generation"], call.began["group"]
            most = most_before(*newest.get(group, ([], [])), call.began["t"])
            if call.ok and most > generation:
                topic, partition, offset = call.began["offsets"][0]
                what = f"{call.who} committed for generation {generation} of {group} after {most} had begun"
                self.blame("stale commit accepted", (topic, partition), offset, what)

    def check_committed(self) -> None:
        """Records behind a commit that no member ever got; a committed offset that went back, or came from nowhere."""
        got: dict[tuple[str, Place], set[int]] = defaultdict(set)
        for call in self.by["poll"]:
            for topic, partition, offset, _ in call.rows:
                got[call.began["group"], (topic, partition)].add(offset)
        shown: dict[tuple[str, Place], list[tuple[Call, int]]] = defaultdict(list)
        for call in self.by["committed"]:
            if call.ok and call.end is not None:
                offsets = {(topic, partition): at for topic, partition, at in call.end["offsets"]}
                group = call.began["group"]
                places = {place for name, place in self.commits if name == group} | set(offsets)
                for place in places:
                    shown[group, place].append((call, offsets.get(place, -1)))
        for (group, place), commits in self.commits.items():
            accepted = [one.offset for one in commits if one.ok]
            self.looked["commits"] += len(accepted)
            end, table = max(accepted, default=0), self.table(place)
            left = [o for o in table.held(0, end) if o not in got[group, place]] if table is not None else []
            if left:
                self.blame("never delivered", place, left[0], f"{group} committed {end} and never got {left[:5]}")
        for (group, place), looks in shown.items():
            self.check_shown(group, place, looks)

    def check_shown(self, group: str, place: Place, looks: list[tuple[Call, int]]) -> None:
        """No look shows less than what was accepted, or shown, before it began, nor what nobody had asked to commit."""
        commits = self.commits.get((group, place), [])
        accepted = [(one.answered, one.offset) for one in commits if one.ok]
        times, most = running_most([*accepted, *((call.answered_at, at) for call, at in looks)])
        for call, at in looks:
            if at < (before := most_before(times, most, call.began["t"])):
                self.blame("commit went back", place, before, f"{group} had committed it, {at} was read")
            if at >= 0 and not any(one.offset == at and one.began < call.answered_at for one in commits):
                self.blame("never committed", place, at, f"{call.who} read it, and nobody of {group} had asked for it")
