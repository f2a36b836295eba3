"""The server of the page: its files, and its requests, whose answers are lines of JSON."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from derivatrix.compiler.playground.fields import request_fields
from derivatrix.compiler.playground.processes import Processes
from derivatrix.compiler.playground.worker import LIMITS, Limits
from derivatrix.compiler.report.highlight import code_style
from derivatrix.runtime.errors import DeclarationError, ShapeError
from derivatrix.runtime.page import STYLE

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY_BYTES = 64 * 1024

DECLARATION_ERRORS = ("DeclarationError", "NotationError", "ShapeError", "UnsupportedError")
"""Errors of the request, which are answered with status 400."""

NAMES = ("style.css", "script.js", "elements.js", "requests.js", "examples.js", "structure.js")
FOLDER = Path(__file__).with_name("page")
PAGE = {"": FOLDER / "index.html", STYLE.name: STYLE} | {
    name: FOLDER / name for name in (*NAMES, "icon.svg")
}
"""The files of the page by their paths."""
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class Guard:
    """Answers only requests to one of the `hosts` by this page itself: a page of another site can
    neither ask by its own name (Origin), nor by a name of its own for this address (Host)."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        reason = self._refusal_reason(Headers(scope=scope))
        app = _refusal(reason, 403) if reason else self.app
        await app(scope, receive, send_with_headers)

    def _refusal_reason(self, headers: Headers) -> str:
        """Return the reason to refuse a request with these headers; "" to answer it."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = re.sub(r":\d+$", "", host).lower()
        if name not in self.hosts:
            return f"{name!r} is no name of this server; `--allow-host` adds one"
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return "only the page itself may ask"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "only the page itself may ask"
        return ""


def application(
    hosts: Sequence[str] = LOOPBACK, limits: Mapping[str, Limits] = LIMITS
) -> Starlette:
    """Make the server's application, whose processes are `state.processes`."""
    processes = Processes(limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        processes.start()
        try:
            yield
        finally:
            processes.end()

    async def ask(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in limits:
            return _refusal(f"there is no request {name!r}", 404)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refusal("a request is application/json", 415)
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    return _refusal(f"a request has at most {MAX_BODY_BYTES} bytes", 413)
            fields = request_fields(name, body)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except (DeclarationError, ShapeError) as error:
            return _refusal(str(error), 400, type(error).__name__)
        answers = processes.answers(name, fields, request.is_disconnected)
        first_answer = await anext(answers, b"")
        is_error = first_answer.startswith(b'{"error"')
        if is_error and json.loads(first_answer)["error"] in DECLARATION_ERRORS:
            await answers.aclose()
            return Response(first_answer, 400, media_type="application/json")
        return StreamingResponse(_chained(first_answer, answers), media_type="application/x-ndjson")

    app = Starlette(
        routes=[
            Route("/ask/{name}", ask, methods=["POST"]),
            Route("/code.css", _code_style),
            Route("/{path}", _page),
            Route("/", _page),
        ],
        middleware=[Middleware(Guard, hosts=[host.lower() for host in hosts])],
        lifespan=lifespan,
    )
    app.state.processes = processes
    return app


def serve(listening: socket.socket, hosts: Sequence[str] = ()) -> None:
    """Serve the page at a socket until the process is interrupted. hosts: names of this server
    that requests may use besides those of the loopback interface."""
    app = application((*LOOPBACK, *hosts))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _refusal(text: str, status: int, kind: str = "Refused") -> Response:
    return JSONResponse({"error": kind, "text": text}, status)


async def _chained(first_answer: bytes, answers: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """Chain the first answer and the others, which are closed together with the response: this ends
    their process when a client goes."""
    async with aclosing(answers):
        yield first_answer
        async for answer in answers:
            yield answer


async def _page(request: Request) -> Response:
    file = PAGE.get(request.path_params.get("path", ""))
    if file is None:
        return PlainTextResponse("there is no such page", 404)
    return Response(file.read_bytes(), media_type=TYPES[file.suffix.removeprefix(".")])


async def _code_style(request: Request) -> Response:
    return Response(code_style(), media_type="text/css")
