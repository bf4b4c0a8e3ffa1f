"""The values a running broker reads: frozen, typed, units in the names.

One field per row of the tables (`Key.field` gives its name), so a field and its key cannot drift
apart; `tests/unit/config/test_model.py` compares the two. Models are built by `config.load` and
`config.topic`, never by hand outside tests.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType

from config.value_providers import Providers
from config.values import Secret
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The text given for one key, and its origin.

    The origin is for instance "server.properties line 7", "--set" or "environment".
    """

    text: str
    origin: str
    written_as: str = ""
    """The alias used instead of the key's own name; empty for the name itself."""

    reference: str = ""
    """The text as it was written, if it refers to a provider; `text` has the values then."""

    @property
    def shown(self) -> str:
        """The text that messages and descriptions show."""
        return self.reference or self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address to listen on or to advertise. Port 0 picks a free one."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; host names other than localhost may not be."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")

    def __str__(self) -> str:
        """The listener as written in the configuration."""
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        """HOST:PORT, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Every effective setting of one topic: its own, else the broker's, else the default.

    The two timestamp bounds are final: `message.timestamp.difference.max.ms` has already been
    applied. Durations are milliseconds; -1 in a retention field means no limit.
    """

    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    retention_ms: int
    retention_clamp_future: bool
    segment_ms: int
    segment_jitter_ms: int
    time_index_variant: str
    time_index_interval_ms: int
    cleanup_policy: frozenset[str]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    flush_policy: str
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_index_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    remote_storage_enable: bool
    remote_log_copy_disable: bool
    remote_flush_ms: int
    remote_flush_bytes: int
    remote_acks_enable: bool

    @property
    def is_compacted(self) -> bool:
        """Whether the cleanup policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        """Whether the cleanup policy contains delete."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every effective setting of the broker, and the explicit ones.

    `settings` keeps the text and origin of each explicit broker setting under its canonical name;
    of secrets it has the name and the origin only, the values are in `secrets`.
    `dynamic` keeps those set through the protocol at run time, which win; the values of secrets
    among them are in `dynamic_secrets`, the texts of those that refer to `providers` in
    `dynamic_references`, as they were written. `config.topic` resolves topic defaults from both.
    `group_numbers` has, by their names, the settings that `config.group` resolves groups' from.
    `notices` are sentences for the operator about settings that do not apply.
    """

    node_id: int
    broker_rack: str
    cluster_id: str
    workers: int
    data_dir: str
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: tuple[str, ...]
    max_connection_creation_rate: int
    queued_max_request_bytes: int
    queued_max_response_bytes: int
    queued_max_decompressed_bytes: int
    fetch_max_bytes: int
    telemetry_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    metrics_listener: Listener | None
    metrics_auth: str
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    time_windows_enable: bool
    num_partitions: int
    max_partitions: int
    log_retention_check_interval_ms: int
    log_clock_trust_delay_ms: int
    log_reserved_bytes: int
    remote_storage_url: str
    remote_standby_enable: bool
    remote_lease_ms: int
    remote_log_manager_copy_max_bytes_per_second: int
    log_initial_task_delay_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offset_metadata_max_bytes: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_share_max_size: int
    group_share_max_share_sessions: int
    group_streams_max_size: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    transaction_state_log_num_partitions: int
    transaction_state_log_segment_bytes: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    sasl_server_max_receive_size: int
    connection_failed_authentication_delay_ms: int
    authorizer_class_name: str
    super_users: str
    quota_window_num: int
    quota_window_size_seconds: int
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    allow_everyone_if_no_acl_found: bool
    insecure_allow: bool
    audit_log_file: str
    group_numbers: Mapping[str, int]
    secrets: Mapping[str, Secret] = field(default_factory=lambda: MappingProxyType({}))
    dynamic_secrets: Mapping[str, Secret] = field(default_factory=lambda: MappingProxyType({}))
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    dynamic: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    dynamic_references: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    providers: Providers = field(default_factory=Providers, compare=False)
    notices: tuple[str, ...] = ()

    def is_set(self, name: str) -> bool:
        """Whether the broker setting `name` has an explicit value, static or set at run time."""
        return name in self.settings or name in self.dynamic

    def redacted(self, message: str) -> str:
        """`message` with what settings have from a provider replaced by what they refer to."""
        written = {self.dynamic[name]: text for name, text in self.dynamic_references.items()}
        for setting in self.settings.values():
            if setting.reference:
                written[setting.text] = setting.reference
        for value in sorted(filter(None, written), key=len, reverse=True):
            message = message.replace(value, written[value])
        return message

    def with_metrics_port(self, port: int) -> "BrokerConfig":
        """The same configuration with the metrics port in use, if that is another one."""
        listener = self.metrics_listener
        assert listener is not None
        if listener.port == port:
            return self
        taken = replace(listener, port=port)
        setting = Setting(text=taken.address, origin="the port taken")
        settings = MappingProxyType({**self.settings, "metrics.listener": setting})
        return replace(self, metrics_listener=taken, settings=settings)

    def text_of(self, name: str) -> str | None:
        """The text of the broker setting `name`, or None when it is unset.

        The text set at run time comes first.
        """
        if name in self.dynamic:
            return self.dynamic[name]
        setting = self.settings.get(name)
        return None if setting is None else setting.text

    def shown_text_of(self, name: str) -> str | None:
        """As `text_of`, but a text that refers to a provider as it was written."""
        if name in self.dynamic:
            return self.dynamic_references.get(name, self.dynamic[name])
        setting = self.settings.get(name)
        return None if setting is None else setting.shown
