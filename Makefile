# jaxsif: `make help` lists the targets.

FLAVOUR ?= cuda12
PREFIX ?= /sw
PYTHON ?= python3

VENV := build/venv
MINICLUSTER := tests/cluster/minicluster
VENV_READY := $(VENV)/.ready
# Where there is no Apptainer, the cluster in a box lends its own.
ifeq ($(shell command -v apptainer || command -v singularity),)
RUNTIME_READY := rootfs
RUNTIME_PATH := $(CURDIR)/tests/cluster/bin:
endif
# Byte-compiled for the Python that will run it.
INSTALL_PYTHON ?= /usr/bin/python3
# Below it, for each version of Python, what the launcher's commands need besides Python's own library.
LAUNCHER_LIB := build/launcher-lib
# A second cluster, of Debian unstable, which has the newest Slurm.
SID := MINICLUSTER_SUITE=sid MINICLUSTER_DIR='$(CURDIR)/build/cluster-sid'
# Names that other Makefiles have for these variables.
refuse = $(if $(filter command,$(origin $(1))),$(error the variable is $(2): write $(2)=$($(1))))
$(call refuse,FLAVOR,FLAVOUR)$(call refuse,flavour,FLAVOUR)$(call refuse,prefix,PREFIX)
# As in `make install PREFIX /sw`, which would install below another PREFIX.
$(foreach name,$(filter PREFIX FLAVOUR PYTHON INSTALL_PYTHON DEFAULT BASE,$(MAKECMDGOALS)),$(error write $(name)=VALUE))
$(if $(filter command,$(origin DESTDIR)),$(error DESTDIR is not supported: the modules name PREFIX itself))
# One word of the shell.
quote = '$(subst ','\'',$(1))'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help image image-all lock lock-launcher install audit rootfs cluster cluster-install demo test test-all test-unit test-long \
        test-core test-cluster test-sid drills test-rest lint golden bench-beside bench-launch bench-output bench-nodes bench-start bench-bare bench-watch bench-train bench-image gpu clean

help: ## this list
	@echo 'make TARGET [FLAVOUR=$(FLAVOUR)] [PREFIX=$(PREFIX)]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# BASE=docker://… builds on another base system than mmdebstrap's.
image: $(VENV_READY) $(if $(wildcard containers/flavours/$(FLAVOUR).args),$(RUNTIME_READY)) ## build the image build/images/jax-VERSION-FLAVOUR.sif, unless it already exists
	@PATH=$(RUNTIME_PATH)$$PATH $(VENV)/bin/jaxsif image build --flavour $(FLAVOUR) $(if $(BASE),--base $(BASE))

image-all: ## build the images of all flavours
	@for file in containers/flavours/*.args; do \
	    $(MAKE) --no-print-directory image FLAVOUR=$$(basename $$file .args) || exit; done

# All flavours and the launcher, unless FLAVOUR is given here or in the environment.
lock: $(VENV_READY) $(if $(filter-out file,$(origin FLAVOUR)),,lock-launcher) ## resolve containers/locks/*.in, or FLAVOUR's, to the newest versions, with hashes
	@$(VENV)/bin/jaxsif image lock --upgrade $(if $(filter-out file,$(origin FLAVOUR)),--flavour $(FLAVOUR))

# One lock for all Pythons. Neither paths nor indexes of this host stand in it.
lock-launcher: $(VENV_READY) ## resolve the launcher's own libraries to the newest versions, with hashes
	@$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.9 --generate-hashes --only-binary :all: --upgrade \
	    --no-emit-index-url --custom-compile-command 'make lock-launcher' --output-file containers/locks/launcher.txt pyproject.toml

install: $(VENV_READY) ## install launcher, image and modules for a site under PREFIX; DEFAULT=1 makes it the default
	$(if $(filter command,$(origin PYTHON)),$(info PYTHON is the Python of build/venv; that of the launcher is INSTALL_PYTHON=$(INSTALL_PYTHON)))
	@modulefiles/install $(call quote,$(PREFIX)) $(call quote,$(FLAVOUR)) $(call quote,$(INSTALL_PYTHON)) $(call quote,$(DEFAULT))

audit: $(VENV_READY) ## known vulnerabilities of all that the locks name; needs a source of advisories
	@$(VENV)/bin/python containers/audit.py

rootfs:
	@$(MINICLUSTER) build

cluster: ## bring the cluster in a box up
	@$(MINICLUSTER) up

# The same install that a site makes, in the cluster's own system, as its /sw; no flavour but cpu computes there.
cluster-install: rootfs $(VENV_READY)
	@$(MAKE) --no-print-directory image FLAVOUR=cpu
	@$(MAKE) --silent $(LAUNCHER_LIB)/$$($(MINICLUSTER) sandbox -- \
	    $(INSTALL_PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	@$(MINICLUSTER) sandbox -- make --no-print-directory install PREFIX=/sw FLAVOUR=cpu DEFAULT=1

demo: cluster-install cluster ## the whole path: image, cluster, module, an 8-task JAX all-reduce on 2 nodes as an ordinary user
	@tests/cluster/demo

test: ## what every commit must pass: lint, unit tests, the core of the cluster's tests; builds what it needs
	@$(MAKE) --no-print-directory lint test-unit test-core

test-all: ## every test, but for the long ones
	@$(MAKE) --no-print-directory lint test-unit test-cluster test-sid

lint: $(VENV_READY) ## ruff, mypy --strict, shellcheck
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/shellcheck $(shell git grep -lE '^#!/bin/(ba)?sh' -- ':!*.md' ':!*.py')

test-unit: $(VENV_READY) ## tests without processes: seconds
	$(VENV)/bin/pytest -q --numprocesses=auto tests/unit tests/golden

test-long: $(VENV_READY) ## the unit tests with 10,000 generated cases each: an hour
	$(VENV)/bin/pytest --numprocesses=auto --timeout=0 tests/unit tests/golden --hypothesis-profile=long

test-core: $(VENV_READY) cluster-install cluster ## the core of the tests in the cluster in a box
	$(VENV)/bin/pytest tests/cluster -m core

test-cluster: $(VENV_READY) cluster-install cluster ## all tests in the cluster in a box: half an hour
	$(VENV)/bin/pytest tests/cluster

test-sid: $(VENV_READY) ## the core of the tests and the layouts, with the newest Slurm: a cluster of Debian unstable
	@$(SID) $(MAKE) --no-print-directory test-core
	$(SID) $(VENV)/bin/pytest tests/cluster/test_layouts.py
	@$(SID) $(MINICLUSTER) down

# SECONDS=N begins no test later; WORD draws the order of the files.
test-rest: $(VENV_READY) cluster-install cluster
	$(VENV)/bin/pytest tests/cluster -m 'not core' --drawn-from=$(WORD) --seconds=$(SECONDS)

# SEEDS of each fault.
drills: $(VENV_READY) cluster-install cluster ## faults with many seeds, the tests of hangs, and the rule's long ones; writes docs/faults.md
	@$(VENV)/bin/python tests/bench/faults.py $(or $(SEEDS),5)
	$(VENV)/bin/pytest tests/cluster/test_hangs.py
	$(VENV)/bin/pytest --numprocesses=auto --dist=worksteal --timeout=0 tests/unit/watch/test_rule.py --hypothesis-profile=long

golden: $(VENV_READY) ## rewrite the expected texts of tests/golden, and the lists in docs/troubleshooting.md and explain.md
	$(VENV)/bin/pytest -q tests/golden tests/unit/test_documentation.py tests/unit/diagnose/test_explain.py --rewrite-golden

# REF=COMMIT; exit status 1 when the working tree is slower.
bench-beside: $(if $(REF),$(VENV_READY) cluster-install cluster) ## the working tree beside the commit REF: launches, starts, training
	@$(if $(REF),,echo 'make: error: no REF'; echo '  try:  make bench-beside REF=HEAD'; exit 2)
	@$(VENV)/bin/python tests/bench/beside.py $(REF)

bench-launch: cluster-install cluster ## the launcher's own cost beside a bare srun
	@$(MINICLUSTER) exec -- bash -lc 'module load jax/sif && cd "$$(mktemp -d)" && exec python3 - --bound-ratio 1.45' <tests/bench/launch.py

# 33 MB of lines on each stream, of each of 4 tasks: the start hardly counts.
bench-output: cluster-install cluster ## what tasks print, by jaxsif and by a bare srun
	@$(MINICLUSTER) exec -- bash -lc 'module load jax/sif && cd "$$(mktemp -d)" && exec python3 - --nodes 2 --ntasks-per-node 2 --pairs 5 --bound-ratio 1.1 -- \
	    python3 -c "import os; [os.write(1 + turn % 2, b\"step 12 took 0.123 s: loss 0.4567\n\" * 1000) for turn in range(2000)]"' <tests/bench/launch.py

bench-nodes: cluster-install cluster ## node lists of 10,000 names, beside scontrol
	@$(MINICLUSTER) exec -- bash -lc 'module load jax/sif && exec python3 - 15' <tests/bench/nodelist.py

bench-start: $(VENV_READY) cluster-install cluster ## `import jax` in many tasks, beside bare processes and the plain way
	@PATH=$(RUNTIME_PATH)$$PATH $(VENV)/bin/python tests/bench/bare.py start 5

bench-bare: $(VENV_READY) cluster-install cluster ## an all-reduce and a training step, beside bare processes
	@$(VENV)/bin/python tests/bench/bare.py steps 10

bench-watch: cluster-install cluster ## what it costs a task to be watched for hangs and other programs
	@$(MINICLUSTER) exec -- bash -lc 'module load jax/sif && exec python3 - 20' <tests/bench/watch.py

bench-train: cluster-install cluster ## jit + sharding of slurm/train, beside the same in plain JAX by hand
	@tests/bench/train.sh --width 256 --depth 2 --batch 8192 --steps 41

bench-image: $(VENV_READY) $(RUNTIME_READY) ## build times and size of FLAVOUR: cold, the plain way, one package changed
	@PATH=$(RUNTIME_PATH)$$PATH $(VENV)/bin/python tests/bench/image.py --flavour $(FLAVOUR)

# Only PYTHON and its JAX: neither build/venv, nor Slurm, nor a container. OPTIONS are those of gpu.py.
gpu: ## what jaxsif promises, on this machine's GPU with PYTHON's JAX: ten minutes; Error 3 without a GPU
	@$(PYTHON) tests/bench/gpu.py $(OPTIONS)

clean: ## stop the cluster and remove build/
	@$(MINICLUSTER) reset --all
	@$(SID) $(MINICLUSTER) reset --all
	rm -rf build

$(VENV_READY): pyproject.toml
	@echo "making $(VENV) with what development needs"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get install -y -qq python3-venv; } || \
	    { echo 'make: error: $(PYTHON) has no venv'; echo '  try:  sudo apt-get install python3-venv'; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

# As pure Python, for all machines that see PREFIX. pip must not compare the wheels with the Python that runs pip.
$(LAUNCHER_LIB)/%: containers/locks/launcher.txt containers/for_python.py | $(VENV_READY)
	@rm -rf $@.new
	@$(VENV)/bin/python containers/for_python.py $< $* $@.new
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-compile --target $@.new/lib --require-hashes --no-deps \
	    --only-binary=:all: --implementation py --abi none --platform any --python-version $* --ignore-requires-python \
	    --requirement $@.new/requirements.txt
	@rm -rf $@ $@.new/lib/bin && mv $@.new $@
