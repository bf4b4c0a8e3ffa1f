"""ApiVersions (key 18, versions 0-4): the APIs and versions of this broker.

The list is that of `broker.requests.features`. A version above ours never gets here:
the dispatcher answers it in version 0 (KIP-511). Since version 3 the client names its software. A
name outside the agreed alphabet is INVALID_REQUEST, and librdkafka then retries with version 0.

The finalized features are those of `broker.requests.features`: clients send requests accordingly.

Source: KIP-35, KIP-511, KIP-584; Kafka `ApiVersionsRequest.isValid`.
"""

import re

from broker.requests.context import Context, RequestContext
from broker.requests.features import FINALIZED, served_apis
from protocol.api import api_versions as api
from protocol.error_codes import ErrorCode

_SOFTWARE_SINCE = 3
_SOFTWARE_MAX = 256
"""Characters of a name or version that are kept with the session."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    context: Context,
    request: RequestContext,
    message: api.ApiVersionsRequest,
) -> api.ApiVersionsResponse:
    """Every key with its range of versions."""
    if request.api_version >= _SOFTWARE_SINCE:
        software = (message.client_software_name, message.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return api.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        name, version = (text[:_SOFTWARE_MAX] for text in software)
        request.session.software = name, version
    return api.ApiVersionsResponse(
        api_keys=[
            api.ApiVersion(api_key=key, min_version=versions.min, max_version=versions.max)
            for key, versions in served_apis().items()
        ],
        supported_features=[
            api.SupportedFeatureKey(name=name, min_version=level, max_version=level)
            for name, level in FINALIZED.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            api.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in FINALIZED.items()
        ],
    )
