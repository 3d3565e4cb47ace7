# Two commands do everything on a machine with Python ≥ 3.11, Go ≥ 1.26 and make:
#   make demo    the main job on an embedded real control plane (ONCE=1: exit when the table is printed)
#   make test    all checks and tests
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
RUN := uv run --no-sync

.PHONY: help
help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: uv
uv:
	@command -v uv >/dev/null || $(PYTHON) -m pip install --quiet $(PIP_WHERE) uv \
		|| $(PYTHON) -m pip install --quiet $(PIP_WHERE) --break-system-packages uv

# Inside a virtual environment there is no user site.
PIP_WHERE = $(shell $(PYTHON) -c 'import sys; print("--user" if sys.prefix == sys.base_prefix else "")')
export PATH := $(shell $(PYTHON) -m site --user-base 2>/dev/null)/bin:$(PATH)

.PHONY: sync
sync: uv  ## Make the virtual environment from the lock file
	@uv sync --locked --quiet

.PHONY: build
build: sync  ## Build the control plane's binaries into the cache (minutes when cold)
	@$(RUN) python -m tests.controlplane build

.PHONY: demo
demo: build  ## Claim → neighbouring GPU and NIC → running pod, on a real control plane (ONCE=1: exit at the end)
	@$(RUN) python -m tests.demo $(if $(ONCE),--once)

.PHONY: lint
lint: sync  ## Formatting, types, room contracts, generated files
	$(RUN) ruff check --no-cache .
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) python -m adjoin.api.crd --check

.PHONY: unit
unit: sync  ## Tests that need no control plane
	$(RUN) pytest -n auto --dist worksteal -m "not cluster and not benchmark" $(ARGS)

.PHONY: cluster
cluster: build  ## Tests on a real control plane
	$(RUN) pytest -m "cluster and not benchmark" $(ARGS)

.PHONY: test
test: lint unit cluster  ## All checks and tests
	@echo "Not run: make test-node, which tests a real kubelet, containerd and DRA drivers (needs root: docs/testing.md)"

.PHONY: test-node
test-node: sync  ## Tests on a real kubelet, containerd and DRA drivers (needs root)
	@$(RUN) python -m tests.node.requirements
	@$(RUN) python -m tests.controlplane build controlplane helm node
	$(RUN) pytest -m node tests/node $(ARGS)

.PHONY: bench
bench: build  ## Ratios of speed and memory against kube-scheduler's own allocation
	$(RUN) pytest -m benchmark $(ARGS)

.PHONY: pictures
pictures: sync  ## Draw the pictures of the documentation
	@$(RUN) adjoin topology node-a -f docs/pictures/topology.yaml --svg docs/pictures/topology.svg
	@$(RUN) python -m docs.pictures.draw

.PHONY: crds
crds: sync  ## Write the CRDs from the API models
	$(RUN) python -m adjoin.api.crd --write
