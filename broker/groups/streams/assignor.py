"""The assignor `sticky`: tasks of Kafka Streams to members, close to where they were.

Pure. Active tasks go to their former owner, then to a member with a standby copy, then to the
process with the least load; each member gets at most its share, rounded up, in the first two steps.
A standby task never shares a process with another copy of its task. With too few processes there
are fewer copies.

Load is tasks per member of a process. Of equals the first one is taken, in the order that
`broker.groups.streams.order` knows, so that a task goes where Kafka's assignor has it. The result
depends on its arguments alone.

Differs from Kafka: a member that had a copy of a task may keep it when another one that had a copy
has become active or got its copy first; 4.3.1 may give the copy to a member that has no state,
later releases do not. Members whose names share a place in Kafka's hash table are taken by name;
there by the history of the group.

Source: `StickyTaskAssignor`, `ProcessState` and `TargetAssignmentBuilder` of Kafka 4.3.1.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.groups.streams.order import LoadQueue, hash_order
from broker.groups.streams.values import Task, TaskSet


class TaskGroup(NamedTuple):
    """The tasks of one subtopology: as many as its largest source has partitions."""

    task_count: int
    is_stateful: bool


class AssignedMember(NamedTuple):
    """The facts about a member that an assignor needs; `target` is what it should have had."""

    process_id: str
    target: TaskSet


class _Quota:
    """How many tasks a member may have: what is left for those that have not reached it."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.limit = 0
        self._compute()

    def note(self, count: int) -> None:
        """A member has `count` tasks now; one that reaches the limit leaves the division."""
        if count == self.limit:
            self._members -= 1
            self._tasks -= count
            self._compute()

    def _compute(self) -> None:
        self.limit = -(-self._tasks // self._members) if self._members else 0


class _Process:
    """The members of one process, and what they get."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.tasks: set[Task] = set()
        self._queue: LoadQueue[str] | None = None

    @property
    def load(self) -> float:
        """Tasks per member."""
        return sum(self.counts.values()) / len(self.counts)

    def give(self, member_id: str, task: Task) -> None:
        """Give a task to this member, and forget the order of the members."""
        self._count(member_id, task)
        self._queue = None

    def give_least_loaded(self, task: Task) -> str:
        """Give a task to the member with the fewest tasks; return which one that is."""
        queue = self._members()
        member_id = queue.pop()
        self._count(member_id, task)
        queue.push(self.counts[member_id], member_id)
        return member_id

    def _count(self, member_id: str, task: Task) -> None:
        self.tasks.add(task)
        self.counts[member_id] += 1

    def _members(self) -> LoadQueue[str]:
        if self._queue is None:
            self._queue = LoadQueue()
            for member_id in hash_order(self.counts):
                self._queue.push(self.counts[member_id], member_id)
        return self._queue


def assign_tasks(
    members: Mapping[str, AssignedMember], subtopologies: Mapping[str, TaskGroup], standbys: int
) -> dict[str, TaskSet]:
    """The target of each member; `standbys` is the number of copies of each stateful task."""
    if not members:
        return {}
    return _Assignment(members, subtopologies, standbys).run()


class _Assignment:
    def __init__(
        self,
        members: Mapping[str, AssignedMember],
        subtopologies: Mapping[str, TaskGroup],
        standbys: int,
    ) -> None:
        self._members = members
        self._standbys = standbys
        self._active: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self._standby: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self._former_active: dict[Task, str] = {}
        self._former_standby: dict[Task, list[str]] = {}
        processes: dict[str, _Process] = {}
        for member_id in hash_order(sorted(members)):
            member = members[member_id]
            processes.setdefault(member.process_id, _Process()).counts[member_id] = 0
            self._former_active.update(dict.fromkeys(member.target.active, member_id))
            for task in member.target.standby:
                self._former_standby.setdefault(task, []).append(member_id)
        self._processes = {name: processes[name] for name in hash_order(processes, len(members))}
        self._all = [
            (name, index)
            for name, group in subtopologies.items()
            for index in range(group.task_count)
        ]
        self._stateful = [task for task in self._all if subtopologies[task[0]].is_stateful]
        total = len(self._all) + len(self._stateful) * standbys
        self._active_quota = _Quota(len(self._all), len(members))
        self._quota = _Quota(total, len(members))

    def run(self) -> dict[str, TaskSet]:
        """Assign all tasks."""
        self._assign_active()
        if self._standbys:
            self._assign_standby()
        return {
            member_id: TaskSet(frozenset(self._active[member_id]), frozenset(standby))
            for member_id, standby in self._standby.items()
        }

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _give(self, member_id: str, task: Task, *, is_active: bool) -> None:
        self._process_of(member_id).give(member_id, task)
        self._note(member_id, task, is_active=is_active)

    def _give_least_loaded(self, process: _Process, task: Task, *, is_active: bool) -> None:
        self._note(process.give_least_loaded(task), task, is_active=is_active)

    def _note(self, member_id: str, task: Task, *, is_active: bool) -> None:
        (self._active if is_active else self._standby)[member_id].add(task)
        count = self._process_of(member_id).counts[member_id]
        if is_active:
            self._active_quota.note(count)
        self._quota.note(count)

    def _has_room(self, member_id: str, quota: _Quota) -> bool:
        return self._process_of(member_id).counts[member_id] < quota.limit

    def _least_loaded(self, member_ids: Iterable[str]) -> str | None:
        """The first one, unless a later one has less load in its process and fewer tasks, too."""
        found = None
        least = (0.0, 0)
        for member_id in member_ids:
            process = self._process_of(member_id)
            load = (process.load, process.counts[member_id])
            if found is None or (load[0] < least[0] and load[1] < least[1]):
                found, least = member_id, load
        return found

    def _by_load(self) -> LoadQueue[_Process]:
        queue: LoadQueue[_Process] = LoadQueue()
        for process in self._processes.values():
            queue.push(process.load, process)
        return queue

    def _assign_active(self) -> None:
        # Tasks of the same partition stay together where members had ranges before.
        left = sorted(self._all, key=lambda task: (task[1], task[0]))
        left = [task for task in left if not self._give_back(task, self._former_active.get(task))]
        left = [
            task
            for task in left
            if not self._give_back(task, self._least_loaded(self._former_standby.get(task, ())))
        ]
        queue = self._by_load()
        for task in sorted(left):
            process = queue.pop()
            self._give_least_loaded(process, task, is_active=True)
            queue.push(process.load, process)

    def _give_back(self, task: Task, member_id: str | None) -> bool:
        """Give an active task to a former holder with room; return whether it got the task."""
        if member_id is None or not self._has_room(member_id, self._active_quota):
            return False
        self._give(member_id, task, is_active=True)
        return True

    def _assign_standby(self) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(self._stateful, key=lambda task: (task[1], task[0]), reverse=True):
            for number in range(self._standbys):
                if not self._give_copy_back(task):
                    left.append((task, self._standbys - number))
                    break
        queue = self._by_load()
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._give_copy(queue, task):
                    break

    def _give_copy_back(self, task: Task) -> bool:
        """Give a copy to a member that had the task, in either role; return whether one got it."""
        former = self._former_active.get(task)
        holders = [
            each
            for each in self._former_standby.get(task, ())
            if task not in self._process_of(each).tasks
        ]
        for member_id in (former, self._least_loaded(holders)):
            if (
                member_id is not None
                and task not in self._process_of(member_id).tasks
                and self._has_room(member_id, self._quota)
            ):
                self._give(member_id, task, is_active=False)
                return True
        return False

    def _give_copy(self, queue: LoadQueue[_Process], task: Task) -> bool:
        """Give a copy to the least loaded process without one; return whether there is one.

        Processes go back into the queue in the reverse order of their leaving it.
        """
        passed = []
        is_given = False
        while queue and not is_given:
            process = queue.pop()
            passed.append(process)
            if task not in process.tasks:
                self._give_least_loaded(process, task, is_active=False)
                is_given = True
        for process in reversed(passed):
            queue.push(process.load, process)
        return is_given
