"""Sandtide for Python: answer HTTP requests by the direct protocol.

    import sandtide

    def hello(request):
        return sandtide.Response("Hello, World!\\n")

    sandtide.serve(hello)

``serve`` takes a function, ``asgi`` an ASGI application and ``wsgi`` a WSGI application. None of
them comes back. In a sandbox, every request starts from the state that the program had when it
first waited for one: what is done before is done once, and what a request changes is gone with its
answer (unless the tenant has ``isolation = "none"``).

Run as an ordinary program, they serve plain HTTP on 127.0.0.1 and port $PORT (8000 if unset).

    python sandtide.py [--root-path PATH] [--site DIRECTORY] MODULE[:APPLICATION]

serves an application of either kind, which is how ``sandtide serve --isolate`` runs one.

One file without dependencies, for CPython 3.8 or newer.
"""

import asyncio
import errno
import importlib
import inspect
import io
import os
import re
import selectors
import struct
import sys
import traceback
from urllib.parse import unquote_to_bytes

__all__ = ["Request", "Response", "asgi", "in_sandbox", "serve", "wsgi"]

# ---- The direct protocol --------------------------------------------------------------------

_FILES = "/sandtide/"

# Kinds of messages.
_RESPOND, _BEGIN, _WRITE, _FINISH, _INFORM = 2, 3, 4, 5, 9
# kind, status, length of the fields, length of the trailers
_MESSAGE = struct.Struct("<IIII")
_LONGEST_MESSAGE = 1 << 20

# The fixed part of a request block.
_BLOCK = struct.Struct("<IHHQQ32sQIIIIIIIIII")
_ENTRY = struct.Struct("<IIII")
_BODY_COMPLETE, _HTTP_1_0, _HTTP_2 = 1, 8, 16
_UNKNOWN_LENGTH = (1 << 64) - 1

_PIECE = 64 << 10


def in_sandbox():
    """Whether this process runs in a sandbox of Sandtide."""
    return os.path.exists(_FILES + "requests")


class _Channel:
    """The files of the direct protocol."""

    def __init__(self):
        def opened(name, flags):
            return os.open(_FILES + name, flags | os.O_CLOEXEC)

        self._requests = opened("requests", os.O_RDONLY)
        self._trailers = opened("trailers", os.O_RDONLY)
        # For those who wait, and for those who have something else to do.
        self._body = [opened("body", os.O_RDONLY | flag) for flag in (os.O_NONBLOCK, 0)]
        self._response = [opened("response", os.O_WRONLY | flag) for flag in (os.O_NONBLOCK, 0)]
        self._buffer = bytearray(_PIECE)

    def _block(self, descriptor):
        while True:
            try:
                length = os.readv(descriptor, [self._buffer])
                return memoryview(self._buffer)[:length]
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                self._buffer = bytearray(2 * len(self._buffer))

    def receive(self):
        """Waits for the next request."""
        _flush()
        request = Request(self, self._block(self._requests))
        _reseed(request.random)
        return request

    def read(self, length, wait=True):
        """A piece of the body; `BlockingIOError` if there is none yet and nobody waits."""
        return os.read(self._body[wait], length)

    def trailers(self):
        block = self._block(self._trailers)
        return _fields(block, 8, int.from_bytes(block[4:8], "little"))

    def send(self, kind, status=0, fields=b"", trailers=b"", body=b"", wait=True):
        """Sends one message: the body must fit in."""
        head = _MESSAGE.pack(kind, status, len(fields), len(trailers))
        os.write(self._response[wait], b"".join((head, fields, trailers, body)))

    def respond(self, status, fields, body, trailers=b""):
        """Sends a whole response, which is the end of the exchange."""
        _flush()
        if len(fields) + len(trailers) + len(body) + _MESSAGE.size <= _LONGEST_MESSAGE:
            return self.send(_RESPOND, status, fields, trailers, body)
        names = fields.split(b"\0")[::2]
        if not any(name.lower() == b"content-length" for name in names):
            fields += b"content-length\0%d\0" % len(body)
        self.send(_BEGIN, status, fields)
        for piece in _pieces(body):
            self.send(_WRITE, body=piece)
        self.send(_FINISH, fields=trailers)

    def finish(self, trailers=b""):
        _flush()
        self.send(_FINISH, fields=trailers)


def _pieces(body):
    step = _LONGEST_MESSAGE - _MESSAGE.size
    view = memoryview(body)
    return (view[at : at + step] for at in range(0, len(view), step))


def _fields(block, table, count):
    """The fields of a block, as bytes."""
    entries = _ENTRY.iter_unpack(block[table : table + count * _ENTRY.size])
    data = bytes(block)
    return [
        (data[name : name + name_length], data[value : value + value_length])
        for name, name_length, value, value_length in entries
    ]


def _encoded(fields):
    """Fields as a message has them."""
    parts = []
    for name, value in fields:
        for text in (name, value):
            text = text.encode("latin-1") if isinstance(text, str) else bytes(text)
            if b"\0" in text or b"\n" in text or b"\r" in text:
                raise ValueError("a header with a line break or a NUL: %r" % text)
            parts.append(text)
    return b"\0".join(parts) + b"\0" if parts else b""


def _flush():
    # What is in a buffer when the exchange ends is gone.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _reseed(seed):
    """Generators were seeded before the snapshot, so they would repeat themselves."""
    random = sys.modules.get("random")
    # Where somebody else sees to it, that is another class.
    if random is not None and type(random._inst) is random.Random:
        random.seed(int.from_bytes(seed, "little"))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(list(struct.unpack("<8I", seed)))


def _give_up():
    """Ends a sandbox whose response has begun and cannot be completed: the client is cut off."""
    _flush()
    os._exit(1)


# ---- Requests and responses -----------------------------------------------------------------


class Request:
    """A request. Valid until it is answered."""

    def __init__(self, channel, block):
        head = _BLOCK.unpack_from(block)
        (_, _, flags, self.id, self.time_ns, self.random, body_length) = head[:7]
        (method, method_length, target, target_length, host, host_length) = head[7:13]
        (table, count, body, inline) = head[13:]
        self._channel = channel
        #: The method, as the client sent it.
        self.method = str(block[method : method + method_length], "latin-1")
        #: Path and query, as the client sent them.
        self.target = str(block[target : target + target_length], "latin-1")
        #: ``Host`` or ``:authority``; may be empty.
        self.authority = str(block[host : host + host_length], "latin-1")
        #: The headers as pairs of bytes, in order, with names in lower case.
        self.raw_headers = _fields(block, table, count)
        #: The version that the client speaks: ``"1.0"``, ``"1.1"`` or ``"2"``.
        self.http_version = "1.0" if flags & _HTTP_1_0 else "2" if flags & _HTTP_2 else "1.1"
        #: The length of the body as the client announced it; ``None`` if it did not.
        self.body_length = None if body_length == _UNKNOWN_LENGTH else body_length
        self._inline = bytes(block[body : body + inline]) if flags & _BODY_COMPLETE else None
        self._read = 0

    @property
    def path(self):
        """The path, percent-decoded."""
        return unquote_to_bytes(self.target.partition("?")[0]).decode("utf-8", "replace")

    @property
    def query(self):
        """What stands behind the ``?``."""
        return self.target.partition("?")[2]

    @property
    def headers(self):
        """The headers as pairs of strings."""
        return [(n.decode("latin-1"), v.decode("latin-1")) for n, v in self.raw_headers]

    def header(self, name, default=None):
        """The first header with this name."""
        name = name.lower().encode("latin-1")
        for other, value in self.raw_headers:
            if other == name:
                return value.decode("latin-1")
        return default

    @property
    def client(self):
        """The client's address, as the server tells it in ``x-forwarded-for`` or ``forwarded``."""
        address = self.header("x-forwarded-for", "").split(",")[0].strip()
        if not address:
            found = re.search(r'for="?([^;,"]+)', self.header("forwarded", ""), re.IGNORECASE)
            address = found.group(1) if found else ""
        return address.strip("[]")

    @property
    def scheme(self):
        """``"http"`` or ``"https"``: how the client came."""
        scheme = self.header("x-forwarded-proto")
        if scheme is None:
            found = re.search(r"proto=(\w+)", self.header("forwarded", ""), re.IGNORECASE)
            scheme = found.group(1) if found else "http"
        return scheme.lower()

    @property
    def server(self):
        """Name and port that the request was sent to."""
        host, _, port = self.authority.rpartition(":")
        if host and port.isdigit():
            return host.strip("[]"), int(port)
        return self.authority.strip("[]"), 443 if self.scheme == "https" else 80

    def at_end(self):
        """Whether the body is known to have been read to its end."""
        return self._read == self.body_length or self._read < 0

    def read(self, length=_PIECE, wait=True):
        """The next piece of the body, of at most so many bytes; empty at its end.

        ``ConnectionResetError`` if the client broke it off.
        """
        if length <= 0 or self.at_end():
            return b""
        if self._inline is not None:
            piece = self._inline[self._read : self._read + length]
        else:
            piece = self._channel.read(length, wait)
        self._read = self._read + len(piece) if piece else -1
        return piece

    def body(self):
        """What is left of the body."""
        return b"".join(iter(self.read, b""))

    def trailers(self):
        """The trailers as pairs of strings, once the body was read to its end."""
        if self._inline is not None or self._channel is None:
            return []
        while self._channel.read(_PIECE):
            pass
        fields = self._channel.trailers()
        return [(n.decode("latin-1"), v.decode("latin-1")) for n, v in fields]


class Response:
    """A response. ``body``: a string, bytes, or an iterable of either, which is sent piece by piece.

    ``headers`` and ``trailers``: a dictionary, or pairs, where a name may come several times.
    """

    def __init__(self, body=b"", status=200, headers=(), trailers=()):
        self.body = body
        self.status = status
        self.headers = list(headers.items() if hasattr(headers, "items") else headers)
        self.trailers = list(trailers.items() if hasattr(trailers, "items") else trailers)
        if isinstance(body, str) and not any(n.lower() == "content-type" for n, _ in self.headers):
            self.headers.append(("content-type", "text/plain; charset=utf-8"))


def _bytes(body):
    return body.encode() if isinstance(body, str) else bytes(body)


def _failed(*_):
    """Says on standard error what was raised."""
    traceback.print_exc()
    return Response("Internal Server Error\n", 500)


def serve(handler):
    """Answers requests with what ``handler(request)`` returns: a `Response`, a string, or bytes.

    What it raises is told on standard error, and the answer is 500.
    """
    if not in_sandbox():
        return _serve_outside(handler)
    channel = _Channel()
    while True:
        _answer(channel, handler, channel.receive())


def _handled(handler, request):
    try:
        response = handler(request)
        if isinstance(response, (str, bytes)):
            response = Response(response)
        if not isinstance(response, Response):
            raise TypeError("the handler returned %r instead of a Response" % (response,))
        return response, _encoded(response.headers)
    except Exception:
        response = _failed()
        return response, _encoded(response.headers)


def _answer(channel, handler, request):
    response, fields = _handled(handler, request)
    trailers = _encoded(response.trailers)
    if isinstance(response.body, (str, bytes, bytearray, memoryview)):
        return channel.respond(response.status, fields, _bytes(response.body), trailers)
    channel.send(_BEGIN, response.status, fields)
    try:
        for part in response.body:
            for piece in _pieces(_bytes(part)):
                channel.send(_WRITE, body=piece)
        channel.finish(_encoded(response.trailers))
    except Exception:
        _failed()
        _give_up()


def _address():
    return "127.0.0.1", int(os.environ.get("PORT", "8000"))


def _serve_outside(handler):
    """Serves plain HTTP, for development."""
    from wsgiref.simple_server import make_server

    def application(environ, start_response):
        request = Request.__new__(Request)
        request._channel, request._inline, request._read = None, None, 0
        length = environ.get("CONTENT_LENGTH")
        request._inline = environ["wsgi.input"].read(int(length)) if length else b""
        request.body_length = len(request._inline)
        request.id, request.time_ns, request.random = 0, 0, os.urandom(32)
        request.method, request.http_version = environ["REQUEST_METHOD"], "1.1"
        query = environ.get("QUERY_STRING")
        path = environ["PATH_INFO"].encode("latin-1")
        request.target = "".join(chr(c) if 32 < c < 127 else "%%%02X" % c for c in path)
        request.target += "?" + query if query else ""
        request.authority = environ.get("HTTP_HOST", "")
        request.raw_headers = [
            (name[5:].lower().replace("_", "-").encode("latin-1"), value.encode("latin-1"))
            for name, value in environ.items()
            if name.startswith("HTTP_")
        ] + [(b"x-forwarded-for", environ["REMOTE_ADDR"].encode())]
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if environ.get(name):
                name_bytes = name.lower().replace("_", "-").encode()
                request.raw_headers.append((name_bytes, environ[name].encode("latin-1")))
        response, _ = _handled(handler, request)
        from http.client import responses

        reason = responses.get(response.status, "Status")
        start_response("%d %s" % (response.status, reason), response.headers)
        body = response.body
        whole = isinstance(body, (str, bytes, bytearray, memoryview))
        return [_bytes(body)] if whole else map(_bytes, body)

    return _serve_wsgi_outside(application, make_server)


def _serve_wsgi_outside(application, make_server):
    host, port = _address()
    with make_server(host, port, application) as server:
        print("serving on http://%s:%d" % (host, port), file=sys.stderr)
        server.serve_forever()


# ---- WSGI (PEP 3333) ------------------------------------------------------------------------


class _Input(io.RawIOBase):
    """The request's body as a raw stream."""

    def __init__(self, request):
        super().__init__()
        self._request = request

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self._request.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class FileWrapper:
    """``wsgi.file_wrapper``."""

    def __init__(self, filelike, block_size=_PIECE):
        self.filelike = filelike
        self.block_size = block_size
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self):
        return iter(lambda: self.filelike.read(self.block_size), b"")


def _environ(request, script_name):
    path, _, query = request.target.partition("?")
    path = unquote_to_bytes(path).decode("latin-1")
    if script_name and (path == script_name or path.startswith(script_name + "/")):
        path = path[len(script_name) :]
    server, port = request.server
    version = {"2": "HTTP/2.0"}.get(request.http_version, "HTTP/" + request.http_version)
    if request._inline is not None:
        body = io.BytesIO(request._inline)
    else:
        body = io.BufferedReader(_Input(request), _PIECE)
    environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": script_name,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_URI": request.target,
        "SERVER_NAME": server or "localhost",
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": version,
        "REMOTE_ADDR": request.client,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": body,
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileWrapper,
        "sandtide.request": request,
    }
    for name, value in request.raw_headers:
        # `a_b` would pass for `a-b`, which a proxy may have removed.
        if b"_" in name:
            continue
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = "HTTP_" + key
        value = value.decode("latin-1")
        if key in environ:
            value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
        environ[key] = value
    return environ


class _WsgiExchange:
    """One request of a WSGI application."""

    def __init__(self, channel):
        self.channel = channel
        self.status = None
        self.headers = ()
        self.begun = False

    def start_response(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status is not None:
            raise AssertionError("start_response was called twice")
        self.status, self.headers = int(status[:3]), headers
        self.fields = _encoded(headers)
        return self.write

    def write(self, data):
        if self.status is None:
            raise AssertionError("a body before start_response")
        if not self.begun:
            self.begun = True
            self.channel.send(_BEGIN, self.status, self.fields)
        for piece in _pieces(data):
            self.channel.send(_WRITE, body=piece)

    def announced(self):
        for name, value in self.headers:
            if name.lower() == "content-length":
                return int(value)
        return None

    def send(self, result):
        """Sends what the application has returned; the rest of it, if that is the whole body."""
        if isinstance(result, (list, tuple)) and not self.begun:
            return b"".join(result)
        first = None
        for part in result:
            if first is not None:
                self.write(first)
                first = None
            if self.status is None:
                raise AssertionError("a body before start_response")
            if not self.begun and part and len(part) == self.announced():
                # Nothing can come behind it.
                first = part
            elif part:
                self.write(part)
        return first if first is not None else b""

    def run(self, application, environ):
        result, rest = None, b""
        try:
            result = application(environ, self.start_response)
            rest = self.send(result)
            if self.status is None:
                raise AssertionError("the application did not call start_response")
        except Exception:
            response = _failed()
            if self.begun:
                _give_up()
            self.status, self.fields = response.status, _encoded(response.headers)
            rest = _bytes(response.body)
        finally:
            try:
                if hasattr(result, "close"):
                    result.close()
            except Exception:
                _failed()
        if self.begun:
            self.channel.finish()
        else:
            self.channel.respond(self.status, self.fields, rest)


def wsgi(application, root_path=""):
    """Serves a WSGI application."""
    if not in_sandbox():
        from wsgiref.simple_server import make_server

        return _serve_wsgi_outside(application, make_server)
    channel = _Channel()
    while True:
        request = channel.receive()
        _WsgiExchange(channel).run(application, _environ(request, root_path))


# ---- ASGI 3 ---------------------------------------------------------------------------------


class _Selector(selectors.DefaultSelector):
    """Asks the system only if there is somebody to ask for: not before every step of a handler."""

    def select(self, timeout=None):
        # One descriptor is the loop's own, by which threads wake it when it sleeps.
        if timeout is not None and timeout <= 0 and len(self.get_map()) <= 1:
            return []
        return super().select(timeout)


class _AsgiExchange:
    """One request of an ASGI application."""

    def __init__(self, channel, request, loop):
        self.channel = channel
        self.request = request
        self.loop = loop
        self.reading = None
        self.body_ended = False
        self.over = loop.create_future()
        self.status = None
        self.fields = b""
        self.expects_trailers = False
        self.trailers = []
        # The whole body, while nobody knows yet whether the application does more.
        self.whole = None
        self.begun = False
        self.body_sent = False
        self.complete = False

    async def receive(self):
        if self.body_ended or self.complete:
            await self.over
            return {"type": "http.disconnect"}
        try:
            piece = await self._piece()
        except ConnectionResetError:
            self.body_ended = True
            return {"type": "http.disconnect"}
        self.body_ended = self.request.at_end()
        return {"type": "http.request", "body": piece, "more_body": not self.body_ended}

    async def _piece(self):
        if self.reading is None:
            try:
                return self.request.read(wait=False)
            except BlockingIOError:
                self.reading = self.loop.run_in_executor(None, self.request.read)
        # Whoever is cancelled must not take a piece with it.
        piece = await asyncio.shield(self.reading)
        self.reading = None
        return piece

    async def send(self, event):
        kind = event["type"]
        if kind == "http.response.start":
            if self.status is not None:
                raise RuntimeError("the response has begun already")
            self.fields = _encoded(event.get("headers", ()))
            self.expects_trailers = bool(event.get("trailers", False))
            self.status = int(event["status"])
        elif kind == "http.response.body":
            if self.status is None:
                raise RuntimeError("a body before the response has begun")
            if self.body_sent:
                raise RuntimeError("a body behind the end of the response")
            body = event.get("body", b"")
            self.body_sent = not event.get("more_body", False)
            await self._send_body(bytes(body))
        elif kind == "http.response.trailers":
            if not self.expects_trailers:
                raise RuntimeError("trailers that the response did not announce")
            self.trailers += event.get("headers", ())
            if not event.get("more_trailers", False):
                self._completed()
        else:
            raise RuntimeError("an HTTP exchange has no event %r" % kind)

    async def _send_body(self, body):
        if self.body_sent and not self.begun and len(body) < _LONGEST_MESSAGE // 2:
            self.whole = body
            # An application that waits for something else does more: that must not hold this up.
            self.loop.call_soon(self.flush)
        else:
            self._begin()
            for piece in _pieces(body):
                await self._write(piece)
        if self.body_sent and not self.expects_trailers:
            self._completed()

    def _completed(self):
        self.complete = True
        if not self.over.done():
            self.over.set_result(None)

    def _begin(self, body=b""):
        if not self.begun:
            self.begun = True
            self.channel.send(_BEGIN, self.status, self.fields, body=body)

    async def _write(self, piece):
        try:
            self.channel.send(_WRITE, body=piece, wait=False)
        except BlockingIOError:
            await self.loop.run_in_executor(
                None, lambda: self.channel.send(_WRITE, body=piece)
            )

    def flush(self):
        """Sends what there is."""
        if self.whole is not None:
            body, self.whole = self.whole, None
            self._begin(body)

    async def run(self, application, scope):
        """Runs the application to its end, which is the end of the exchange as well."""
        try:
            await application(scope, self.receive, self.send)
            if not self.complete:
                what = "a complete response" if self.status else "a response"
                raise RuntimeError("the application returned without %s" % what)
        except Exception:
            response = _failed()
            if self.begun and not self.complete:
                _give_up()
            if not self.complete:
                self.whole = _bytes(response.body)
                self.status, self.fields = response.status, _encoded(response.headers)
                self.trailers = []
        self._completed()
        body, self.whole = self.whole, None
        if body is not None:
            self.channel.respond(self.status, self.fields, body, _encoded(self.trailers))
        else:
            self.channel.finish(_encoded(self.trailers))


class _Lifespan:
    """The application's life: started before the first request, shut down when this ends."""

    def __init__(self, application, loop):
        self.application = application
        self.loop = loop
        self.state = {}
        self.events = asyncio.Queue()
        self.answered = loop.create_future()
        self.task = None

    async def _run(self):
        scope = {"type": "lifespan", "asgi": _ASGI, "state": self.state}
        try:
            await self.application(scope, self.events.get, self._send)
        except Exception:
            # It does not know of this, as a rule.
            pass
        finally:
            self._answer(None)

    async def _send(self, event):
        self._answer(event)

    def _answer(self, event):
        if not self.answered.done():
            self.answered.set_result(event)

    async def _tell(self, what):
        self.answered = self.loop.create_future()
        self.events.put_nowait({"type": "lifespan." + what})
        return await self.answered

    async def start(self):
        self.task = self.loop.create_task(self._run())
        answer = await self._tell("startup")
        if answer and answer["type"] == "lifespan.startup.failed":
            message = answer.get("message") or "the application's startup failed"
            print(message.rstrip(), file=sys.stderr)
            _flush()
            os._exit(3)

    async def stop(self):
        if self.task is not None and not self.task.done():
            await self._tell("shutdown")


_ASGI = {"version": "3.0", "spec_version": "2.4"}


def _scope(request, root_path, state):
    path, _, query = request.target.partition("?")
    raw_path = path.encode("latin-1")
    client = request.client
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": request.http_version,
        "method": request.method.upper(),
        "scheme": request.scheme,
        "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path,
        "query_string": query.encode("latin-1"),
        "root_path": root_path,
        "headers": request.raw_headers,
        "client": (client, 0) if client else None,
        "server": request.server,
        "state": state.copy(),
        "extensions": {"http.response.trailers": {}, "sandtide": {"request": request}},
    }


def _is_idle(loop):
    """Whether nothing but a request can make the loop go on."""
    scheduled = any(not handle.cancelled() for handle in loop._scheduled)
    return not loop._ready and not scheduled and len(loop._selector.get_map()) <= 1


async def _next_request(channel, loop):
    # Lets others come to rest, so that what they do is not done again for every request.
    for _ in range(1000):
        if not loop._ready:
            break
        await asyncio.sleep(0)
    if _is_idle(loop):
        return channel.receive()
    # Others go on meanwhile.
    return await loop.run_in_executor(None, channel.receive)


def asgi(application, root_path=""):
    """Serves an ASGI application."""
    if not in_sandbox():
        return _serve_asgi_outside(application, root_path)
    loop = asyncio.SelectorEventLoop(_Selector())
    asyncio.set_event_loop(loop)
    channel = _Channel()

    async def main():
        lifespan = _Lifespan(application, loop)
        await lifespan.start()
        try:
            while True:
                request = await _next_request(channel, loop)
                scope = _scope(request, root_path, lifespan.state)
                exchange = _AsgiExchange(channel, request, loop)
                # A task of its own has a context of its own.
                await loop.create_task(exchange.run(application, scope))
        finally:
            await lifespan.stop()

    loop.run_until_complete(main())


def _serve_asgi_outside(application, root_path):
    try:
        import uvicorn
    except ImportError:
        sys.exit("error: an ASGI application outside a sandbox needs a server\n\n"
                 "hint: pip install uvicorn")
    host, port = _address()
    uvicorn.run(application, host=host, port=port, root_path=root_path)


# ---- Finding an application -----------------------------------------------------------------

#: Names that applications, and functions that make one, usually have.
_NAMES = ("app", "application", "api", "asgi", "wsgi")
_MAKERS = ("create_app", "make_app", "get_app")
_FRAMEWORKS = ("fastapi", "starlette", "flask", "django", "quart", "litestar", "falcon", "bottle")


def _fail(message, hint=None):
    print("error: " + message + ("\n\nhint: " + hint if hint else ""), file=sys.stderr)
    _flush()
    os._exit(2)


def _shown():
    """Shows what was raised as Python does, without the frames of this file and the importer."""
    kind, error, trace = sys.exc_info()
    ours = (__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in ours
        or trace.tb_frame.f_code.co_filename.endswith(os.sep + "importlib/__init__.py")
    ):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)
    _flush()
    os._exit(1)


def _module(name):
    """The module with a name or, for `directory/file.py`, in a file."""
    if name.endswith(".py") or "/" in name:
        directory, name = os.path.split(name[:-3] if name.endswith(".py") else name)
        sys.path.insert(0, os.path.abspath(directory or "."))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.split(".")[0]:
            _fail("no module `%s` in `%s`" % (name, os.getcwd()),
                  "name it as in `sandtide serve --isolate MODULE:APPLICATION`")
        return _shown()
    except BaseException:
        return _shown()


def _attribute(module, path):
    found = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            names = ", ".join("`%s`" % name for name in sorted(vars(module)) if name[0] != "_")
            _fail("module `%s` has no `%s`" % (module.__name__, path), "it has " + names)
    return found


def _chosen(module):
    """The application of a module that was named alone."""
    for name in _NAMES:
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    found = {
        id(value): (name, value)
        for name, value in vars(module).items()
        if type(value).__module__.split(".")[0] in _FRAMEWORKS
        and callable(value)
        and _parameters(value) in (2, 3)
    }
    if len(found) == 1:
        return next(iter(found.values()))[1]
    for name in _MAKERS:
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    what = "several applications" if found else "no application"
    names = ", ".join("`%s`" % name for name, _ in found.values()) or "`%s`" % "`, `".join(_NAMES)
    return _fail("module `%s` has %s" % (module.__name__, what),
                 "name one, as in `%s:NAME`: %s" % (module.__name__, names))


def _parameters(value):
    """How many arguments a callable must be given."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except Exception:
        return -1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for p in parameters if p.kind in positional and p.default is p.empty)


def _is_asynchronous(value):
    call = getattr(value, "__call__", None)
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def _interface(application):
    """``(asgi or wsgi, application)`` of whatever was named."""
    for _ in range(2):
        if not callable(application):
            break
        count = _parameters(application)
        if inspect.isclass(application) and count != 0 or count == 1:
            # ASGI 2: a callable that makes one for each scope.
            async def single(scope, receive, send, double=application):
                await double(scope)(receive, send)

            return asgi, single
        if count == 3 or _is_asynchronous(application) and count < 0:
            return asgi, application
        if count == 2:
            return wsgi, application
        if count != 0:
            break
        try:
            application = application()
        except BaseException:
            _shown()
    return _fail("`%r` is neither an ASGI nor a WSGI application" % (application,),
                 "an ASGI application takes `(scope, receive, send)`, a WSGI application "
                 "`(environ, start_response)`, a function that makes one nothing")


def _main(arguments):
    import argparse
    import site

    parser = argparse.ArgumentParser(prog="sandtide.py", description="Serve an application.")
    parser.add_argument("application", metavar="MODULE[:APPLICATION]")
    parser.add_argument("--root-path", default="", help="where the application is mounted")
    parser.add_argument("--site", action="append", default=[], metavar="DIRECTORY",
                        help="a directory with installed packages; may be repeated")
    parser.add_argument("--system-site", action="store_true",
                        help="beside these, the packages of this Python itself")
    given = parser.parse_args(arguments)
    if given.site and not given.system_site:
        sys.path[:] = [path for path in sys.path
                       if os.path.basename(path) not in ("site-packages", "dist-packages")]
    sys.path.insert(0, os.getcwd())
    for directory in given.site:
        site.addsitedir(directory)
    name, _, attribute = given.application.partition(":")
    module = _module(name)
    found = _attribute(module, attribute.replace("()", "")) if attribute else _chosen(module)
    serves, application = _interface(found)
    serves(application, root_path=given.root_path)


if __name__ == "__main__":
    # An application that imports this module is to find this one.
    sys.modules["sandtide"] = sys.modules["__main__"]
    _main(sys.argv[1:])
