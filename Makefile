# The short way to everything; CMakeLists.txt and CMakePresets.json are the long one.
#
#   make                          build build/lockstep (installs nothing)
#   make quickstart [TEXT=FILE] [FRESH=1]
#                                 install what is missing, build, train a small model, sample from it
#   make finetune [CHATS=FILE] [FRESH=1]
#                                 tune that model on chats, with its answers before and after
#   make check                    install what is missing, build, run every test
#   make check-quick              the tests that take under two minutes
#   make check-full               every test, also as on older processors, and all that is sampled
#                                 elsewhere: hours
#   make check-mutants [LS_MUTANTS=10000]
#                                 damaged programs, which `check` must reject or run alike
#   make check-kills [LS_KILLS=1000]
#                                 runs of five layouts killed at random moments: the same bits
#   make check-seeds [LS_SEEDS=50]
#                                 every random test with that many new seeds: hours
#   make check-matrix             every layout of the equality tests, not only their samples
#   make check-hf                 every family to transformers and back; its own venv, some GB
#   make check-cudnn              cuDNN's plans for attention, without a GPU; its own venv, 1 GB
#   make bench-check [COUNTS=write]
#                                 instructions of kernels and of the compiler against kept counts
#   make bench-peers TORCH_TRAIN=FILE TEXT=FILE [PYTHON=python3] [ROUNDS=5] [ONLY=WORDS]
#                                 the table of bench/results.md beside PyTorch, in turns
#   make check-tsan               the tests that start threads, under the thread sanitizer
#   make debug | tsan             build/debug/lockstep, build/tsan/lockstep, with sanitizers
#   make install [PREFIX=DIR]     command, library, headers, pkg-config file
#   make fuzz [FUZZ_SECONDS=600]  every parser under libFuzzer
#   make fuzz-numbers [FUZZ_SECONDS=600]
#                                 any number in keys and configurations is compiled or refused
#   make format                   clang-format on every source file
#   make clean
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
LS_MUTANTS ?= 10000
LS_KILLS ?= 1000
LS_SEEDS ?= 50
COUNTS ?= compare
TEXT ?=
CHATS ?=
FRESH ?=
ROUNDS ?= 5
HF_VENV = build/hf-venv
export JOBS FUZZ_SECONDS
MAKEFLAGS += --no-print-directory

.PHONY: all release debug tsan check check-quick check-full check-mpich check-mutants check-kills \
  check-matrix check-seeds check-hf check-cudnn check-tsan bench-check bench-peers quickstart finetune install \
  format fuzz fuzz-numbers clean dependencies
all: release

release debug tsan:
	cmake --preset $@ $(if $(filter release,$@),-DCMAKE_INSTALL_PREFIX=$(PREFIX))
	cmake --build --preset $@ --parallel $(JOBS)

dependencies:
	tools/install_dependencies.sh

check: dependencies
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target checked
	cmake --preset debug
	cmake --build --preset debug --parallel $(JOBS) --target checked
	tools/run_tests.sh build/debug:quick 'build:slow|release'

check-quick: dependencies
	$(MAKE) release
	tools/run_tests.sh build:quick

# oneDNN and our own kernels both follow ONEDNN_MAX_CPU_ISA; above the processor's it changes nothing.
check-full: check
	$(MAKE) release debug
	for isa in AVX2 AVX512_CORE; do \
	  echo "== ONEDNN_MAX_CPU_ISA=$$isa"; \
	  ONEDNN_MAX_CPU_ISA=$$isa tools/run_tests.sh build:quick || exit 1; \
	done
	tools/run_tests.sh build/debug:long build:full
	$(MAKE) check-matrix check-mutants check-kills check-seeds
	LS_FAULTS_MATRIX=1 build/tests/faults_test
	LS_FAULTS=all tests/inject_command_test.sh build/lockstep
	if command -v mpicc.mpich >/dev/null; then $(MAKE) check-mpich; \
	  else echo "skipped: MPICH (libmpich-dev and mpich are not here)"; fi

# Debian has MPICH beside Open MPI. Its launcher ends the other ranks where one dies, before they can
# say so: ranks_command_test is Open MPI's.
check-mpich:
	cmake -S . -B build/mpich -DCMAKE_BUILD_TYPE=Release -DMPI_C_COMPILER=mpicc.mpich
	cmake --build build/mpich --parallel $(JOBS) --target lockstep comm_plan_test faults_preload
	MPIRUN=mpiexec.mpich ctest --test-dir build/mpich --output-on-failure \
	  -R '^(comm_mpi|cli|pictures)_test$$'

check-tsan: dependencies
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS) --target threaded_tests
	tools/run_tests.sh build/tsan:threads

check-mutants: dependencies
	$(MAKE) release
	LS_MUTANTS=$(LS_MUTANTS) build/tests/mutants_test
	LS_MUTANTS=$(LS_MUTANTS) build/tests/forward_mutants_test

check-kills: dependencies
	$(MAKE) release
	LS_KILLS=$(LS_KILLS) tests/kills_command_test.sh build/lockstep

check-seeds: dependencies
	$(MAKE) release
	tools/seeds.sh build $(LS_SEEDS)

check-matrix: dependencies
	$(MAKE) release
	for each in build/tests/matrix_*_test build/tests/memory_slow_test build/tests/plan_slow_test; do LS_LAYOUTS=all $$each || exit 1; done

# pip's own settings (PIP_INDEX_URL and the like) say where from, as for a torch without CUDA.
$(HF_VENV)/ready: tools/reference/requirements.txt
	tools/install_dependencies.sh --hf
	rm -rf $(HF_VENV)
	python3 -m venv $(HF_VENV)
	$(HF_VENV)/bin/pip install --quiet -r tools/reference/requirements.txt
	touch $@

check-hf: dependencies $(HF_VENV)/ready
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target lockstep
	tests/hf_slow_test.sh build/lockstep
	$(HF_VENV)/bin/python tools/reference/check_peft.py build/lockstep
	$(HF_VENV)/bin/python tools/reference/check_quantised.py build/lockstep

# From then on `make check` asks it too.
build/cudnn-venv/ready:
	python3 -m venv build/cudnn-venv
	build/cudnn-venv/bin/pip install --quiet nvidia-cudnn-cu13 nvidia-cuda-nvrtc
	touch $@

check-cudnn: build/cudnn-venv/ready
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target cudnn_plans_test
	build/tests/cudnn_plans_test

bench-peers: release
	PYTHON=$(or $(PYTHON),python3) bench/peers.sh "$(TORCH_TRAIN)" "$(TEXT)" $(ROUNDS)

bench-check:
	tools/install_dependencies.sh --bench
	$(MAKE) release
	tools/bench_check.sh build $(COUNTS)

quickstart:
	tools/install_dependencies.sh $(if $(TEXT),,--text)
	$(MAKE) release
	tools/quickstart.sh $(if $(FRESH),--fresh) "$(TEXT)"

finetune: release
	[ -d runs/quickstart ] || $(MAKE) quickstart
	tools/finetune.sh $(if $(FRESH),--fresh) "$(CHATS)"

install: release
	cmake --install build --prefix $(PREFIX)

format:
	git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

fuzz-numbers: debug
	LS_NUMBERS_SECONDS=$(FUZZ_SECONDS) build/debug/tests/numbers_test

fuzz:
	tools/install_dependencies.sh --fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz --parallel $(JOBS)
	tools/fuzz.sh build/fuzz

clean:
	rm -rf build
