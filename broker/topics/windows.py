"""Time windows as topics: `TOPIC.__t__FROM__TO`, with the partitions of TOPIC, for readers only.

Owns which names are windows while `time.windows.enable` is on. A window exists as long as its topic
does, and needs no state: what is kept of the windows used last is their ids, which cannot be turned
back into names, and what their readers have learned about the logs. An existing topic of the name
comes first, everywhere. `broker.topics.registry` asks here where a name or an id is otherwise
unknown, so ordinary topics pay nothing.

Writers have no way to a window: `TopicRegistry.led_log` and every change of topics refuse it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from broker.errors import InvalidTopicName, ReadOnlyWindow
from protocol.time_windows import MARK, MalformedWindow, TimeWindow, parse_window, topic_of
from storage.directory.data_dir import Topic
from values.dataclasses import dataclass

if TYPE_CHECKING:  # loaded with the first window
    from storage.window.log_window import LogWindow

KEPT_MAX: Final = 1024
"""Windows whose ids are known; a client that uses the id of another one asks for its name again."""


@dataclass(slots=True, kw_only=True)
class WindowTopic(Topic):
    """A window as a topic: another name and id for the logs of `source`."""

    source: Topic
    window: TimeWindow
    _views: "dict[int, LogWindow]" = field(init=False, default_factory=dict)

    def view(self, partition: int) -> "LogWindow":
        """What is in the window of one of the partitions."""
        log = self.partitions[partition]
        assert log is not None, "a partition that is led here"
        view = self._views.get(partition)
        if view is None or view.log is not log:
            from storage.window.log_window import LogWindow

            view = LogWindow(log, self.window.start_ms, self.window.end_ms)
            self._views[partition] = view
        return view


class Windows:
    """The windows of the topics of a broker. Loop thread only."""

    def __init__(self, topics: Mapping[str, Topic], *, is_enabled: bool) -> None:
        """Serve windows of `topics`, if they are enabled."""
        self._topics = topics
        self._is_enabled = is_enabled
        # In order of last use.
        self._kept: OrderedDict[str, WindowTopic] = OrderedDict()
        self._names: dict[bytes, str] = {}

    def find(self, name: str) -> WindowTopic | None:
        """The window of that name, or None; `name` is no topic."""
        if not self._is_enabled or MARK not in name:
            return None
        kept = self._kept.get(name)
        if kept is None or self._topics.get(kept.window.topic) is not kept.source:
            try:
                window = parse_window(name)
            except MalformedWindow:
                return None
            source = None if window is None else self._topics.get(window.topic)
            if window is None or source is None:
                return None
            kept = self._keep(name, source, window)
        self._kept.move_to_end(name)
        source = kept.source
        kept.overrides, kept.config = source.overrides, source.config
        kept.workers = source.workers
        return kept

    def find_by_id(self, topic_id: bytes) -> WindowTopic | None:
        """The window with that id, if it is one of those used last."""
        name = self._names.get(topic_id)
        if name is None or name in self._topics:
            return None
        found = self.find(name)
        return found if found is not None and found.topic_id == topic_id else None

    def source_name(self, name: str) -> str:
        """The topic whose rights count for `name`: that of a window, else the name itself.

        Also while that topic does not exist: decisions about rights are kept by name.
        """
        if name in self._topics or not self.is_reserved(name):
            return name
        return topic_of(name)

    def is_reserved(self, name: str) -> bool:
        """Whether no topic of that name may be created now."""
        return self._is_enabled and MARK in name

    def is_switched_off(self, name: str) -> bool:
        """Whether a window is meant while none are served: no use creates such a topic."""
        return not self._is_enabled and MARK in name

    def check_form(self, name: str) -> TimeWindow | None:
        """The window that `name` means, whether or not its topic exists; None for other names.

        Raises:
            InvalidTopicName: it has the mark of a window, but no times.
        """
        if not self.is_reserved(name):
            return None
        try:
            return parse_window(name)
        except MalformedWindow as error:
            raise InvalidTopicName(
                f"{error} (names with {MARK} are time windows; time.windows.enable is true)"
            ) from error

    def check_free(self, name: str) -> None:
        """Refuse a name that only windows may have.

        Raises:
            ReadOnlyWindow: it is a window's.
            InvalidTopicName: as `check_form`.
        """
        window = self.check_form(name)
        if window is not None:
            raise ReadOnlyWindow(name, window.topic)

    def forget_deleted(self, topic: Topic) -> None:
        """Drop the windows of a deleted topic."""
        for name in [name for name, kept in self._kept.items() if kept.source is topic]:
            self._drop(name)

    def _keep(self, name: str, source: Topic, window: TimeWindow) -> WindowTopic:
        self._drop(name)
        while len(self._kept) >= KEPT_MAX:
            self._drop(next(iter(self._kept)))
        kept = self._kept[name] = WindowTopic(
            name=name,
            topic_id=uuid5(UUID(bytes=source.topic_id), name).bytes,
            partitions=source.partitions,
            overrides=source.overrides,
            config=source.config,
            source=source,
            window=window,
        )
        self._names[kept.topic_id] = name
        return kept

    def _drop(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            del self._names[kept.topic_id]
