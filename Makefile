# Each target makes its own .venv and is quick the second time.
#   make demo      a plan, CUDA, a verdict and a program for the transformer block, on any machine
#   make test      each part of the program, quickly (no GPU, no key, no network needed once installed)
#   make test-more the rest of the suite             make test-long  kill, fault and corpus runs (an hour)
#   make test-gpu  what needs an NVIDIA GPU
#   make lint      ruff and mypy --strict            make notebooks  runs them from top to bottom
#   make clean     remove what these targets made
#   make gpu-bundle   gpu-bundle/: all that a GPU host without a network needs (docs/gpu.md). BUNDLE_PYTHON=3.12 is that
#                     host's Python; BUNDLE_TORCH=1 adds torch for CUDA, BUNDLE_TOOLKIT=1 nvcc
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BUNDLE_PYTHON ?= 3.12
PIP    := $(BIN)/python -m pip --disable-pip-version-check
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: demo test test-more test-gpu test-long notebooks lint gpu-bundle clean

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "StitchCUDA needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): on Debian and Ubuntu, install python3-venv first" >&2; exit 2; }
	@touch $@

# torch first: with 2.13.0 installed, nothing else asks for another build of it.
$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -qq "$$(grep '^torch==' constraints.txt)"
	@$(PIP) install -qq -e ".[toolkit]"
	@touch $@

# The last two for their headers alone: what their Python parts ask for is not used here.
$(VENV)/.dev: $(VENV)/.installed
	@$(PIP) install -qq -e ".[toolkit,dev]"
	@$(PIP) install -qq --no-deps nvidia-cudnn-frontend nvidia-cutlass
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/stitchcuda optimize examples/transformer_block.py --device auto

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not gpu and not long and not more" -n 2 --dist worksteal --durations 20

test-more: $(VENV)/.dev
	$(BIN)/python -m pytest -m "more and not gpu and not long" -n 2 --dist worksteal --durations 20

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long

notebooks: $(VENV)/.dev
	$(BIN)/python -m pytest tests/test_notebooks.py -v

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

gpu-bundle: $(VENV)/.installed
	@$(BIN)/python scripts/gpu_bundle.py --python $(BUNDLE_PYTHON) \
	  $(if $(filter 1,$(BUNDLE_TORCH)),--torch) $(if $(filter 1,$(BUNDLE_TOOLKIT)),--toolkit)

clean:
	rm -rf gpu-bundle $(VENV) .stitchcuda .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
