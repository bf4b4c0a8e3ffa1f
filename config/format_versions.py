"""The values of `message.format.version`: releases of Kafka, as in its own table.

The setting chose the format of a topic's stored records, until Kafka 3.0 made that magic 2 for all.
Up to 3.9 Kafka accepts it without effect, and refuses a value that is not a release; since 4.0 it
is unknown. Topic definitions from that time still have it.

Source: KIP-724; Kafka `MetadataVersion.fromVersionString`; the behaviour of 2.8.2 and 3.9.1.
"""

from typing import Final

DEFAULT_FORMAT_VERSION: Final = "3.0-IV1"

_CHANGES: Final = {
    **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0),
    **dict.fromkeys(("0.10.2", "1.0", "1.1", "2.5", "2.6", "3.1", "3.2", "3.4", "3.8", "3.9"), 1),
    **dict.fromkeys(("0.10.0", "2.0", "2.2", "2.3", "2.4", "2.8", "3.0"), 2),
    **dict.fromkeys(("0.10.1", "0.11.0", "2.1", "2.7", "3.5", "3.6"), 3),
    "3.3": 4,
    "3.7": 5,
}
"""Each release, and its number of format changes: 2 means -IV0 and -IV1."""

_NAMES: Final = frozenset(_CHANGES) | {
    f"{release}-IV{number}" for release, count in _CHANGES.items() for number in range(count)
}


def complain_about_format_version(value: object) -> str | None:
    """The problem of a `message.format.version`, or None; patch numbers do not count."""
    text = str(value)
    parts = text.split(".")
    name = ".".join(parts[: 3 if text.startswith("0.") else 2])
    if name in _NAMES:
        return None
    return "no release of Kafka has that number; give one from 0.8.0 to 3.9, such as 2.8"
