"""From exception to wire code: the only translation into Kafka's error numbers.

Owns one total table. Storage, protocol, configuration and the broker itself raise their own
exceptions with facts in them; a handler that has to answer looks up the code here. A test walks
every subclass of the four families and fails when one has no entry, so a new exception cannot
silently become UNKNOWN_SERVER_ERROR.

Source: Kafka's `Errors.forException`; comments give the reason for each choice.
"""

from collections.abc import Mapping
from types import MappingProxyType

from broker import errors as broker_errors
from config import ConfigErrors
from protocol import errors as protocol_errors
from protocol.error_codes import ErrorCode
from storage import errors as storage_errors
from storage.disk import checkpoints
from storage.remote import upload
from storage.segment.remote import log as remote_log

ERROR_CODES: Mapping[type[Exception], ErrorCode] = MappingProxyType(
    {
        # Errors in the peer's bytes.
        protocol_errors.ProtocolError: ErrorCode.INVALID_REQUEST,
        protocol_errors.MalformedFrame: ErrorCode.INVALID_REQUEST,
        protocol_errors.MalformedRequest: ErrorCode.INVALID_REQUEST,
        protocol_errors.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
        protocol_errors.RecordsError: ErrorCode.CORRUPT_MESSAGE,
        protocol_errors.CorruptRecords: ErrorCode.CORRUPT_MESSAGE,
        protocol_errors.InvalidRecords: ErrorCode.INVALID_RECORD,
        protocol_errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        protocol_errors.DecompressionLimitExceeded: ErrorCode.MESSAGE_TOO_LARGE,
        # Refusals of the log.
        storage_errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
        storage_errors.WindowTooLarge: ErrorCode.REQUEST_TIMED_OUT,
        storage_errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
        storage_errors.AppendRejected: ErrorCode.INVALID_RECORD,
        storage_errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
        storage_errors.InvalidRecord: ErrorCode.INVALID_RECORD,
        storage_errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
        storage_errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
        storage_errors.RecordListTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
        storage_errors.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        # Kafka has no code for it: an internal argument check there fails.
        storage_errors.UnstorableTimestamp: ErrorCode.UNKNOWN_SERVER_ERROR,
        storage_errors.ProducerStateError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        storage_errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        storage_errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        storage_errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
        storage_errors.InvalidTxnState: ErrorCode.INVALID_TXN_STATE,
        storage_errors.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        # Refusals of the disk. A client gets one code for all of them, which it retries.
        storage_errors.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.LogQuarantined: ErrorCode.KAFKA_STORAGE_ERROR,
        # And of the object store.
        storage_errors.StoreFailed: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.ObjectDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.BucketEmptied: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.JournalDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.Fenced: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.LeaseOver: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.DirectoryOlder: ErrorCode.KAFKA_STORAGE_ERROR,
        # A producer retries until the standby is promoted.
        storage_errors.FollowsBucket: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        storage_errors.UnknownBucketFormat: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.ObjectExists: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.ObjectMissing: ErrorCode.KAFKA_STORAGE_ERROR,
        remote_log.RemoteBytesNeeded: ErrorCode.KAFKA_STORAGE_ERROR,
        upload.UploadStopped: ErrorCode.KAFKA_STORAGE_ERROR,
        checkpoints.CorruptCheckpoint: ErrorCode.KAFKA_STORAGE_ERROR,
        checkpoints.UnknownVersion: ErrorCode.KAFKA_STORAGE_ERROR,
        # Start-up errors do not reach a client; a code keeps the table total.
        storage_errors.DataDirError: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.DataDirLocked: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.DataDirNotWritable: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.ForeignDataDir: ErrorCode.KAFKA_STORAGE_ERROR,
        storage_errors.HalfWrittenDataDir: ErrorCode.KAFKA_STORAGE_ERROR,
        # Refusals of the broker.
        broker_errors.BrokerError: ErrorCode.UNKNOWN_SERVER_ERROR,
        broker_errors.UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        broker_errors.ThrottlingQuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        broker_errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
        broker_errors.InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
        broker_errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        broker_errors.TopicDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        broker_errors.NotReplica: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        broker_errors.LeaderEpochFenced: ErrorCode.FENCED_LEADER_EPOCH,
        broker_errors.LeaderEpochUnknown: ErrorCode.UNKNOWN_LEADER_EPOCH,
        broker_errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
        broker_errors.ReadOnlyWindow: ErrorCode.INVALID_TOPIC_EXCEPTION,
        broker_errors.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
        broker_errors.TopicAlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
        broker_errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
        broker_errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
        broker_errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        broker_errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
        broker_errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
        broker_errors.NoTimeLeft: ErrorCode.REQUEST_TIMED_OUT,
        # An argument check fails inside Kafka.
        broker_errors.SenselessRequest: ErrorCode.UNKNOWN_SERVER_ERROR,
        broker_errors.UnsupportedByVersion: ErrorCode.UNSUPPORTED_VERSION,
        broker_errors.UnsupportedForClient: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        broker_errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
        broker_errors.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
        broker_errors.ConnectionMustClose: ErrorCode.UNKNOWN_SERVER_ERROR,
        broker_errors.StartError: ErrorCode.UNKNOWN_SERVER_ERROR,
        broker_errors.AddressUnavailable: ErrorCode.UNKNOWN_SERVER_ERROR,
        broker_errors.DataDirUnusable: ErrorCode.UNKNOWN_SERVER_ERROR,
        # Errors in the configuration.
        ConfigErrors: ErrorCode.INVALID_CONFIG,
    }
)

REFUSALS = (
    broker_errors.BrokerError,
    storage_errors.StorageError,
    protocol_errors.ProtocolError,
    ConfigErrors,
)
"""The errors that a handler may catch per partition, topic or resource; the rest are bugs."""


def error_code(error: BaseException) -> ErrorCode:
    """The code of the nearest class of `error` that has one, else UNKNOWN_SERVER_ERROR."""
    for cls in type(error).__mro__:
        code = ERROR_CODES.get(cls)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
