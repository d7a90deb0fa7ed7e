# Every target sets up what it needs in .venv and is quick when repeated. Needs Python 3.11, make and pip only.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export SPECSWEEP_HOME ?= $(CURDIR)/.specsweep
export RAY_AUTH_MODE ?= disabled
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: demo test lint format evidence install clean

demo: $(VENV)/.installed ## a real sweep on this machine: about ten minutes on 2 cores
	$(BIN)/specsweep run sweeps/specs/demo.yaml
	@printf '%s\n' '' 'To go on with it:' \
	  '  export SPECSWEEP_HOME=$(SPECSWEEP_HOME) PATH=$(CURDIR)/$(BIN):$$PATH' \
	  '  specsweep report demo' \
	  '  mlflow ui --backend-store-uri sqlite:///$$SPECSWEEP_HOME/mlflow.db'

test: $(VENV)/.installed-dev ## the tests, real servers included
	$(BIN)/python -m pytest -m "not evidence"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

evidence: $(VENV)/.installed-evidence ## the long points; writes to benchmarks/results
	$(BIN)/python -m pytest -m evidence --timeout 7200

install: $(VENV)/.installed

$(VENV)/.installed: requirements/cpu.txt pyproject.toml
	@echo "setting up $(VENV) (a few minutes, once)"
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --no-compile "$(TORCH)"
	$(PIP) install --no-compile --no-deps -r requirements/cpu.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-dev: requirements/dev.txt $(VENV)/.installed
	$(PIP) install --no-compile --no-deps -r requirements/dev.txt
	touch $@

$(VENV)/.installed-evidence: requirements/evidence.txt $(VENV)/.installed-dev
	$(PIP) install --no-compile --no-deps -r requirements/evidence.txt
	touch $@

clean: ## remove the virtualenv; studies are kept
	rm -rf $(VENV)
