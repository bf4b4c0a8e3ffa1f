# One word for each habit. A fresh machine needs Python 3.11 or newer, make and git; the rest is installed
# into .venv in the checkout. `make help` lists the words.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
LISTEN ?= 127.0.0.1:9092
DATA ?= ./data
CODE := values config protocol storage broker client console pipeline cli tidelog
SOURCES := $(shell find $(CODE) -name '*.py' -o -name '*.pxd' -o -path '*/static/*' -o -path '*/templates/*')

# The packages of an extra: another `pip install -e` would compile the loops again, for minutes.
EXTRA = $(BIN)/python -c "import sys, tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies'][sys.argv[1]], sep='\n')"
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -r /dev/stdin

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the words
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidelog needs Python 3.11 or newer; this is %d.%d (set PYTHON=...)" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -U pip

# What is installed to be used has one import name, tidelog; a contributor's installation is editable
# and has the folders' own names. `make setup` after `make run` changes to the latter for good.
$(VENV)/.run: pyproject.toml setup.py $(SOURCES) | $(BIN)/python
	@test -e $(VENV)/.dev || $(BIN)/python -m pip install -q --disable-pip-version-check .
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py $(wildcard protocol/records/*_loops.p*) | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.run

.PHONY: setup
setup: $(VENV)/.dev ## the virtual environment with everything for development

.PHONY: run
run: $(VENV)/.run ## a broker on 127.0.0.1:9092 with ./data (LISTEN=, DATA= change that)
	@$(BIN)/tidelog serve --listen $(LISTEN) --data-dir $(DATA)

.PHONY: build-ext
build-ext: setup ## compile the record loops again after editing them
	$(BIN)/python setup.py -q build_ext --inplace

$(VENV)/.docs: pyproject.toml | setup
	$(EXTRA) docs | $(INSTALL)
	@touch $@

.PHONY: site
site: $(VENV)/.docs ## the documentation as a site in build/site; fails at a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

.PHONY: fmt
fmt: setup ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lint
lint: setup ## style, import contracts, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/codespell

.PHONY: types
types: setup ## mypy strict over packages, tests and benchmarks
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks

.PHONY: quick
quick: setup ## unit tests only, stop at the first failure
	$(PYTEST) -x -q -n auto tests/unit

.PHONY: test
test: setup ## everything but what needs other languages, a Java, a KDC, an S3 server, Prometheus or a browser
	$(PYTEST) -q -n auto -m 'not alerts' tests --ignore=tests/compat --ignore=tests/kerberos --ignore=tests/s3 --ignore=tests/pipeline \
		--ignore=tests/roundtrip --ignore=tests/differential --ignore=tests/requests_differential \
		--ignore=tests/tls_check --ignore=tests/rights/test_against_kafka.py --ignore=tests/browser

.PHONY: pythons
pythons: ## what is committed, with each Python found: installed, used, the unit tests (PYTHONS=, TESTS=)
	TESTS='$(or $(TESTS),tests/unit)' tests/install/pythons.sh $(PYTHONS)

.PHONY: musl
musl: ## without glibc, as on Alpine: a Python for musl built, what is committed installed and used (root on Debian; 15 minutes)
	tests/install/musl.sh .cache/musl

.PHONY: compat
compat: setup ## real clients of every kind against the broker (installs them)
	$(PYTEST) -q tests/compat

.PHONY: compat-core
compat-core: setup ## the clients that most users have, as CI runs them
	$(PYTEST) -q tests/compat -m core

$(VENV)/.spark: pyproject.toml | setup
	$(EXTRA) spark | $(INSTALL) 'pyspark[connect]' 'pandas<3'
	@touch $@

.PHONY: spark-setup
spark-setup: $(VENV)/.spark ## Spark, pyarrow and a Java if there is none, in .venv

.PHONY: spark-test
spark-test: spark-setup .cache/go/bin/versitygw ## the tests that need Spark (some minutes, about 2 GiB)
	$(PYTEST) -q tests/pipeline --ignore=tests/pipeline/connector

.PHONY: spark-core
spark-core: spark-setup ## the part of spark-test that CI runs
	$(PYTEST) -q tests/pipeline -m core --ignore=tests/pipeline/connector

SPARK_VERSIONS ?= 4.0.5 4.1.4 4.2.1

.PHONY: spark-versions
spark-versions: spark-setup ## what works on PySpark 4.0, 4.1 and 4.2, on each of them (fetches them; they leave sockets open)
	for version in $(SPARK_VERSIONS); do \
		test -d .cache/pyspark-$$version || $(BIN)/python -m pip install -q --target .cache/pyspark-$$version pyspark==$$version || exit 1; \
		PYTHONPATH=.cache/pyspark-$$version SPARK_HOME=$(CURDIR)/.cache/pyspark-$$version/pyspark \
			$(PYTEST) -q -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
				tests/pipeline/test_versions.py || exit 1; \
	done

.PHONY: spark-kafka
spark-kafka: spark-setup ## Spark's own Kafka connector against the broker (fetches its JARs)
	$(PYTEST) -q tests/pipeline/connector

.PHONY: kafka-roundtrip
kafka-roundtrip: setup ## Apache Kafka judges our files, starts on them, and has its own taken over
	$(PYTEST) -q tests/roundtrip

.PHONY: differential
differential: setup ## the same bytes to five releases of Apache Kafka and to us; what differs
	$(PYTEST) -q tests/differential

.PHONY: differential-requests
differential-requests: setup ## the same requests of every API to Apache Kafka and to us; what differs
	$(PYTEST) -q tests/requests_differential

.PHONY: differential-requests-core
differential-requests-core: setup ## the part of differential-requests that CI runs
	$(PYTEST) -q tests/requests_differential -m core

.PHONY: rights
rights: setup ## every API (or API="FETCH ...") under every kind of access rule, of Apache Kafka and of us
	$(if $(API),$(BIN)/python -m tests.rights.run $(API),$(PYTEST) -q tests/rights)

$(VENV)/.kerberos: pyproject.toml | setup
	@which krb5-config krb5kdc kadmin.local kinit >/dev/null || (apt-get update -q && DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends krb5-kdc krb5-admin-server krb5-user libkrb5-dev)
	$(EXTRA) kerberos | $(INSTALL) k5test
	@touch $@

.PHONY: kerberos
kerberos: $(VENV)/.kerberos ## logins with tickets of a real KDC (Debian's packages, installed if you are root)
	$(PYTEST) -q tests/kerberos

.cache/go/bin/versitygw:
	GOPATH=$(CURDIR)/.cache/go go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

.PHONY: test-s3
test-s3: setup .cache/go/bin/versitygw ## tiered storage with a real S3 server, built by Go (S3_KILLS=, ZOMBIES=, S3_DOWN_S=)
	$(PYTEST) -q tests/s3

$(VENV)/.browser: pyproject.toml | setup
	@which chromium chromium-browser google-chrome >/dev/null || (apt-get update -q && DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends chromium)
	$(EXTRA) console | $(INSTALL) 'playwright>=1.50' 'axe-playwright-python>=0.1'
	@touch $@

.PHONY: browser
browser: $(VENV)/.browser ## the console in a real browser (Debian's Chromium, installed if you are root)
	$(PYTEST) -q tests/browser

.PHONY: browser-core
browser-core: $(VENV)/.browser ## the part of browser that CI runs: a minute
	$(PYTEST) -q tests/browser -m core

.PHONY: pictures
pictures: $(VENV)/.browser ## take the pictures of docs/images (look at each of them)
	$(BIN)/python -m tests.browser.pictures

.PHONY: alerts
alerts: setup ## the alerts with a real Prometheus and Alertmanager (Debian's, installed if you are root)
	@which prometheus promtool amtool >/dev/null || (apt-get update -q && DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends prometheus prometheus-alertmanager)
	$(PYTEST) -q tests/integration/operator/test_alerts.py

.PHONY: fuzz
fuzz: setup ## malformed logins, messages, batches, files, settings for each reader (INPUTS=, default 1000000 each)
	$(BIN)/python -m tests.fuzz.sasl --inputs $(or $(INPUTS),1000000)
	$(BIN)/python -m tests.fuzz.decoders --inputs $(or $(INPUTS),1000000)

.PHONY: fuzz-guided
fuzz-guided: setup ## the same readers with libFuzzer, which follows what its inputs reach (Linux; INPUTS=)
	$(BIN)/python -m pip install -q --disable-pip-version-check 'atheris>=3,<4'
	$(BIN)/python -m tests.fuzz.decoders --guided --inputs $(or $(INPUTS),1000000)

.venv-tls/bin/sslyze:
	$(PYTHON) -m venv .venv-tls
	.venv-tls/bin/pip install -q --disable-pip-version-check 'sslyze>=6.3,<7'

.PHONY: tls-check
tls-check: setup .venv-tls/bin/sslyze ## sslyze against every kind of TLS listener; what it objects to
	$(PYTEST) -q tests/tls_check

.PHONY: demo
demo: setup ## 336,776 flights: produce, search by time with five clients, consume an hour
	$(BIN)/python -m demo.flights

.PHONY: spark-demo
spark-demo: spark-setup ## the flights through Spark: streamed, archived by day, restored, equal row for row
	$(BIN)/python -m demo.spark_flights

.PHONY: crash
crash: setup ## a long campaign of simulated power cuts (STATES=, default 100000)
	$(BIN)/python -m tests.crash.campaign --states $(or $(STATES),100000)

.PHONY: mutants
mutants: setup ## small bugs planted in one module; those no test notices (MODULE=storage/log/lookup.py, SAMPLE=, MINUTES=, ONLY=)
	$(BIN)/python -m tests.mutation.run $(MODULE) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SURVIVORS),--survivors) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: kill9
kill9: setup ## kill -9 a broker under load 50 times (CYCLES=) and read back all that was acknowledged
	KILL9_CYCLES=$(or $(CYCLES),50) KILL9_SECURITY_CYCLES=$(or $(CYCLES),50) \
		$(PYTEST) -q -s --timeout 7200 tests/crash/test_kill9.py tests/crash/test_kill9_security.py

.PHONY: compose-test
compose-test: setup ## the integration tests in containers (needs a Docker engine and Compose)
	$(BIN)/python -m tests.compose.run

.PHONY: bench
bench: setup ## beside Apache Kafka, 45 minutes (MINUTES=); writes docs/benchmarks.md and the picture of the README
	$(BIN)/python -m benchmarks.whole $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench-smoke
bench-smoke: setup ## the machinery of `make bench` and the loss of a machine, in two minutes; asserts that it runs, not how fast
	$(BIN)/python -m benchmarks.whole --smoke --no-write
	$(BIN)/python -m benchmarks.machine_loss --seconds 3 --runs 1

.PHONY: docs
docs: setup ## regenerate the tables in docs/
	$(BIN)/python -m tests.tidy.generate_docs

.PHONY: ci
ci: lint types site test test-s3 compat-core browser-core kafka-roundtrip differential-requests-core bench-smoke spark-core ## what CI runs

.PHONY: clean
clean: ## remove what was built, never ./data
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find values config protocol storage broker client console pipeline cli tidelog -name '*.so' -delete
