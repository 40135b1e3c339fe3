"""What goes wrong before anything runs: a wrong setting, or Delta's jars not there."""

from __future__ import annotations


class ConfigurationError(Exception):
    """A setting was refused. Says which key, which value, where it came from and the rule it breaks."""

    def __init__(self, *, key: str, value: object, origin: str, rule: str) -> None:
        super().__init__(f"{key} = {value!r} ({origin}): {rule}")
        self.key = key
        self.value = value
        self.origin = origin
        self.rule = rule


class MissingJarsError(Exception):
    """Delta's jars are neither cached nor downloadable. The message says what to put where."""
