"""Every error that Sluice raises on purpose: one tree, Kafka's names and codes, data on the class.

::

    SluiceError
    ├── ClientError                  the request is wrong; repeating it unchanged cannot help
    │   ├── InvalidRequest, InvalidTopic, InvalidConfig, InvalidPartitions, …
    │   ├── UnknownTopicOrPartition, TopicAlreadyExists, OffsetOutOfRange, ResourceNotFound
    │   ├── AuthenticationFailed     who asks is not known
    │   ├── AuthorizationFailed      who asks may not: Topic…, Group…, ClusterAuthorizationFailed
    │   ├── OutOfOrderSequence, InvalidProducerEpoch, ProducerFenced
    │   └── InvalidGroupId, UnknownMemberId, IllegalGeneration, RebalanceInProgress, … (consumer groups)
    ├── TransientError               the same request may succeed later
    │   ├── NotLeader, RequestTimedOut, Overloaded, StorageError
    │   └── CoordinatorNotAvailable, CoordinatorLoadInProgress, NotCoordinator
    └── IntegrityError               what is stored is not what was written
        ├── CorruptCommit, CorruptData, ForeignCommit

HTTP statuses are not decided here: the API has one table keyed by these classes.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SluiceError(Exception):
    """Base of every deliberate error. `fields` are machine-readable facts for logs and bodies."""

    error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class ClientError(SluiceError):
    pass


class TransientError(SluiceError):
    retriable = True


class IntegrityError(SluiceError):
    error = "CORRUPT_MESSAGE"
    code = 2


# --- what a client did wrong -------------------------------------------------------------------


class InvalidRequest(ClientError):
    error, code = "INVALID_REQUEST", 42


class InvalidTopic(ClientError):
    error, code = "INVALID_TOPIC_EXCEPTION", 17


class TopicAlreadyExists(ClientError):
    error, code = "TOPIC_ALREADY_EXISTS", 36


class InvalidPartitions(ClientError):
    error, code = "INVALID_PARTITIONS", 37


class InvalidReplicationFactor(ClientError):
    error, code = "INVALID_REPLICATION_FACTOR", 38


class InvalidConfig(ClientError):
    error, code = "INVALID_CONFIG", 40


class InvalidRequiredAcks(ClientError):
    error, code = "INVALID_REQUIRED_ACKS", 21


class InvalidRecord(ClientError):
    """`fields["record_errors"]` lists each bad index with a message."""

    error, code = "INVALID_RECORD", 87


class InvalidTimestamp(ClientError):
    error, code = "INVALID_TIMESTAMP", 32


class MessageTooLarge(ClientError):
    error, code = "MESSAGE_TOO_LARGE", 10


class RecordListTooLarge(ClientError):
    error, code = "RECORD_LIST_TOO_LARGE", 18


class PolicyViolation(ClientError):
    error, code = "POLICY_VIOLATION", 44


class UnknownTopicOrPartition(ClientError):
    # Kafka marks it retriable: the topic may be about to be created.
    error, code, retriable = "UNKNOWN_TOPIC_OR_PARTITION", 3, True


class UnknownTopicId(ClientError):
    error, code, retriable = "UNKNOWN_TOPIC_ID", 100, True


class ResourceNotFound(ClientError):
    error, code = "RESOURCE_NOT_FOUND", 91


class AuthenticationFailed(ClientError):
    """No access token, or one that is not valid, expired or revoked."""

    error, code = "SASL_AUTHENTICATION_FAILED", 58


class AuthorizationFailed(ClientError):
    """The token does not grant this. The same whether the thing exists or not."""


class TopicAuthorizationFailed(AuthorizationFailed):
    error, code = "TOPIC_AUTHORIZATION_FAILED", 29


class GroupAuthorizationFailed(AuthorizationFailed):
    error, code = "GROUP_AUTHORIZATION_FAILED", 30


class ClusterAuthorizationFailed(AuthorizationFailed):
    error, code = "CLUSTER_AUTHORIZATION_FAILED", 31


class OffsetOutOfRange(ClientError):
    error, code = "OFFSET_OUT_OF_RANGE", 1


class OutOfOrderSequence(ClientError):
    error, code = "OUT_OF_ORDER_SEQUENCE_NUMBER", 45


class InvalidProducerEpoch(ClientError):
    error, code = "INVALID_PRODUCER_EPOCH", 47


class ProducerFenced(ClientError):
    error, code = "PRODUCER_FENCED", 90


class PlanRefused(ClientError):
    """A maintenance plan that no longer fits the partition (R-7). The message says what changed."""

    error, code = "INVALID_UPDATE_VERSION", 95


class UnsupportedFormat(ClientError):
    """The stored format is newer than this version of Sluice (R-14)."""

    error, code = "UNSUPPORTED_VERSION", 35


# Consumer groups. None of these is retriable in Kafka either: the member must change something first.


class InvalidGroupId(ClientError):
    error, code = "INVALID_GROUP_ID", 24


class InvalidSessionTimeout(ClientError):
    error, code = "INVALID_SESSION_TIMEOUT", 26


class InconsistentGroupProtocol(ClientError):
    error, code = "INCONSISTENT_GROUP_PROTOCOL", 23


class UnknownMemberId(ClientError):
    error, code = "UNKNOWN_MEMBER_ID", 25


class IllegalGeneration(ClientError):
    error, code = "ILLEGAL_GENERATION", 22


class RebalanceInProgress(ClientError):
    error, code = "REBALANCE_IN_PROGRESS", 27


class MemberIdRequired(ClientError):
    """Join again with `fields["member_id"]`."""

    error, code = "MEMBER_ID_REQUIRED", 79


class FencedInstanceId(ClientError):
    error, code = "FENCED_INSTANCE_ID", 82


class GroupMaxSizeReached(ClientError):
    error, code = "GROUP_MAX_SIZE_REACHED", 81


class NonEmptyGroup(ClientError):
    error, code = "NON_EMPTY_GROUP", 68


class GroupIdNotFound(ClientError):
    error, code = "GROUP_ID_NOT_FOUND", 69


class GroupSubscribedToTopic(ClientError):
    error, code = "GROUP_SUBSCRIBED_TO_TOPIC", 86


class OffsetMetadataTooLarge(ClientError):
    error, code = "OFFSET_METADATA_TOO_LARGE", 12


# --- what may go away by itself ----------------------------------------------------------------


class NotLeader(TransientError):
    """Another process leads, or this one was fenced. `fields["leader"]` is its address if known."""

    error, code = "NOT_LEADER_OR_FOLLOWER", 6


class RequestTimedOut(TransientError):
    """The outcome is not known: the data may be in the log. A retry must be idempotent."""

    error, code = "REQUEST_TIMED_OUT", 7


class Overloaded(TransientError):
    """A bounded buffer is full. `fields["retry_after_s"]` says when to come back."""

    error, code = "THROTTLING_QUOTA_EXCEEDED", 89


class WalFull(Overloaded):
    """The write-ahead log has no room for the batch, because storage is slower than produce or its disk is full."""

    error, code = "KAFKA_STORAGE_ERROR", 56


class StorageError(TransientError):
    """Storage failed, or a partition is parked because it could not commit for too long."""

    error, code = "KAFKA_STORAGE_ERROR", 56


class CoordinatorNotAvailable(TransientError):
    error, code = "COORDINATOR_NOT_AVAILABLE", 15


class CoordinatorLoadInProgress(TransientError):
    error, code = "COORDINATOR_LOAD_IN_PROGRESS", 14


class NotCoordinator(TransientError):
    error, code = "NOT_COORDINATOR", 16


# --- what must never be passed over in silence (I-10) ------------------------------------------


class CorruptCommit(IntegrityError):
    """A Delta commit that is empty, cut, garbled, or disagrees with its neighbours."""


class CorruptData(IntegrityError):
    """A data file that is missing, of the wrong size, or fails a checksum."""


class ForeignCommit(IntegrityError):
    """Somebody else committed files, `protocol` or `metaData` to a partition table."""

    error, code = "KAFKA_STORAGE_ERROR", 56
