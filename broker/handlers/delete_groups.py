"""DeleteGroups (key 42, versions 0-2): remove empty groups with their offsets.

Answered once the tombstones are on disk. Versions: v2 flexible.

Source: Kafka `GroupCoordinatorService.deleteGroups`; KIP-229.
"""

from collections.abc import Callable

from broker.requests.context import Context, RequestContext
from broker.requests.pending import Pending
from protocol.api.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: DeleteGroupsRequest
) -> Pending[DeleteGroupsResponse]:
    """Delete each group on its own, once; the answer comes when all are done."""
    pending: Pending[DeleteGroupsResponse] = Pending()
    names = dict.fromkeys(message.groups_names)
    results = [DeletableGroupResult(group_id=group_id) for group_id in names]
    missing = len(results)

    def settle(result: DeletableGroupResult) -> Callable[[ErrorCode], None]:
        def settle_one(error: ErrorCode) -> None:
            nonlocal missing
            result.error_code = error
            missing -= 1
            if missing == 0:
                pending.resolve(DeleteGroupsResponse(results=results))

        return settle_one

    if not results:
        pending.resolve(DeleteGroupsResponse())
    for result in results:
        context.groups.cleanup.delete_group(result.group_id, settle(result))
    return pending
