"""Unmodified servers in virtual machines, beside the same servers as ordinary processes."""

import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from load import Server, Wrk, binary, configuration, lines

# What each of these answers is the same few bytes.
SERVERS = pathlib.Path(__file__).resolve().parent / "servers"

LIMITS = 'memory = "1 GiB"\nboot_time = "120 s"\nthreads = 256\ndescriptors = 1024\n'

# As warm-up requests before the snapshot, and as requests to the ordinary process before it is measured.
WARMUP = 500

CONNECTIONS = (1, 8)


class Program:
    """A server program: how to start it on a port, and where its tenant finds it."""

    def __init__(self, name, command, *, files=(), env=None, direct=False):
        self.name, self.command, self.files, self.env, self.direct = name, command, files, env or {}, direct

    def tenant(self, port):
        """Its part of a sandtide.toml."""
        program, *args = (str(word).replace("PORT", str(port)) for word in self.command)
        pairs = lambda items: "{ " + ", ".join(f"{json.dumps(str(k))} = {json.dumps(str(v))}" for k, v in items) + " }"
        lines = [f"[tenants.{self.name}]", f'authorities = ["{self.name}.localhost"]', f"program = {json.dumps(program)}"]
        lines += [f"args = {json.dumps(args)}", f"env = {pairs(self.env.items())}"]
        lines += [f"files = {pairs((path, path) for path in self.files)}", 'directory = "/"']
        if not self.direct:
            lines += [f"warmup = {{ requests = {WARMUP} }}"]
        return "\n".join([*lines, f"[tenants.{self.name}.limits]", LIMITS])

    def bare(self):
        """The same, as an ordinary process that has answered as many requests as the warm-up has."""
        port = free_port()
        command = [str(word).replace("PORT", str(port)) for word in self.command]
        server = Server(["env", *(f"{k}={v}" for k, v in self.env.items()), *command], ready=READY, cpus="0")
        connection = http.client.HTTPConnection(server.address)
        for _ in range(WARMUP):
            connection.request("GET", "/")
            connection.getresponse().read()
        connection.close()
        return server


READY = r"(?:listening|running) on .*?(127\.0\.0\.1:\d+)"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def servers(root, options, add):
    """Each program in sandboxes and bare: requests, latency and CPU time; then one exchange from inside."""
    for program in programs(root):
        text = program.tenant(8000)
        with configuration('[admin]\nlisten = "127.0.0.1:0"\n' + text) as file:
            alone = [binary(root, "sandtide"), "serve", file.name, "--listen", "127.0.0.1:0", "--threads", 1]
            start = time.perf_counter()
            with Server(alone, cpus="0") as sandboxed:
                get(sandboxed, program.name)
                add(f"servers/{program.name}", "boot_to_first_response", (time.perf_counter() - start) * 1e3, "ms")
                if program.direct:
                    beside(program, {"sandboxed": sandboxed}, options, add)
                else:
                    with program.bare() as bare:
                        beside(program, {"bare": bare, "sandboxed": sandboxed}, options, add)
        with configuration(text) as file:
            restored(root, program, file.name, options, add)
            lines(add, [binary(root, "inside"), file.name])


def restored(root, program, config, options, add):
    """The same from a snapshot on disk: how long that takes to make, and from there to the first response."""
    file = root / f"build/bench/{program.name}.snapshot"
    file.unlink(missing_ok=True)
    start = time.perf_counter()
    command = [binary(root, "sandtide"), "snapshot", config, "--tenant", program.name, "-o", file]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: no snapshot of {program.name}:\n{done.stderr}")
    name = f"servers/{program.name}"
    add(name, "snapshot", (time.perf_counter() - start) * 1e3, "ms")
    add(name, "snapshot_size", file.stat().st_size / 2**20, "MiB")
    for _ in range(max(options.rounds, 5)):
        start = time.perf_counter()
        with Server([binary(root, "sandtide"), "serve", file, "--listen", "127.0.0.1:0", "--threads", 1]) as server:
            get(server, program.name)
            add(name, "restore_to_first_response", (time.perf_counter() - start) * 1e3, "ms")
            add(name, "restore_cpu", server.cpu_seconds() * 1e3, "ms")


def beside(program, peers, options, add):
    """The peers under load, in turns."""
    for connections in CONNECTIONS:
        for server in peers.values():
            Wrk(server.address, f"{program.name}.localhost", connections, 1, cpus="1")
        for number in range(options.rounds):
            seen = {}
            for peer, server in list(peers.items())[:: 1 if number % 2 else -1]:
                before = server.cpu_seconds()
                run = Wrk(server.address, f"{program.name}.localhost", connections, options.seconds, cpus="1")
                cpu = (server.cpu_seconds() - before) / run.requests * 1e6
                if run.failed:
                    raise SystemExit(f"error: {program.name} {peer} failed {run.failed} requests:\n{run.text}")
                seen[peer] = (run.per_second, cpu)
                name = f"servers/{program.name}/{peer}/connections={connections}"
                add(name, "throughput", run.per_second, "requests/s")
                add(name, "cpu", cpu, "us/request")
                add(name, "p50", run.latency_ms(50), "ms")
                add(name, "p99", run.latency_ms(99), "ms")
            if "bare" in seen:
                name = f"servers/{program.name}/sandboxed-to-bare/connections={connections}"
                add(name, "throughput_ratio", seen["sandboxed"][0] / seen["bare"][0], "ratio")
                add(name, "cpu_ratio", seen["sandboxed"][1] / seen["bare"][1], "ratio")


def get(server, name):
    connection = http.client.HTTPConnection(server.address)
    connection.request("GET", "/", headers={"Host": f"{name}.localhost"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"error: {name} answered {answer.status}")


def programs(root):
    """Those whose languages are on this machine. What is left out is said."""
    folder = root / "build/bench"
    folder.mkdir(parents=True, exist_ok=True)
    cc = ["cc", "-O2", "-static", "-Wall", "-Wextra", "-Werror"]
    direct = made(folder / "direct", root / "examples/hello/hello.c", [*cc, "-I", root / "sdk/c", "-o"])
    yield Program("direct", [direct], direct=True)
    yield Program("c", [made(folder / "server-c", SERVERS / "server.c", [*cc, "-o"]), "PORT"])
    if shutil.which("go"):
        yield Program("go", [made(folder / "server-go", SERVERS / "server.go", ["go", "build", "-o"]), "PORT"])
    else:
        print("# left out: go, which is not installed", file=sys.stderr)
    script = SERVERS / "server.mjs"
    for name, arguments in (("node", ()), ("deno", ("run", "--allow-all")), ("bun", ("run",))):
        if found := interpreter(root, name):
            yield Program(name, [found, *arguments, script, "PORT"], files=[SERVERS], env={"HOME": "/tmp", "NO_COLOR": "1"})
        else:
            print(f"# left out: {name}, which is not installed", file=sys.stderr)
    yield from fastapi(root)


def fastapi(root):
    """With the Python and the packages that `scripts/setup` puts into a virtual environment."""
    python = root / "build/apps/bin/python"
    packages = next(root.glob("build/apps/lib/python3*/site-packages/uvicorn"), None)
    if packages is None:
        print("# left out: fastapi, which is not in build/apps", file=sys.stderr)
        return
    packages = packages.parent
    command = [python, "-m", "uvicorn", "app:app", "--port", "PORT", "--no-access-log"]
    # The environment's own settings are not among what a program may read by itself.
    env = {"PYTHONPATH": f"{SERVERS}:{packages}"}
    yield Program("fastapi", command, files=[SERVERS, packages], env=env)


def interpreter(root, name):
    """An interpreter of JavaScript: the one that `scripts/setup` installs, or the machine's."""
    installed = root / "build/npm/bin" / name
    return installed if installed.exists() else shutil.which(name)


def made(program, source, command):
    """A program made from one source file, unless it is newer."""
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        done = subprocess.run([*map(str, command), str(program), str(source)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"error: {source} does not compile:\n{done.stderr}")
    return program
