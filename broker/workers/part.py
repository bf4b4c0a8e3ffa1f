"""The part of one worker process: its configuration, its end of the links, its duty to the parent.

`broker.server` runs it like a broker of one process.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from socket import socket
from typing import Any

from broker.workers.first import FirstWorker
from broker.workers.further import FurtherWorker
from broker.workers.parent import Control
from config import BrokerConfig, with_ports, worker_config
from config.listeners import METRICS
from storage.directory.metadata import FIRST_WORKER
from storage.directory.worker_directories import worker_path


class Part:
    """One worker process of several."""

    def __init__(
        self,
        number: int,
        count: int,
        control: Control,
        links: Mapping[int, socket],
        ports: Mapping[str, int],
    ) -> None:
        """Be worker `number` of `count`; `ports` are those that it had before, by listener."""
        self.number = number
        self._control = control
        self._ports = dict(ports)
        self.first: FirstWorker | None = None
        self.further: FurtherWorker | None = None
        if number == FIRST_WORKER:
            self.first = FirstWorker(count, links)
        else:
            self.further = FurtherWorker(number, links.get(FIRST_WORKER))

    def config(self, config: BrokerConfig) -> BrokerConfig:
        """The configuration of this worker."""
        if self.number != FIRST_WORKER:
            config = worker_config(
                config,
                self.number,
                data_dir=worker_path(str(Path(config.data_dir).absolute()), self.number),
                node_id=config.node_id + self.number - FIRST_WORKER,
                cluster_id="",
            )
        return with_ports(config, self._ports)

    def attach(self, parent_gone: Callable[[], object]) -> None:
        """Take links from the parent, in the running loop; call `parent_gone` at its end."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            try:
                received = self._control.receive()
            except EOFError:
                loop.remove_reader(self._control.fileno())
                parent_gone()
                return
            if received is None:
                return
            number, link = received
            if self.first is not None:
                self.first.add_link(number, link)
            elif self.further is not None:
                self.further.use_link(link)

        loop.add_reader(self._control.fileno(), readable)

    def announce(self, ready: Any) -> None:
        """Report to the parent that this worker accepts clients."""
        facts = asdict(ready)
        if ready.metrics_port is not None:
            facts["ports"] = {**facts["ports"], METRICS: ready.metrics_port}
        self._control.ready(facts)
