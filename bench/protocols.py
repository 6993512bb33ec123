"""What each protocol costs: the same answers over HTTP/1.1 and HTTP/2, in clear and over TLS."""

import os
import pathlib
import re
import subprocess
import tempfile

from load import Server, binary

# Each has 64 requests in flight. Of HTTP/2's connections, eight carry eight streams each.
CASES = {
    "h1": ("http", ["-c", "64", "--h1"]),
    "h2c": ("http", ["-c", "8", "-m", "8"]),
    "h1-tls": ("https", ["-c", "64", "--h1"]),
    "h2-tls": ("https", ["-c", "8", "-m", "8"]),
}

SUMMARY = r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout"


def protocols(root, options, add):
    """Requests per second and CPU time of the server for each, vanilla and sandboxed, one server thread."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        config = prepare(pathlib.Path(folder), root)
        command = [binary(root, "sandtide"), "serve", config, "--threads", 1]
        with Server(command, cpus="0") as server:
            addresses = dict(re.findall(r"(https?)://(127\.0\.0\.1:\d+)", server.lines[-1]))
            client = "1" if cores > 1 else "0"
            for _ in range(options.rounds):
                for name, (scheme, arguments) in CASES.items():
                    for tenant in ("vanilla", "hello"):
                        one(server, addresses[scheme], scheme, tenant, arguments, options, client, name, add)
            shakes(server, addresses["https"], options, client, add)


def one(server, address, scheme, tenant, arguments, options, client, name, add):
    before = server.cpu_seconds()
    requests, per_second = h2load(address, scheme, tenant, [*arguments, "-D", str(options.seconds)], client)
    used = server.cpu_seconds() - before
    add(f"{tenant}/{name}", "throughput", per_second, "requests/s")
    add(f"{tenant}/{name}", "cpu", used / requests * 1e6, "us/request")


def shakes(server, address, options, client, add):
    """What a connection costs: a TLS handshake and one request on it."""
    count = 500 * options.seconds
    before = server.cpu_seconds()
    _, per_second = h2load(address, "https", "vanilla", ["-c", str(count), "-n", str(count), "--h1"], client)
    add("vanilla/h1-tls-handshakes", "throughput", per_second, "connections/s")
    add("vanilla/h1-tls-handshakes", "cpu", (server.cpu_seconds() - before) / count * 1e6, "us/connection")


def h2load(address, scheme, tenant, arguments, cpus):
    """One run: how many requests, and how many a second. Every one has to succeed."""
    url = f"{scheme}://{tenant}.localhost:{address.split(':')[1]}/"
    command = ["taskset", "-c", cpus, "h2load", "-t", "1", *arguments, f"--connect-to={address}", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done, failed, errored, late = map(int, re.search(SUMMARY, text).groups())
    good = int(re.search(r"(\d+) 2xx", text).group(1))
    # Those that are under way when the time is over are counted, and are not done.
    if not done or good < done or failed or errored or late:
        raise SystemExit(f"error: {' '.join(command)}\n{text}")
    return done, float(re.search(r"finished in .*?, ([\d.]+) req/s", text).group(1))


def prepare(folder, root):
    """A certificate, and a configuration that has it."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:*.localhost"]
        + ["-keyout", folder / "cert.key", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )
    config = folder / "sandtide.toml"
    config.write_text(
        '[server]\nlisten = ["127.0.0.1:0", { address = "127.0.0.1:0", tls = true }]\n'
        '[tls]\ncertificates = [{ certificate = "cert.pem", key = "cert.key" }]\n'
        '[tenants.vanilla]\nauthorities = ["vanilla.localhost"]\n'
        'respond = { headers = { content-type = "text/plain" }, body = "Hello, World!\\n" }\n'
        f'[tenants.hello]\nauthorities = ["hello.localhost"]\nprogram = "{root}/build/examples/hello.elf"\n'
    )
    return config
