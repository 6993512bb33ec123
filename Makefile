# Sandtide. `make run` serves the examples, `make test` proves the rest.
#
#   make run     install what is needed, build, serve the examples on 127.0.0.1:8080
#   make test    install what is needed, run every test
#   make bench   install what is needed, run the benchmarks
#   make soak    install what is needed, keep a server busy for SECONDS (default: 60), look for leaks
#   make lint    formatting, clippy, direction of dependencies
#   make setup   install what any of these needs
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run build examples test bench soak lint setup

# rustup puts cargo where not everybody's PATH looks.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)
SANDTIDE := $(TARGET)/release/sandtide

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

setup:
	@scripts/setup all

build:
	@scripts/setup run
	cargo build --release -p sandtide-cli -p sandtide-module

examples: build
	@SANDTIDE=$(SANDTIDE) scripts/build-examples

run: examples
	exec $(SANDTIDE) serve sandtide.toml

test:
	@scripts/setup test
	scripts/test

bench: examples
	@scripts/setup bench
	cargo build --release -p sandtide-bench --features measure
	bench/run

soak: examples
	@scripts/setup bench
	bench/soak --seconds $(or $(SECONDS),60)

lint:
	scripts/lint
