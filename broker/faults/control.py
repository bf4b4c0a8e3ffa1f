"""Faults of single requests over HTTP, on the operators' port of a broker with a settable clock.

    GET /faults                                      those that requests may still meet
    POST /faults?fail=PRODUCE&error=NOT_LEADER_OR_FOLLOWER&topic=flights&times=2
    POST /faults?delay=FETCH&delay_ms=2000
    POST /faults?drop=PRODUCE&served=true
    POST /faults?heal=all                            there are none any more

| parameter         | meaning                                                                    |
|-------------------|----------------------------------------------------------------------------|
| fail, delay, drop | what happens to requests of this API: see `broker.faults.requests`         |
| error             | with fail: the name of the error                                           |
| delay_ms          | with delay: how much later they are served, 1 to 600,000                   |
| served            | with drop: true lets the request take effect and only its answer be lost   |
| topic, group      | only requests that name this one                                           |
| client_id         | only requests of clients with this id                                      |
| times             | how many requests meet it: 1 if not given, or `all`                        |

The answer to each is the list of GET. Who may send a POST: `broker.operator.http`.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from broker.faults.answers import can_fail, names_groups, names_topics
from broker.faults.requests import Action, RequestFault, RequestFaults
from broker.operator.http import Command, Query
from broker.operator.queries import encode
from broker.requests.features import served_apis
from config.errors import nearest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode

DELAY_MAX_MS: Final = 600_000
TIMES_MAX: Final = 1_000_000
ALL: Final = "all"

_ACTIONS: Final[Mapping[str, Action]] = {"fail": "fail", "delay": "delay", "drop": "drop"}
_OWN: Final = {"fail": "error", "delay": "delay_ms", "drop": "served"}
"""The parameter that only this action has."""
_FILTERS: Final = ("topic", "group", "client_id", "times")
_TRUTHS: Final = {"true": True, "false": False}

Reply = tuple[int, bytes]


class FaultControl:
    """Commands about the faults of one broker."""

    def __init__(self, faults: RequestFaults) -> None:
        self._faults = faults

    def serve(self, queries: dict[str, Query], commands: dict[str, Command]) -> None:
        """Add the path to those of the metrics port."""
        queries["/faults"], commands["/faults"] = self.show, self.change

    def show(self, _query: str, _viewer: object) -> Reply:
        """The answer to GET."""
        return 200, encode(self.reading())

    async def change(self, query: str) -> Reply:
        """The answer to POST."""
        try:
            return 200, encode(self.apply(dict(parse_qsl(query, keep_blank_values=True))))
        except ValueError as error:
            return 400, encode({"error": str(error)})

    def apply(self, words: Mapping[str, str]) -> dict[str, object]:
        """Do what the parameters say; the faults that are there then.

        Raises:
            ValueError: a parameter or its value is none, or some contradict each other.
        """
        if "heal" in words:
            if words != {"heal": ALL}:
                raise ValueError("heal=all forgets all faults, and takes no other parameter")
            self._faults.heal()
        else:
            self._faults.add(parsed(words))
        return self.reading()

    def reading(self) -> dict[str, object]:
        """The faults that requests may still meet, in their order."""
        return {"faults": [_document(fault) for fault in self._faults.faults]}


def parsed(words: Mapping[str, str]) -> RequestFault:
    """The fault that the parameters describe.

    Raises:
        ValueError: a parameter or its value is none, or some contradict each other.
    """
    actions = [name for name in words if name in _ACTIONS]
    if len(actions) != 1:
        raise ValueError("give one of fail, delay and drop, each with the name of an API")
    (action,) = actions
    own = _OWN[action]
    for name in words:
        if name not in (action, own, *_FILTERS):
            choice = ", ".join((own, *_FILTERS))
            raise ValueError(f"{name} is no parameter of {action}; there are {choice}")
    key = _api(words[action])
    fault = RequestFault(
        api_key=key,
        action=_ACTIONS[action],
        topic=words.get("topic"),
        group=words.get("group"),
        client_id=words.get("client_id"),
        left=None if words.get("times") == ALL else _number(words, "times", "1", TIMES_MAX),
    )
    if fault.topic is not None and not names_topics(key):
        raise ValueError(f"topic={fault.topic}: a fault of {key.name} cannot depend on a topic")
    if fault.group is not None and not names_groups(key):
        raise ValueError(f"group={fault.group}: {key.name} is no request of a group")
    if action == "fail":
        fault.error = _error(key, words.get(own))
    elif action == "delay":
        fault.delay_ms = _number(words, own, "", DELAY_MAX_MS)
    else:
        fault.is_served = _truth(words.get(own, "false"))
    return fault


def _api(text: str) -> ApiKey:
    """The API of a name as Kafka writes it, ``OFFSET_COMMIT``, or as its pages do, OffsetCommit."""
    served = {key.name.replace("_", ""): key for key in served_apis()}
    key = served.get(text.replace("_", "").upper())
    if key is None:
        names = sorted(key.name for key in served.values())
        cure = nearest(text.upper(), names, f"there are {', '.join(names)}")
        raise ValueError(f"{text!r} is no API of this broker: {cure}")
    return key


def _error(key: ApiKey, text: str | None) -> ErrorCode:
    names = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
    if text is None or text.upper() not in names:
        begun = [name for name in names if text and name.startswith(text.upper())]
        cure = f"did you mean {begun[0]}?" if begun else "write one such as REQUEST_TIMED_OUT"
        cure = nearest((text or "").upper(), names, cure)
        raise ValueError(f"error={text or ''} is no error of Kafka's protocol: {cure}")
    if not can_fail(key):
        raise ValueError(
            f"{key.name} has no answer that is an error of the whole request: delay or drop it"
        )
    return ErrorCode[text.upper()]


def _number(words: Mapping[str, str], name: str, default: str, high: int) -> int:
    text = words.get(name, default)
    if not text.isdecimal() or not 1 <= int(text) <= high:
        more = ", or all" if name == "times" else ""
        raise ValueError(f"{name}={text} is not a number from 1 to {high}{more}")
    return int(text)


def _truth(text: str) -> bool:
    if text not in _TRUTHS:
        raise ValueError(f"served={text} is not true or false")
    return _TRUTHS[text]


def _document(fault: RequestFault) -> dict[str, object]:
    return {
        "request": fault.api_key.name,
        "action": fault.action,
        "error": fault.error.name,
        "delay_ms": fault.delay_ms,
        "served": fault.is_served,
        "topic": fault.topic,
        "group": fault.group,
        "client_id": fault.client_id,
        "left": fault.left,
        "met": fault.met,
    }
