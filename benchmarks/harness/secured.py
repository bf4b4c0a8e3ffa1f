"""TLS between loads and brokers: `--tls` of `benchmarks.compare`.

The authority's file is in the environment, so that loads in processes of their own find it too.
Where it is not set, everything speaks in clear.
"""

import os
import ssl
from pathlib import Path

from tests.support.certificates import authority, signed

_AUTHORITY = "BENCH_TLS_AUTHORITY"
_SERVER = "server.pem"


def prepare(folder: Path) -> None:
    """Makes an authority and a certificate of P-256 in `folder`; from here on TLS is used."""
    folder.mkdir(parents=True, exist_ok=True)
    certificates = authority(folder)
    signed(folder, certificates, Path(_SERVER).stem)
    os.environ[_AUTHORITY] = str(certificates)


def is_on() -> bool:
    """Whether the loads speak TLS."""
    return _AUTHORITY in os.environ


def server_settings() -> dict[str, str]:
    """The settings of a broker's certificate, which both brokers know; empty in clear."""
    if not is_on():
        return {}
    location = Path(os.environ[_AUTHORITY]).with_name(_SERVER)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(location)}


def librdkafka_settings() -> dict[str, str]:
    """The settings of a client of librdkafka."""
    if not is_on():
        return {}
    return {"security.protocol": "ssl", "ssl.ca.location": os.environ[_AUTHORITY]}


def java_settings() -> dict[str, str]:
    """The settings of a client of Java."""
    if not is_on():
        return {}
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.environ[_AUTHORITY],
    }


def context() -> ssl.SSLContext | None:
    """The context of a raw client."""
    return ssl.create_default_context(cafile=os.environ[_AUTHORITY]) if is_on() else None
