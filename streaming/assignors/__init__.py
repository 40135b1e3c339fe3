"""Which member of a group reads which partition: Kafka's four strategies as pure functions."""

from sluice.streaming.assignors.compare import Comparison, compare
from sluice.streaming.assignors.group import MAX_PARTITIONS, Assignment, Member
from sluice.streaming.assignors.question import Question, parse_question
from sluice.streaming.assignors.registry import Strategy, assign, strategy_named

__all__ = [
    "MAX_PARTITIONS",
    "Assignment",
    "Comparison",
    "Member",
    "Question",
    "Strategy",
    "assign",
    "compare",
    "parse_question",
    "strategy_named",
]
