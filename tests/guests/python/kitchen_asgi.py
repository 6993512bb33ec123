"""An ASGI application that does what can be done: tests/tests/python.rs."""

import asyncio
import json
import os
import random
import secrets
import sys
import uuid

count = 0


async def answer(send, status, body, headers=()):
    if isinstance(body, str):
        body = body.encode()
    headers = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive):
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionResetError
        yield event["body"]
        if not event["more_body"]:
            return


async def counted(scope, receive, send):
    global count
    count += 1
    scope["state"]["seen"] += 1
    await answer(send, 200, "%d %d" % (count, scope["state"]["seen"]))


async def scope_of(scope, receive, send):
    shown = {key: scope[key] for key in scope if key not in ("state", "extensions")}
    shown["extensions"] = sorted(scope["extensions"])
    await answer(send, 200, json.dumps(shown, default=lambda value: value.decode("latin-1")))


async def echo(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    async for piece in body_of(receive):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def length(scope, receive, send):
    pieces = [len(piece) async for piece in body_of(receive)]
    await answer(send, 200, "%d" % sum(pieces))


async def ticks(scope, receive, send):
    """The loop goes on while the application waits for the client's body."""
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    await send({"type": "http.response.start", "status": 200, "headers": []})
    task = asyncio.ensure_future(tick())
    while ticks < 3:
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"ready\n", "more_body": True})
    before = ticks
    async for _ in body_of(receive):
        pass
    task.cancel()
    told = b"went on" if ticks > before else b"stood still"
    await send({"type": "http.response.body", "body": told})


async def large(scope, receive, send):
    await answer(send, 200, b"x" * 5_000_000)


async def flood(scope, receive, send):
    """Longer than any buffer: sending waits for the client."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(200):
        await send({"type": "http.response.body", "body": b"y" * 20_000, "more_body": True})
    await send({"type": "http.response.body"})


async def duplicates(scope, receive, send):
    got = [value.decode() for name, value in scope["headers"] if name == b"x-twice"]
    cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await answer(send, 200, ",".join(got), cookies)


async def trailers(scope, receive, send):
    event = {"type": "http.response.start", "status": 200, "headers": [], "trailers": True}
    await send(event)
    await send({"type": "http.response.body", "body": b"body"})
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"7")]})


async def background(scope, receive, send):
    await answer(send, 200, "answered")
    await asyncio.sleep(0.01)
    print("the background is done")


async def raises(scope, receive, send):
    raise RuntimeError("before the response")


async def raises_late(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"some", "more_body": True})
    raise RuntimeError("behind the beginning")


async def silent(scope, receive, send):
    pass


async def unfinished(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def numbers(scope, receive, send):
    drawn = [random.getrandbits(64), secrets.token_hex(8), uuid.uuid4().hex]
    drawn += [uuid.uuid1().hex, os.urandom(8).hex(), random.SystemRandom().getrandbits(64)]
    await answer(send, 200, " ".join(map(str, drawn)))


async def threads(scope, receive, send):
    loop = asyncio.get_running_loop()
    results = await asyncio.gather(*(loop.run_in_executor(None, pow, 3, n) for n in range(5)))
    await answer(send, 200, json.dumps(results))


async def not_modified(scope, receive, send):
    await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", b'"a"')]})
    await send({"type": "http.response.body"})


async def cancelled(scope, receive, send):
    """Whoever gives up waiting for the body loses nothing of it."""
    try:
        await asyncio.wait_for(receive(), 0.001)
        await answer(send, 500, "it came too soon")
    except asyncio.TimeoutError:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"go\n", "more_body": True})
        rest = b"".join([piece async for piece in body_of(receive)])
        await send({"type": "http.response.body", "body": rest})


async def broken(scope, receive, send):
    try:
        async for _ in body_of(receive):
            pass
    except ConnectionResetError:
        print("the client broke off")
        raise


async def bad_header(scope, receive, send):
    await answer(send, 200, "x", [(b"x-a", b"b\r\nx-c: d")])


async def leaves(scope, receive, send):
    sys.exit(3)


async def lifespan(scope, receive, send):
    assert (await receive())["type"] == "lifespan.startup"
    await asyncio.sleep(0)
    scope["state"]["seen"] = 0
    print("started")
    await send({"type": "lifespan.startup.complete"})
    await receive()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    name = scope["path"].strip("/").replace("-", "_").partition("/")[0]
    handler = globals().get(name or "counted")
    if not asyncio.iscoroutinefunction(handler):
        return await answer(send, 404, "nothing here")
    await handler(scope, receive, send)
