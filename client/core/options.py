"""How to reach a cluster: addresses, time limits, and how a connection is secured.

Values with their checks. What a field does is in `connection`, `tls`, `sasl` and `cluster`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from client.checks import check_choice, check_flags, check_numbers, check_text
from client.errors import InvalidType, InvalidUse

DEFAULT_PORT = 9092
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
DEFAULT_BOOTSTRAP = f"127.0.0.1:{DEFAULT_PORT}"
"""Where the broker is for commands that neither say it nor have the variable."""

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKEN_MECHANISM = "OAUTHBEARER"
MECHANISMS = (*PASSWORD_MECHANISMS, TOKEN_MECHANISM)
"""The ways of SASL to prove a user name; Kafka's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How connections are secured: by TLS, by a user name, by both or (the default) not at all.

    Attributes:
        tls: encrypt, and check that the broker's certificate is of its host name.
        ca_file: PEM file of the authorities to trust; empty: those of the system.
        certificate_file: PEM file of this client's own certificate, for brokers that require one.
        key_file: PEM file of the certificate's private key; empty: it is in `certificate_file`.
        key_password: of an encrypted private key.
        check_hostname: False accepts a certificate of any host name that an authority signed.
        mechanism: how to authenticate, one of `MECHANISMS`; empty: not at all. PLAIN sends the
            password as it is, and OAUTHBEARER the token, so use them with `tls`.
        username: the user's name; OAUTHBEARER has none, its token names the user.
        password: the user's password.
        token_file: for OAUTHBEARER: the file with the token, read for each connection.
        token: for OAUTHBEARER, instead of a file: called for each connection, returns the token.
            It should return at once, so let it keep a token until that expires.
    """

    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: str = ""
    token: Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse fields that contradict each other.

        Raises:
            InvalidUse: with the field, its value and the cure.
        """
        check_flags(tls=self.tls, check_hostname=self.check_hostname)
        for name in ("ca_file", "certificate_file", "key_file", "token_file"):
            path = getattr(self, name)
            if not isinstance(path, str):
                raise InvalidType(f"{name}={path!r} is no text: give the path as a str")
            if path and not self.tls and name != "token_file":
                raise InvalidUse(f"{name}={path!r} has no effect without TLS: give tls=True too")
        for name in ("key_password", "username", "password"):
            text = getattr(self, name)
            if not isinstance(text, str):
                # Without the value, which may be a secret.
                raise InvalidType(f"{name} is of the type {type(text).__name__}: give a str")
        if self.key_file and not self.certificate_file:
            raise InvalidUse(
                f"key_file={self.key_file!r} belongs to no certificate: give certificate_file too"
            )
        self._check_login()

    @property
    def proof(self) -> str:
        """What names the user to the broker, if no name of this client does."""
        if self.username:
            return ""
        if self.mechanism == TOKEN_MECHANISM:
            return "token"
        return "certificate" if self.certificate_file and not self.mechanism else ""

    def _check_login(self) -> None:
        has_token = bool(self.token_file) or self.token is not None
        if self.mechanism:
            check_choice("mechanism", self.mechanism, MECHANISMS)
        if self.mechanism == TOKEN_MECHANISM:
            if bool(self.token_file) == (self.token is not None):
                raise InvalidUse(
                    f"mechanism={self.mechanism!r} sends a token: give either token_file, or "
                    "token, a function that returns it"
                )
            if self.token is not None and not callable(self.token):
                raise InvalidType("token is no function: give one that returns the token")
            if self.username or self.password:
                raise InvalidUse(
                    f"username={self.username!r} is not sent by {self.mechanism}: leave it and "
                    "password out, the token names the user"
                )
        elif has_token:
            raise InvalidUse(
                f"token_file={self.token_file!r} and token are sent by {TOKEN_MECHANISM} alone: "
                f"give mechanism={TOKEN_MECHANISM!r}"
            )
        elif self.mechanism:
            check_text("username", self.username)
            if not self.password:
                raise InvalidUse(
                    f"password is empty, and {self.mechanism} needs one: give the password of "
                    f"{self.username!r}"
                )
        elif self.username or self.password:
            raise InvalidUse(
                f"username={self.username!r} is sent by no mechanism: give mechanism, one of "
                f"{', '.join(PASSWORD_MECHANISMS)}"
            )

    @property
    def protocol(self) -> str:
        """Kafka's name of the combination, as in listeners: ``SASL_SSL`` and others."""
        below = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{below}" if self.mechanism else below


NOT_SECURED = Security()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach and follow a cluster; all times in milliseconds.

    `timeout_ms` is how long a call may retry in all. `create_topics` lets the broker create a
    missing topic on request, if it is configured to do so. `software` is the name that the broker
    counts this client under.
    """

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "tidelog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    timeout_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    create_topics: bool = False
    security: Security = NOT_SECURED
    software: str = "tidelog-client"

    def __post_init__(self) -> None:
        """Refuse invalid values; raises InvalidUse."""
        check_text("client_id", self.client_id)
        check_numbers(1, request_timeout_ms=self.request_timeout_ms)
        check_numbers(0, timeout_ms=self.timeout_ms)
        if not isinstance(self.security, Security):
            raise InvalidType(f"security={self.security!r} is no Security: write Security(...)")

    @property
    def where(self) -> str:
        """The bootstrap addresses, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)


def parse_bootstrap(bootstrap: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """(host, port) pairs of ``host[:port]`` texts, which may also be one text with commas.

    Raises:
        InvalidType: neither a text nor texts.
        InvalidUse: no address given, or an invalid port.
    """
    given: object = bootstrap
    if isinstance(given, str):
        texts: list[object] = [*given.split(",")]
    else:
        texts = list(given) if isinstance(given, Iterable) else [given]
    names = [text for text in texts if isinstance(text, str)]
    if len(names) < len(texts):
        raise InvalidType(f"bootstrap={bootstrap!r} is no broker address: write 'host:port'")
    addresses = tuple(_parse_address(text.strip()) for text in names if text.strip())
    if not addresses:
        raise InvalidUse("no broker address given: write host:port")
    return addresses


def is_port(text: str) -> bool:
    """Whether it is the number of a port, in ASCII: `str.isdigit` takes other digits, too."""
    return text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) < 65_536


def _parse_address(text: str) -> tuple[str, int]:
    _, _, text = text.rpartition("://")
    if text.startswith("["):
        host, end, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if not end or (rest and not rest.startswith(":")):
            raise InvalidUse(f"'{text}' is no broker address: write [host]:port for an IPv6 host")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not port:
        return host or "127.0.0.1", DEFAULT_PORT
    if not is_port(port):
        raise InvalidUse(
            f"'{text}' is no broker address: write host:port with a port from 1 to 65535"
        )
    return host or "127.0.0.1", int(port)
