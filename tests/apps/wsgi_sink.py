"""A WSGI application with one path for each thing that a test wants to see."""

import json
import sys
import threading
import time


def app(environ, start_response):
    name = environ["PATH_INFO"].strip("/").split("/")[0] or "hello"
    return globals().get("do_" + name, missing)(environ, start_response)


def missing(environ, start_response):
    start_response("404 Not Found", [("Content-Type", "text/plain")])
    return [b"nothing here\n"]


def do_hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"Hello, ", b"", b"World!\n"]


def do_environ(environ, start_response):
    start_response("200 OK", [])
    plain = {key: value for key, value in environ.items() if isinstance(value, (str, int, bool, tuple))}
    return [json.dumps(plain).encode()]


def do_echo(environ, start_response):
    start_response("200 OK", [])
    return [environ["wsgi.input"].read()]


def do_lines(environ, start_response):
    source = environ["wsgi.input"]
    first, rest = source.readline(), list(source)
    start_response("200 OK", [])
    return [repr([first, *rest, source.read(), source.readline()]).encode()]


def do_pieces(environ, start_response):
    """Reads a little, and says so, before the rest is there."""
    source = environ["wsgi.input"]
    start_response("200 OK", [])
    yield source.read(2)
    yield source.readline(3)
    yield from source.readlines()


def do_write(environ, start_response):
    write = start_response("200 OK", [])
    write(b"written, ")
    return [b"returned"]


def do_large(environ, start_response):
    start_response("200 OK", [])
    for _ in range(512):
        yield bytes(65536)


class Closing:
    def __iter__(self):
        return iter([b"body"])

    def close(self):
        print("closed", file=sys.stderr, flush=True)


def do_close(environ, start_response):
    start_response("200 OK", [])
    return Closing()


def do_raise(environ, start_response):
    raise ValueError("on purpose")


def do_replace(environ, start_response):
    start_response("200 OK", [("X-First", "1")])
    try:
        raise ValueError("handled")
    except ValueError:
        start_response("503 Service Unavailable", [], sys.exc_info())
    return [b"replaced"]


def do_late(environ, start_response):
    start_response("200 OK", [])
    yield b"begun"
    environ["wsgi.input"].read()
    try:
        raise ValueError("too late")
    except ValueError:
        start_response("500 Oh", [], sys.exc_info())


def do_twice(environ, start_response):
    start_response("200 OK", [])
    try:
        start_response("200 OK", [])
    except AssertionError as error:
        return [str(error).encode()]


def do_never(environ, start_response):
    return [b"no head"]


def do_thread(environ, start_response):
    start_response("200 OK", [])
    return [str(threading.current_thread() is threading.main_thread()).encode()]


MEETING = threading.Barrier(2)


def do_meet(environ, start_response):
    """Answers when two requests are here at a time."""
    MEETING.wait(30)
    start_response("200 OK", [])
    return [b"met"]
