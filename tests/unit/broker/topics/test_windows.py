"""The names that are windows: found while their topic exists, by ids that are its and theirs."""

from typing import cast

import pytest

from broker.errors import InvalidTopicName, ReadOnlyWindow
from broker.topics import windows as module
from broker.topics.windows import Windows
from config import TopicConfig
from storage.directory.data_dir import Topic

NAME = "flights.__t__1000__2000"


def topic(name: str, number: int = 1) -> Topic:
    return Topic(
        name=name,
        topic_id=bytes([number]) * 16,
        partitions=[],
        overrides={},
        config=cast(TopicConfig, None),
    )


def test_a_window_is_the_same_object_while_its_topic_is() -> None:
    topics = {"flights": topic("flights")}
    windows = Windows(topics, is_enabled=True)
    found = windows.find(NAME)
    assert found is not None
    assert windows.find(NAME) is found
    assert windows.find_by_id(found.topic_id) is found
    assert Windows(topics, is_enabled=True).find(NAME) == found, "the id needs no state"
    topics["flights"] = topic("flights", 2)
    again = windows.find(NAME)
    assert again is not None
    assert again.topic_id != found.topic_id
    assert windows.find_by_id(found.topic_id) is None


def test_settings_and_partitions_are_those_of_the_topic() -> None:
    source = topic("flights")
    windows = Windows({"flights": source}, is_enabled=True)
    found = windows.find(NAME)
    assert found is not None
    source.overrides = {"retention.ms": "1"}
    assert windows.find(NAME) is found
    assert found.overrides == {"retention.ms": "1"}
    assert found.partitions is source.partitions


def test_a_deleted_topic_takes_its_windows_along() -> None:
    topics = {"flights": topic("flights")}
    windows = Windows(topics, is_enabled=True)
    found = windows.find(NAME)
    assert found is not None
    windows.forget_deleted(topics.pop("flights"))
    assert windows.find(NAME) is None
    assert windows.find_by_id(found.topic_id) is None


def test_ids_of_the_windows_used_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    windows = Windows({"flights": topic("flights")}, is_enabled=True)
    ids = []
    for end in (1001, 1002, 1003):
        found = windows.find(f"flights.__t__1000__{end}")
        assert found is not None
        ids.append(found.topic_id)
    assert [windows.find_by_id(each) is not None for each in ids] == [False, True, True]


def test_a_topic_of_the_name_comes_first() -> None:
    windows = Windows({"flights": topic("flights"), NAME: topic(NAME, 2)}, is_enabled=True)
    assert windows.source_name(NAME) == NAME
    assert windows.source_name("flights.__t__1000__") == "flights"
    assert windows.source_name("other.__t__1000__") == "other", "also before it is created"


def test_names_with_the_mark_are_reserved_while_windows_are_enabled() -> None:
    windows = Windows({}, is_enabled=True)
    with pytest.raises(ReadOnlyWindow, match="read-only window of flights"):
        windows.check_free(NAME)
    with pytest.raises(InvalidTopicName, match="FROM is 'x'"):
        windows.check_free("flights.__t__x__")
    windows.check_free("flights")
    disabled = Windows({"flights": topic("flights")}, is_enabled=False)
    disabled.check_free(NAME)
    assert disabled.find(NAME) is None
