# Two commands do everything: `make train` and `make test`. Both set up .venv first, once.
PYTHON ?= python3.11
# The main job and the tests run on CPUs, on every machine. EXTRA=gpu: vLLM's build for NVIDIA GPUs.
EXTRA ?= cpu
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
ARGS ?=
# One ninja for all: two versions would each compile DeepSpeed's operator again.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# What `make test` takes from tests/ray: the whole job, an engine, a learner, every algorithm.
REAL := $(addprefix tests/ray/,training/test_train.py serve/test_engine.py learner/test_learner.py \
  learner/test_algorithms.py)
# Of the long tests those that CI has time for. What breaks without a sound: start-up weights in a
# restarted engine, a resume that trains nothing.
CI := $(addprefix tests/ray/,serve/test_engine_life.py learner/test_learner_state.py)

# What `make test-fast` leaves out: Ray, the browser, whole commands, exhaustive solver references.
SLOW := $(addprefix tests/,ray web cli docs benchmarks solver_actors lights_out envs/test_gym.py \
  envs/test_gym_agreement.py envs/test_webshop.py weights/test_group.py evaluation/test_arms.py \
  evaluation/test_eval_command.py evaluation/test_compare.py evaluation/test_transfer.py \
  evaluation/test_repeat.py datasets/test_build.py datasets/test_splits.py cluster/test_doctor.py \
  learner/test_logprobs.py runs/test_remote_directories.py runs/test_remote_session.py \
  runs/test_hub.py training/test_run_models.py training/test_replay.py \
  training/test_value_net_analysis.py training/test_collector.py serve/test_openapi_fuzz.py \
  serve/test_orphans.py games/test_fuzz.py damage)

.PHONY: help setup train test test-fast test-ray test-ci check fuzz chaos attack-test cluster-test slurm-test wheel-test container-test gpu-test gpu-env-test links docs demo golden lock versions-test clean

help:  ## Say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## Make the environment in .venv (about four minutes, once)

$(READY): pyproject.toml setup.sh requirements/cpu.lock requirements/gpu.lock
	PYTHON=$(PYTHON) EXTRA=$(EXTRA) bash setup.sh $(VENV)
	@touch $@

train: $(READY)  ## Set up, then train the small policy: ARGS="steps=20 seed=1" changes values
	$(BIN)/cast-ray train --config configs/train/quickstart.yaml --outcome-alone $(ARGS)

test: $(READY)  ## Set up, then run the tests (ARGS=tests/algorithms/test_advantages.py runs those alone)
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(BIN)/python -m pytest --ignore tests/ray -n auto --maxprocesses 8 --dist loadfile
	$(BIN)/python -m pytest $(REAL)
endif

test-fast: $(READY)  ## The core alone, without Ray and browser, in under two minutes
	$(BIN)/python -m pytest $(SLOW:%=--ignore=%) -n auto --maxprocesses 8 --dist loadfile $(ARGS)

test-ray: $(READY)  ## The long tests: what dies, clusters, sweeps, services (about 40 minutes)
	$(BIN)/python -m pytest tests/ray $(REAL:%=--ignore=%) $(ARGS)

test-ci: $(READY)  ## Of the long tests those that CI has time for (about five minutes)
	$(BIN)/python -m pytest $(CI) $(ARGS)

check: $(READY)  ## Linters, types and the layers of ARCHITECTURE.md
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fuzz: $(READY)  ## Give every reader damaged files from new seeds (10 minutes; FUZZ: of each kind)
	FUZZ=$(or $(FUZZ),300) $(BIN)/python -m pytest tests/damage/test_fuzz.py $(ARGS)

chaos: $(READY)  ## Train while everything is killed at random, then audit the run (15 minutes)
	$(BIN)/python -m tests.chaos $(ARGS)

attack-test: $(READY)  ## Attack a real service while another caller plays (30 minutes; needs nginx)
	$(BIN)/python -m tests.attacks $(ARGS)

cluster-test: $(READY)  ## `ray up` over SSH and a run on it, in namespaces of this computer (needs root; 10 minutes)
	$(BIN)/python -m tests.cluster $(ARGS)

slurm-test: $(READY)  ## A real Slurm, a run as its job, nodes that die, in namespaces of this computer (needs root; 15 minutes)
	$(BIN)/python -m tests.slurm $(ARGS)

wheel-test: $(READY)  ## Build wheel and sdist, install each alone and use it (4 minutes; ARGS="--extra cpu" trains, too)
	$(BIN)/python -m tests.wheel $(ARGS)

container-test: $(READY)  ## Build the image for CPUs over a Debian made here, and train in it (needs root, debootstrap, buildah; 15 minutes)
	$(BIN)/python -m tests.container

lock: $(READY)  ## Regenerate requirements/*.lock from pyproject.toml (UPGRADE=--upgrade: newest versions)
	PATH="$(CURDIR)/$(BIN):$$PATH" bash requirements/make.sh

versions-test: $(READY)  ## The core's tests with its lowest and highest versions (12 minutes; ARGS="--python 3.13")
	$(BIN)/python -m tests.versions $(ARGS)

links: $(READY)  ## Ask whether every address that the pages link to still answers (needs a network)
	$(BIN)/python -m tests.links

docs: $(READY)  ## Regenerate the generated pages and build the documentation into site/
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

demo: $(READY)  ## Record the runs of `cast-ray view --demo` again (ten minutes)
	bash docs/make_demo.sh

golden: $(READY)  ## Regenerate the golden transcripts; read the difference before you commit it
	$(BIN)/python -m tests.golden.make

gpu-test: $(READY)  ## What a GPU has to show; on CPUs the same checks, small (3 minutes; ARGS=engine runs one part)
	$(BIN)/python -m tests.gpu $(ARGS)

gpu-env-test:  ## Install the build for GPUs (10 GB) in .venv-gpu, import all of it, run the core's tests
	PYTHON=$(PYTHON) EXTRA=gpu bash setup.sh .venv-gpu
	.venv-gpu/bin/python -m tests.gpu.environment
	.venv-gpu/bin/python -m pytest $(SLOW:%=--ignore=%) -n auto --maxprocesses 8 --dist loadfile $(ARGS)

clean:  ## Remove the environment (runs are kept)
	rm -rf $(VENV)
