"""Clients of the soak: each does one kind of thing over and over, and knows what has to come of it."""

import http.client
import os
import random
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

# What each way of the misbehave example has to end with.
FAULTS = {
    "/ok": 200,
    "/spin": 504,
    "/memory": 502,
    "/recurse": 502,
    "/trap": 502,
    "/abort": 502,
    "/exit": 502,
    "/silent": 502,
    "/log": 200,
    "/wild": 200,
    "/bad-header": 502,
    "/nothing": 404,
    # Broken off, unless it broke down before the head went out.
    "/big": None,
    "/fault-after-head": None,
}


class Problem(Exception):
    """What a client got was not what it had to get."""


class Client(threading.Thread):
    """Calls `step` until told to stop. What goes wrong is kept in `problems`."""

    def __init__(self, stop, seed=0):
        super().__init__(daemon=True)
        self.stopping = stop
        self.random = random.Random(seed)
        self.done = 0
        self.problems = []

    def run(self):
        while not self.stopping.is_set():
            try:
                self.done += self.step()
            except (Problem, OSError, http.client.HTTPException, subprocess.SubprocessError) as error:
                self.problems.append(f"{self.label()}: {type(error).__name__}: {error}")
                self.stopping.wait(0.1)
        self.close()

    def label(self):
        return type(self).__name__.lower()

    def close(self):
        """Lets go of what is kept between two steps."""


class H2load(Client):
    """h2load, a few thousand requests at a time, each of which has to be answered with 200."""

    def __init__(self, stop, url, *arguments, count=2000):
        super().__init__(stop)
        self.url, self.arguments, self.count = url, arguments, count

    def label(self):
        return f"h2load {' '.join(self.arguments)} {self.url}"

    def step(self):
        command = ["h2load", "-n", str(self.count), "-c", "4", *self.arguments, self.url]
        text = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        found = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
        good = re.search(r"(\d+) 2xx", text)
        if not found or [int(n) for n in found.groups()] != [self.count, 0, 0, 0] or int(good.group(1)) != self.count:
            raise Problem("; ".join(line for line in text.splitlines() if line.startswith(("requests:", "status"))) or "no summary")
        time.sleep(0.05)
        return self.count


class Kept(Client):
    """Keeps a connection over many steps."""

    def __init__(self, stop, connect, seed=0):
        super().__init__(stop, seed)
        self.connect, self.connection = connect, None

    def ask(self, method, host, path, body=None, headers=None):
        if self.connection is None:
            self.connection = self.connect()
        try:
            chunked = not (body is None or isinstance(body, bytes))
            self.connection.request(method, path, body, {"Host": host, **(headers or {})}, encode_chunked=chunked)
            response = self.connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Echo(Kept):
    """Bodies of all lengths, announced and in chunks, which have to come back whole."""

    def step(self):
        body = self.random.randbytes(self.random.choice([0, 1, 1000, 16384, 100_000]))
        pieces = [body[at : at + 7000] for at in range(0, len(body), 7000)]
        chunked = self.random.random() < 0.5
        headers = {"Transfer-Encoding": "chunked"} if chunked else {}
        status, got = self.ask("POST", "echo.localhost", "/stream", iter(pieces) if chunked else body, headers)
        if status != 200 or got != body:
            raise Problem(f"{status}, {len(got)} bytes of {len(body)}")
        if self.random.random() < 0.05:
            self.close()
        return 1


class Faults(Kept):
    """Each way to misbehave, which has to end as it must."""

    def step(self):
        path, expected = self.random.choice(list(FAULTS.items()))
        try:
            status, _ = self.ask("GET", "misbehave.localhost", path)
        except (OSError, http.client.HTTPException):
            if expected is not None:
                raise
            return 1
        if status != (expected or 502):
            raise Problem(f"{path} answered {status}, not {expected or 'nothing'}")
        return 1


class Counter(Kept):
    """A tenant with state, which must not lose any."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.last = 0

    def step(self):
        status, body = self.ask("GET", "counter.localhost", "/")
        if status != 200 or int(body) <= self.last:
            raise Problem(f"{status}, {body} after {self.last}")
        self.last = int(body)
        time.sleep(0.01)
        return 1


class Shaking(Client):
    """A TLS handshake for each request."""

    def __init__(self, stop, address):
        super().__init__(stop)
        self.address = address
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def step(self):
        connection = http.client.HTTPSConnection(self.address, context=self.context, timeout=60)
        try:
            connection.request("GET", "/", headers={"Host": "hello.localhost"})
            status = connection.getresponse().status
        finally:
            connection.close()
        if status != 200:
            raise Problem(f"answered {status}")
        time.sleep(0.02)
        return 1


class Leaving(Client):
    """Goes away at any point of a request or a response; nothing has to come of it."""

    REQUESTS = [
        b"POST /stream HTTP/1.1\r\nhost: echo.localhost\r\ncontent-length: 100000\r\n\r\n" + b"x" * 5000,
        b"POST /stream HTTP/1.1\r\nhost: echo.localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"GET /big HTTP/1.1\r\nhost: misbehave.localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: hello.local",
        b"GET / HTTP/1.1\r\nhost: hello.localhost\r\n\r\n" * 50,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\1\4\0\0\0\1\x82\x86",
        b"\x16\x03\x01\x02\x00\x01",
        b"",
    ]

    def __init__(self, stop, addresses, seed=0):
        super().__init__(stop, seed)
        self.addresses = addresses

    def step(self):
        host, port = self.random.choice(self.addresses).split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            request = self.random.choice(self.REQUESTS)
            connection.sendall(request[: self.random.randint(0, len(request))] if self.random.random() < 0.3 else request)
            if self.random.random() < 0.5:
                connection.settimeout(0.02)
                try:
                    connection.recv(100)
                except OSError:
                    pass
            if self.random.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.005)
        return 1


class Reloads(Client):
    """Changes the configuration and a program in turn, and says so with SIGHUP."""

    def __init__(self, stop, server, config, texts, program, versions):
        super().__init__(stop)
        self.server, self.config, self.texts = server, config, texts
        self.program, self.versions = program, versions

    def step(self):
        turn = self.done
        if turn % 2:
            replace(self.config, lambda path: path.write_text(self.texts[turn // 2 % len(self.texts)]))
        else:
            replace(self.program, lambda path: shutil.copy(self.versions[turn // 2 % len(self.versions)], path))
        self.server.hang_up()
        self.stopping.wait(0.5)
        return 1


def replace(path, write):
    """Puts a file in the place of another in one step."""
    unfinished = path.with_name(path.name + ".unfinished")
    write(unfinished)
    os.replace(unfinished, path)
