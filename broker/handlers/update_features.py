"""UpdateFeatures (key 57, versions 0-2): each feature has the one level that this release serves.

Asking for that level succeeds, any other is INVALID_UPDATE_VERSION. Since version 2 one error
speaks for the whole request and there are no results per feature.

Source: KIP-584, KIP-1022; Kafka `FeatureControlManager.updateFeatures`.
"""

from broker.context import Context, RequestContext
from broker.features import FINALIZED
from protocol.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.error_codes import ErrorCode

_ONE_ERROR_SINCE = 2


def handle(
    context: Context, request: RequestContext, message: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """The outcome for every feature, or the first failure for all."""
    results = [_update(asked) for asked in message.feature_updates]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    if request.api_version >= _ONE_ERROR_SINCE:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                response.error_code = result.error_code
                response.error_message = result.error_message
                break
    return response


def _update(asked: FeatureUpdateKey) -> UpdatableFeatureResult:
    result = UpdatableFeatureResult(feature=asked.feature, error_message=None)
    level = FINALIZED.get(asked.feature)
    if level is None:
        result.error_code = ErrorCode.INVALID_UPDATE_VERSION
        result.error_message = f"This broker does not know the feature {asked.feature!r}."
    elif asked.max_version_level != level:
        result.error_code = ErrorCode.INVALID_UPDATE_VERSION
        result.error_message = (
            f"{asked.feature} has level {level} in this release and cannot be changed to "
            f"{asked.max_version_level}."
        )
    return result
