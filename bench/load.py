"""Servers under load: starting them, wrk, and what the kernel says they used."""

import json
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time


def binary(root, name):
    """A program of ours, as `cargo build --release` leaves it."""
    return root / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / name


def built(root, name):
    """The same, once it is known to be there."""
    if not binary(root, name).exists():
        sys.exit(f"error: {binary(root, name)} is not built\n\nhint: make bench")
    return binary(root, name)


def check_tools(root, serves):
    """Stops with what to do if something is missing. `serves`: whether servers and clients are needed."""
    if not serves:
        return
    for tool, package in (("wrk", "wrk"), ("h2load", "nghttp2-client"), ("openssl", "openssl")):
        if not shutil.which(tool):
            sys.exit(f"error: {tool} is not installed\n\nhint: apt-get install {package}")
    for name in ("sandtide", "bare-hyper", "inside", "open-loop"):
        built(root, name)
    if not (root / "build/examples/hello.elf").exists():
        sys.exit("error: build/examples/hello.elf is not built\n\nhint: run `make bench`")


class Server:
    """A server process that says where it listens, on a line of stderr with `127.0.0.1:PORT`."""

    def __init__(self, command, ready=r"(?:ready|listening).*?(127\.0\.0\.1:\d+)", cpus=None):
        pin = ["taskset", "-c", cpus] if cpus else []
        self.process = subprocess.Popen([*pin, *map(str, command)], stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.refused = collections.Counter()
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(ready, line)
            if found:
                self.address = found.group(1)
                break
        else:
            sys.exit(f"error: {command[0]} did not start:\n{''.join(self.lines)}")
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        """Reads what is logged, and keeps what an operator would be woken for."""
        for line in self.process.stderr:
            refused = re.search(r'tenant=(\S+) .*?reason="([^"]*)"', line)
            if refused and " refused " in line:
                self.refused[" ".join(refused.groups())] += 1
            if "panicked" in line or " ERROR " in line:
                self.lines.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _stat(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        return text.rsplit(")", 1)[1].split()

    def cpu_seconds(self):
        """User and system time of all threads so far."""
        # The clock of another process, as clock_getcpuclockid(3) makes it: in nanoseconds, and threads that have ended count.
        return time.clock_gettime((~self.process.pid) << 3 | 2)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def open_files(self):
        """What the descriptors are, one a line, with how many there are of each."""
        folder = pathlib.Path(f"/proc/{self.process.pid}/fd")
        kinds = [re.sub(r"\[\d+\]", "", os.readlink(link)) for link in folder.iterdir()]
        return "\n".join(f"    {kinds.count(kind):5} {kind}" for kind in sorted(set(kinds)))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def hang_up(self):
        """Has it read its configuration again."""
        self.process.send_signal(signal.SIGHUP)

    def minor_faults(self):
        return int(self._stat()[7])

    def resident_bytes(self):
        """Proportional resident memory: shared pages count once."""
        rollup = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.M).group(1)) * 1024


def available_bytes():
    """What the whole machine has left, page tables and sealed files included."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M).group(1)) * 1024


PIPELINE = """
init = function(args)
  local requests = {}
  for i = 1, 16 do requests[i] = wrk.format(nil, nil) end
  all = table.concat(requests)
end
request = function() return all end
"""


class Wrk:
    """One run of wrk."""

    def __init__(self, address, host, connections, seconds, *, path="/", threads=1, pipeline=False, cpus=None):
        pin = ["taskset", "-c", cpus] if cpus else []
        command = [*pin, "wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency"]
        command += ["-H", f"Host: {host}", f"http://{address}{path}"]
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            if pipeline:
                script.write(PIPELINE)
                script.flush()
                command[1 + len(pin) : 1 + len(pin)] = ["-s", script.name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.text = done.stdout
        self.requests = int(re.search(r"(\d+) requests in", self.text).group(1))
        self.per_second = float(re.search(r"Requests/sec:\s+([\d.]+)", self.text).group(1))
        errors = re.search(r"Non-2xx or 3xx responses: (\d+)", self.text)
        self.failed = int(errors.group(1)) if errors else 0
        sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", self.text)
        self.failed += sum(map(int, sockets.groups())) if sockets else 0

    def latency_ms(self, percentile):
        value, unit = re.search(rf"^\s+{percentile}%\s+([\d.]+)(us|ms|s)", self.text, re.M).groups()
        return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


class OpenLoop:
    """One run of a client whose requests are due at fixed times, whatever becomes of those before them."""

    def __init__(self, root, address, host, rate, connections, seconds, *, path="/", cpus=None):
        pin = ["taskset", "-c", cpus] if cpus else []
        command = [*pin, binary(root, "open-loop"), address, host, path, rate, seconds, connections]
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)

    def result(self):
        """Waits for its end."""
        text, _ = self.process.communicate()
        if self.process.returncode:
            sys.exit("error: the open-loop client failed")
        return json.loads(text)


def guest(root, name):
    """A guest of the benchmark's own, built if it is not."""
    source, program = root / f"bench/guests/{name}.c", root / f"build/bench/{name}.elf"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([binary(root, "sandtide"), "build", source, "-o", program], check=True, stdout=subprocess.DEVNULL)
        os.utime(program)
    return program


def lines(add, command):
    """Takes over the figures that a program of ours prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))} failed:\n{done.stderr}")
    for line in done.stdout.splitlines():
        add(**json.loads(line))


def configuration(text):
    """A temporary sandtide.toml."""
    file = tempfile.NamedTemporaryFile("w", suffix=".toml")
    file.write(text)
    file.flush()
    return file
