"""The paths of tests/tests/programs.rs: `http.server` by itself, or `paths:app` for an ASGI server."""

import asyncio
import hashlib
import hmac
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.environ.get("HERE", "/srv")
PORT = int(os.environ.get("PORT", "8000"))
count = 0


def counter(_):
    global count
    count += 1
    return str(count)


def timer(_):
    done = threading.Event()
    threading.Timer(0.002, done.set).start()
    time.sleep(0.001)

    async def ticks():
        for _ in range(3):
            await asyncio.sleep(0.001)

    threading.Thread(target=lambda: asyncio.run(ticks())).start()
    return "three ticks" if done.wait(5) else "no timer"


def read(_):
    with open(f"{HERE}/data", "rb") as file:
        return file.read()


def file(_):
    with ThreadPoolExecutor(4) as pool:
        return hashlib.sha256(b"".join(pool.map(read, range(8)))).hexdigest()


def hashes(_):
    with ThreadPoolExecutor(2) as pool:
        derived = pool.submit(hashlib.pbkdf2_hmac, "sha256", b"password", b"salt", 1000, 32)
        scrypted = pool.submit(hashlib.scrypt, b"password", salt=b"salt", n=1024, r=8, p=1, dklen=32)
        is_signed = hmac.compare_digest(hmac.digest(b"k", b"m", "sha256"), hmac.digest(b"k", b"m", "sha256"))
        return " ".join(
            [hashlib.sha256(b"abc").hexdigest(), derived.result().hex(), scrypted.result().hex(), str(is_signed).lower()]
        )


def worker(_):
    sums = []
    thread = threading.Thread(target=lambda: sums.append(sum(range(1, 101))))
    thread.start()
    thread.join()
    return str(sums[0])


def stream(_):
    for number in range(3):
        yield f"{number}\n".encode()
        time.sleep(0.002)


def throw(_):
    raise RuntimeError("as asked")


def spin(_):
    while True:
        pass


def bomb(_):
    kept = []
    while True:
        kept.append(b"x" * (1 << 20))


def fork(_):
    try:
        return f"left with {subprocess.run(['/bin/true']).returncode}"
    except OSError:
        return "refused"


def dns(_):
    try:
        socket.getaddrinfo("example.com", 80)
        return "found"
    except OSError:
        return "not found"


PATHS = {
    "/counter": counter,
    "/timer": timer,
    "/file": file,
    "/hash": hashes,
    "/worker": worker,
    "/echo": lambda body: body,
    "/stream": stream,
    "/throw": throw,
    "/exit": lambda _: os._exit(3),
    "/spin": spin,
    "/bomb": bomb,
    "/fork": fork,
    "/dns": dns,
}


def answer(path, body):
    """What a path answers: bytes, or pieces one after the other."""
    answered = PATHS.get(path, lambda _: "no such path")(body)
    return answered.encode() if isinstance(answered, str) else answered


async def app(scope, receive, send):
    """The same for an ASGI server."""
    if scope["type"] != "http":
        return
    pieces = []
    while True:
        event = await receive()
        pieces.append(event.get("body", b""))
        if not event.get("more_body"):
            break
    body = b"".join(pieces)
    await asyncio.sleep(0)
    path = scope["path"]
    in_thread = path not in ("/counter", "/exit")
    run = asyncio.to_thread(answer, path, body) if in_thread else None
    answered = await run if run else answer(path, body)
    pieces = [answered] if isinstance(answered, bytes) else answered
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def main():
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                answered = answer(self.path, body)
            except RuntimeError:
                return self.send_error(500)
            self.send_response(200)
            if isinstance(answered, bytes):
                self.send_header("content-length", str(len(answered)))
                self.end_headers()
                self.wfile.write(answered)
                return
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in answered:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        do_POST = do_GET

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()


if __name__ == "__main__":
    if "uvicorn" in sys.argv:
        import uvicorn

        uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error", lifespan="off")
    else:
        main()
