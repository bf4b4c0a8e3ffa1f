"""How fast connections are accepted: by the whole broker, by a listener, from one address.

Over `max.connection.creation.rate` the listener accepts nothing more for the delay: clients wait in
the socket's queue. Over the `connection_creation_rate` of its address, a client is held for the
delay and then closed, and is not counted. No delay is longer than one window.

Without these settings and quotas no clock is read.

Source: KIP-402, KIP-612; Kafka `ConnectionQuotas`. Read next: `broker.net.acceptor`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.quotas.rates import Rate
from broker.quotas.throttle import Throttle, Windows
from config.security.keys import CONNECTION_RATE, scoped_name
from config.values import INT32_MAX

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.metrics import Metrics
    from config import BrokerConfig

_BROKER: Final = ""


class AcceptRates:
    """The rates of one broker. Loop thread only."""

    def __init__(
        self,
        config: "Callable[[], BrokerConfig]",
        throttle: Callable[[], Throttle | None],
        windows: Windows,
        *,
        clock: "Clock",
        metrics: "Metrics",
    ) -> None:
        """Enforce the limits of `config` and the quotas of `throttle`, as they are in force."""
        self._config = config
        self._throttle = throttle
        self._windows = windows
        self._clock = clock
        self._metrics = metrics
        self._rates: dict[str, Rate] = {}

    def delay_ms(self, listener: str) -> int:
        """Count a connection that `listener` has accepted; how long it has to wait, or 0."""
        config = self._config()
        delay_ms = self._counted(_BROKER, config.max_connection_creation_rate)
        if config.settings or config.dynamic:
            text = config.text_of(scoped_name(listener, CONNECTION_RATE))
            if text is not None:
                delay_ms = max(delay_ms, self._counted(listener, int(text)))
        if delay_ms:
            self._metrics.throttled("accept", delay_ms)
        return delay_ms

    def address_delay_ms(self, listener: str, host: str) -> int:
        """Count a connection from `host`; how long to hold it before it is closed, or 0."""
        throttle = self._throttle()
        delay_ms = 0 if throttle is None else throttle.connection_delay_ms(host)
        if delay_ms:
            for name in (_BROKER, listener):
                if name in self._rates:
                    self._rates[name].record(-1, self._clock.monotonic_ms())
        return delay_ms

    def _counted(self, name: str, bound: int) -> int:
        if bound == INT32_MAX:
            self._rates.pop(name, None)
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(self._windows.count, self._windows.size_ms, now_ms)
        rate.record(1, now_ms)
        return min(rate.delay_ms(bound, now_ms), self._windows.size_ms)
