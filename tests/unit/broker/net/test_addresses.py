"""Sockets of listeners."""

import subprocess
import sys

from broker.net.addresses import bound_socket
from config import Listener


def test_a_host_of_ascii_is_bound_without_the_codec_of_international_names() -> None:
    """The codec and its tables of Unicode are a hundredth of a start's CPU."""
    probe = (
        "import sys\n"
        "from broker.net.addresses import bound_socket\n"
        "from config import Listener\n"
        "for host in ('127.0.0.1', 'localhost', ''):\n"
        "    bound_socket(Listener(name='A', host=host, port=0)).close()\n"
        "print({'encodings.idna', 'unicodedata'} & {*sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_empty_host_is_every_interface() -> None:
    with bound_socket(Listener(name="A", host="", port=0)) as bound:
        assert bound.getsockname()[0] in {"0.0.0.0", "::"}
