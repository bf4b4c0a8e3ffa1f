"""Whether the time of a failed login says what was wrong: `python -m benchmarks.login_times`.

Measures the server's side of PLAIN and SCRAM alone, without the network and without the delay that
follows a failure: there a difference would show first. A round has one attempt of each kind, in a
random order, so that what else the machine does meets all kinds alike. The rounds with the slowest
tenth of all attempts are dropped. Each kind of wrong attempt is compared, round by round, with a
wrong password that shares nothing with the right one: t is the mean of the differences over its
standard error. |t| below 4.5 says that so many rounds show no difference; "shows" is the smallest
difference that they would have shown. A mechanism with |t| above that is measured once more by
other random numbers, and stands out only if the same kind does so again with the same sign: a leak
does each time, a neighbour on the machine does not.

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
_KEPT = 0.9
_FEWEST = 20

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
        found = kinds_that_stand_out(name, kinds, count, source)
        stands_out |= bool(found)
        print(f"stands out: {', '.join(sorted(found)) or 'none'}")
    raise SystemExit(int(stands_out))


def kinds_that_stand_out(
    name: str, kinds: dict[str, Callable[[int], Attempt]], count: int, source: random.Random
) -> set[str]:
    """Those that do so twice alike."""
    found = _judged(name, kinds, count, source)
    if found:
        print("once more, as this may be another process:")
        found &= _judged(name, kinds, count, source)
    return {kind for kind, _ in found}


def _judged(
    name: str, kinds: dict[str, Callable[[int], Attempt]], count: int, source: random.Random
) -> set[tuple[str, bool]]:
    """Print a table; the kinds that stand out, each with whether it is slower."""
    rounds = kept(measure(kinds, count, source))
    print(f"\n{name}, {count} attempts of each kind, {len(rounds)} rounds kept, µs")
    print(f"{'kind':<12} {'median':>9} {'mean':>9} {'t':>7} {'shows':>7}")
    found = set()
    for kind in kinds:
        own = [one[kind] for one in rounds]
        line = (
            f"{kind:<12} {statistics.median(own) / 1e3:>9.1f} {statistics.fmean(own) / 1e3:>9.1f}"
        )
        if kind not in ("right", "far"):
            t, error_ns = paired_t([one[kind] - one["far"] for one in rounds])
            line += f" {t:>7.2f} {LIMIT * error_ns / 1e3:>7.2f}"
            if abs(t) >= LIMIT:
                found.add((kind, t > 0))
        print(line, flush=True)
    return found


def measure(
    kinds: dict[str, Callable[[int], Attempt]], count: int, source: random.Random
) -> list[dict[str, int]]:
    """The times of `count` rounds in ns, each with an attempt of every kind in a random order."""
    rounds = []
    order = list(kinds)
    for number in range(count):
        source.shuffle(order)
        times = {}
        for kind in order:
            attempt = kinds[kind](number)
            begun = time.perf_counter_ns()
            with contextlib.suppress(AuthenticationFailed):
                attempt()
            times[kind] = time.perf_counter_ns() - begun
        rounds.append(times)
    return rounds


def kept(rounds: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """The rounds without those that have one of the slowest attempts of all."""
    judged = [kind for kind in rounds[0] if kind != "right"]
    times = sorted(one[kind] for one in rounds for kind in judged)
    bound = times[int(len(times) * _KEPT)]
    return [one for one in rounds if all(one[kind] <= bound for kind in judged)]


def paired_t(differences: Sequence[int]) -> tuple[float, float]:
    """The mean of the differences over its standard error, and that error."""
    if len(differences) < _FEWEST:
        return math.inf, math.inf
    error = statistics.stdev(differences) / math.sqrt(len(differences)) or 1.0
    return statistics.fmean(differences) / error, error


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
