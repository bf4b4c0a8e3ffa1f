"""From an error to a status and the sentence that a page shows, with the request's id."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from client.errors import (
    AddressUnusable,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidUse,
    NotThere,
    UnsupportedByBroker,
)
from protocol.error_codes import ErrorCode

_OF_CODES: dict[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.INVALID_TIMESTAMP: 400,
    ErrorCode.POLICY_VIOLATION: 403,
}


def status_of(error: ClientError) -> int:
    """The HTTP status of an error of the client."""
    if isinstance(error, BrokerRefused):
        return _OF_CODES.get(error.code, 502)
    table: tuple[tuple[type[ClientError], int], ...] = (
        (NotThere, 404),
        (InvalidUse, 400),
        (UnsupportedByBroker, 501),
        (AddressUnusable, 503),
        (BrokerUnreachable, 503),
    )
    return next((status for kind, status in table if isinstance(error, kind)), 502)


def refused(request: Request, error: Exception) -> Response:
    """The answer to a question that the brokers or the rules refuse."""
    assert isinstance(error, ClientError)
    return failure(request, status_of(error), str(error))


def failure(request: Request, status: int, sentence: str, **more: object) -> Response:
    """A refusal in the form that the pages show."""
    document = {"error": sentence, "request_id": request.state.request_id, **more}
    return JSONResponse(document, status)


def defect(request: Request, error: Exception) -> Response:
    """The answer to a request that a defect of ours has ended; the log has the traceback."""
    sentence = f"The console has a defect: {type(error).__name__}. Its log says more."
    return failure(request, 500, sentence)


def answer(document: object) -> Response:
    """A document that no cache keeps."""
    return JSONResponse(document, headers={"Cache-Control": "no-store"})
