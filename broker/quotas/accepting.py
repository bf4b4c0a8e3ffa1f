"""How fast connections are accepted: by the whole broker, by a listener, from one address.

Over `max.connection.creation.rate` the listener accepts nothing more for the delay: clients wait in
the socket's queue. Over the `connection_creation_rate` of its address, a client is held for the
delay and then closed, and is not counted. No delay is longer than one window.

Without these settings and quotas no clock is read.

Source: KIP-402, KIP-612; Kafka `ConnectionQuotas`. Read next: `broker.net.acceptor`.
"""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from broker.quotas.rates import Rate
from broker.quotas.throttle import Throttle, Windows
from config.security.keys import CONNECTION_RATE, scoped_name
from config.values import INT32_MAX
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.metrics import Metrics
    from config import BrokerConfig

_BROKER: Final = ""


@dataclass(eq=False)
class AcceptRates:
    """The rates of one broker, by its settings and quotas of the moment. Loop thread only."""

    config: "Callable[[], BrokerConfig]"
    throttle: Callable[[], Throttle | None]
    windows: Windows
    clock: "Clock"
    metrics: "Metrics"
    rates: dict[str, Rate] = field(default_factory=dict)

    def delay_ms(self, listener: str) -> int:
        """Count a connection that `listener` has accepted; how long it has to wait, or 0."""
        config = self.config()
        delay_ms = self._counted(_BROKER, config.max_connection_creation_rate)
        if config.settings or config.dynamic:
            text = config.text_of(scoped_name(listener, CONNECTION_RATE))
            if text is not None:
                delay_ms = max(delay_ms, self._counted(listener, int(text)))
        if delay_ms:
            self.metrics.throttled("accept", delay_ms)
        return delay_ms

    def address_delay_ms(self, listener: str, host: str) -> int:
        """Count a connection from `host`; how long to hold it before it is closed, or 0."""
        throttle = self.throttle()
        delay_ms = 0 if throttle is None else throttle.connection_delay_ms(host)
        if delay_ms:
            for name in (_BROKER, listener):
                if name in self.rates:
                    self.rates[name].record(-1, self.clock.monotonic_ms())
        return delay_ms

    def _counted(self, name: str, bound: int) -> int:
        if bound == INT32_MAX:
            self.rates.pop(name, None)
            return 0
        now_ms = self.clock.monotonic_ms()
        rate = self.rates.get(name)
        if rate is None:
            rate = self.rates[name] = Rate(self.windows.count, self.windows.size_ms, now_ms)
        rate.record(1, now_ms)
        return min(rate.delay_ms(bound, now_ms), self.windows.size_ms)
