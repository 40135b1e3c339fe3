"""Offsets as JSON, written by numpy: what a JSON library would have written, but for blanks."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.api.appending import Outcome
from sluice.api.offsets_text import offsets_list
from sluice.api.produce import answer
from sluice.log_store.pending import Acks
from tests import counts

Places = list[tuple[int, int]]
ANYWHERE = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), min_size=1, max_size=20)
CLOSE = st.lists(st.tuples(st.integers(0, 12), st.integers(990, 10_100)), min_size=1, max_size=20)
LARGE = st.lists(st.tuples(st.just(7), st.integers(2**63 - 2_000, 2**63 - 1)), min_size=1, max_size=20)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES, deadline=None)
@given(places=ANYWHERE | CLOSE | LARGE, times=st.sampled_from([1, 200]))
@example(places=[(0, 0)], times=200)
@example(places=[(0, 0), (0, 2**63 - 1)], times=200)
@example(places=[(10, 10_000), (9, 9_999)], times=200)
@example(places=[(3, 10**8 - 1), (3, 10**8)], times=200)
@example(places=[(3, -1), (-1, 5)], times=200)
def test_it_is_what_a_json_library_reads_back(places: Places, times: int) -> None:
    """Few are written by msgspec, many by numpy."""
    numbers = np.array(places * times, np.int64)
    told = json.loads(offsets_list(numbers[:, 0], numbers[:, 1]))
    listed = [
        {"partition": partition, "offset": offset, "error_code": None, "error": None} for partition, offset in places
    ]
    assert told == listed * times


def test_numbers_of_one_length_have_no_blanks() -> None:
    text = offsets_list(np.arange(800) % 8, np.arange(800) + 1_000_000)
    assert b" " not in text
    assert text.startswith(b'[{"partition":0,"offset":1000000,"error_code":null,"error":null},')
    assert text.endswith(b'"offset":1000799,"error_code":null,"error":null}]')


def test_what_is_too_old_to_be_known_has_no_offset() -> None:
    told = json.loads(answer(Outcome(300, Acks.ALL, below_window=True), summary=False).body)
    nowhere = {"partition": -1, "offset": -1, "error_code": None, "error": None}
    assert told == {"offsets": [nowhere] * 300, "duplicate": True}
