"""The security of one broker: users, rules, quotas, and what each listener asks of its clients.

Owns the credentials, rules and quotas in memory and their documents in the metadata journal. A
change is durable before it is in force. Loop thread only.

Read next: `broker.security.sasl`, `broker.security.acls`, `broker.security.tls.contexts`.
"""

import base64
import secrets
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.clocks.clock import Clock
from broker.errors import StartError
from broker.metrics import Metrics
from broker.principal import parse_principals, user
from broker.quotas.book import KIND_QUOTA, Entity, QuotaBook
from broker.quotas.throttle import UNLIMITED, MutationQuota, Mutes, Request, Throttle, windows_of
from broker.security.acls import KIND_ACL, Access, format_acl, parse_acl
from broker.security.audit import Audit
from broker.security.audit_file import AuditFile
from broker.security.credentials import (
    KEY_SECRET,
    KIND_SCRAM,
    KIND_SECURITY,
    Credentials,
    Deletion,
    Outcome,
    UnreadableCredential,
    Upsertion,
)
from broker.security.failed_logins import FailedLogins
from broker.security.mechanism import MechanismUnusable, SaslExchange
from broker.security.plain import PasswordCache, PlainExchange
from broker.security.sasl import SaslSession
from broker.security.scram import SCRAM_BY_NAME, ScramExchange
from broker.security.secret_files import reveal
from broker.security.session import Session
from broker.security.tls.contexts import TlsContexts, TlsUnusable
from broker.security.tls.distinguished_name import MalformedName, subject_of
from broker.security.tls.listeners import TlsListeners
from broker.security.tls.principal_mapping import NoRuleMatches, PrincipalMapping, RuleRefused
from broker.security.tokens import KIND_TOKEN, Tokens
from broker.threads import Pool
from config import BrokerConfig, Listener
from config.security.keys import (
    ListenerSecurity,
    listener_security,
    scoped_name,
    stores_set_at_run_time,
)
from config.values import InvalidValue
from protocol.acl import Acl
from storage.directory.metadata import Json

if TYPE_CHECKING:
    from broker.security.oauth.keys import IdentityKeys
    from storage.directory.data_dir import DataDir

_RESTORE: Final = "restore metadata.journal from a copy"


class ListenerGuard:
    """What one listener asks of its clients."""

    def __init__(
        self, name: str, security: ListenerSecurity, owner: "Security", *, now_ms: int | None
    ) -> None:
        """Read keys and certificates; without `now_ms` they may have expired.

        Raises:
            TlsUnusable: they cannot be used.
            RuleRefused: the rules for names are none.
            MechanismUnusable: a SASL mechanism lacks something.
        """
        self.name = name
        self.security = security
        self._audit = owner.audit
        self.tls: TlsContexts | None = None
        if security.tls is not None:
            self.tls = TlsContexts(security.tls, reveal, now_ms=now_ms)
            self._mapping = PrincipalMapping(security.tls.principal_mapping_rules)
        self.identity_keys: IdentityKeys | None = None
        self._mechanisms: dict[str, Callable[[], SaslExchange]] = {
            mechanism: self._exchange_maker(mechanism, owner) for mechanism in security.mechanisms
        }

    def _exchange_maker(self, mechanism: str, owner: "Security") -> Callable[[], SaslExchange]:
        """A function that begins an exchange with `mechanism` on this listener."""
        if self.security.oauth is not None and mechanism == "OAUTHBEARER":
            from broker.security.optional_mechanisms import oauth_bearer

            self.identity_keys, make = oauth_bearer(self.security.oauth, owner.clock)
            return make
        if self.security.kerberos is not None and mechanism == "GSSAPI":
            from broker.security.optional_mechanisms import kerberos

            return kerberos(self.security.kerberos, reveal)
        return owner.exchange_maker(mechanism)

    def session_over(
        self, tls: ssl.SSLObject | None, peer_host: str, connection_id: int
    ) -> Session:
        """The session of a client that has just connected, over TLS or not; raises as `session`."""
        if tls is None:
            return self.session(peer_host, None, connection_id)
        cipher = tls.cipher()
        words = f"{tls.version()} {cipher[0] if cipher else ''}"
        return self.session(peer_host, tls.getpeercert(binary_form=True), connection_id, words)

    def session(
        self, peer_host: str, certificate: bytes | None, connection_id: int = 0, tls: str = ""
    ) -> Session:
        """The session of a client that has just connected, maybe with a certificate (DER).

        Raises:
            MalformedName: the certificate's subject cannot be read.
            NoRuleMatches: no rule gives it a name.
        """
        made = partial(
            Session, listener=self.name, peer_host=peer_host, connection_id=connection_id, tls=tls
        )
        if self._mechanisms:  # the client is who its mechanism says, whatever its certificate
            sasl = SaslSession(self._mechanisms, max_reauth_ms=self.security.max_reauth_ms)
            return made(sasl=sasl)
        if certificate is None:
            return made()
        try:
            principal = user(self._mapping.name_of(subject_of(certificate)))
        except (MalformedName, NoRuleMatches) as error:
            self._audit.refused_certificate(peer_host, self.name, error)
            raise
        session = made(principal=principal)
        self._audit.authenticated(session, "a certificate")
        return session


class Security:
    """Users and rules of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        documents: "DataDir",
        clock: Clock,
        metrics: Metrics,
        audit_thread: Pool | None = None,
    ) -> None:
        """Load users, rules and quotas.

        Raises:
            StartError: a document or a setting is unreadable, and nothing is guessed; or the file
                of the audit log cannot be written.
        """
        self.clock = clock
        self._documents = documents
        self._passwords = PasswordCache()
        has_sasl = any(listener.protocol.startswith("SASL") for listener in config.listeners)
        secret = self._unknown_user_secret() if has_sasl else secrets.token_bytes(32)
        try:
            self.credentials = Credentials(documents.documents(KIND_SCRAM), secret=secret)
            self._acl_keys = _by_acl(documents.documents(KIND_ACL))
            self.quotas = QuotaBook(documents.documents(KIND_QUOTA))
        except (UnreadableCredential, ValueError) as error:
            raise StartError(str(error), _RESTORE) from error
        self.tokens = _tokens(config, documents)
        self.access: Access | None = None
        """The rules in force, or None without an authorizer."""
        if config.authorizer_class_name:
            self.access = Access(
                self._acl_keys,
                super_users=parse_principals(config.super_users),
                allow_if_no_acl=config.allow_everyone_if_no_acl_found,
            )

        path = config.audit_log_file
        file = AuditFile(path, audit_thread, clock) if path and audit_thread else None
        self.audit = Audit(clock, file)
        if self.access is not None:
            self.access.is_each_noted = self.audit.notes_allowed
            self.access.before_change = self.audit.settle_rules
        self.failures = FailedLogins(
            clock.monotonic_ms, config.connection_failed_authentication_delay_ms
        )
        self.tls: TlsListeners
        """The certificates of the listeners, set by `open_guards`."""

        self.mutes = Mutes(clock)
        self._throttle = Throttle(
            self.quotas,
            windows_of(config),
            self.mutes,
            clock=clock,
            metrics=metrics,
            on_excess=self.audit.throttled,
        )
        self.throttle = self._throttle if len(self.quotas) else None
        """What enforces the quotas, or None when none is set."""

    def open_guards(
        self, config: BrokerConfig, wall_ms: Callable[[], int], threads: Pool
    ) -> dict[str, ListenerGuard]:
        """The guards of all listeners that have one, by name; `threads` read their files again.

        Raises:
            StartError: a key or certificate cannot be used now.
        """
        metrics = config.metrics_listener
        guards = {
            listener.name: self._guard(config, listener, now_ms=wall_ms())
            for listener in (*config.listeners, *([metrics] if metrics else []))
            if listener.protocol != "PLAINTEXT"
        }
        contexts = {name: guard.tls for name, guard in guards.items() if guard.tls is not None}
        self.tls = TlsListeners(contexts, wall_ms, threads, self.audit)
        return guards

    def _guard(self, config: BrokerConfig, listener: Listener, *, now_ms: int) -> ListenerGuard:
        try:
            security = listener_security(config, listener)
            if scoped_name(listener.name, "ssl.keystore.key") in config.dynamic_secrets:
                # It is in no file, so only a request can replace it, to a broker that runs.
                return ListenerGuard(listener.name, security, self, now_ms=None)
            return ListenerGuard(listener.name, security, self, now_ms=now_ms)
        except (TlsUnusable, RuleRefused, MechanismUnusable) as error:
            cure = "see tidelog docs security"
            at_run_time = ",".join(stores_set_at_run_time(config, listener))
            if at_run_time and isinstance(error, TlsUnusable):
                cure = (
                    f"{at_run_time} was set at run time, and neither --set nor the settings' file "
                    "replaces that: put a store that can be used at this path and start again; "
                    f"then kafka-configs.sh --alter --delete-config {at_run_time} returns to the "
                    "settings' file (tidelog docs security)"
                )
            raise StartError(f"listener {listener.name}: {error}", cure) from error

    def exchange_maker(self, mechanism: str) -> Callable[[], SaslExchange]:
        """A function that begins an exchange with `mechanism`."""
        if mechanism == "PLAIN":
            return partial(PlainExchange, self.credentials.for_password, self._passwords)
        token_of = self.tokens.credential if self.tokens.are_enabled else None
        return partial(ScramExchange, SCRAM_BY_NAME[mechanism], self.credentials.of, token_of)

    def alter_users(
        self, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]
    ) -> list[Outcome]:
        """Change credentials durably; one outcome for each user.

        Raises:
            StorageError: nothing has changed.
        """
        plan = self.credentials.plan_alterations(deletions, upsertions)
        if plan.documents:
            self._documents.put_documents(KIND_SCRAM, dict(plan.documents), erase_former=True)
            self.credentials.apply(plan.documents)
        return list(plan.outcomes)

    def add_acls(self, acls: Iterable[Acl]) -> None:
        """Put rules in force, durably, all or none.

        Raises:
            StorageError: nothing has changed.
        """
        assert self.access is not None
        fresh = {acl: secrets.token_hex(16) for acl in acls if acl not in self.access}
        if fresh:
            self._documents.put_documents(
                KIND_ACL, {key: format_acl(acl) for acl, key in fresh.items()}
            )
            self._acl_keys.update(fresh)
            self.access.add(fresh)

    def remove_acls(self, acls: Iterable[Acl]) -> None:
        """Take rules out of force, durably, all or none.

        Raises:
            StorageError: nothing has changed.
        """
        assert self.access is not None
        gone = [acl for acl in dict.fromkeys(acls) if acl in self.access]
        if gone:
            self._documents.put_documents(KIND_ACL, {self._acl_keys[acl]: None for acl in gone})
            for acl in gone:
                del self._acl_keys[acl]
            self.access.remove(gone)

    def put_quotas(self, changed: Mapping[Entity, dict[str, float]]) -> None:
        """Put the limits of these entities in force, durably, all or none.

        Raises:
            StorageError: nothing has changed.
        """
        if not changed:
            return
        documents: dict[str, Json] = {}
        for entity, values in changed.items():
            documents |= self.quotas.documents_of(entity, values)
        self._documents.put_documents(KIND_QUOTA, documents)
        for entity, values in changed.items():
            self.quotas.put(entity, values)
        self._quotas_changed()

    def _quotas_changed(self) -> None:
        self._throttle.quotas_changed()
        self.throttle = self._throttle if len(self.quotas) else None

    def follow(self, kind: str, keys: Iterable[str]) -> None:
        """Take over documents of one kind that worker 1 has changed.

        Raises:
            ValueError, UnreadableCredential: a document is unreadable.
        """
        documents = self._documents.documents(kind)
        if kind == KIND_SCRAM:
            self.credentials.apply({key: _object(documents.get(key)) for key in keys})
        elif kind == KIND_TOKEN:
            self.tokens.follow({key: documents.get(key) for key in keys})
        elif kind == KIND_ACL:
            before, self._acl_keys = self._acl_keys, _by_acl(documents)
            if self.access is not None:
                self.access.remove([acl for acl in before if acl not in self._acl_keys])
                self.access.add([acl for acl in self._acl_keys if acl not in before])
        elif kind == KIND_QUOTA:
            fresh = dict(QuotaBook(documents))
            for entity in {entity for entity, _ in self.quotas} | fresh.keys():
                self.quotas.put(entity, dict(fresh.get(entity, {})))
            self._quotas_changed()

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """How many partitions `request` may create and delete."""
        if self.throttle is None:
            return UNLIMITED
        return self.throttle.mutation_quota(request, is_strict=is_strict)

    def _unknown_user_secret(self) -> bytes:
        known = self._documents.documents(KIND_SECURITY).get(KEY_SECRET)
        if isinstance(known, str):
            return base64.b64decode(known)
        secret = secrets.token_bytes(32)
        if not self._documents.may_change:
            return secret  # until the next start of this worker
        text = base64.b64encode(secret).decode()
        self._documents.put_documents(KIND_SECURITY, {KEY_SECRET: text})
        return secret


def _object(document: Json) -> dict[str, Any] | None:
    return document if isinstance(document, dict) else None


def _by_acl(documents: Mapping[str, Json]) -> dict[Acl, str]:
    return {parse_acl(document): key for key, document in documents.items()}


def _tokens(config: BrokerConfig, documents: "DataDir") -> Tokens:
    name = "delegation.token.secret.key"
    secret = config.secrets.get(name)
    try:
        secret_key = "" if secret is None else reveal(secret)
    except (OSError, InvalidValue) as error:
        raise StartError(f"{name}: {error}", "write file:/PATH or env:NAME") from error
    try:
        return Tokens(
            documents.documents(KIND_TOKEN),
            partial(documents.put_documents, KIND_TOKEN),
            secret_key=secret_key,
            max_lifetime_ms=config.delegation_token_max_lifetime_ms,
            expiry_time_ms=config.delegation_token_expiry_time_ms,
        )
    except ValueError as error:
        raise StartError(str(error), _RESTORE) from error
