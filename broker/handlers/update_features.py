"""UpdateFeatures (key 57, versions 0-2): each feature has the one level that this release serves.

An update to that level succeeds, any other is INVALID_UPDATE_VERSION. Either all updates are made
or none: the first failure is the error of the whole request. The results per feature of versions 0
and 1 stay empty then.

Source: KIP-584, KIP-1022; Kafka `FeatureControlManager.updateFeatures`.
"""

from broker.requests.context import Context, RequestContext
from broker.requests.features import FINALIZED
from protocol.api import update_features as api
from protocol.error_codes import ErrorCode

_UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade; version 0 is always the first."""


def handle(
    context: Context, request: RequestContext, message: api.UpdateFeaturesRequest
) -> api.UpdateFeaturesResponse:
    """The outcome for every feature, or the first failure for all."""
    for asked in message.feature_updates:
        problem = _problem(asked)
        if problem is not None:
            return api.UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=problem
            )
    names = [asked.feature for asked in message.feature_updates]
    results = [api.UpdatableFeatureResult(feature=name, error_message=None) for name in names]
    return api.UpdateFeaturesResponse(error_message=None, results=results)


def _problem(asked: api.FeatureUpdateKey) -> str | None:
    """Why this update is refused."""
    level = FINALIZED.get(asked.feature)
    if level is None:
        known = ", ".join(FINALIZED)
        return f"This broker does not know the feature {asked.feature!r}; it has {known}."
    if asked.upgrade_type not in _UPGRADE_TYPES:
        return (
            f"The upgrade type of {asked.feature} is {asked.upgrade_type}; it has to be "
            "1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)."
        )
    if asked.max_version_level != level:
        return (
            f"{asked.feature} has level {level} in this release and cannot be changed to "
            f"{asked.max_version_level}."
        )
    return None
