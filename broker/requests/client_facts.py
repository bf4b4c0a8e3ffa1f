"""What subscriptions to clients' metrics choose clients by, as far as a request says it."""

from broker.requests.context import RequestContext


def facts_of(request: RequestContext) -> dict[str, str]:
    """The facts by selector; the id of the instance is in the message."""
    software, version = request.session.software
    return {
        "client_id": request.client_id or "",
        "client_software_name": software,
        "client_software_version": version,
        "client_source_address": request.peer_host,
        "client_source_port": str(request.session.peer_port),
    }
