"""Ten thousand tenants, of which nobody has asked for any yet."""

import http.client
import time

from load import Server, binary, configuration

COUNT = 10_000
SAMPLES = 2_000


def crowd(root, options, add):
    """Start-up, memory for each tenant before, during and after use, and what the first request waits for."""
    base = '[tenants.vanilla]\ndefault = true\nrespond = { status = 200, body = "x" }\n'
    # An environment of its own makes each a program of its own.
    text = base + "[defaults]\nload = \"first-use\"\ncold_after = \"20 s\"\n"
    text += "".join(
        f'[tenants.t{n}]\nauthorities = ["t{n}.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
        f'env = {{ TENANT = "{n}" }}\n'
        for n in range(COUNT)
    )
    name = f"crowd/{COUNT}-tenants"
    with configuration(base) as file, serve(root, file.name) as server:
        empty = server.resident_bytes()
    with configuration(text) as file:
        begin = time.perf_counter()
        with serve(root, file.name) as server:
            add(name, "start", time.perf_counter() - begin, "s")

            def resident(when):
                each = (server.resident_bytes() - empty) / COUNT / 1024
                add(name, when, each, "KiB/tenant")
                return each

            resident("resident_before_use")
            first, again = ask(server, range(SAMPLES)), ask(server, range(SAMPLES))
            for label, times in (("first_request", first), ("second_request", again)):
                add(name, f"{label}_p50", percentile(times, 50), "ms")
                add(name, f"{label}_p99", percentile(times, 99), "ms")
            ask(server, range(SAMPLES, COUNT))
            used = resident("resident_after_use")
            cold = fallen(server, empty, used)
            add(name, "resident_after_cold", cold, "KiB/tenant")
            add(name, "first_request_after_cold_p99", percentile(ask(server, range(SAMPLES)), 99), "ms")


def serve(root, file):
    return Server([binary(root, "sandtide"), "serve", file, "--listen", "127.0.0.1:0", "--threads", 2])


def ask(server, tenants):
    """A request to each on one connection: how long each took, in milliseconds."""
    connection = http.client.HTTPConnection(server.address)
    connection.connect()
    times = []
    for n in tenants:
        begin = time.perf_counter()
        connection.request("GET", "/", headers={"Host": f"t{n}.localhost"})
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - begin) * 1e3)
        if answer.status != 200:
            raise SystemExit(f"error: t{n} answered {answer.status}")
    connection.close()
    return times


def percentile(times, percent):
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def fallen(server, empty, used):
    """KiB for each tenant when nothing more is given back: the same within 2 % for five seconds."""
    last, since = used, time.monotonic()
    end = time.monotonic() + 120
    while time.monotonic() < end:
        time.sleep(1)
        each = (server.resident_bytes() - empty) / COUNT / 1024
        if abs(each - last) > 0.02 * used:
            last, since = each, time.monotonic()
        # Before it has fallen at all, they are not cold yet.
        if time.monotonic() - since > 5 and last < 0.9 * used:
            break
    return last
