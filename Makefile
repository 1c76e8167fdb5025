# Caravan: set up, build, serve, test. `make` lists the targets; `make serve` and `make test` do all that is needed first.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
ARGS ?=
FUZZ_SECONDS ?= 60

.PHONY: help deps configure build serve test unit sanitizers e2e smoke fuzz bench lint format docs clean

help:
	@echo 'make serve   set up, build and serve the demo model   (ARGS="-m model.gguf --port 8081" passes flags)'
	@echo 'make test    set up, build, lint and run all tests'
	@echo 'make fuzz    run each fuzz target                     (FUZZ_SECONDS=60)'
	@echo 'make bench   micro-benchmarks, and sharing against no sharing with ten users'
	@echo 'make deps    install what is missing (Debian 12 or 13; LLAMA_VARIANT=linux-x64-cuda for a GPU build)'
	@echo 'make build   build/caravan and build/caravan-synth-model'
	@echo 'make lint    format, clang-tidy and our own checks    (make format rewrites)'
	@echo 'make docs    docs/options.md from the option table'
	@echo 'make clean   remove build/'

deps:
	@scripts/install-deps

configure: deps
	@cmake --preset release >/dev/null

build: configure
	@cmake --build build -j $(JOBS)

serve: build
	@scripts/serve-demo $(ARGS)

test: lint unit sanitizers e2e smoke
	@echo 'all tests passed'

unit: build
	ctest --test-dir build --output-on-failure -j $(JOBS)

# libllama itself is not instrumented, so what happens inside it is not seen; nothing has to be suppressed for that.
sanitizers: deps
	@for preset in asan tsan; do \
	  cmake --preset $$preset >/dev/null && cmake --build --preset $$preset -j $(JOBS) && \
	  ctest --test-dir build/$$preset --output-on-failure -j $(JOBS) || exit 1; \
	done

e2e: build
	@scripts/run-e2e

# The fuzz targets get through their seeds and a little further. The benchmarks run, and tell sharing from no sharing; what they measure counts on a quiet machine only.
smoke: build
	scripts/run-fuzz 5
	build/caravan-bench-micro --benchmark_min_time=0.01
	build/caravan bench shared-prefix --users 3 --prefix 300 --question 16 --answer 4 --serve '' --compare-serve '--no-kv-cache'

fuzz: deps
	@scripts/run-fuzz $(FUZZ_SECONDS)

bench: build
	@scripts/run-bench

lint: configure
	@cmake --build build --target caravan_scripts >/dev/null
	@tools/tidy/run

format: deps
	@git ls-files '*.cpp' '*.h' | xargs clang-format-19 -i

docs: build
	@build/caravan help options --markdown > docs/options.md

clean:
	rm -rf build
