"""The assignor `sticky`: tasks of Kafka Streams to members, close to where they were.

Pure. Active tasks go to their former owner, then to a member with a standby copy, then to the
process with the least load; each member gets at most its share, rounded up, in the first two steps.
A standby task never shares a process with another copy of its task. With too few processes there
are fewer copies.

Load is tasks per member of a process. Equal loads are resolved by the names of processes and
members, so that the result depends on nothing else.

Source: Kafka's `StickyTaskAssignor`, `ProcessState`.
"""

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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

    @property
    def load(self) -> float:
        """Tasks per member."""
        return sum(self.counts.values()) / len(self.counts)

    def least_loaded(self) -> str:
        """The member with the fewest tasks."""
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


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
        self._processes: dict[str, _Process] = {}
        self._former_active: dict[Task, str] = {}
        self._former_standby: dict[Task, list[str]] = {}
        for member_id, member in sorted(members.items()):
            process = self._processes.setdefault(member.process_id, _Process())
            process.counts[member_id] = 0
            self._former_active.update(dict.fromkeys(member.target.active, member_id))
            for task in member.target.standby:
                self._former_standby.setdefault(task, []).append(member_id)
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
        process = self._process_of(member_id)
        process.tasks.add(task)
        process.counts[member_id] += 1
        (self._active if is_active else self._standby)[member_id].add(task)
        if is_active:
            self._active_quota.note(process.counts[member_id])
        self._quota.note(process.counts[member_id])

    def _has_room(self, member_id: str, quota: _Quota) -> bool:
        return self._process_of(member_id).counts[member_id] < quota.limit

    def _least_loaded(self, member_ids: Iterable[str]) -> str | None:
        def load(member_id: str) -> tuple[float, int]:
            process = self._process_of(member_id)
            return process.load, process.counts[member_id]

        return min(member_ids, key=load, default=None)

    def _by_load(self) -> list[tuple[float, str]]:
        heap = [(process.load, name) for name, process in self._processes.items()]
        heapq.heapify(heap)
        return heap

    def _assign_active(self) -> None:
        # Tasks of the same partition stay together where members had ranges before.
        left = sorted(self._all, key=lambda task: (task[1], task[0]))
        left = [task for task in left if not self._give_back(task, self._former_active.get(task))]
        left = [
            task
            for task in left
            if not self._give_back(task, self._least_loaded(self._former_standby.get(task, ())))
        ]
        heap = self._by_load()
        for task in sorted(left):
            _, name = heap[0]
            process = self._processes[name]
            self._give(process.least_loaded(), task, is_active=True)
            heapq.heapreplace(heap, (process.load, name))

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
        heap = self._by_load()
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._give_copy(heap, task):
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

    def _give_copy(self, heap: list[tuple[float, str]], task: Task) -> bool:
        """Give a copy to the least loaded process without one; return whether there is one."""
        passed = []
        is_given = False
        while heap and not is_given:
            entry = heapq.heappop(heap)
            process = self._processes[entry[1]]
            if task not in process.tasks:
                self._give(process.least_loaded(), task, is_active=False)
                entry = (process.load, entry[1])
                is_given = True
            passed.append(entry)
        for entry in passed:
            heapq.heappush(heap, entry)
        return is_given
