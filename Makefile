SHELL := bash
.DEFAULT_GOAL := help

# Set on the command line, as in: make test RACE= TESTFLAGS='-run TestStorm -v'
RACE ?= -race
TESTFLAGS ?=
BENCH ?=
BENCHROUNDS ?= 5
BENCHFLAGS ?=
IDEMLEASE ?=
OVERLOADROUNDS ?= 3
FUZZTIME ?= 60s
GRAPHFLAGS ?=
FAULTS ?= 10000
FAILOVERS ?= 200
RECORDS ?= 1000000
SEED ?=
SINCE ?=
ARGS ?=

# Tests run in the directories of their packages.
export REDIS_SERVER := $(if $(findstring /,$(REDIS_SERVER)),$(abspath $(REDIS_SERVER)),$(REDIS_SERVER))

# Where tests leave their reports.
export TEST_ARTIFACTS ?= $(CURDIR)/.artifacts

# Many people have -mod=mod in their GOFLAGS, which is an error in a workspace.
export GOFLAGS := $(filter-out -mod=%,$(shell go env GOFLAGS))

# go.work has only what go run needs. The go command has a name for all packages of a workspace, "work";
# other tools need the directories of its modules.
export GOWORK := $(CURDIR)/all.work
MODULES = $(shell GOFLAGS='$(GOFLAGS)' GOWORK='$(GOWORK)' go list -m -f '{{.Dir}}')

# Modules outside the workspace: their requirements are not downloaded for the
# tests, and do not decide the versions that the library is built with.
APART = $(CURDIR)/bench $(CURDIR)/middleware/caddy $(CURDIR)/tools

CORES = $(shell getconf _NPROCESSORS_ONLN)
ONEMORE = $(shell expr 1 + $(CORES))

# make test leaves out each test that says so (testmain.Quick), notes it in this file, and leaves
# out these packages as a whole: searches for broken promises, libraries that are slow to compile,
# what drives the whole desk, and the tests of the tests' tools. make test-rest runs the tests of
# the file, and these packages.
LEFT_OUT = $(CURDIR)/.artifacts/left-out.txt
REST = $(SEARCHES)|$(FAULTY)|$(MODELS)|$(BROWSERS)|/(docs/integrations|example/.*|internal/(overload|testkit/.*))$$

# The packages of make test-rest whose tests measure the time of real servers and processes are
# tested alone, and those that keep browsers busy with another that waits.
ALONE = /(lock|lock/redisstore)$$
BROWSERS = /example/full(/internal/(forms|js))?$$

# The packages that search for broken promises at random, by faults on real servers. Each is tested
# alone: calls that end at their budget on a busy machine make more work, and then more of them end.
SEARCHES = /internal/(history|history/campaign|proxies)$$
FAULTY = /internal/faults$$

# The packages whose tests take longest, mostly by waiting, are tested first: at the end there
# would be no others for the cores.
LONGEST = ./lock ./lock/redisstore ./lock/pgstore ./docs/snippets

# The models are searched by another program: neither the race detector nor another Go finds more
# in them.
MODELS = /internal/model$$

# Simulations in virtual time of hundreds of callers, which the race detector makes seven times as
# slow. It watches the same code in the tests of the Redis store, and make faults tests all with it.
SIMULATED = /lock/redisstore/internal/wire$$

# go test vets each package with a part of go vet, and its dependencies with it. make lint
# runs all of go vet.
VETTED = -vet=off

# The packages whose tests read files outside of their module, such as pages. The cache of go test
# does not notice when these change.
OUTSIDE = /(docs/snippets|example|internal/telemetry|lock/pgstore|middleware/grpc)$$

# How long the tests of a package may take. A machine that is busy with something else needs
# more than the ten minutes of the go command for the longest.
PATIENCE = -timeout 25m

# What tests use that no test should install on a developer's machine: promtool comes with a
# server.
CIONLY = $(if $(filter true,$(CI)),promtool)

# How a recipe names its run to testmain.SkipIn, whatever the environment has.
unexport TEST_RUN TEST_LEFT_OUT

# The newest Go: make check with it, except for the modules of pages and of the example, whose
# libraries take longer to compile than all others together.
NEWER_GO ?= go1.27.4
NEWER_WITHOUT = /(docs|example)(/|$$)

.PHONY: help help-all
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "More (make help-all says what they do):"
	@awk -F ': (# )?' '/^[a-z-]+: # [a-z]+: / {if (!($$2 in of)) all[++n] = $$2; of[$$2] = of[$$2] " " $$1} END {for (i = 1; i <= n; i++) printf "  %s:%s\n", all[i], of[all[i]]}' $(MAKEFILE_LIST)

help-all: help
	@awk -F ': # ' '/^[a-z-]+: # [a-z]+: / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## Lint what differs from main (SINCE=another commit), and go test -short, in 1 to 4 minutes; may install redis-server
	@scripts/deps.sh redis-server
	@scripts/lint-changed $(SINCE)
	go test $(VETTED) -short -p $(ONEMORE) $(TESTFLAGS) $$(go list $(LONGEST) work | grep -vE '$(REST)|$(OUTSIDE)')
	go test $(VETTED) -short -count=1 -p $(ONEMORE) $(TESTFLAGS) $$(go list work | grep -E '$(OUTSIDE)')

.PHONY: test
test: RACE =
test: ## The tests, with real servers of Redis, PostgreSQL and MariaDB, which it may install (NO_INSTALL=1: not), in 3 to 6 minutes
	@scripts/deps.sh redis-server postgresql mariadb $(if $(RACE),cc)
	@mkdir -p $(dir $(LEFT_OUT)) && : >$(LEFT_OUT)
	@$${REDIS_SERVER:-redis-server} --version || true
	TEST_RUN=quick TEST_LEFT_OUT=$(LEFT_OUT) go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p $(ONEMORE) $(TESTFLAGS) $$(go list $(LONGEST) work | grep -vE '$(REST)')
	@awk -F '\t' 'sub(/^missing: /, "", $$3) {missing[$$3]} END {for (m in missing) print "WARNING: not tested, " m; \
		print "make test-all also runs " NR " tests that measure time, wait, or start browsers and other programs, and searches for broken promises."}' $(LEFT_OUT)

.PHONY: test-all
test-all: ## All tests with the race detector, and searches for broken promises, in 20 minutes; may install programs
	@$(MAKE) --no-print-directory test RACE=$(RACE)
	@$(MAKE) --no-print-directory test-rest
	@$(MAKE) --no-print-directory test-models

# The packages of LEFT_OUT, and the names of their tests.
LEFT = cut -f1 $(LEFT_OUT) | sort -u
RUN_LEFT = -run "^($$(cut -f2 $(LEFT_OUT) | cut -d/ -f1 | sort -u | paste -sd '|' -))$$"

.PHONY: test-rest
test-rest: # tests: What the last make test has left out of make test-all
	@scripts/deps.sh redis-server nutcracker postgresql pgbouncer mariadb proxies chromium curl npm php php-fpm python3 $(if $(RACE),cc) $(CIONLY)
	go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p $(ONEMORE) $(RUN_LEFT) $(TESTFLAGS) $$($(LEFT) | grep -vE '$(ALONE)|$(SIMULATED)')
	go test $(VETTED) $(PATIENCE) -shuffle=on $(RUN_LEFT) $(TESTFLAGS) $$($(LEFT) | grep -E '$(SIMULATED)')
	go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p 1 $(RUN_LEFT) $(TESTFLAGS) $$($(LEFT) | grep -E '$(ALONE)')
	go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p $(ONEMORE) $(TESTFLAGS) $$(go list work | grep -E '$(REST)' | grep -vE '$(BROWSERS)|$(SEARCHES)|$(FAULTY)|$(MODELS)')
	go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p 2 $(TESTFLAGS) $$(go list work | grep -E '$(BROWSERS)')
	go test $(VETTED) $(RACE) $(PATIENCE) -shuffle=on -p 1 $(TESTFLAGS) $$(go list work | grep -E '$(SEARCHES)|$(FAULTY)')
	cd middleware/caddy && GOWORK=off go vet ./... && GOWORK=off go test $(VETTED) $(PATIENCE) -shuffle=on $(TESTFLAGS) ./...
	@cat $(TEST_ARTIFACTS)/*.txt 2>/dev/null || true

# These searches take no real time, so that they may run beside other work.
.PHONY: test-models
test-models: # tests: The searches of make test-all that only compute: models, and 150 short days
	@$(MAKE) --no-print-directory models days SEEDS=150

.PHONY: models
models: # searches: Search all states of the models of the protocol, in a minute; may install spin and gcc with apt
	@scripts/deps.sh spin
	go test $(VETTED) $(TESTFLAGS) ./internal/model

.PHONY: test-newer
test-newer: # tests: Vet the library with NEWER_GO (downloaded by the go command), and go test -short, in 2 minutes
	@scripts/deps.sh redis-server $(NEWER_GO)
	@if GOTOOLCHAIN=$(NEWER_GO) go version 2>/dev/null; then \
		export GOTOOLCHAIN=$(NEWER_GO) && packages=$$(go list work | grep -vE '$(NEWER_WITHOUT)|$(REST)') && go vet $$packages && \
		go test $(VETTED) -short -shuffle=on -p $(ONEMORE) $(TESTFLAGS) $$packages; \
	else \
		echo "make test-newer: skipped, nothing was tested with $(NEWER_GO)" >&2; \
	fi

# Servers newer than the system's, which have commands that older ones lack.
SERVERS ?= $(CURDIR)/.artifacts/servers
NEWER ?= valkey redis mariadb mysql postgresql

.PHONY: test-servers
test-servers: # tests: Test the stores on newer servers that apt can fetch into SERVERS (NEWER: Valkey, Redis, MariaDB, MySQL, PostgreSQL)
	@scripts/deps.sh redis-server nutcracker postgresql pgbouncer mariadb $(CIONLY)
	@for server in $$(scripts/newer-servers.sh $(SERVERS) $(NEWER)); do \
		echo "make test-servers: $$($$server --version)"; \
		case $${server##*/} in \
		mariadbd | mysqld) packages=./lock/mysqlstore; export MYSQL_SERVER=$$server ;; \
		postgres) packages=./lock/pgstore; export POSTGRES_BIN=$${server%/*} ;; \
		*) packages="./lock/redisstore ./internal/faults"; export REDIS_SERVER=$$server ;; \
		esac; \
		TEST_RUN='newer servers' go test $(VETTED) $(PATIENCE) -count=1 -shuffle=on -p 2 $(TESTFLAGS) $$packages || exit 1; \
	done

.PHONY: faults
faults: # searches: The fault campaign with FAULTS (10000) faults and SEED, the other searches at random in full, each single fault
	@scripts/deps.sh redis-server spin $(if $(RACE),cc)
	go test -count=1 -v ./internal/model
	go test $(RACE) -count=1 -v -run '^TestStress$$' ./lock ./lock/quorum -args -seeds 300 $(if $(SEED),-seed $(SEED))
	go test $(RACE) -count=1 -v ./lock/redisstore/internal/wire
	go test $(RACE) -count=1 -v -timeout 60m ./internal/history -args -histories 203 $(if $(SEED),-seed $(SEED))
	go test $(RACE) -count=1 -v -timeout 60m ./internal/faults -args -campaign.faults $(FAULTS) $(if $(SEED),-campaign.seed $(SEED))
	@cat $(TEST_ARTIFACTS)/*.txt

# The databases of make once.
DB ?= postgres mariadb sqlite

once = go test $(RACE) -count=1 -v -timeout 120m -parallel 3 -run '/^$(1)$$' ./internal/history/campaign -args \
	-campaign.faults $(FAULTS) -campaign.failovers $(FAILOVERS) $(if $(SEED),-campaign.seed $(SEED))

.PHONY: steps
steps: # searches: FAULTS (10000) for chains of steps over memory, Redis, PostgreSQL, MariaDB and SQLite, with SEED
	@scripts/deps.sh redis-server postgresql mariadb $(if $(RACE),cc)
	go test $(RACE) -count=1 -v -timeout 60m -run '^TestSteps' ./internal/history/campaign -args -campaign.faults $(FAULTS) $(if $(SEED),-campaign.seed $(SEED))

.PHONY: once once-postgres once-mariadb once-sqlite
once: # searches: Histories and FAULTS (10000) for work in transactions of each DB (postgres mariadb sqlite), with FAILOVERS (200), SEED
	@for db in $(DB); do $(MAKE) --no-print-directory once-$$db || exit 1; done

once-postgres:
	@scripts/deps.sh redis-server postgresql pgbouncer $(if $(RACE),cc)
	go test $(RACE) -count=1 -v -timeout 60m -run OverPostgres ./internal/history -args -histories.pg 210 $(if $(SEED),-seed $(SEED))
	$(call once,postgres)

once-mariadb:
	@scripts/deps.sh redis-server mariadb $(if $(RACE),cc)
	$(call once,mariadb)

once-sqlite:
	@scripts/deps.sh redis-server $(if $(RACE),cc)
	$(call once,sqlite)

.PHONY: journey
journey: # searches: From a client or a form to the order: connections cut at every byte offset, and the walks of browsers
	@scripts/deps.sh chromium npm curl $(if $(RACE),cc)
	go test $(RACE) -count=1 -v -run Cut ./client
	go test $(RACE) -count=1 -v -run 'RetryableHTTP|Curl' ./docs/snippets
	go test $(RACE) -count=1 -v -timeout 60m ./example/full/internal/forms

.PHONY: chain
chain: # searches: Orders through three services and a provider, with connections cut at every byte offset
	go test $(RACE) -count=1 -v -run Chain ./client -args -chain.every 1

# With the race detector, for which Caddy is compiled once more: make test has none for it.
.PHONY: gateway
gateway: # searches: Test the module of Caddy with the race detector
	@scripts/deps.sh redis-server postgresql $(if $(RACE),cc)
	cd middleware/caddy && GOWORK=off go test $(RACE) -count=1 -v -timeout 60m .

.PHONY: lint
lint: ## Lint, and check the format, go.mod files and shell scripts
	@$(MAKE) --no-print-directory --keep-going lint-format lint-code lint-modules lint-scripts lint-form lint-graph lint-tools

.PHONY: lint-format lint-code lint-modules lint-scripts lint-form lint-graph lint-tools
lint-format:
	scripts/golangci-lint fmt --diff

lint-code:
	scripts/golangci-lint config verify
	scripts/golangci-lint run $(addsuffix /...,$(MODULES))
	cd bench && GOWORK=off ../scripts/golangci-lint run
	cd middleware/caddy && GOWORK=off ../../scripts/golangci-lint run ./...

lint-modules:
	@for module in $(MODULES) $(APART); do \
		echo "go mod tidy -diff in $$module"; \
		GOWORK=off go -C "$$module" mod tidy -diff || exit 1; \
	done

lint-scripts:
	@if command -v shellcheck >/dev/null; then \
		echo "shellcheck .ci/run scripts/*"; shellcheck .ci/run scripts/*; \
	else \
		echo "shellcheck is not installed: the scripts were not checked"; \
	fi

lint-form:
	GOWORK=off go -C tools run ./formscript -check

# Files that come to depend on each other are found when they do, and not in the next reading.
lint-graph:
	scripts/graph -circle 4 -up 7 ./lock ./middleware

lint-tools:
	GOWORK=off go -C tools vet ./...
	GOWORK=off go -C tools test ./...

.PHONY: form-script
form-script: # files: Make form/latch.min.js and its integrity value from form/latch.js and js
	GOWORK=off go -C tools run ./formscript

.PHONY: picture
picture: # files: Take the picture of the README, docs/desk.png, from the three stories of the order desk
	@scripts/deps.sh chromium npm
	go test -count=1 -run TestLooks/desk-1280-light ./example/full
	cp $(TEST_ARTIFACTS)/screens/desk-1280-light-4-stage-view.png docs/desk.png

.PHONY: form-looks
form-looks: # files: Take pictures of a form and of every refusal page on all screens, and have axe look at them: .artifacts/screens
	@scripts/deps.sh chromium npm
	go test -count=1 -run Looks ./example/full/internal/forms -args -looks.all

# What make graph measures.
PACKAGES ?= ./lock ./middleware

.PHONY: graph
graph: # files: Count circles, arrows that run back up and methods in PACKAGES (./lock ./middleware); GRAPHFLAGS=-v lists them
	@scripts/graph $(GRAPHFLAGS) $(PACKAGES)

.PHONY: fmt
fmt: ## Format the code
	scripts/golangci-lint fmt

# Parts of make bench. The others take longer than all of these, or need another server: FewCallers, Scripts and Killed.
PARTS = InProcess|Trips|Cycles|Contended|Latency|Crowd|Stalls|HTTP|Growth
export IDEMLEASE

.PHONY: bench
bench: ## Measure next to the peer libraries, in 15 minutes: bench/RESULTS.md (BENCHROUNDS=5, BENCH='Cycles|HTTP', IDEMLEASE=)
	@scripts/deps.sh redis-server
	cd bench && GOWORK=off go test -timeout 30m ./internal/load ./internal/peer ./internal/report ./internal/suite ./internal/web # a peer that is wired wrongly is no comparison
	scripts/bench.sh $(TEST_ARTIFACTS)/$(if $(BENCH),part,bench).txt '$(or $(BENCH),^Benchmark($(PARTS))$$)' $(BENCHROUNDS) $(BENCHFLAGS)
	$(if $(BENCH),,cd bench && GOWORK=off go run . -page $(TEST_ARTIFACTS)/bench.txt >$(TEST_ARTIFACTS)/RESULTS.md && cp $(TEST_ARTIFACTS)/RESULTS.md .)

.PHONY: bench-overload
bench-overload: # measurements: Measure overload, changing networks, outages, 40 minutes a round (OVERLOADROUNDS=3, BENCH=): .artifacts/overload.txt
	@scripts/deps.sh redis-server
	scripts/bench.sh $(TEST_ARTIFACTS)/overload.txt '$(or $(BENCH),Overload|Network|Outage)' $(OVERLOADROUNDS) $(BENCHFLAGS)

# What make day is asked for: contenders by name, times to live of their locks, and how many times
# the incident's rate of lost requests and replies.
ORDERS ?= 100000
ONLY ?= .
TTLS ?= 30s
RATE ?= 1

.PHONY: day
day: # measurements: A day of ORDERS (100000) in virtual time: who is locked out (ONLY=pattern, TTLS=30s, RATE=1, SEED=): .artifacts/day.json
	@mkdir -p $(TEST_ARTIFACTS)
	cd bench && GOWORK=off go test -count=1 -v -timeout 24h -run '^TestFigures$$' ./internal/day -args -day.orders $(ORDERS) -day.only '$(ONLY)' -day.ttls '$(TTLS)' -day.rate $(RATE) $(if $(SEED),-day.seed $(SEED)) -day.figures $(TEST_ARTIFACTS)/day.json

.PHONY: day-page
day-page: # measurements: Write docs/evidence/day.md and docs/day.png from bench/day.json, to which figures of make day are added
	cd bench && GOWORK=off go run . -day day.json -picture ../docs/day.png >../docs/evidence/day.md

# Short days, of which make days plays so many, and again for so long.
SEEDS ?= 300
DAYS_FOR ?= 0
NIGHT ?= 6h

.PHONY: days
days: # searches: Search for broken promises: SEEDS (300) short days with heavy faults, beginning with SEED, in a minute and a half
	cd bench && GOWORK=off go test -count=1 -timeout 24h ./internal/day -args -day.days $(SEEDS) -day.for $(DAYS_FOR) $(if $(SEED),-day.seed $(SEED))

.PHONY: nightly
nightly: # searches: The same for NIGHT (6h), with seeds that begin with the time
	@$(MAKE) --no-print-directory days DAYS_FOR=$(NIGHT) SEED=$(or $(SEED),$(shell date +%s)000)

.PHONY: bench-sql
bench-sql: # measurements: Measure work in transactions of each DB, receipts, clean-up, 15 minutes each (BENCHROUNDS=5, IDEMLEASE=)
	@scripts/deps.sh $(subst postgres,postgresql,$(filter-out sqlite,$(DB)))
	cd bench && GOWORK=off go test ./internal/shop
	scripts/bench.sh $(TEST_ARTIFACTS)/sql.txt '$(or $(BENCH),Transactions|Receipts|CleanUp)' $(BENCHROUNDS) -db '$(DB)' -window 1s $(BENCHFLAGS)

.PHONY: bench-console
bench-console: # measurements: Look through RECORDS (1000000) records in Redis with the console, in two minutes
	@scripts/deps.sh redis-server
	go test -run '^$$' -bench '^BenchmarkConsole$$' -benchtime 1x -timeout 20m ./middleware/console -args -console.records $(RECORDS)

.PHONY: microbench
microbench: # measurements: Run the packages' own benchmarks (BENCH=pattern BENCHFLAGS=-count=6)
	@scripts/deps.sh redis-server
	@uname -srm; echo "$$(getconf _NPROCESSORS_ONLN) cores"; go version; $${REDIS_SERVER:-redis-server} --version || true
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem $(BENCHFLAGS) work

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (60s)
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

.PHONY: cover
cover: ## Measure what the library's tests cover: .artifacts/cover.html
	@scripts/deps.sh redis-server
	@mkdir -p .artifacts
	go test -covermode=atomic -coverpkg=./... -coverprofile=.artifacts/cover.out ./...
	go tool cover -html=.artifacts/cover.out -o .artifacts/cover.html
	@go tool cover -func=.artifacts/cover.out | tail -n 1

.PHONY: run
run: GOWORK = $(CURDIR)/go.work
run: ## Serve the order desk (ARGS='-addr 127.0.0.1:9000 -redis redis://localhost')
	go run -v ./example $(ARGS)
