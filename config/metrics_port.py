"""The security of the metrics port: what does not fit together.

The port is the listener `METRICS` for the settings of TLS. Read next: `config.security_keys`.
"""

from typing import Final

from config.errors import Problem
from config.listeners import METRICS
from config.model import BrokerConfig
from config.security_keys import complaints_about, listener_security

TOKEN: Final = "metrics.auth.token"


def metrics_port_problems(config: BrokerConfig) -> list[Problem]:
    """What is wrong with the settings of the metrics port, each with its cure."""
    listener = config.metrics_listener
    if listener is None:
        return []
    found = [
        ("metrics.listener.security", "tls", reason, cure)
        for reason, cure in complaints_about(listener_security(config, listener), listener, config)
        if listener.protocol == "SSL"
    ]
    auth = config.metrics_auth
    if auth == "bearer" and TOKEN not in config.secrets:
        found.append(
            ("metrics.auth", auth, "no token is given", f"set {TOKEN}=file:/PATH or env:NAME")
        )
    if (
        auth != "none"
        and listener.protocol != "SSL"
        and not listener.is_loopback
        and not config.insecure_allow
    ):
        found.append(
            (
                "metrics.auth",
                auth,
                f"{listener.address} would take secrets in clear over the network",
                "set metrics.listener.security=tls, listen on 127.0.0.1, or say "
                "insecure.allow=true where the network itself is trusted",
            )
        )
    if any(other.name == METRICS for other in config.listeners):
        found.append(
            (
                "listeners",
                METRICS,
                "the settings listener.name.metrics.* are those of the metrics port",
                "give the listener another name",
            )
        )
    return [
        Problem(key=key, value=value, origin="", reason=reason, cure=cure)
        for key, value, reason, cure in found
    ]
