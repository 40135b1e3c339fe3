"""The little of Kafka's protocol that the benchmark speaks, against known bytes."""

from __future__ import annotations

import struct

import pytest

from bench.peers.wire import Reader, crc32c, record_batch, varint


def test_crc32c_has_the_check_value_of_its_definition():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (63, b"\x7e"), (64, b"\x80\1")])
def test_numbers_are_zigzag_varints(value: int, encoded: bytes):
    assert varint(value) == encoded


def test_a_batch_says_its_own_length_and_checksum():
    batch = record_batch(b"hello", 1_750_000_000_000)
    base, length, epoch, magic, crc = struct.unpack_from(">qiibI", batch)
    assert (base, length, epoch, magic) == (0, len(batch) - 12, -1, 2)
    assert crc == crc32c(batch[21:])
    (count,) = struct.unpack_from(">i", batch, 57)
    assert count == 1
    assert batch.endswith(varint(5) + b"hello" + varint(0))


def test_an_answer_is_read_in_order():
    answer = Reader(struct.pack(">hib", 3, -7, 1) + b"\0\2ab" + b"\xff\xff" + struct.pack(">iii", 2, 8, 9))
    assert (answer.int16(), answer.int32(), answer.int8()) == (3, -7, 1)
    assert (answer.string(), answer.string(), answer.int32s()) == ("ab", None, [8, 9])
