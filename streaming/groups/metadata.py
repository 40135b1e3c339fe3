"""A group's record in `__consumer_offsets`, as JSON that a person can read with Spark SQL.

::

    {"format": 1, "protocol_type": "consumer", "protocol": "range", "generation": 4, "leader": "…",
     "current_state_timestamp": 1700000000000,
     "members": [{"member_id": "…", "instance_id": null, "client_id": "…", "client_host": "…",
                  "session_timeout_ms": 45000, "rebalance_timeout_ms": 300000,
                  "protocols": [{"name": "range", "metadata": {"json": {"topics": ["orders"]}}}],
                  "assignment": {"json": {"partitions": [["orders", 0]]}}}]}

Members come in order of arrival. Bytes that are compact JSON are shown as such, any others as `{"base64": "…"}`: they
always come back as the bytes they were.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NoReturn

from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.streaming.groups.state import GroupMetadata, Member, ProtocolOffer

FORMAT = 1


def encode_metadata(metadata: GroupMetadata) -> bytes:
    return _compact(
        {
            "format": FORMAT,
            "protocol_type": metadata.protocol_type,
            "protocol": metadata.protocol,
            "generation": metadata.generation,
            "leader": metadata.leader,
            "current_state_timestamp": metadata.current_state_timestamp_ms,
            "members": [_member_to_json(member) for member in metadata.members],
        }
    )


def decode_metadata(data: bytes) -> GroupMetadata:
    """CORRUPT_MESSAGE for what this version cannot have written, UNSUPPORTED_VERSION for what a newer one has."""
    try:
        body = json.loads(data)
        written = _typed(body, "format", int)
        if written > FORMAT:
            raise UnsupportedFormat(
                f"a group record has format {written}, this version knows {FORMAT}: it needs a newer Sluice",
                format=written,
            )
        metadata = GroupMetadata(
            generation=_typed(body, "generation", int),
            protocol_type=_optional(body, "protocol_type"),
            protocol=_optional(body, "protocol"),
            leader=_optional(body, "leader"),
            members=tuple(_member_from_json(row) for row in _typed(body, "members", list)),
            current_state_timestamp_ms=_typed(body, "current_state_timestamp", int),
        )
        _check(metadata)
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise CorruptData(f"a stored group is damaged: {e}") from e
    return metadata


def _check(metadata: GroupMetadata) -> None:
    ids = {member.member_id for member in metadata.members}
    instances = [member.instance_id for member in metadata.members if member.instance_id is not None]
    if len(ids) < len(metadata.members) or len(set(instances)) < len(instances):
        raise ValueError("a member is named twice")
    if metadata.leader not in ids and (ids or metadata.leader is not None):
        raise ValueError("the leader is not a member")
    for member in metadata.members:
        if metadata.protocol not in {offer.name for offer in member.protocols}:
            raise ValueError(f"member {member.member_id!r} does not know the protocol")


# --- members -----------------------------------------------------------------------------------


def _member_to_json(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [{"name": offer.name, "metadata": _bytes_to_json(offer.metadata)} for offer in member.protocols],
        "assignment": _bytes_to_json(member.assignment),
    }


def _member_from_json(row: Any) -> Member:
    return Member(
        member_id=_typed(row, "member_id", str),
        instance_id=_optional(row, "instance_id"),
        client_id=_typed(row, "client_id", str),
        client_host=_typed(row, "client_host", str),
        session_timeout_ms=_typed(row, "session_timeout_ms", int),
        rebalance_timeout_ms=_typed(row, "rebalance_timeout_ms", int),
        protocols=tuple(
            ProtocolOffer(_typed(offer, "name", str), _bytes_from_json(offer["metadata"]))
            for offer in _typed(row, "protocols", list)
        ),
        assignment=_bytes_from_json(row["assignment"]),
    )


# --- bytes -------------------------------------------------------------------------------------


def _bytes_to_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data, parse_constant=_no_constant)
        if _compact(value) == data:
            return {"json": value}
    except (ValueError, RecursionError):
        pass
    return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes_from_json(value: Any) -> bytes:
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("metadata is neither JSON nor base64")
    if "json" in value:
        return _compact(value["json"])
    try:
        return base64.b64decode(value["base64"], validate=True)
    except binascii.Error as e:
        raise ValueError(f"metadata is not base64: {e}") from e


def _no_constant(name: str) -> NoReturn:
    """Python would read and write NaN, which no other reader takes for JSON."""
    raise ValueError(name)


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# --- fields ------------------------------------------------------------------------------------


def _typed(row: Any, name: str, kind: type) -> Any:
    value = row[name]
    if type(value) is not kind:
        raise TypeError(f"{name} is {value!r}")
    return value


def _optional(row: Any, name: str) -> str | None:
    return None if row[name] is None else str(_typed(row, name, str))
