"""
An import that users can watch: upload a file of rows, see the bar move and the bad rows appear, and retry those.

    uvicorn main:app                        # this program
    sidekiq-py worker -r jobs -q imports    # its jobs

Accounts and sessions are up to your own program: this one lets everyone in.
"""

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jobs import import_row
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.routing import Route

import sidekiq_py as sidekiq
from sidekiq_py.api import ProcessSet
from sidekiq_py.extensions.batches.errors import BatchError, BatchGoneError

PAGE = Path(__file__).parent / "page.html"
MOST_BYTES = 20_000_000
COLUMNS = 3
RUBY_QUEUE = "ruby_imports"
ruby_import_row = sidekiq.ruby_job("RubyImportRow", queue=RUBY_QUEUE, retry=5)


def open_import(name: str, text: str) -> str:
    """
    Enqueue a job for each row; returns the batch's id.

    Raises:
        ValueError: A line does not have the right number of columns, or the file is empty.
    """
    rows = []
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if len(row) != COLUMNS:
            raise ValueError(f"line {number} has {len(row)} columns; it must have name, e-mail and country")
        rows.append([number, *row])
    if not rows:
        raise ValueError("the file is empty")
    batch = sidekiq.Batch(description=name, track=True)
    with batch.jobs():
        if any(RUBY_QUEUE in process.queues for process in ProcessSet()):
            import_row.perform_bulk(rows[::2])
            ruby_import_row.perform_bulk(rows[1::2])
        else:
            import_row.perform_bulk(rows)
    return batch.bid


def summary(bid: str) -> dict[str, Any]:
    """The data for the bar and the counters."""
    status = sidekiq.Batch.find(bid).status()
    return {"description": status.description, "total": status.total, "jobs": status.as_dict(most_members=0)["jobs"]}


async def page(request: Request) -> FileResponse:
    """The one page, for the upload and for each import."""
    return FileResponse(PAGE)


async def upload(request: Request) -> JSONResponse:
    """Take a file from the request body; the page's script sends it that way."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return JSONResponse({"error": f"the file has more than {MOST_BYTES} bytes"}, 413)
    try:
        bid = await asyncio.to_thread(open_import, request.query_params.get("name", "import"), body.decode())
    except ValueError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse({"bid": bid})


async def events(request: Request) -> StreamingResponse:
    """Send the summary as a server-sent event whenever something has changed."""
    bid = request.path_params["bid"]

    async def stream() -> AsyncIterator[str]:
        try:
            async with aclosing(sidekiq.Batch.handle(bid).achanges(every=0.3)) as changes:
                async for change in changes:
                    # A comment keeps the connection alive, and shows whether the client is still connected.
                    yield f"data: {json.dumps(await asyncio.to_thread(summary, bid))}\n\n" if change else ": \n\n"
        except BatchGoneError:
            yield "event: gone\ndata: {}\n\n"

    # nginx keeps events back until they fill a buffer, unless told not to.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


async def rows(request: Request) -> JSONResponse:
    """A page of the rows in one state. Pass the `next` of one page as the `after` of the following one."""
    state, after = request.query_params.get("state", "failed"), request.query_params.get("after")
    batch = sidekiq.Batch.handle(request.path_params["bid"])
    try:
        found = await asyncio.to_thread(batch.rows.page, state, after=int(after) if after else None, limit=100)
    except (BatchError, ValueError) as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse(found.as_dict())


async def retry(request: Request) -> JSONResponse:
    """Put the failed rows back into their queues."""
    batch = sidekiq.Batch.handle(request.path_params["bid"])
    return JSONResponse({"retried": await asyncio.to_thread(batch.retry_failed)})


app = Starlette(
    routes=[
        Route("/", page),
        Route("/imports", upload, methods=["PUT"]),
        Route("/imports/{bid}", page),
        Route("/imports/{bid}/events", events),
        Route("/imports/{bid}/rows", rows),
        Route("/imports/{bid}/retry", retry, methods=["POST"]),
    ]
)
