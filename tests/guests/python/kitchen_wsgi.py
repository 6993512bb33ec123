"""A WSGI application that does what can be done: tests/tests/python.rs."""

import io
import json
import random
import sys

count = 0


def answer(start_response, status, body, headers=()):
    start_response(status, [("Content-Length", str(len(body))), *headers])
    return [body]


def counted(environ, start_response):
    global count
    count += 1
    return answer(start_response, "200 OK", b"%d" % count)


def environ_of(environ, start_response):
    shown = {key: value for key, value in environ.items() if isinstance(value, (str, bool, tuple))}
    return answer(start_response, "200 OK", json.dumps(shown).encode())


def echo(environ, start_response):
    start_response("200 OK", [])
    return iter(lambda: environ["wsgi.input"].read(10_000), b"")


def lines(environ, start_response):
    body = environ["wsgi.input"]
    first, rest = body.readline(), list(body)
    return answer(start_response, "200 OK", b"%s|%d" % (first.strip(), len(rest)))


def writes(environ, start_response):
    write = start_response("200 OK", [("X-A", "b")])
    write(b"written, ")
    return [b"returned"]


class Closing:
    def __init__(self, parts):
        self.parts = iter(parts)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.parts)

    def close(self):
        print("closed")


def closes(environ, start_response):
    start_response("200 OK", [("Content-Length", "4")])
    return Closing([b"", b"body"])


def streams(environ, start_response):
    start_response("200 OK", [])
    return Closing(b"%d\n" % number for number in range(100))


def wraps(environ, start_response):
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](io.BytesIO(b"file" * 100_000), 8192)


def replaces(environ, start_response):
    start_response("200 OK", [("X-A", "b")])
    try:
        raise ValueError("found out later")
    except ValueError:
        start_response("400 Bad", [], sys.exc_info())
    return [b"replaced"]


def too_late(environ, start_response):
    write = start_response("200 OK", [])
    write(b"some")
    try:
        raise ValueError("found out too late")
    except ValueError:
        start_response("400 Bad", [], sys.exc_info())
    return []


def twice(environ, start_response):
    start_response("200 OK", [])
    start_response("200 OK", [])
    return []


def raises(environ, start_response):
    raise RuntimeError("before the response")


def never_starts(environ, start_response):
    return [b"x"]


def numbers(environ, start_response):
    return answer(start_response, "200 OK", b"%d" % random.getrandbits(64))


def large(environ, start_response):
    return answer(start_response, "200 OK", b"x" * 5_000_000)


def not_modified(environ, start_response):
    start_response("304 Not Modified", [("ETag", '"a"')])
    return []


def application(environ, start_response):
    name = environ["PATH_INFO"].strip("/").replace("-", "_").partition("/")[0]
    handler = globals().get(name or "counted")
    if not callable(handler):
        return answer(start_response, "404 Not Found", b"nothing here", [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    return handler(environ, start_response)
