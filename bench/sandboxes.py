"""What sandboxes of one Node program cost in memory, when many of them exist at once."""

import os
import pathlib
import re
import shutil
import socket
import sys

from load import Server, available_bytes, binary, configuration

COUNTS = (1, 10, 100)
PROGRAM = """
[tenants.held]
default = true
program = "{node}"
args = ["{script}"]
files = {{ "{folder}" = "{folder}" }}
concurrency = 256
warmup = {{ requests = 20 }}
[tenants.held.limits]
wall_time = "10 min"
response_time = "10 min"
"""
NOTHING = '[tenants.none]\ndefault = true\nrespond = { status = 200, body = "x" }\n'


def sandboxes(root, _options, add):
    """Memory of 1, 10, 100 sandboxes that are in the middle of a request, the program itself included.

    `process` is what the process has written, its page tables, and the files in memory that all sandboxes share, whether mapped
    or not; `kernel` is what KVM has of its own; `available` is what the whole machine has less. The latter two are only worth
    something on a quiet machine.
    """
    node = shutil.which("node")
    if not node:
        sys.exit("error: node is not installed\n\nhint: install Node 20")
    script = root / "bench/guests/held.js"
    text = PROGRAM.format(node=node, script=script, folder=script.parent)
    base = quiet = None
    with configuration(NOTHING) as file, serve(root, file.name) as server:
        base, quiet = Memory(server), available_bytes()
    with configuration(text) as file, serve(root, file.name) as server:
        wait_until_loaded(server)
        add("sandboxes/node", "program", (Memory(server).total - base.total) / 2**20, "MiB")
        held = []
        for count in COUNTS:
            while len(held) < count:
                held.append(hold(server.address))
            memory = Memory(server)
            name = f"sandboxes/node/{count}"
            add(name, "process", (memory.process - base.process) / 2**20, "MiB")
            add(name, "kernel", (memory.kernel - base.kernel) / 2**20, "MiB")
            add(name, "total", (memory.total - base.total) / 2**20, "MiB")
            add(name, "available", (quiet - available_bytes()) / 2**20, "MiB")
            if count == 1:
                first = memory.total - base.total
        add("sandboxes/node", "hundred_to_one", (memory.total - base.total) / first, "ratio")
        for client in held:
            client.close()


def serve(root, file):
    return Server([binary(root, "sandtide"), "serve", file, "--listen", "127.0.0.1:0", "--threads", 1])


def wait_until_loaded(server):
    client = request(server.address, "/")
    client.recv(4096)
    client.close()


def request(address, path):
    host, port = address.split(":")
    client = socket.create_connection((host, int(port)))
    client.settimeout(60)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return client


def hold(address):
    """A request that is being answered for ever."""
    client = request(address, "/held")
    answer = b""
    while b"held" not in answer:
        piece = client.recv(4096)
        if not piece:
            sys.exit(f"error: a request was not held: {answer!r}")
        answer += piece
    return client


class Memory:
    """What a server uses, in bytes."""

    def __init__(self, server):
        folder = pathlib.Path(f"/proc/{server.process.pid}")
        mapped = kibibytes(folder / "smaps_rollup", "Pss") - kibibytes(folder / "smaps_rollup", "Pss_Shmem")
        links = [link for link in (folder / "fd").iterdir() if os.readlink(link).startswith("/memfd:")]
        # By inode: a descriptor may have been duplicated.
        files = {stat.st_ino: stat.st_blocks * 512 for stat in map(os.stat, links)}
        self.process = mapped + sum(files.values()) + kibibytes(folder / "status", "VmPTE")
        self.kernel = sum(kibibytes(pathlib.Path("/proc/meminfo"), name) for name in ("SecPageTables", "VmallocUsed"))
        self.total = self.process + self.kernel


def kibibytes(path, name):
    return int(re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.M).group(1)) * 1024
