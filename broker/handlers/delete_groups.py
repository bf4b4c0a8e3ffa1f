"""DeleteGroups (key 42, versions 0-2): remove empty groups with their offsets.

Answered once the tombstones are on disk.

Source: Kafka `GroupCoordinatorService.deleteGroups`; KIP-229.
"""

from functools import partial

from broker.replies.pending import Pending
from broker.requests.by_topic import by_key
from broker.requests.context import Context, RequestContext
from protocol.api import delete_groups as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.DeleteGroupsRequest
) -> Steps[Pending[api.DeleteGroupsResponse]]:
    """Delete each group on its own, once; the answer comes when all are done."""
    pending: Pending[api.DeleteGroupsResponse] = Pending()
    results: list[api.DeletableGroupResult] = []
    missing = 1

    def settle(result: api.DeletableGroupResult | None, error: ErrorCode) -> None:
        nonlocal missing
        if result is not None:
            result.error_code = error
            if error is ErrorCode.NONE:
                context.security.audit.changed(request, f"deleted group {result.group_id!r}")
        missing -= 1
        if missing == 0:
            pending.resolve(api.DeleteGroupsResponse(results=results))

    for group_id in (yield from by_key(message.groups_names, str)):
        result = api.DeletableGroupResult(group_id=group_id)
        results.append(result)
        missing += 1
        context.groups.cleanup.delete_group(group_id, partial(settle, result))
        yield None
    settle(None, ErrorCode.NONE)
    return pending
