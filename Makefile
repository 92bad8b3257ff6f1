# Everything a developer runs. `make` alone prints the targets.
# `make test` needs only Go; `make test-infra` needs Node.js, too, and `make test-aws` Python besides. What needs
# more is installed by tools/, pinned.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

TOOLS := $(CURDIR)/.tools/bin
BIN   := bin
OUT   := out

# Extra flags for each `go test` below: make test TESTFLAGS='-run TestHead -v'
TESTFLAGS ?=
# Packages whose path matches run a Node.js process; they have a target of their own.
NODE_PACKAGES ?= /infra(/|$$)
# Packages that the race detector would only slow: one goroutine works in all but flood and soak; the flood's
# simulated time counts how fast goroutines get their turn, and the soak's server is a process built without the detector.
RACELESS ?= /tests/(flood|latency|soak)$$|/internal/(cost|lineage)$$
# How long each fuzz target runs, how many kills one run of the kill loop makes, and in a soak; how long the soak's
# load runs.
FUZZTIME ?= 20s
SPILLWAY_KILLS ?= 30
SOAK ?= 4h
SOAK_KILLS ?= 1000
# How many runs the simulator makes, and the first one's seed.
SIM_SEEDS ?= 1000
SIM_FIRST ?= $(shell date +%s)000
# Benchmarks: which, and how often each.
BENCH ?= .
BENCHCOUNT ?= 1
# The benchmarks beside other systems (docs/bench.md): how often each runs each workload, what times and counts are
# multiplied by, and which ones, by name with commas; all unless given.
PAIRS ?= 3
SCALE ?= 1
PEERS ?=
WORKLOADS ?=
BENCH_OUT ?= $(OUT)/bench
# Arguments of the local server.
SERVE_ARGS ?=
# AWS (docs/aws.md): what to build the functions for, the deployment's settings (-c KEY=VALUE …),
# more arguments of `cdk deploy` and `cdk destroy`, and whether to run `cdk bootstrap` first.
ARCH ?= arm64
CONTEXT ?=
CDK_ARGS ?=
BOOTSTRAP ?= yes
# The CDK's bridge from Go warns about a Node.js that is past its end of life.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION ?= 20

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile everything; programs go to bin/
	@go build ./...
	@if [ -d cmd ]; then mkdir -p $(BIN) && go build -o $(BIN)/ ./cmd/...; fi

.PHONY: test
test: ## run every test that needs only Go
	@go test $(TESTFLAGS) $$(go list ./... | grep -vE '$(NODE_PACKAGES)')

.PHONY: test-infra
test-infra: need-node ## run the tests of the CDK app
	@go test $(TESTFLAGS) ./infra/...

.PHONY: test-s3
test-s3: ## run the S3 driver's conformance suite against versitygw, installed by tools/versitygw
	@tools/versitygw
	@SPILLWAY_S3_STRICT=1 go test $(TESTFLAGS) ./pkg/blob/s3blob/...

.PHONY: test-rie
test-rie: ## hold the built functions against Lambda's Runtime API, emulated by aws-lambda-rie (tools/rie installs it)
	@tools/rie
	@go test -tags rie -count=1 -timeout 10m $(TESTFLAGS) ./functions/contract

.PHONY: test-aws
test-aws: need-node ## deploy to an emulator of AWS and test it from outside; to AWS_ENDPOINT_URL, or one started by tools/ministack
	@run=(); if [ -z "$${AWS_ENDPOINT_URL:-}" ]; then run=(tools/ministack with); fi; \
	"$${run[@]}" go test -tags localstack -count=1 -timeout 30m $(TESTFLAGS) ./localstack-tests/...

.PHONY: race
race: ## the same tests under the race detector, but for those of RACELESS
	@go test -race $(TESTFLAGS) $$(go list ./... | grep -vE '$(NODE_PACKAGES)|$(RACELESS)')

.PHONY: check
check: vet fmt-check lint tidy-check generate-check ## all static checks
	@go test -count=1 ./tools/checks

.PHONY: vet
vet: ## go vet
	@go vet ./...
	@go vet -tags localstack ./localstack-tests/...
	@go vet -tags rie ./functions/contract
	@cd bench && go vet -tags peers ./...

.PHONY: lint
lint: tools-lint ## golangci-lint, with the rules of .golangci.yml
	@$(TOOLS)/golangci-lint run ./...
	@cd bench && $(TOOLS)/golangci-lint run --config ../.golangci.yml ./...

.PHONY: fmt
fmt: tools-fmt ## format every Go file
	@$(TOOLS)/gofumpt -w $$($(go_files))

.PHONY: fmt-check
fmt-check: tools-fmt ## fail if a Go file is not formatted
	@bad=$$($(TOOLS)/gofumpt -l $$($(go_files))); \
	if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

# Folders that Go itself skips, and testdata, are not ours to format.
go_files = find . \( -name '.?*' -o -name testdata -o -name node_modules -o -name cdk.out \) -prune -o -name '*.go' -print

.PHONY: tidy-check
tidy-check: ## fail if go.mod or go.sum is not tidy, or a module was altered
	@go mod tidy -diff
	@go mod verify
	@cd bench && go mod tidy -diff && go mod verify

.PHONY: generate-check
generate-check: ## fail if a generated file is not what its generator writes now
	@tools/generatecheck

.PHONY: vuln
vuln: ## govulncheck; says so where its database cannot be reached
	@go run ./tools/vulncheck

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	@FUZZTIME=$(FUZZTIME) TESTFLAGS='$(TESTFLAGS)' tools/fuzz

.PHONY: bench
bench: ## run the benchmarks (BENCH, BENCHCOUNT)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) $(TESTFLAGS) ./...

.PHONY: bench-build
bench-build:
	@go build -o $(BIN)/ ./cmd/spillway
	@cd bench && go build -o ../$(BIN)/bench .

.PHONY: bench-peers
bench-peers: bench-build ## 40 to 50 minutes: Spillway beside other systems (PAIRS, SCALE, PEERS, WORKLOADS); goes on where it was cut off
	@tools/peers || echo "not all peers could be installed; their rows will say so" >&2
	@$(BIN)/bench run --spillway $(BIN)/spillway --tools .tools/peers --out $(BENCH_OUT) --commit "$$(git describe --always --dirty --tags)" \
		--pairs $(PAIRS) --scale $(SCALE) --peers '$(PEERS)' --workloads '$(WORKLOADS)'

.PHONY: bench-page
bench-page: bench-build ## write docs/bench.md, its plots and medians from the runs of SCALE; without runs again from the medians
	@$(BIN)/bench page $(if $(wildcard $(BENCH_OUT)/runs.jsonl),,--kept) --out $(BENCH_OUT) --docs docs --scale $(SCALE)

.PHONY: test-bench
test-bench: ## the bench module's tests, with a small run of Spillway and NATS, installed by tools/peers
	@tools/peers nats
	@cd bench && go test -tags peers -count=1 -timeout 10m $(TESTFLAGS) ./...

.PHONY: cover
cover: ## coverage of all tests over all packages, as out/coverage.html
	@mkdir -p $(OUT)
	@go test -coverpkg=./... -coverprofile=$(OUT)/coverage.out $(TESTFLAGS) ./...
	@go tool cover -html=$(OUT)/coverage.out -o $(OUT)/coverage.html
	@go tool cover -func=$(OUT)/coverage.out | tail -1

.PHONY: kill
kill: ## the durability loops: kill -9 the server SPILLWAY_KILLS (30) times each, lose nothing
	@SPILLWAY_KILLS=$(SPILLWAY_KILLS) TESTFLAGS='$(TESTFLAGS)' tools/killloop

.PHONY: sim
sim: ## simulate SIM_SEEDS (1000) runs from SIM_FIRST (the clock's time) on; a failure prints its seed
	@SPILLWAY_SIM_SEEDS=$(SIM_SEEDS) SPILLWAY_SIM_SEED=$(SIM_FIRST) \
		go test -count=1 -timeout 24h $(TESTFLAGS) -run 'TestSeeds$$' ./pkg/sim

.PHONY: mutations
mutations: ## print the table of deliberate faults, and the run and rule by which the simulator finds each
	@go test -count=1 -v $(TESTFLAGS) -run 'TestMutations$$' ./pkg/sim

.PHONY: flood
flood: ## minutes: a thousandfold load in simulated time; prints the curve and writes docs/plots/flood.svg
	@SPILLWAY_FLOOD=full SPILLWAY_FLOOD_PLOT=$(CURDIR)/docs/plots/flood.svg \
		go test -count=1 -timeout 30m -v $(TESTFLAGS) ./tests/flood

.PHONY: soak
soak: ## hours: SOAK (4h) of load under every fault, then SOAK_KILLS (1000) kills, then every fuzz target for ten minutes
	@$(MAKE) soak-faults
	@KILL_TIMEOUT=12h $(MAKE) kill SPILLWAY_KILLS=$(SOAK_KILLS)
	@$(MAKE) fuzz FUZZTIME=10m

.PHONY: soak-faults
soak-faults: ## SOAK (4h) of load under kills, stops, full disks and clock jumps; prints a line a minute
	@SPILLWAY_SOAK=$(SOAK) go test -count=1 -timeout 200h -v $(TESTFLAGS) ./tests/soak

.PHONY: serve
serve: build ## run the local server (SERVE_ARGS)
	@exec $(BIN)/spillway serve $(SERVE_ARGS)

.PHONY: demo
demo: build ## run the demonstration against a local server
	@exec $(BIN)/spillway demo

.PHONY: functions
functions: ## build the Lambda functions for ARCH (arm64) into build/, and say what they weigh
	@go run ./tools/functions -arch $(ARCH)

cdk_context = -c arch=$(ARCH) -c version=$$(git describe --always --dirty --tags 2>/dev/null || echo devel) $(CONTEXT)

.PHONY: synth
synth: need-node functions ## write the CloudFormation template to out/cdk (CONTEXT); needs no AWS account
	@CDK_OUTDIR=$(CURDIR)/$(OUT)/cdk go run ./infra $(cdk_context)
	@echo "template: $(OUT)/cdk"

.PHONY: deploy
deploy: need-node functions ## deploy to AWS (ARCH, CONTEXT, CDK_ARGS, BOOTSTRAP=no)
	@if [ "$(BOOTSTRAP)" != no ]; then tools/cdk bootstrap $(cdk_context); fi
	@tools/cdk deploy $(cdk_context) $(CDK_ARGS)

.PHONY: destroy
destroy: need-node functions ## remove the deployment; keeps the data unless CONTEXT='-c data=destroy'
	@if [[ " $(CONTEXT) " == *" data=destroy "* ]]; then tools/cdk deploy $(cdk_context); fi
	@tools/cdk destroy $(cdk_context) $(CDK_ARGS)

.PHONY: need-node
need-node:
	@command -v node >/dev/null || { echo "the CDK runs in Node.js, and there is no node in PATH: install Node.js 20 or newer" >&2; exit 1; }

.PHONY: clean
clean: ## remove build output; the tools stay
	@rm -rf $(BIN) $(OUT) build

.PHONY: tools
tools: ## install the pinned tools into .tools/bin
	@tools/install

.PHONY: tools-lint tools-fmt
tools-lint:
	@tools/install golangci-lint
tools-fmt:
	@tools/install gofumpt
