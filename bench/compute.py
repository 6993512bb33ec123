"""Programs that compute: native, interpreted, translated and under QEMU user mode."""

import math
import pathlib
import shutil
import statistics
import subprocess
import sys

from load import built

# bench/guests/NAME.c
PROGRAMS = (
    "integer",
    "branches",
    "memory",
    "sieve",
    "sort",
    "hash",
    "mandelbrot",
    "nbody",
    "recursion",
    "matrix",
    "strings",
    "json",
)

# The same for host and guest. A host that multiplies and adds in one instruction would round otherwise than one that does not.
FLAGS = ("-O2", "-static", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")

# What `-O2` makes of loops for x86-64 and cannot make for RV64GC. `scalar` is native without it.
SCALAR = {"zig": ("-fno-vectorize", "-fno-slp-vectorize"), "gnu": ("-fno-tree-vectorize",)}

# Each round measures them in this order, or in the reverse of it.
MODES = ("native", "scalar", "translated", "interpreted", "qemu")


def compute(root, options, add):
    """CPU time of each program's computation, in each mode; ratios to native, within each round."""
    build = Builder(root, options.compiler)
    commands = {name: build.commands(name) for name in PROGRAMS}
    ratios = {mode: {name: [] for name in PROGRAMS} for mode in MODES}
    rates = {name: [] for name in PROGRAMS}
    for number in range(options.rounds):
        for name in PROGRAMS:
            runs = {}
            for mode in MODES if number % 2 == 0 else reversed(MODES):
                # It takes as long as all others together: every second round.
                if mode != "interpreted" or number % 2 == 0:
                    runs[mode] = Run(commands[name][mode])
            for mode, run in runs.items():
                if run.output != runs["native"].output:
                    sys.exit(f"error: {name} {mode} prints {run.output!r}, native {runs['native'].output!r}")
                ratios[mode][name].append(run.seconds / runs["native"].seconds)
                add(f"compute/{name}/{mode}", "cpu", run.seconds, "s")
                if mode != "native":
                    add(f"compute/{name}/{mode}", "to_native", ratios[mode][name][-1], "ratio")
                if mode in ("translated", "interpreted"):
                    add(f"compute/{name}/{mode}", "load", run.load * 1e3, "ms")
            if interpreted := runs.get("interpreted"):
                rates[name].append(interpreted.instructions / interpreted.seconds / 1e6)
                add(f"compute/{name}/interpreted", "speed", rates[name][-1], "million instructions/s")
    medians = {mode: {name: statistics.median(values) for name, values in ratios[mode].items()} for mode in MODES[1:]}
    for mode, ratio in medians.items():
        add(f"compute/{mode}", "to_native_geometric_mean", geometric_mean(ratio.values()), "ratio")
        add(f"compute/{mode}", "to_native_most", max(ratio.values()), "ratio")
    show("multiples of native", medians, {name: statistics.median(values) for name, values in rates.items()})


def checks(root, options, add):
    """What counting instructions, and the check in front of stores, cost translated code: it runs with and without."""
    without = {"counting": "uncounted", "store-checks": "unchecked-stores"}
    build = Builder(root, options.compiler)
    guests = {name: build.guest(name) for name in PROGRAMS}
    ratios = {part: {name: [] for name in PROGRAMS} for part in without}
    for number in range(options.rounds):
        for name, guest in guests.items():
            modes = ["auto", *without.values()]
            runs = {mode: Run([build.runner, guest, mode]) for mode in (modes if number % 2 == 0 else reversed(modes))}
            for part, mode in without.items():
                if runs[mode].output != runs["auto"].output:
                    sys.exit(f"error: {name} {mode} prints {runs[mode].output!r}, translated {runs['auto'].output!r}")
                ratios[part][name].append(runs["auto"].seconds / runs[mode].seconds)
                add(f"checks/{name}", f"with_to_without_{part}", ratios[part][name][-1], "ratio")
    medians = {part: {name: statistics.median(values) for name, values in ratios[part].items()} for part in without}
    for part, ratio in medians.items():
        add("checks", f"with_to_without_{part}_geometric_mean", geometric_mean(ratio.values()), "ratio")
    show("with to without", medians)


def show(title, medians, rates=None):
    """The figures for the eye: medians of ratios, millions of instructions a second."""

    def line(name, values, rate):
        columns = "".join(f"{value:>13}" for value in values)
        print(f"# {name:20}{columns}   {rate if rates else ''}".rstrip(), file=sys.stderr)

    line(title, medians, "interpreted, million instructions/s")
    for name in PROGRAMS:
        line(name, [f"{ratio[name]:.2f}" for ratio in medians.values()], rates and f"{rates[name]:.0f}")
    means = [f"{geometric_mean(ratio.values()):.2f}" for ratio in medians.values()]
    line("geometric mean", means, rates and f"{geometric_mean(rates.values()):.0f}")


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


class Run:
    """One run of a program: what it printed, and what bench/guests/measure.h says of its times."""

    def __init__(self, command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
        self.output = done.stdout
        lines = {words[0]: words[1:] for words in map(str.split, done.stderr.splitlines())}
        self.load = float(lines["loaded"][0])
        self.seconds, self.instructions = float(lines["end"][0]), int(lines["end"][1])


class Builder:
    """One compiler, for the host and for guests."""

    def __init__(self, root, compiler):
        self.root, self.compiler = root, compiler
        self.runner = built(root, "compute")
        self.qemu = installed("qemu-riscv64", "qemu-user", other="qemu-riscv64-static")
        if compiler == "gnu":
            self.for_host = [installed("gcc", "gcc")]
            self.for_guest = [installed("riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu")]
            return
        python = root / "build/venv/bin/python"
        if not python.exists():
            sys.exit("error: no zig in build/venv\n\nhint: scripts/setup bench, or `--compiler gnu`")
        zig = [python, "-m", "ziglang", "cc", "-target"]
        self.for_host, self.for_guest = [*zig, "x86_64-linux-musl"], [*zig, "riscv64-linux-musl"]

    def guest(self, name):
        return self.build(name, "riscv64", self.for_guest)

    def commands(self, name):
        """What to run in each mode."""
        guest = self.guest(name)
        return {
            "native": [self.build(name, "native", self.for_host)],
            "scalar": [self.build(name, "scalar", [*self.for_host, *SCALAR[self.compiler]])],
            "translated": [self.runner, guest, "auto"],
            "interpreted": [self.runner, guest, "off"],
            "qemu": [self.qemu, guest],
        }

    def build(self, name, kind, command):
        """A program, compiled if it is older than what it is made from."""
        source = self.root / f"bench/guests/{name}.c"
        program = self.root / f"build/bench/{self.compiler}/{name}.{kind}"
        made_from = (source, source.with_name("measure.h"), pathlib.Path(__file__))
        if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in made_from):
            program.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([str(word) for word in (*command, *FLAGS, source, "-o", program, "-lm")], check=True)
        return program


def installed(tool, package, other=None):
    found = shutil.which(tool) or other and shutil.which(other)
    if not found:
        sys.exit(f"error: {tool} is not installed\n\nhint: apt-get install {package}")
    return found
