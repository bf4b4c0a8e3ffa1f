"""Malformed logins by the million: `python -m tests.fuzz.sasl --inputs 1000000`.

Every state machine of SASL gets random bytes and mutated good messages. It may refuse them or ask
for more; another exception is a finding, and so is a login as anyone but the user whose password,
proof or token stands in the good message. Prints one line of JSON for each machine; the exit code
is 1 when anything was found. `--seed` repeats a run.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.principal import Principal, user
from broker.security.kerberos.names import LocalNames, NoRuleMatches
from broker.security.mechanism import AuthenticationFailed, SaslExchange
from broker.security.oauth.exchange import OAuthBearerExchange
from broker.security.oauth.keys import IdentityKeys
from broker.security.oauth.tokens import TokenRefused, TokenVerifier
from broker.security.plain import PasswordCache, PlainExchange
from broker.security.scram import (
    ScramExchange,
    ScramMechanism,
    credential_of_salted_password,
    salted,
)
from config.security.keys import OAuthSettings
from tests.fuzz.driving import Machine, Tally, drive
from tests.support.identity_provider import AUDIENCE, ISSUER, SigningKey, jwks, unsigned
from tests.unit.broker.security.test_scram import Client

ANN, PASSWORD, NONCE = user("ann"), "secret", "server-nonce"
MECHANISM = ScramMechanism.SCRAM_SHA_256
PIECES = (
    b"\0", b"\1", b"\1\1", b",", b"=", b"n,,", b"n=", b"r=", b"a=", b"c=", b"p=", b"m=", b"=2C",
    b"=3D", b"=,", b"auth=", b"Bearer ", b"bearer", b".", b"..", b"/", b"@", b"\xff", b"\xc3\xa4",
    b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b"[[[[", b"null", b"true", b"-1", b"1e400", b"NaN",
    b"9" * 40, b'"exp":', b'"alg":', b"none", b"HS256", b"\\u0000", b"\\ud800", b" ", b"\t",
    b"\r\n", b"e30", b"x" * 2000,
)  # fmt: skip
REFUSALS = (AuthenticationFailed, TokenRefused, NoRuleMatches)
LOGINS = (None, ANN)
"""What a message may give: nothing yet, or the login of the user whose proof it has."""

Target = Callable[[bytes], Principal | None]
"""Gives the principal that a message proves, if any; raises a refusal."""


def stepping(make: Callable[[], SaslExchange], *before: bytes) -> Target:
    """Gives an exchange the messages `before`, and then the one to try."""

    def target(message: bytes) -> Principal | None:
        exchange = make()
        for good in before:
            exchange.step(good)
        return exchange.step(message).principal

    return target


@contextmanager
def machines() -> Iterator[Mapping[str, Machine]]:
    """Every machine by its name, with good messages to begin from."""
    key = salted(MECHANISM, PASSWORD, b"salt" * 4, 1)
    credential = credential_of_salted_password(MECHANISM, key, salt=b"salt" * 4, iterations=1)
    stranger = credential_of_salted_password(MECHANISM, b"other", salt=b"salt" * 4, iterations=1)

    def credential_of(name: str) -> tuple[ScramMechanism, object]:
        return MECHANISM, credential if name == "ann" else stranger

    def plain() -> PlainExchange:
        return PlainExchange(credential_of, PasswordCache())  # type: ignore[arg-type]

    def scram() -> ScramExchange:
        return ScramExchange(
            MECHANISM, lambda _, name: credential if name == "ann" else stranger, nonce=NONCE
        )

    client = Client("ann", PASSWORD, MECHANISM)
    final = client.final(scram().step(client.first()).token)
    signing = SigningKey()
    now_ms = time.time_ns() // 1_000_000
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(jwks(signing))
        settings = OAuthSettings(
            jwks_url=Path(file.name).as_uri(), refresh_ms=1, backoff_ms=1, backoff_max_ms=1,
            issuer=ISSUER, audience=(AUDIENCE,), skew_seconds=30, sub_claim="sub",
            scope_claim="scope", algorithms=("ES256",), unsecured=False,
        )  # fmt: skip
        verifier = TokenVerifier(settings, IdentityKeys(settings, now_ms=0))
    claims = {"sub": "ann", "iss": ISSUER, "aud": [AUDIENCE], "iat": 1, "exp": now_ms // 1000 + 60}
    rich = {**claims, "nbf": 1.5, "scope": "read write", "groups": [{"a": None}, True]}
    token = signing.token(exp=now_ms // 1000 + 3600).encode()
    unsecured = TokenVerifier(settings, None)

    def verify(message: bytes) -> Principal | None:
        return user(verifier.verify(message.decode("latin-1"), now_ms).name)

    def read_claims(payload: bytes) -> Principal | None:
        """The claims of a token without a signature, whose name anybody may choose."""
        head = unsigned({"alg": "none"}, {}).split(".")[0]
        text = unsigned({}, {}, payload).rpartition(".")[2]
        unsecured.verify(f"{head}.{text}.", now_ms)
        return None

    names = LocalNames(["RULE:[2:$1@$0](.*@B)s/@.*//L", "DEFAULT"], "EXAMPLE.COM")

    def name_of(message: bytes) -> Principal | None:
        names.name_of(message.decode("latin-1"))
        return None

    head, after = b"n,,\1auth=Bearer ", b"\1\1"
    given: dict[str, tuple[Target, tuple[bytes, ...]]] = {
        "PLAIN": (stepping(plain), (b"\0ann\0secret", b"ann\0ann\0secret", b"\0bob\0x")),
        "SCRAM first": (
            stepping(scram),
            (client.first(), b"n,a=ann,n=ann,r=abc,ext=1", b"n,,n=a=2Cb=3D,r=x", b"y,,n=a,r=b"),
        ),
        "SCRAM final": (stepping(scram, client.first()), (final,)),
        "OAUTHBEARER message": (
            stepping(lambda: OAuthBearerExchange(verifier, lambda: now_ms)),
            (head + token + after, b"n,a=ann,\1auth=Bearer " + token + b"\1host=h\1port=1" + after),
        ),
        "OAUTHBEARER token": (verify, (token, signing.token(header={"x": [1]}).encode())),
        "OAUTHBEARER claims": (
            read_claims,
            (json.dumps(claims).encode(), json.dumps(rich).encode()),
        ),
        "Kerberos principal": (name_of, (b"ann@EXAMPLE.COM", b"ann/host.example.com@B")),
    }
    yield {
        name: Machine(target=target, seeds=seeds, refusals=REFUSALS, pieces=PIECES)
        for name, (target, seeds) in given.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="for each machine")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", default="", help="a part of the names of machines")
    options = parser.parse_args()
    found = 0
    with machines() as all_machines:
        for name, machine in all_machines.items():
            if options.only not in name:
                continue
            tally = drive(machine, options.inputs, options.seed, expected=LOGINS)
            found += len(tally.findings)
            counts = {key: getattr(tally, key) for key in Tally.__slots__}
            print(json.dumps({"machine": name, "seed": options.seed, **counts}), flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
