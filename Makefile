# The everyday commands. CMakePresets.json holds the builds themselves; `make help` lists what is here.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python
export PYTHONPATH := python
export GIPO_BUILD_DIR ?= build/release

# Sanitizers map fixed address ranges, which newer kernels' stronger randomisation may have taken. Where a container
# forbids turning it off, try without.
SANITIZED := $(shell setarch -R true 2>/dev/null && echo setarch -R)

define build
@cmake --preset $(1) --log-level=WARNING >/dev/null
@cmake --build --preset $(1) -j $(JOBS) $(2)
endef
define run_release
@ctest --preset release -j $(JOBS)
endef
define run_python
@scripts/setup.sh --docs
@$(PYTHON) -m pytest -m "not slow" -n $(JOBS) --dist worksteal
endef
define run_asan
$(call build,asan)
@$(SANITIZED) ctest --preset asan -j $(JOBS)
endef
define run_tsan
$(call build,tsan)
@$(SANITIZED) ctest --preset tsan -j $(JOBS)
endef

.PHONY: help setup build all demo demo-cluster test test-release test-python test-asan test-tsan test-slow test-torch test-cluster \
  test-cuda test-emulated fuzz zoo bench peers docs wheels lint format clean

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | awk -F'\t' '{printf "make %-14s %s\n", $$1, $$2}'

setup:  ## install what is missing: Debian packages and .venv
	@scripts/setup.sh

build: setup  ## the program, the library and the Python module, in build/release
	$(call build,release,--target gipo gipo_library _core_stub)

all: setup  ## the same with the unit tests
	$(call build,release)

demo:  ## three methods learn two tasks from old data; a table and a figure
	@scripts/setup.sh --demo
	$(call build,demo,--target gipo)
	@$(PYTHON) -m gipo.demo

demo-cluster:  ## four actors on a Ray cluster of this machine; one is killed, then a node; what was lost
	@scripts/setup.sh --cluster
	$(call build,cluster,--target gipo)
	@GIPO_BUILD_DIR=build/cluster $(PYTHON) -m gipo.demo_cluster

# One after the other: each has all cores, and the first failure is the last thing printed.
test: all  ## all tests but the slow ones, then the unit tests under sanitizers
	$(run_release)
	@JOBS=$(JOBS) tests/cuda_compiles.sh
	$(run_python)
	$(run_asan)
	$(run_tsan)

test-release: all  ## unit tests
	$(run_release)

test-python: all  ## tests in Python: layout, docs, oracles, command line
	$(run_python)

test-asan: setup  ## unit tests and a short fuzz run under the address and undefined-behaviour sanitizers
	$(run_asan)

test-tsan: setup  ## tests of threads under the thread sanitizer
	$(run_tsan)

test-slow: all  ## the tests labelled slow: whole learning runs
	@ctest --test-dir build/release --output-on-failure -j $(JOBS) -L '^slow$$'
	@$(PYTHON) -m pytest -m slow || [[ $$? == 5 ]]  # 5: there are none

test-cuda:  ## builds the backend cuda, which needs nvcc, and runs its tests, which need an NVIDIA card
	$(call build,cuda)
	@ctest --preset cuda -j $(JOBS) -R "CudaLearner|CudaPopulation"

test-torch:  ## tests of the backend torch and of the large model; installs libtorch, timm and transformers
	@scripts/setup.sh --large
	$(call build,torch)
	@ctest --preset torch -j $(JOBS)
	@GIPO_BUILD_DIR=build/torch $(PYTHON) -m pytest tests/test_torch.py tests/test_ranks.py tests/test_large_model.py tests/test_vla_train.py tests/oracle/test_vla.py tests/test_recurrent.py tests/test_spaces.py tests/test_export.py

test-cluster:  ## tests of learners and actors as separate programs; installs gRPC and Ray
	@scripts/setup.sh --cluster
	$(call build,cluster)
	@ctest --preset cluster -j $(JOBS) -R 'Remote|Places|KeptReports|Agreement|Actor|Async|Arrival'
	@GIPO_BUILD_DIR=build/cluster $(PYTHON) -m pytest tests/test_cluster.py tests/test_cluster_security.py tests/test_cluster_load.py tests/test_ray.py tests/test_edge.py

test-emulated: setup  ## unit tests for the other processor, aarch64 or x86-64, in an emulator
	@tests/emulated.sh

# Warnings are g++'s business: clang has others, on code that is meant so.
FUZZ_SECONDS ?= 60
FUZZ_JOBS ?= 2

fuzz: setup  ## libFuzzer on every parser, FUZZ_SECONDS (60) each, with clang
	@scripts/setup.sh --fuzz
	@cmake -S . -B build/fuzz -G Ninja --log-level=WARNING -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS=-w -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1 -D_GLIBCXX_ASSERTIONS" -DGIPO_FUZZ=ON \
	  -DGIPO_SANITIZE=fuzzer-no-link,address,undefined,float-cast-overflow >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target fuzz_targets
	@$(SANITIZED) tests/fuzz/run.sh build/fuzz/tests $(FUZZ_SECONDS) $(FUZZ_JOBS)

zoo: build  ## trains tasks of the zoo and checks their returns; ZOO: arguments (docs/zoo.md)
	@scripts/setup.sh --box2d
	@$(PYTHON) -m gipo.zoo_check $(ZOO)

bench: setup  ## benchmarks, in build/bench
	$(call build,bench)
	@build/bench/bench/gipo_bench

peers: setup  ## gipo beside other trainers on the same work, a table; PEERS: arguments (bench/peers/README.md)
	$(call build,release,--target gipo)
	@scripts/setup.sh --peers || echo 'peers: RLtools will be missing without OpenBLAS; going on' >&2
	@bench/peers/setup.sh
	@$(PYTHON) bench/peers/run.py $(PEERS)

docs:  ## the documentation as a site with search, in build/site
	@scripts/setup.sh --docs
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo 'docs: build/site; to read it with search: $(PYTHON) -m http.server -d build/site'

wheels:  ## wheels that install without a compiler, in build/wheels, each tried in a bare Debian root; needs root
	@scripts/setup.sh --wheels
	@$(PYTHON) scripts/wheels.py

# Without precompiled headers, which clang-tidy cannot read: they are g++'s. Each source by itself, as it is read.
SOURCES = $(shell find src tests bench examples -name '*.cc' -o -name '*.h' | sort)

lint:  ## clang-format and clang-tidy, without changing anything
	@scripts/setup.sh --lint
	@clang-format --dry-run -Werror $(SOURCES)
	@cmake --preset release -B build/lint --log-level=WARNING -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
	  -DGIPO_BENCH=ON -DGIPO_CARD_TWIN=OFF -DGIPO_UNITY=OFF >/dev/null
	@run-clang-tidy -quiet -p build/lint -j $(JOBS) '/(src/gipo|tests|bench)/.*\.cc$$'

format:  ## clang-format everything in place
	@scripts/setup.sh --lint
	@clang-format -i $(SOURCES)

clean:  ## remove build/; the environment in .venv and the runs stay
	@rm -rf build
