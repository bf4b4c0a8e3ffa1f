"""`python -m broker KEY=VALUE ...`: the broker alone, for development and for tests of the process.

The command line of the product is `cli.server.serve`; this one has no colours, files or help.
"""

import logging
import os
import sys

from broker.errors import StartError
from broker.net.addresses import ReadyInfo
from broker.security.secret_files import read_secret_file
from broker.server import run
from config import ConfigErrors, load


def main(arguments: list[str]) -> int:
    """Run a broker with the settings `arguments`; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = dict(argument.partition("=")[::2] for argument in arguments)
    try:
        config = load(environment=os.environ, command_line=settings, read_file=read_secret_file)
        return run(config, announce=_announce)
    except (ConfigErrors, StartError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _announce(ready: ReadyInfo) -> None:
    workers = (
        f"{one.host}:{one.port} metrics {one.metrics_port}" for one in (ready, *ready.workers)
    )
    sys.stdout.write(f"ready {' '.join(workers)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
