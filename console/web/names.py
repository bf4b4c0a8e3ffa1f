"""Names of groups in addresses.

A group's name is any text. Browsers take the segments "." and ".." of a path for directories, an
empty segment and control characters are lost on the way; such a name stands there as "=" and the
hexadecimal digits of its UTF-8, and so does one that begins with "=". All others are
percent-encoded. The pages write the same form: ``groupPath`` in static/api.js.
"""

import re
from typing import Final

from starlette.convertors import Convertor, register_url_convertor

GROUP: Final = "/groups/{group:group}"
"""The path of a group, as a route has it."""

_MARK: Final = "="

_STRANGE: Final = re.compile(r"=|\.{0,2}\Z|.*[\x00-\x1f\x7f]", re.DOTALL)


class GroupConvertor(Convertor[str]):
    """Reads and writes ``{name:group}`` in the path of a route."""

    regex = ".+"

    def convert(self, value: str) -> str:
        """The name that a path stands for; a mark without digits of a text stays as it is."""
        if not value.startswith(_MARK):
            return value
        try:
            return bytes.fromhex(value[1:]).decode()
        except ValueError:
            return value

    def to_string(self, value: str) -> str:
        """The part of a path, not yet percent-encoded."""
        return _MARK + value.encode().hex() if _STRANGE.match(value) else value


register_url_convertor("group", GroupConvertor())
