"""Whether the time of a failed login says what was wrong: `python -m benchmarks.login_times`.

Measures the server's side of PLAIN and SCRAM alone, without the network and without the delay that
follows a failure: there a difference would show first. The attempts of all kinds are mixed at
random. Each kind of wrong attempt is compared with a wrong password that shares nothing with the
right one, by Welch's t over the times below the 90th percentile of both; |t| below 4.5 says that
so many attempts show no difference.

    right        the right password (for PLAIN of a user who has not logged in before)
    far          a password that has no character of the right one
    near         the right password but for its last character
    unknown      a user that does not exist, with the right password of another
    unknown far  the same with another wrong password

`right` succeeds, which everyone sees; its time is there to judge the others by.
"""

import argparse
import base64
import contextlib
import hashlib
import hmac
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence

from broker.security.credentials import Credentials, format_credential
from broker.security.mechanism import AuthenticationFailed
from broker.security.plain import PasswordCache, PlainExchange
from broker.security.scram import ScramExchange, ScramMechanism, new_credential, salted

USERS = 200
ITERATIONS = 8192
LIMIT = 4.5
RIGHT, FAR, NEAR = "correct-horse-42", "XXXXXXXXXXXXXXXX", "correct-horse-43"
MECHANISM = ScramMechanism.SCRAM_SHA_512
_TRIMMED = 0.9

Attempt = Callable[[], None]
"""One login, whose time is measured."""


def main() -> None:
    """Measures, prints a table for each mechanism, and exits with 1 if one kind stands out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--attempts", type=int, default=10_000, help="of each kind, with SCRAM")
    parser.add_argument("--plain-attempts", type=int, default=2_000, help="with PLAIN")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source = random.Random(options.seed)
    credentials = _credentials()
    stands_out = False
    for name, kinds, count in (
        ("SCRAM-SHA-512", _scram_kinds(credentials), options.attempts),
        ("PLAIN", _plain_kinds(credentials), options.plain_attempts),
    ):
        times = measure(kinds, count, source)
        print(f"\n{name}, {count} attempts of each kind, µs")
        print(f"{'kind':<12} {'median':>9} {'mean':>9} {'t':>7}")
        for kind, own in times.items():
            t = welch_t(own, times["far"])
            judged = kind not in ("right", "far")
            stands_out |= judged and abs(t) >= LIMIT
            median, mean = statistics.median(own) / 1e3, statistics.fmean(own) / 1e3
            print(f"{kind:<12} {median:>9.1f} {mean:>9.1f} {f'{t:.2f}' if judged else '-':>7}")
    raise SystemExit(int(stands_out))


def measure(
    kinds: dict[str, Callable[[int], Attempt]], count: int, source: random.Random
) -> dict[str, list[int]]:
    """The times of `count` attempts of each kind, in ns, taken in a random order."""
    order = [kind for kind in kinds for _ in range(count)]
    source.shuffle(order)
    times: dict[str, list[int]] = {kind: [] for kind in kinds}
    for number, kind in enumerate(order):
        attempt = kinds[kind](number)
        begun = time.perf_counter_ns()
        with contextlib.suppress(AuthenticationFailed):
            attempt()
        times[kind].append(time.perf_counter_ns() - begun)
    return times


def welch_t(left: Sequence[int], right: Sequence[int]) -> float:
    """Welch's t of two samples, both without what is above the 90th percentile of all."""
    bound = sorted([*left, *right])[int((len(left) + len(right)) * _TRIMMED)]
    one, other = ([value for value in values if value <= bound] for values in (left, right))
    if not one or not other:
        return math.inf
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    return (statistics.fmean(one) - statistics.fmean(other)) / math.sqrt(spread or 1.0)


def _credentials() -> Credentials:
    known = {
        f"{MECHANISM.sasl_name}/user-{n:04}": format_credential(
            new_credential(MECHANISM, RIGHT, iterations=ITERATIONS)
        )
        for n in range(USERS)
    }
    return Credentials(known, secret=bytes(range(32)))


def _known(number: int) -> str:
    return f"user-{number % USERS:04}"


def _unknown(number: int) -> str:
    return f"none-{number % USERS:04}"


_KINDS = {
    "right": (_known, RIGHT),
    "far": (_known, FAR),
    "near": (_known, NEAR),
    "unknown": (_unknown, RIGHT),
    "unknown far": (_unknown, FAR),
}


def _plain_kinds(credentials: Credentials) -> dict[str, Callable[[int], Attempt]]:
    def kind(name_of: Callable[[int], str], password: str) -> Callable[[int], Attempt]:
        def prepare(number: int) -> Attempt:
            exchange = PlainExchange(credentials.for_password, PasswordCache())
            token = f"\0{name_of(number)}\0{password}".encode()
            return lambda: void(exchange.step(token))

        return prepare

    return {name: kind(*what) for name, what in _KINDS.items()}


def _scram_kinds(credentials: Credentials) -> dict[str, Callable[[int], Attempt]]:
    keys: dict[tuple[str, str], bytes] = {}

    def kind(name_of: Callable[[int], str], password: str) -> Callable[[int], Attempt]:
        def prepare(number: int) -> Attempt:
            name = name_of(number)
            first = f"n,,n={name},r=client".encode()
            final = _final(credentials, keys, name, password)
            exchange = ScramExchange(MECHANISM, credentials.of, nonce="server")

            def attempt() -> None:
                exchange.step(first)
                exchange.step(final)

            return attempt

        return prepare

    return {name: kind(*what) for name, what in _KINDS.items()}


def _final(
    credentials: Credentials, keys: dict[tuple[str, str], bytes], name: str, password: str
) -> bytes:
    """The client's last message; the salted passwords are kept in `keys`."""
    credential = credentials.of(MECHANISM, name)
    if (name, password) not in keys:
        keys[name, password] = salted(MECHANISM, password, credential.salt, credential.iterations)
    client_key = hmac.digest(keys[name, password], b"Client Key", "sha512")
    salt = base64.b64encode(credential.salt).decode()
    unproved = "c=biws,r=clientserver"
    message = (
        f"n={name},r=client,r=clientserver,s={salt},i={credential.iterations},{unproved}"
    ).encode()
    signature = hmac.digest(hashlib.sha512(client_key).digest(), message, "sha512")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def void(_: object) -> None:
    """Forgets a result."""


if __name__ == "__main__":
    main()
