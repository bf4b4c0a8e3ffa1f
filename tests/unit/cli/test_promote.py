"""What ``tidelog promote`` says when the promoted broker does not come back."""

from typing import Any

import pytest

from cli.broker_options import BrokerOptions
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.remote import promote
from client.core.options import Security
from client.errors import BrokerUnreachable


def test_a_broker_that_ended_after_its_promotion_is_no_wrong_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(*_: Any) -> Any:
        raise BrokerUnreachable("nothing listens at localhost:1", broker="localhost:1")

    monkeypatch.setattr(promote, "ask_admin", ask)
    monkeypatch.setattr(promote, "READY_S", 0.0)
    with pytest.raises(CommandFailed, match="has taken the bucket over, and does not") as failed:
        promote._wait_for_owner(BrokerOptions(bootstrap="localhost:1", security=Security()), None)
    assert failed.value.code == ExitCode.UNREACHABLE
    assert "nothing listens at localhost:1" in str(failed.value)
    assert "another broker may have taken the bucket over" in str(failed.value)
