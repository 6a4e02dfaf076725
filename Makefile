# make prints its targets.
.DEFAULT_GOAL := help
SHELL := bash

GO ?= go
BUF_VERSION := 1.75.0
BUF := .cache/buf/node_modules/.bin/buf
AXE_VERSION := 4.14.1
AXE := .cache/axe-$(AXE_VERSION)/node_modules/axe-core/axe.min.js

# Pebble's zstd is in Go, as in a release, which has no cgo. Pawl compresses with Snappy, so nothing calls zstd, and its C would take 40 s to
# compile, and 40 s more under the race detector. A release does not need the tag, and would name it. Nobody runs a debugger on these programs:
# without its tables the compiler takes an eighth less processor time, and stack traces are the same.
CI_FLAGS := -tags=pebblegozstd -gcflags=all=-dwarf=false
test check race lint: export GOFLAGS := $(CI_FLAGS) $(filter-out $(CI_FLAGS),$(GOFLAGS))

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The compiler, the linker, vet and staticcheck collect garbage less often: a fifth less processor time for a fifth to a third more memory.
# A package may take half an hour, where Go allows ten minutes: ./test takes six next to others, and more on a busy machine.
SELDOM := GOGC=400
TEST := $(SELDOM) $(GO) test -exec 'env -u GOGC' -vet=off -timeout 30m

# The packages that take longest are tested first, so that none of them is left running alone at the end. Tests of real processes mostly wait,
# so more of them run at a time than there are processors.
LONGEST := ./test ./cmd/pawl ./internal/ui ./internal/shard

# Packages without benchmarks need not be linked.
BENCHMARKED = $(sort $(dir $(shell grep -rl '^func Benchmark' --include='*_test.go' --exclude-dir=.cache --exclude-dir=node_modules .)))

# Two targets at a time: a test that waits for processes leaves the processors to others. Each target prints its output when it ends, except the
# Go tests (the + before them), which print as they go to show their progress.
BESIDE := --no-print-directory -j2 --output-sync=target

.PHONY: test
test: tools ## all tests, each benchmark once
	$(GO) mod download # the test of the README asks for the versions of all modules, and not the network
	$(MAKE) $(BESIDE) test-go test-python test-typescript

# Tests that start the real program share one binary.
test-go test-python test-typescript: export PAWL_BINARY := $(CURDIR)/.cache/bin/pawl

.PHONY: pawl-binary
pawl-binary:
	$(SELDOM) $(GO) build -ldflags "-s -w" -o .cache/bin/pawl ./cmd/pawl

# One of the three packages that are tested at a time is ./test, which waits. What the benchmarks print is shown if one fails.
.PHONY: test-go
test-go: pawl-binary
	+$(TEST) -exec '"$(CURDIR)/test/exec.sh"' -p 3 -parallel 6 $(LONGEST) ./...

.PHONY: test-benchmarks
test-benchmarks: ## each benchmark once
	set -o pipefail; $(TEST) -short -run '^$$' -bench . -benchtime 1x $(BENCHMARKED) | (grep -vE '^(ok|PASS|\?|goos|goarch|pkg|cpu)' || true)

.PHONY: test-python
test-python: pawl-binary ## the tests of the Python SDK, and its types
	clients/python/test.sh

.PHONY: test-typescript
test-typescript: pawl-binary ## the tests of the TypeScript SDK, and its types
	clients/typescript/test.sh

# With TOOLS=no nothing is installed: the tests that lack something are named and skipped.
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
check: generate-check ## what CI adds to the tests
	$(MAKE) $(BESIDE) race fmt-check alerts lint

.PHONY: fmt-check
fmt-check: ## gofmt would change nothing
	@files=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); \
	if [ -n "$$files" ]; then echo "gofmt would change: $$files"; exit 1; fi

.PHONY: lint
lint: ## vet and staticcheck
	$(SELDOM) $(GO) vet ./...
	$(SELDOM) $(GO) tool staticcheck ./...

.PHONY: generate
generate: $(BUF) ## regenerate the code of api/ from its .proto files, and the reference pages from the commands
	cd api && ../$(BUF) lint && ../$(BUF) generate
	$(TEST) ./cmd/pawl -run TestReference -rewrite

.PHONY: generate-check
generate-check: generate ## the generated code is what the .proto files say
	@changed=$$(git status --porcelain api docs/cli.md docs/configuration.md); \
	if [ -n "$$changed" ]; then echo "generated code was changed: $$changed"; git --no-pager diff --stat api; exit 1; fi

$(BUF):
	mkdir -p .cache/buf
	npm install --prefix .cache/buf --no-save --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION)

# On one processor each: Go 1.26 runs the timers of a synctest bubble from several threads with one race context, which
# now and then crashes the race detector. It sees races on one processor too. The engine has no goroutines: what runs it has tests of its own.
# With -short, models that run on one goroutine try fewer seeds: make test looks for wrong decisions with all
# seeds, on all processors, in the code as it is shipped. This target looks for races, and runs the checks that Pebble makes under the race detector.
RACY := ./internal/node ./internal/shard ./internal/ui ./internal/gateway

# Packages that start no goroutine and serve nothing, in code or tests, need no race detector.
CONCURRENT = $(shell grep -rlE '^\s*go |\.Go\>|AfterFunc|\.Parallel\>|"testing/synctest"|"net/http|"google.golang.org/grpc"' \
	--include='*.go' --exclude-dir=testdata internal outbox *.go | xargs dirname | sort -u | grep -vxE 'internal|internal/engine' | sed 's|^|./|')

.PHONY: race
race: ## the tests of everything concurrent, under the race detector
	+$(TEST) -race -short -cpu 1 $(RACY) $(CONCURRENT)

SIMULATIONS := 'PowerLoss|Replicas|Bridge|Stopped|LeaderDiskHangs|TestMembership'

.PHONY: soak-simulator
soak-simulator: ## many seeds of the simulations of a shard's replicas (20 min; PAWL_SEEDS=n for more or fewer)
	PAWL_SEEDS=$${PAWL_SEEDS:-200} $(GO) test -count 1 -timeout 60m -v -run $(SIMULATIONS) ./internal/shard

.PHONY: soak-race
soak-race: ## some seeds of them under the race detector (20 min)
	PAWL_SEEDS=$${PAWL_SEEDS:-20} $(GO) test -race -cpu 1 -count 1 -timeout 60m -v -run $(SIMULATIONS) ./internal/shard

.PHONY: soak
soak: soak-simulator ## all at length: those, and the real binary against kills, bad disks, cut networks, a million tasks (30 min; root, strace and ip for all of it)
	PAWL_CLUSTER_KILLS=$${PAWL_CLUSTER_KILLS:-60} PAWL_CLUSTER_PAUSES=$${PAWL_CLUSTER_PAUSES:-60} PAWL_CLUSTER_ROUNDS=10 PAWL_CLUSTER_CUTS=5 \
	PAWL_KILLS=$${PAWL_KILLS:-300} PAWL_SHARD_KILLS=$${PAWL_SHARD_KILLS:-150} PAWL_SYNC_STEP=1 PAWL_TASKS=$${PAWL_TASKS:-1000000} \
	PAWL_SQS_MINUTES=$${PAWL_SQS_MINUTES:-3} PAWL_OUTBOX_SECONDS=120 PAWL_IDLE_SECONDS=10 PAWL_PAYMENTS=50000 PAWL_BUDGETS=1 $(GO) test -count 1 -timeout 60m -v ./test/
	PAWL_KILLS=60 clients/python/test.sh tests/test_kills.py
	PAWL_KILLS=60 clients/typescript/test.sh build/tests/kills.test.js

.PHONY: mutants
mutants: ## faults planted in a package one at a time: do its own tests notice? (PKG=./internal/task; SAMPLE=200: only so many; ARGS=-again: those that survived)
	@test -n "$(PKG)" || { echo "which package? make mutants PKG=./internal/task"; exit 1; }
	$(GO) run ./test/mutants $(if $(SAMPLE),-sample $(SAMPLE)) $(ARGS) $(PKG)

# promtool is taken out of Debian's package, which is not installed: no service starts.
PROMTOOL := .cache/prometheus/usr/bin/promtool

.PHONY: alerts
alerts: ## promtool finds the alert rules good, and they fire when they should
	@promtool=$$(command -v promtool || echo $(PROMTOOL)); \
	if [ ! -x "$$promtool" ]; then mkdir -p .cache/prometheus && (cd .cache/prometheus && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . ; \
		rm -f prometheus_*.deb) >/dev/null 2>&1; fi; \
	if [ -x "$$promtool" ]; then "$$promtool" check config --syntax-only deploy/prometheus/prometheus.yaml && \
		"$$promtool" check rules deploy/prometheus/alerts.yaml && "$$promtool" test rules deploy/prometheus/alerts_test.yaml; \
	else echo "promtool is not here, and Debian's package prometheus could not be had: the alert rules are not checked"; fi

.PHONY: vuln
vuln: ## known vulnerabilities of what we stand on (needs the internet)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

.PHONY: pictures
pictures: ## remake the pictures of the README and docs/ with the product itself (1 min; needs Chromium and Graphviz)
	@command -v dot >/dev/null && command -v chromium >/dev/null || apt-get install -qq -y --no-install-recommends graphviz chromium fonts-dejavu-core
	$(GO) run ./test/pictures

.PHONY: drawing
drawing: ## remake only the diagrams of docs/ (needs Graphviz)
	@command -v dot >/dev/null || apt-get install -qq -y --no-install-recommends graphviz
	$(GO) run ./test/pictures drawings

.PHONY: build
build: ## bin/pawl, as a release is built
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/pawl ./cmd/pawl

.PHONY: sbom
sbom: ## a bill of materials of the binary (CycloneDX, JSON)
	@$(GO) run ./deploy/thirdparty -sbom

# Builds two copies of HEAD in different directories with separate caches: any difference comes from the place or the time.
.PHONY: reproducible
reproducible: ## two builds from two places are the same bytes (5 min)
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	for n in one another-one; do \
		mkdir -p $$work/$$n/src && git archive HEAD | tar -x -C $$work/$$n/src; \
		(cd $$work/$$n/src && GOCACHE=$$work/$$n/cache CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "-s -w" -o $$work/$$n/pawl ./cmd/pawl); \
		rm -rf $$work/$$n/cache; \
	done; \
	sha256sum $$work/*/pawl | cut -c 1-64; cmp $$work/one/pawl $$work/another-one/pawl

.PHONY: bench
bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . ./...
