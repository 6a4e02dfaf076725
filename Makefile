# Without a target, make lists them.
.DEFAULT_GOAL := help
SHELL := bash

GO ?= go
BUF_VERSION := 1.75.0
BUF := .cache/buf/node_modules/.bin/buf
AXE_VERSION := 4.14.1
AXE := .cache/axe-$(AXE_VERSION)/node_modules/axe-core/axe.min.js

# The tag selects Pebble's zstd in Go, which a release uses because it has no cgo. Pawl compresses with Snappy, so nothing calls zstd, and its
# C code would take 40 s to compile, and 40 s more for the race detector. No debugger runs on these programs: without DWARF the compiler uses an
# eighth less CPU, and stack traces are the same.
CI_FLAGS := -tags=pebblegozstd -gcflags=all=-dwarf=false
demo test check race lint planted tools-check: export GOFLAGS := $(CI_FLAGS) $(filter-out $(CI_FLAGS),$(GOFLAGS))

# The tests' programs are built without cgo, as a release is. They also link in three quarters of the time, without a C compiler.
# The race detector needs cgo.
demo test check lint planted tools-check: export CGO_ENABLED := 0
race: export CGO_ENABLED := 1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The compiler, the linker, vet and staticcheck collect garbage less often: they use a fifth less CPU, and a fifth to a third more memory.
# A package's tests may take an hour instead of Go's ten minutes: ./test takes six beside others, and more than twenty on a busy machine.
SELDOM := GOGC=400
TEST := $(SELDOM) $(GO) test -exec 'env -u GOGC' -vet=off -timeout 60m

# The slowest packages are tested first, so that none of them runs alone at the end. Tests of real processes mostly wait, so more of them run
# at a time than there are CPUs.
LONGEST := ./test ./internal/ui ./cmd/pawl ./internal/shard ./internal/engine ./internal/node ./test/docs ./test/conformance

# Packages without benchmarks need not be linked.
BENCHMARKED = $(sort $(dir $(shell grep -rl '^func Benchmark' --include='*_test.go' --exclude-dir=.cache --exclude-dir=node_modules .)))

# Two targets run at a time, since tests that wait for processes leave the CPUs idle. Each target prints its output when it ends, except the Go
# tests (marked with +), which show their progress.
BESIDE := --no-print-directory -j2 --output-sync=target

.PHONY: demo
demo: ## compile pawl, and run a real workload end to end in a temporary directory
	@[ -x .cache/bin/pawl ] || echo "compiling Pawl and its libraries, which takes two to three minutes the first time"
	@$(SELDOM) $(GO) build -ldflags "-s -w" -o .cache/bin/ ./cmd/pawl
	@.cache/bin/pawl demo

.PHONY: test
test: tools ## run all tests, and each benchmark once
	$(GO) mod download # the test of the README needs all modules, and must not use the network
	$(MAKE) $(BESIDE) test-go test-python test-typescript

# Tests that start the real program share one binary.
test-go test-python test-typescript: export PAWL_BINARY := $(CURDIR)/.cache/bin/pawl

.PHONY: pawl-binary
pawl-binary:
	$(SELDOM) $(GO) build -ldflags "-s -w" -o .cache/bin/ ./cmd/pawl ./cmd/pawl-outbox

# Of the three packages tested at a time, one is usually ./test, which mostly waits. More tests at a time only make each slower. The output of the benchmarks is shown if one fails.
.PHONY: test-go
test-go: pawl-binary
	+$(TEST) -exec '"$(CURDIR)/test/exec.sh"' -p 3 -parallel 4 $(LONGEST) ./...

.PHONY: test-benchmarks
test-benchmarks: ## run each benchmark once
	set -o pipefail; $(TEST) -short -run '^$$' -bench . -benchtime 1x $(BENCHMARKED) | (grep -vE '^(ok|PASS|\?|goos|goarch|pkg|cpu)' || true)

.PHONY: test-python
test-python: pawl-binary ## test the Python SDK and check its types
	clients/python/test.sh

.PHONY: test-typescript
test-typescript: pawl-binary ## test the TypeScript SDK and check its types
	clients/typescript/test.sh

# TOOLS=no installs nothing: the tests that need what is missing are listed and skipped.
export TOOLS

.PHONY: tools
tools:
	@test/tools.sh
	@if [ ! -f $(AXE) ] && [ "$(TOOLS)" = no ]; then echo "make test: TOOLS=no, so axe-core does not check the pages of the web UI"; \
	elif [ ! -f $(AXE) ]; then $(MAKE) --no-print-directory $(AXE); fi

# axe-core checks the accessibility of the pages. Without npm or its registry, its checks are skipped with a message.
$(AXE):
	@npm install --prefix .cache/axe-$(AXE_VERSION) --no-save --no-audit --no-fund --loglevel=error axe-core@$(AXE_VERSION) >/dev/null 2>&1 || \
		echo "make test: axe-core could not be installed, so it does not check the pages of the web UI"

.PHONY: check
check: generate-check ## what CI runs besides the tests
	$(MAKE) $(BESIDE) race fmt-check alerts licenses lint tools-check

GO_FILES = $$(git ls-files '*.go' | grep -v '\.pb\.go$$')

.PHONY: fmt
fmt: ## format the code: gofmt, and no line of more than 140 characters (FILES=... for a few)
	$(GO) build -C tools/lines -o $(CURDIR)/.cache/bin/lines .
	gofmt -w $(or $(FILES),$(GO_FILES))
	.cache/bin/lines -w $(or $(FILES),$(GO_FILES))

.PHONY: fmt-check
fmt-check: ## check that the code is formatted
	@files=$$(gofmt -l $(GO_FILES)); \
	if [ -n "$$files" ]; then echo "gofmt would change: $$files"; exit 1; fi

.PHONY: lint
lint: ## run vet and staticcheck
	$(SELDOM) $(GO) vet ./...
	$(SELDOM) $(GO) tool staticcheck ./...

.PHONY: generate
generate: $(BUF) ## regenerate the code and the OpenAPI document from the .proto files, and the reference pages from the commands
	cd api && ../$(BUF) lint && ../$(BUF) generate
	$(SELDOM) $(GO) run ./tools/generate
	$(TEST) ./cmd/pawl -run TestReference -rewrite

.PHONY: generate-check
generate-check: generate ## check that the generated code is up to date
	@changed=$$(git status --porcelain 'admin/*_gen.go' api clients internal/rest/openapi.json docs/cli.md docs/configuration.md); \
	if [ -n "$$changed" ]; then echo "generated code is out of date: $$changed"; git --no-pager diff --stat admin api clients internal/rest docs; exit 1; fi

$(BUF):
	mkdir -p .cache/buf
	npm install --prefix .cache/buf --no-save --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION)

# Each package runs on one CPU: Go 1.26 runs the timers of a synctest bubble on several threads with one race context, which sometimes crashes
# the race detector. It finds races on one CPU too.
# With -short, models that run on one goroutine try fewer seeds: make test looks for wrong decisions, with all seeds, on all CPUs, in the code
# as it is shipped. This target looks for races, and runs the checks that Pebble makes under the race detector.
RACY := ./internal/node ./internal/shard ./internal/ui ./internal/gateway

# By default, a test program sleeps for a second before it exits, so that other threads can report races. On one CPU there are none to wait for.
.PHONY: race
race: ## test everything concurrent under the race detector
	+packages=$$(test/concurrent.sh) && $(SELDOM) GORACE=atexit_sleep_ms=0 $(GO) test -vet=off -timeout 60m -race -short -cpu 1 $(RACY) $$packages

SIMULATIONS := 'PowerLoss|Replicas|Bridge|PausedLeader|LeaderDiskHangs|TestMembership'

.PHONY: soak-simulator
soak-simulator: ## simulate a shard's replicas with many seeds (20 min; PAWL_SEEDS=n for more or fewer)
	PAWL_SEEDS=$${PAWL_SEEDS:-200} $(GO) test -count 1 -timeout 60m -v -run $(SIMULATIONS) ./internal/shard

.PHONY: soak-race
soak-race: ## the same with a few seeds under the race detector (20 min)
	PAWL_SEEDS=$${PAWL_SEEDS:-20} $(GO) test -race -cpu 1 -count 1 -timeout 60m -v -run $(SIMULATIONS) ./internal/shard

.PHONY: soak-long
soak-long: ## the tests that otherwise try samples of many similar cases try all of them
	PAWL_LONG=1 $(GO) test -count 1 -timeout 60m ./internal/node ./internal/ui ./test/conformance

.PHONY: soak
soak: soak-simulator soak-long ## long tests: the simulations, and the real binary under kills, bad disks, network partitions and a million tasks (30 min; needs root, strace and ip)
	PAWL_LONG=1 PAWL_CLUSTER_DAMAGES=12 PAWL_CLUSTER_KILLS=$${PAWL_CLUSTER_KILLS:-60} PAWL_CLUSTER_PAUSES=$${PAWL_CLUSTER_PAUSES:-60} PAWL_CLUSTER_ROUNDS=10 PAWL_CLUSTER_CUTS=5 \
	PAWL_KILLS=$${PAWL_KILLS:-300} PAWL_SHARD_KILLS=$${PAWL_SHARD_KILLS:-150} PAWL_SYNC_STEP=1 PAWL_TASKS=$${PAWL_TASKS:-1000000} \
	PAWL_SQS_MINUTES=$${PAWL_SQS_MINUTES:-3} PAWL_OUTBOX_SECONDS=120 PAWL_IDLE_SECONDS=10 PAWL_PAYMENTS=50000 PAWL_BUDGETS=1 $(GO) test -count 1 -timeout 60m -v ./test/
	PAWL_KILLS=60 clients/python/test.sh tests/test_kills.py
	PAWL_KILLS=60 clients/typescript/test.sh build/tests/kills.test.js

.PHONY: planted
planted: ## plant each known bug in the storage and around Raft, and check that the tests catch it (some minutes)
	PAWL_PLANTED=1 $(GO) test -timeout 60m -v -run TestPlantedBugsAreCaught ./test/planted

.PHONY: mutants
mutants: ## change a package in small ways, one at a time, and check that its tests fail (PKG=./internal/task; SAMPLE=200 for a random sample; ARGS=-again for survivors)
	@test -n "$(PKG)" || { echo "which package? make mutants PKG=./internal/task"; exit 1; }
	$(GO) build -C tools/mutants -o $(CURDIR)/.cache/bin/mutants .
	.cache/bin/mutants $(if $(SAMPLE),-sample $(SAMPLE)) $(ARGS) $(PKG)

.PHONY: tools-check
tools-check: ## test what is in tools/, and that each entry of the list of equivalent mutants names a mutant
	for tool in lines mutants; do $(SELDOM) $(GO) vet -C tools/$$tool . && $(SELDOM) $(GO) test -C tools/$$tool -timeout 30m . || exit 1; done

# promtool is extracted from Debian's package without installing it, so that no service starts.
PROMTOOL := .cache/prometheus/usr/bin/promtool

.PHONY: alerts
alerts: ## check the alert rules with promtool, and that they fire when they should
	@promtool=$$(command -v promtool || echo $(PROMTOOL)); \
	if [ ! -x "$$promtool" ]; then mkdir -p .cache/prometheus && (cd .cache/prometheus && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . ; \
		rm -f prometheus_*.deb) >/dev/null 2>&1; fi; \
	if [ -x "$$promtool" ]; then "$$promtool" check config --syntax-only deploy/prometheus/prometheus.yaml && \
		"$$promtool" check rules deploy/prometheus/alerts.yaml && "$$promtool" test rules deploy/prometheus/alerts_test.yaml; \
	else echo "promtool is missing, and Debian's package prometheus could not be downloaded: the alert rules are not checked"; fi

.PHONY: vuln
vuln: ## check the dependencies for known vulnerabilities (needs the internet)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

.PHONY: pictures
pictures: ## take the screenshots and draw the diagrams of the README and docs/ again (1 min; needs Chromium and Graphviz)
	@command -v dot >/dev/null && command -v chromium >/dev/null || apt-get install -qq -y --no-install-recommends graphviz chromium fonts-dejavu-core
	$(GO) run ./test/pictures

.PHONY: drawing
drawing: ## draw only the diagrams of docs/ (needs Graphviz)
	@command -v dot >/dev/null || apt-get install -qq -y --no-install-recommends graphviz
	$(GO) run ./test/pictures drawings

.PHONY: build
build: ## build the programs in bin/ as in a release
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/ ./cmd/...

.PHONY: licenses
licenses: ## copy the licenses of the libraries in the programs to bin/licenses/, as a release ships them, and check that they are allowed
	@deploy/licenses.sh bin/licenses

.PHONY: sbom
sbom: build ## print a bill of materials of pawl (CycloneDX, JSON; needs the internet; without it, see go version -m bin/pawl)
	@$(GO) run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@latest bin -json bin/pawl

# Builds two copies of HEAD in different directories with separate caches: a difference must come from the directory or the time.
.PHONY: reproducible
reproducible: ## check that builds in two directories are identical (5 min)
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	for n in one another-one; do \
		mkdir -p $$work/$$n/src && git archive HEAD | tar -x -C $$work/$$n/src; \
		(cd $$work/$$n/src && GOCACHE=$$work/$$n/cache CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "-s -w" -o $$work/$$n/pawl ./cmd/pawl); \
		rm -rf $$work/$$n/cache; \
	done; \
	sha256sum $$work/*/pawl | cut -c 1-64; cmp $$work/one/pawl $$work/another-one/pawl

.PHONY: bench
bench: ## run all benchmarks
	$(GO) test -run '^$$' -bench . ./...
