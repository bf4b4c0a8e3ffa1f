"""The application: pages, questions, files, in the guard's wrapping."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp, Lifespan

from client.core.options import NOT_SECURED
from client.errors import ClientError
from console.data.groups import LagWatch
from console.data.hub import Hub
from console.data.registry import Registry
from console.options import ConsoleOptions
from console.web import changing, export, reading, rights, tail
from console.web.answers import defect, failure, refused
from console.web.guard import Guard, Headed
from console.web.names import GROUP

_HOME: Final = Path(__file__).parents[1]
_PAGES: Final = ("/", "/topics", "/topics/{topic}", "/groups", GROUP)
_MORE_PAGES: Final = ("/security", "/clock")


class Console(Starlette):
    """The application; no answer leaves it without the headers of `Headed`."""

    def build_middleware_stack(self) -> ASGIApp:
        """Put the headers on what answers for defects too, which Starlette has outside all else."""
        return Headed(super().build_middleware_stack())


def build(options: ConsoleOptions) -> Starlette:
    """The application of a console with these options."""
    templates = Jinja2Templates(directory=_HOME / "templates")

    async def page(request: Request, status: int = 200) -> Response:
        """Every page is the same document; its modules read the address."""
        values = {
            "bootstrap": options.bootstrap,
            "is_read_only": options.is_read_only,
            "may_export": options.may_export,
            "has_registry": options.schema_registry is not None,
            "user": request.state.user,
            "is_secured": options.security != NOT_SECURED,
        }
        return templates.TemplateResponse(request, "page.html", values, status_code=status)

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        if request.url.path.startswith("/api/"):
            return failure(request, status, "There is no such question, or not in this mode.")
        if status == 404 and not request.url.path.startswith("/static/"):
            return await page(request, status)
        return PlainTextResponse("There is no such file.", status)

    api: list[BaseRoute] = [tail.TAIL]
    if options.may_export:
        api.append(export.EXPORT)
    if not options.is_read_only:
        api += [*changing.ROUTES, *rights.ROUTES]
    api += reading.ROUTES
    return Console(
        routes=[
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
            Mount("/api", routes=api),
            Mount("/static", StaticFiles(directory=_HOME / "static")),
            *(Route(path, page) for path in (*_PAGES, *_MORE_PAGES)),
        ],
        middleware=[
            Middleware(Guard, options=options),
            Middleware(GZipMiddleware, minimum_size=1000),
        ],
        exception_handlers={
            ClientError: refused,
            HTTPException: missing,
            Exception: defect,
        },
        lifespan=_lifespan(options),
    )


def _lifespan(options: ConsoleOptions) -> Lifespan[Starlette]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.hub = Hub(options)
        app.state.watch = LagWatch(app.state.hub)
        app.state.registry = Registry(options.schema_registry)
        app.state.tails = set()
        app.state.searches = WeakValueDictionary()
        try:
            yield
        finally:
            await app.state.watch.close()
            await app.state.hub.close()

    return lifespan
