"""Who may send commands to the metrics port."""

import pytest

from broker.operator.http import _refusal_of_sender
from broker.operator.port_access import Question


@pytest.mark.parametrize("path", ["/clock", "/faults", "/standby", "/what-comes-next"])
def test_no_page_in_a_browser_sends_a_command(path: str) -> None:
    page = Question(target=path, method="POST", host="127.0.0.1:9464")
    assert "X-Tidelog-Command" in str(_refusal_of_sender(path, page))


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [("/clock", False), ("/faults", False), ("/standby", True), ("/what-comes-next", False)],
)
def test_only_a_standby_takes_commands_under_other_names(path: str, is_taken: bool) -> None:
    elsewhere = Question(target=path, method="POST", host="tide-2:9464", is_command=True)
    assert (_refusal_of_sender(path, elsewhere) is None) is is_taken
    here = Question(target=path, method="POST", host="localhost:9464", is_command=True)
    assert _refusal_of_sender(path, here) is None
