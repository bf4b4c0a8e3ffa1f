"""StreamsGroupDescribe (key 89, version 0): groups of Kafka Streams and their members.

The topics of a group that is ready have their numbers of partitions; else they are as the
application sent them. A group that is not of this kind is GROUP_ID_NOT_FOUND.

Source: KIP-1071; Kafka `StreamsGroup.asDescribedGroup`.
"""

from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.records import key_values
from broker.groups.streams.values import NOTHING, StreamsMember, TaskSet
from broker.requests.context import Context
from broker.requests.described_groups import describing
from broker.requests.streams_requests import task_ids
from protocol.api import streams_group_describe as api
from protocol.streams import Endpoint


def _describe(_: Context, group: StreamsGroup) -> api.DescribedGroup:
    return api.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.facts.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[
            _member(member, group.targets.get(member.member_id, NOTHING))
            for member in group.members.values()
        ],
    )


def _topology(group: StreamsGroup) -> api.Topology | None:
    if group.topology is None:
        return None
    configured = group.configured
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = [
            api.Subtopology(
                subtopology_id=name,
                source_topics=sub.source_topics,
                repartition_sink_topics=sub.repartition_sinks,
                state_changelog_topics=sub.changelogs,
                repartition_source_topics=sub.repartition_sources,
            )
            for name, sub in configured.subtopologies.items()
        ]
    else:
        subtopologies = [
            api.Subtopology(
                subtopology_id=sub.subtopology_id,
                source_topics=sorted(sub.source_topics),
                repartition_sink_topics=sorted(sub.repartition_sink_topics),
                state_changelog_topics=sorted(sub.state_changelog_topics, key=lambda t: t.name),
                repartition_source_topics=sorted(
                    sub.repartition_source_topics, key=lambda t: t.name
                ),
            )
            for sub in sorted(group.topology.subtopologies, key=lambda sub: sub.subtopology_id)
        ]
    return api.Topology(epoch=group.topology.epoch, subtopologies=subtopologies)


def _member(member: StreamsMember, target: TaskSet) -> api.Member:
    facts, endpoint = member.facts, member.facts.endpoint
    return api.Member(
        member_id=member.member_id,
        member_epoch=member.current.member_epoch,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=f"/{facts.client_host}",
        topology_epoch=facts.topology_epoch,
        process_id=facts.process_id,
        user_endpoint=None
        if endpoint is None
        else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=key_values(facts.tags),
        assignment=_assignment(member.current.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: TaskSet) -> api.Assignment:
    return api.Assignment(
        active_tasks=task_ids(tasks.active), standby_tasks=task_ids(tasks.standby)
    )


handle = describing(
    api.StreamsGroupDescribeResponse,
    api.DescribedGroup,
    lambda context: context.groups.streams_groups,
    _describe,
    group_type="streams",
)
"""Each requested group, in the order of the request."""
