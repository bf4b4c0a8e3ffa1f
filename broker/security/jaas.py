"""JAAS lines, in which Kafka's settings name a login module and its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";

The name says which module is meant; no class is loaded. Source: Java's `Configuration`, KIP-85.
"""

import re
from typing import Final

_LINE: Final = re.compile(
    r"""\s*(?P<module>[\w.$]+)\s+required(?P<options>(?:\s+[\w.]+\s*=\s*
    (?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+))*)\s*;\s*""",
    re.VERBOSE | re.DOTALL,
)
_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)


def parse_jaas(text: str) -> tuple[str, dict[str, str]] | None:
    """The name of the login module and its options; None for a text that is no such line."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    return match["module"], {
        name: re.sub(r"\\(.)", r"\1", double or single) if double or single else bare
        for name, double, single, bare in _OPTION.findall(match["options"])
    }
