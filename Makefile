# Every target sets up .venv; only Python 3.11+, make and a package index are needed.
PYTHON ?= python3
BIN := .venv/bin
# errors alone: what pip warns of, its own age and root's folders, is no news of nearkv
PIP := PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip install -qq --disable-pip-version-check
CORES = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
# tests wait for the programs they start: a worker more than there are cores
WORKERS = $(shell expr $(CORES) + 1)
# programs that tests start read modules that are compiled already
export PYTHONDONTWRITEBYTECODE :=
# what `make mutants` changes, and the tests that should notice
MODULE ?= solvers/frontier.py
TESTS ?= tests/solvers/test_frontier.py
SYSTEMS := flexgen-ssd flexgen-dram flexgen-16ssd deepspeed-uvm hilos
SHOWN := system,model,batch,context_tok,status,decode_tok_s,throughput_tok_s,step_ms

.PHONY: help atlas reasons walk setup demo validation bands golden check test quick deep browser pictures readme site lint type sizes fuzz mutants cover resume performance lock
help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

.venv/ready: requirements.lock pyproject.toml src/nearkv/__init__.py
	@echo "setting up .venv, which takes a minute or two" >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

setup: .venv/ready ## install into .venv, the command is .venv/bin/nearkv

demo: setup ## compare HILOS with four baselines: bars on one screen, out/hilos.csv beside them
	@mkdir -p out
	@$(BIN)/nearkv compare $(SYSTEMS) --model opt-66b --context 16k:128k:x2 --columns $(SHOWN) --chart --pivot context_tok -o out/hilos.csv
	@echo "Next, where a step's time goes, and the figure:"
	@echo "  $(BIN)/nearkv estimate hilos --model opt-66b --context 64k --explain"
	@echo "  $(BIN)/nearkv plot lines out/hilos.csv --value decode_tok_s -o out/hilos.pdf"

validation: setup ## write docs/validation.md, a row a paper, anew
	$(BIN)/python docs/validation.py

bands: setup ## pool the model errors anew, write docs/coverage.md
	$(BIN)/nearkv coverage --record --format markdown > docs/coverage.md

atlas: setup ## search the cells of docs/atlas.md anew, draw them: twenty minutes
	$(BIN)/python docs/atlas.py

reasons: setup ## write the table of docs/not-modelled.md anew
	$(BIN)/python docs/not_modelled.py

walk: setup ## write docs/walk.md, the files that a question enters, anew
	@$(BIN)/python tools/footsteps.py --page estimate hilos --model opt-66b --context 64k > docs/walk.md

golden: setup ## write tests/golden/pins.csv anew
	$(BIN)/python tests/golden/pins.py

check: lint type test ## what must pass before a change lands: style, types, tests

test: setup ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

quick: setup ## run the tests that start no other program and take no time, in under 45 seconds
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal -m "not browser and not deep and not processes and not slow"

deep: setup ## run all random trials, before a release: half an hour; their seeds are their names
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal -m deep -rf

browser: setup ## test pages in a browser; needs Debian's chromium and chromium-driver
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; \
	then $(BIN)/python -m pytest -m browser -n0 tests/browser; else echo "browser tests: not run"; fi

pictures: setup ## draw the pictures of README and the site anew
	$(BIN)/python docs/pictures.py

readme: setup ## run the commands that README shows and write what they print
	$(BIN)/python tests/golden/readme.py

site: setup ## build the site into out/site
	$(BIN)/python -m sphinx -q -W -b html docs out/site

lint: setup ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup ## check types, strictly
	$(BIN)/mypy

sizes: setup ## print tokens, code lines, modules, ambiguous names, lonely modules, import cycles
	$(BIN)/python tools/sizes.py

fuzz: setup ## attack the command line and every system; ARGS='--seed 2 --seconds 600'
	cd tools && ../$(BIN)/python -m fuzz $(ARGS)

mutants: setup ## change an expression of MODULE at a time; TESTS must notice each
	@mkdir -p out
	@sed 's|MODULE|$(MODULE)|; s|TESTS|$(TESTS)|' tools/mutants.toml > out/mutants.toml
	@rm -f out/mutants.sqlite
	$(BIN)/cosmic-ray init out/mutants.toml out/mutants.sqlite
	$(BIN)/cr-filter-operators out/mutants.sqlite out/mutants.toml
	$(BIN)/cosmic-ray baseline out/mutants.toml
	$(BIN)/cosmic-ray exec out/mutants.toml out/mutants.sqlite
	$(BIN)/cr-report --surviving-only --show-diff out/mutants.sqlite

cover: setup ## which branches of each module the tests run, other processes included
	COVERAGE_FILE=$(CURDIR)/.coverage $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not browser and not deep and not stops" --cov --cov-report=term-missing:skip-covered

resume: setup ## kill and resume sweeps of three forms, ten times each; takes minutes
	$(BIN)/python -m bench.resume

performance: setup ## measure what commands cost, write docs/performance.md
	$(BIN)/python -m bench.performance

lock: ## pin every dependency anew
	uv pip compile pyproject.toml --extra dev --universal --no-strip-extras --generate-hashes --python-version 3.11 --no-header -o requirements.lock
