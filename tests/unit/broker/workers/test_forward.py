"""What worker 1 knows of a client that another worker has accepted."""

import json
from types import SimpleNamespace
from typing import Any, cast

from broker.net.connection import Connection
from broker.principal import user
from broker.security.session import Session
from broker.workers.forward import _ForwardedSession, facts_of


def test_the_audit_log_of_worker_1_names_the_client_as_the_other_worker_does() -> None:
    session = Session(
        listener="L", peer_host="10.0.0.7", principal=user("a"), connection_id=7, tls="TLSv1.3 X"
    )
    session.peer_port, session.software = 4711, ("lib", "1.2")
    connection: Any = SimpleNamespace(session=session, peer_host="10.0.0.7", peer="10.0.0.7:4711")
    facts = json.loads(json.dumps(facts_of(cast("Connection", connection), "L")))
    forwarded = _ForwardedSession(facts)
    for name in ("listener", "peer_host", "peer_port", "principal", "connection_id", "tls"):
        assert getattr(forwarded, name) == getattr(session, name), name
    assert forwarded.software == session.software
