"""A console in the test's own event loop, over a broker in the same loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from console.options import ConsoleOptions
from console.web.app import build
from console.web.stalled import BoundedProtocol
from tidelog.testing import InProcessBroker, in_process_broker

HOST = "127.0.0.1:8090"
SMALL_BUFFER = 4096
CHANGE = {"X-Tidelog-Console": "1", "Origin": f"http://{HOST}"}


class Browser(httpx.AsyncClient):
    """Asks the console's questions."""

    async def ask(self, path: str, status: int = 200, /, **params: Any) -> Any:
        """The document of a question."""
        response = await self.get(f"/api{path}", params=params)
        assert response.status_code == status, response.text
        return response.json()

    async def change(self, path: str, status: int = 200, /, **body: Any) -> Any:
        """The document of a change."""
        response = await self.post(f"/api{path}", json=body, headers=CHANGE)
        assert response.status_code == status, response.text
        return response.json()


Open = Callable[..., AbstractAsyncContextManager[Browser]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def open_console(broker: InProcessBroker) -> Open:
    """Opens a console with other options than the usual ones."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Browser]:
        usual = ConsoleOptions(bootstrap=broker.bootstrap, allowed_hosts=frozenset((HOST,)))
        app = build(replace(usual, **options))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            Browser(transport=transport, base_url=f"http://{HOST}") as browser,
        ):
            yield browser

    return opened


@pytest.fixture
async def browser(open_console: Open) -> AsyncIterator[Browser]:
    """A console with the usual options."""
    async with open_console() as opened:
        yield opened


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """(a server of the application as `console.serve` runs it, its port)."""
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        # Accepted connections inherit it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        config = uvicorn.Config(app, http=BoundedProtocol, log_config=None, access_log=False)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield server, bound.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task
