"""AlterClientQuotas (key 49, versions 0-1): set and remove quotas.

Each entry has its own result; the good ones are written together and are on disk when the answer
leaves.

Differs from Kafka: NaN and infinity are refused, and host names in place of addresses are.

Source: KIP-546; Kafka `ClientQuotaControlManager.alterClientQuotas`.
"""

from broker.quotas.book import (
    Change,
    Entity,
    InvalidQuota,
    changed,
    check_changes,
    checked_entity,
    format_entity,
)
from broker.requests.context import Context, RequestContext
from protocol.api import alter_client_quotas as api
from protocol.error_codes import ErrorCode


async def handle(
    context: Context, request: RequestContext, message: api.AlterClientQuotasRequest
) -> api.AlterClientQuotasResponse:
    """The outcome for every entity."""
    checked: list[tuple[Entity, list[Change]]] = []
    answers = []
    for entry in message.entries:
        answer = api.AlterClientQuotasResponseEntryData(error_message=None, entity=entry.entity)
        try:
            checked.append(_checked(entry))
        except InvalidQuota as error:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = str(error)
        answers.append(answer)
    if not message.validate_only:
        await context.topics.alone(lambda: _apply(context, checked))
        for entity, changes in checked:
            context.security.audit.changed(
                request, f"changed the quota of {format_entity(entity)}: {_text(changes)}"
            )
    return api.AlterClientQuotasResponse(entries=answers)


def _checked(entry: api.EntryData) -> tuple[Entity, list[Change]]:
    entity = checked_entity((part.entity_type, part.entity_name) for part in entry.entity)
    changes = [Change(op.key, None if op.remove else op.value) for op in entry.ops]
    check_changes(entity, changes)
    return entity, changes


def _apply(context: Context, checked: list[tuple[Entity, list[Change]]]) -> None:
    """Put the changes in force, in their order: an entity may occur twice."""
    book = context.security.quotas
    after: dict[Entity, dict[str, float]] = {}
    for entity, changes in checked:
        after[entity] = changed(after.get(entity) or book.of(entity), changes)
    context.security.put_quotas(after)


def _text(changes: list[Change]) -> str:
    return ", ".join(
        f"{change.key} removed" if change.value is None else f"{change.key}={change.value:g}"
        for change in changes
    )
