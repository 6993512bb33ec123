"""The parts of the benchmark. Each measures its peers in turn and adds figures."""

import http.client
import os
import subprocess
import tempfile
import time

from compute import checks, compute
from crowd import crowd
from load import OpenLoop, Server, Wrk, available_bytes, binary, built, configuration, guest, lines
from protocols import protocols
from sandboxes import sandboxes
from servers import servers


def throughput(root, options, add):
    """Bare hyper, vanilla and sandboxed: requests per second and CPU time of the server for each."""
    cores = os.cpu_count() or 1
    with both(root, 1) as one, bare(root) as hyper:
        cases = [(1, c, False) for c in (1, 8, 64)] + [(1, 64, True)]
        peers = [("hyper", hyper, "vanilla.localhost"), *tenants(one)]
        measure(cases, peers, options, add, server="0", client="1" if cores > 1 else "0")
    if cores > 1:
        with both(root, 2, cpus=None) as two:
            cases = [(2, c, False) for c in (8, 64)] + [(2, 64, True)]
            measure(cases, list(tenants(two)), options, add, server=None, client=None)


def tenants(server):
    return ("vanilla", server, "vanilla.localhost"), ("hello", server, "hello.localhost")


def measure(cases, peers, options, add, server, client):
    for threads, connections, pipeline in cases:
        suffix = f"threads={threads}/connections={connections}" + ("/pipelined" if pipeline else "")
        for name, process, host in peers:
            Wrk(process.address, host, connections, 1, pipeline=pipeline, cpus=client)
        for _ in range(options.rounds):
            seen = {}
            for name, process, host in peers:
                before, faults = process.cpu_seconds(), process.minor_faults()
                run = Wrk(process.address, host, connections, options.seconds, pipeline=pipeline, cpus=client)
                used, faults = process.cpu_seconds() - before, process.minor_faults() - faults
                if run.failed:
                    raise SystemExit(f"error: {name} failed {run.failed} requests:\n{run.text}")
                seen[name] = (run.per_second, used / run.requests * 1e6)
                add(f"{name}/{suffix}", "throughput", run.per_second, "requests/s")
                add(f"{name}/{suffix}", "cpu", used / run.requests * 1e6, "us/request")
                add(f"{name}/{suffix}", "page_faults", faults / run.requests, "faults/request")
            add(f"hello-to-vanilla/{suffix}", "throughput_ratio", seen["hello"][0] / seen["vanilla"][0], "ratio")
            add(f"hello-over-vanilla/{suffix}", "added_cpu", seen["hello"][1] - seen["vanilla"][1], "us/request")
            if "hyper" in seen:
                add(f"vanilla-to-hyper/{suffix}", "cpu_ratio", seen["vanilla"][1] / seen["hyper"][1], "ratio")


def inside(root, options, add):
    """One exchange and its reset, from inside."""
    text = f'[tenants.hello]\nauthorities = ["hello.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
    with configuration(text) as file:
        for _ in range(options.rounds):
            lines(add, [binary(root, "inside"), file.name])


def loading(root, _options, add):
    """How long programs take to load: interpreted, translated, and from the cache of translations."""
    for name in ("hello", "python", "echo"):
        lines(add, [built(root, "loading"), root / f"build/examples/{name}.elf"])


def resets(root, _options, add):
    """What it costs to undo a request's writes: by marked pages, and by protected ones."""
    lines(add, [built(root, "resets")])


def idle(root, _options, add):
    """Memory of 1,000 tenants, each with a program of its own, loaded and having answered once."""
    count = 1000
    text = "".join(
        f'[tenants.t{n}]\nauthorities = ["t{n}.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
        f'env = {{ TENANT = "{n}" }}\n'
        for n in range(count)
    )
    base = '[tenants.vanilla]\ndefault = true\nrespond = { status = 200, body = "x" }\n'
    with configuration(base) as file, serve(root, file.name, 1) as server:
        empty = server.resident_bytes()
    before = available_bytes()
    with configuration(base + text) as file, serve(root, file.name, 1) as server:
        add("idle/1000-tenants", "resident_before_first_request", (server.resident_bytes() - empty) / count / 1024, "KiB/tenant")
        for n in range(count):
            get(server, f"t{n}.localhost")
        add("idle/1000-tenants", "resident", (server.resident_bytes() - empty) / count / 1024, "KiB/tenant")
        add("idle/1000-tenants", "machine", (before - available_bytes()) / count / 1024, "KiB/tenant")


def start(root, options, add):
    """From the start of the process to the first answer of a sandboxed tenant."""
    for _ in range(max(options.rounds, 10)):
        begin = time.perf_counter()
        with Server(command(root, root / "build/examples/hello.elf", 1)) as server:
            get(server, "hello.localhost")
            add("start", "first_response", (time.perf_counter() - begin) * 1e3, "ms")


def quiet(root, options, add):
    """p99 of a quiet tenant on one reactor, alone and beside 1, 4 and 16 exchanges that compute for ever."""
    for spinners in (1, 4, 16):
        text = (
            f'[tenants.quiet]\nauthorities = ["quiet.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
            f'[tenants.spin]\nauthorities = ["spin.localhost"]\nprogram = "{root}/build/examples/misbehave.elf"\n'
            f'concurrency = {spinners}\n[tenants.spin.limits]\nwall_time = "2 s"\ninstructions = 100000000000\n'
        )
        with configuration(text) as file, serve(root, file.name, 1, cpus="0") as server:
            for _ in range(options.rounds):
                alone = Wrk(server.address, "quiet.localhost", 1, options.seconds, cpus="1")
                spinner = subprocess.Popen(
                    ["taskset", "-c", "1", "wrk", "-t1", f"-c{spinners}", f"-d{options.seconds + 1}s", "--timeout", "10s"]
                    + ["-H", "Host: spin.localhost", f"http://{server.address}/spin"],
                    stdout=subprocess.DEVNULL,
                )
                time.sleep(0.3)
                beside = Wrk(server.address, "quiet.localhost", 1, options.seconds, cpus="1")
                spinner.wait()
                if beside.failed:
                    raise SystemExit(f"error: the quiet tenant failed {beside.failed} requests:\n{beside.text}")
                name = f"quiet/spinners={spinners}"
                add(name, "p99_alone", alone.latency_ms(99), "ms")
                add(name, "p99_beside", beside.latency_ms(99), "ms")
                add(name, "p99_ratio", beside.latency_ms(99) / alone.latency_ms(99), "ratio")
                add(name, "throughput_beside", beside.per_second, "requests/s")


def overload(root, options, add):
    """Twice as many requests as can be served: how many are, in time, and how a quiet tenant fares meanwhile."""
    text = (
        f'[tenants.busy]\nauthorities = ["busy.localhost"]\nprogram = "{guest(root, "busy")}"\n'
        f'[tenants.hello]\nauthorities = ["hello.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
    )
    with configuration(text) as file, serve(root, file.name, 1, cpus="0") as server:

        def client(host, rate, connections, seconds):
            return OpenLoop(root, server.address, host, rate, connections, seconds, cpus="1")

        for _ in range(options.rounds):
            for name, closed, connections in (("busy", 8, 1024), ("hello", 64, 256)):
                capacity = Wrk(server.address, f"{name}.localhost", closed, options.seconds, cpus="1").per_second
                seen = client(f"{name}.localhost", 2 * capacity, connections, options.seconds + 3).result()
                add_overload(f"overload/{name}", seen, capacity, add)
                if name == "busy":
                    flood = client("busy.localhost", 2 * capacity, connections, options.seconds + 3)
                    time.sleep(1)
                    beside = client("hello.localhost", 500, 16, options.seconds).result()
                    flood.result()
                    add("overload/hello-beside-busy", "goodput", beside["good"] / beside["offered"], "ratio")
                    add("overload/hello-beside-busy", "p99", beside["served_p99_ms"], "ms")


def add_overload(name, seen, capacity, add):
    """One run at twice the capacity. Good is what was answered 200 within a second of when it was due."""
    add(name, "capacity", capacity, "requests/s")
    add(name, "goodput", seen["good_per_second"] / capacity, "ratio")
    add(name, "refused", seen["refused"] / seen["offered"], "ratio")
    add(name, "given_up", seen["given_up"] / seen["offered"], "ratio")
    add(name, "failed", seen["failed"], "requests")
    for metric in ("served_p50_ms", "served_p99_ms", "refused_p99_ms"):
        if seen[metric] is not None:
            add(name, metric.removesuffix("_ms"), seen[metric], "ms")


def metering(root, options, add):
    """Hello with and without the access log (JSON) and somebody who reads the metrics. What a reactor counts, it counts always."""
    hello = f'[tenants.hello]\nauthorities = ["hello.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
    with tempfile.TemporaryDirectory() as directory:
        log = f'[access_log]\nfile = "{directory}/access.log"\nformat = "json"\n'
        admin = '[admin]\nlisten = "127.0.0.1:0"\n'
        with (
            configuration(hello) as plain,
            configuration(admin + log + hello) as observed,
            serve(root, plain.name, 1, cpus="0") as off,
            serve(root, observed.name, 1, cpus="0") as on,
        ):
            peers = [("off", off), ("on", on)]
            for _, server in peers:
                Wrk(server.address, "hello.localhost", 64, 1, cpus="1")
            for index in range(options.rounds):
                seen = {}
                # Whoever goes first has a machine that is a little cooler.
                for name, server in peers if index % 2 else reversed(peers):
                    before = server.cpu_seconds()
                    run = Wrk(server.address, "hello.localhost", 64, options.seconds, cpus="1")
                    if server is on:
                        scrape(server)
                    used = server.cpu_seconds() - before
                    if run.failed:
                        raise SystemExit(f"error: {name} failed {run.failed} requests:\n{run.text}")
                    seen[name] = (run.per_second, used / run.requests * 1e6)
                    add(f"metering/{name}", "throughput", run.per_second, "requests/s")
                    add(f"metering/{name}", "cpu", seen[name][1], "us/request")
                add("metering/on-to-off", "throughput_ratio", seen["on"][0] / seen["off"][0], "ratio")
                add("metering/on-to-off", "cpu_ratio", seen["on"][1] / seen["off"][1], "ratio")


def scrape(server):
    """One look at the metrics, as Prometheus takes it."""
    line = next(line for line in server.lines if line.startswith("admin: "))
    connection = http.client.HTTPConnection(line.strip().removeprefix("admin: http://"))
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    connection.close()


def command(root, target, threads):
    return [binary(root, "sandtide"), "serve", target, "--listen", "127.0.0.1:0", "--threads", threads]


def serve(root, target, threads, cpus=None):
    return Server(command(root, target, threads), cpus=cpus)


def both(root, threads, cpus="0"):
    """One server with the vanilla and the hello tenant."""
    file = configuration(
        '[tenants.vanilla]\nauthorities = ["vanilla.localhost"]\n'
        'respond = { status = 200, headers = { content-type = "text/plain" }, body = "Hello, World!\\n" }\n'
        f'[tenants.hello]\nauthorities = ["hello.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
    )
    server = serve(root, file.name, threads, cpus)
    server.configuration = file
    return server


def bare(root):
    return Server([binary(root, "bare-hyper"), "127.0.0.1:0"], cpus="0")


def get(server, host):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(server.address)
    connection.request("GET", "/", headers={"Host": host})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"error: {host} answered {answer.status}")


ALL = {
    "throughput": throughput,
    "protocols": protocols,
    "inside": inside,
    "servers": servers,
    "idle": idle,
    "crowd": crowd,
    "start": start,
    "quiet": quiet,
    "metering": metering,
    "overload": overload,
    "compute": compute,
    "checks": checks,
    "resets": resets,
    "load": loading,
    "sandboxes": sandboxes,
}

# These need no server.
ALONE = {"compute", "checks", "resets", "load"}
