"""An ASGI application with one path for each thing that a test wants to see."""

import asyncio
import contextvars
import json
import os
import pathlib
import sys

EVENTS = []
VAR = contextvars.ContextVar("var", default="unset")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    name = scope["path"].strip("/").split("/")[0] or "hello"
    await globals().get("do_" + name, missing)(scope, receive, send)


async def lifespan(scope, receive, send):
    while True:
        event = await receive()
        if event["type"] == "lifespan.startup":
            scope["state"]["started"] = True
        else:
            print("lifespan: shut down", file=sys.stderr, flush=True)
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return


def create():
    return app


async def answer(send, body, status=200, headers=()):
    if isinstance(body, str):
        body = body.encode()
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def missing(scope, receive, send):
    await answer(send, "nothing here\n", 404)


async def do_hello(scope, receive, send):
    await answer(send, "Hello, World!\n", headers=[(b"content-type", b"text/plain")])


async def do_scope(scope, receive, send):
    def plain(value):
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value

    await answer(send, json.dumps(plain(scope)))


async def read_all(receive):
    body, pieces = b"", 0
    while True:
        event = await receive()
        assert event["type"] == "http.request", event
        body += event["body"]
        pieces += 1
        if not event["more_body"]:
            return body, pieces


async def do_echo(scope, receive, send):
    body, _ = await read_all(receive)
    await answer(send, body)


async def do_through(scope, receive, send):
    """Sends each piece back as it comes."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    more = True
    while more:
        event = await receive()
        more = event["more_body"]
        await send({"type": "http.response.body", "body": event["body"], "more_body": more})


async def do_stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    for number in range(5):
        await asyncio.sleep(0.005)
        await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
    await send({"type": "http.response.body"})


async def do_large(scope, receive, send):
    """More than anybody buffers: 64 MiB."""
    await send({"type": "http.response.start", "status": 200})
    for _ in range(1024):
        await send({"type": "http.response.body", "body": bytearray(65536), "more_body": True})
        EVENTS.append("sent")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def do_sent(scope, receive, send):
    await answer(send, str(len(EVENTS)))


async def do_trailers(scope, receive, send):
    headers = [(b"trailer", b"x-sum")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": b"body"})
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"42")]})


async def do_file(scope, receive, send):
    path = pathlib.Path(__file__)
    length = b"%d" % path.stat().st_size
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.pathsend", "path": str(path)})


async def do_hint(scope, receive, send):
    await send({"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]})
    await answer(send, "hinted")


async def do_raise(scope, receive, send):
    raise ValueError("on purpose")


async def do_late(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    await read_all(receive)
    raise ValueError("too late")


async def do_silent(scope, receive, send):
    pass


async def do_twice(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    try:
        await send({"type": "http.response.start", "status": 200})
    except RuntimeError as error:
        await send({"type": "http.response.body", "body": str(error).encode()})


async def do_task(scope, receive, send):
    """What asyncio says of the task that answers, before and after it has waited."""
    first = asyncio.current_task()
    VAR.set("set")
    async with asyncio.timeout(1):
        await asyncio.sleep(0.001)
    same = asyncio.current_task() is first
    both = await asyncio.gather(asyncio.sleep(0, "a"), asyncio.to_thread(VAR.get))
    found = {"task": isinstance(first, asyncio.Task), "same": same, "both": both, "all": first in asyncio.all_tasks()}
    await answer(send, json.dumps(found))


async def do_context(scope, receive, send):
    await answer(send, VAR.get())


async def do_children(scope, receive, send):
    """`receive()` and `send()` as tasks of their own."""
    event = await asyncio.create_task(receive())
    await asyncio.create_task(send({"type": "http.response.start", "status": 200}))
    await asyncio.wait_for(send({"type": "http.response.body", "body": event["body"] or b"empty"}), 1)


async def do_subprocess(scope, receive, send):
    child = await asyncio.create_subprocess_exec("echo", "from a child", stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    await answer(send, out)


async def do_fetch(scope, receive, send):
    """Asks this very server, over a socket of asyncio's."""
    host, port = scope["server"]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = await reader.read()
    writer.close()
    await answer(send, text.rpartition(b"\r\n\r\n")[2])


async def do_background(scope, receive, send):
    await answer(send, "answered")
    await asyncio.sleep(0.01)
    EVENTS.append("background")


async def do_disconnect(scope, receive, send):
    """Waits for the client to go, and says so to who asks `gone`."""
    await read_all(receive)
    event = await receive()
    assert event == {"type": "http.disconnect"}, event
    try:
        await send({"type": "http.response.start", "status": 200})
    except OSError:
        print("gone", file=sys.stderr, flush=True)


async def do_after(scope, receive, send):
    await read_all(receive)
    await answer(send, "answered")
    event = await receive()
    print("after:", event["type"], file=sys.stderr, flush=True)


HELD = []


async def do_pid(scope, receive, send):
    await answer(send, str(os.getpid()))


async def do_crash(scope, receive, send):
    os.abort()


async def do_grow(scope, receive, send):
    HELD.append(b"x" * (64 << 20))
    await answer(send, str(os.getpid()))
