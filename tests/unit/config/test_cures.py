"""The cures of wrong settings name commands, because no pages are installed."""

import pytest

from config import ConfigErrors, load
from config.topic import topic_config


def test_an_unknown_setting_points_to_the_command_that_lists_them() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load(command_line={"qqqqqq": "1"})
    assert caught.value.problems[0].cure == "see tidelog config list"
    with pytest.raises(ConfigErrors) as caught:
        topic_config({"qqqqqq": "1"}, load())
    assert caught.value.problems[0].cure == "see tidelog config list --topic"
