# make run    build and serve configs/quickstart.yaml in the foreground
# make test   install what the tests need (when root), run them all, print one closing line
# make help   the rest

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

GO ?= go
PREFIX ?= /usr/local
CONFIG ?= configs/quickstart.yaml

# A tree without git metadata (a tarball, a worktree of another user) builds all the same.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD := $(GO) build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

# The packages whose shared memory also runs on the heap: the race detector
# misreads mapped memory, so these and no others are run under it.
RACE := ./server/shm ./server/directory ./server/counters ./server/dns/... ./udpflow/... ./test/race

# The packages whose shared accesses are run in every order that matters.
EXPLORE := ./internal/... ./udpflow/... ./server/directory ./server/counters

# The end-to-end tests start real processes and measure time, so they run after
# everything else, alone.
E2E := ./test/e2e

.PHONY: build
build: ## build bin/dnsapp and bin/dnsappctl, static
	@CGO_ENABLED=0 $(BUILD) -o bin/ ./cmd/dnsapp ./cmd/dnsappctl

# The binding is to this version and no other: it knows where its fields are.
DPDK := pkg-config --exists 'libdpdk >= 22.11 libdpdk < 22.12'

# EAL maps its memory at the same addresses in every process; a heap at a random
# address is in the way of it now and then.
WITH_DPDK := CGO_ENABLED=1 GOEXPERIMENT=norandomizedheapbase64

.PHONY: build-dpdk
build-dpdk: ## build bin/dnsapp with the data path DPDK, which needs libdpdk-dev 22.11 of Debian 12, and bin/dnsappctl
	@$(DPDK) || { echo 'make build-dpdk needs libdpdk 22.11: apt-get install libdpdk-dev pkg-config' >&2; exit 1; }
	@$(WITH_DPDK) $(BUILD) -tags dpdk -o bin/ ./cmd/dnsapp
	@CGO_ENABLED=0 $(BUILD) -o bin/ ./cmd/dnsappctl

define TRY

Serving $(CONFIG) until Ctrl-C. In another terminal, try:

  dig @127.0.0.1 -p 5353 www.example.com A
  dig @::1 -p 5353 example.com MX +tcp
  export DNSAPP_CONTROL=$${XDG_RUNTIME_DIR:-/tmp}/dnsapp/control.sock
  bin/dnsappctl status
  bin/dnsappctl reload

endef
export TRY

.PHONY: run
run: build ## build, and serve CONFIG (the quickstart) in the foreground
	@echo "$$TRY"
	@exec bin/dnsapp serve -c $(CONFIG)

.PHONY: run-dpdk
run-dpdk: build-dpdk ## build with DPDK, and serve configs/dpdk.yaml on a virtual device, with a client in a network namespace (root)
	@exec packaging/run-dpdk.sh bin configs/dpdk.yaml

.PHONY: test
test: deps build bin/summary ## all tests; the last line is the totals
	@$(GO) vet ./...
	@! $(DPDK) || $(WITH_DPDK) $(GO) vet -tags dpdk ./dpdk/... ./server/... ./cmd/dnsapp
	@{ echo '# unit tests' >&2; $(GO) test -json -shuffle=on $$($(GO) list ./... | grep -v -e '/test/e2e$$' -e '/test/dpdk$$') || true; \
	   echo '# every interleaving, with kills' >&2; $(GO) test -json -tags explore $(EXPLORE) || true; \
	   echo '# race detector' >&2; DNSAPP_WANT_RACE=1 CGO_ENABLED=1 $(GO) test -json -race $(RACE) || true; \
	   if $(DPDK); then echo '# DPDK' >&2; $(WITH_DPDK) $(GO) test -json -count=1 -p 1 -tags dpdk ./dpdk/... ./test/dpdk || true; \
	   else echo '# DPDK: SKIPPED: there is no libdpdk 22.11 (apt-get install libdpdk-dev pkg-config)' >&2; fi; \
	   echo '# end to end' >&2; DNSAPP_BIN=$(CURDIR)/bin $(GO) test -json -count=1 -timeout 20m $(E2E) || true; \
	 } | bin/summary

.PHONY: bin/summary
bin/summary:
	@$(GO) build -buildvcs=false -o $@ ./test/cmd/summary

.PHONY: deps
deps: ## install what the tests need from Debian, when root
	@test/deps.sh

.PHONY: lint
lint: ## gofmt, go vet, golangci-lint (or staticcheck, where that cannot be had)
	@test/lint.sh

.PHONY: bench
bench: build ## CPU per query and a million records beside Knot and NSD, dispatch, and what reloads cost; dated tables in bench/results/
	@bench/deps.sh knot nsd dnsperf
	@$(GO) run ./bench -dnsapp $(CURDIR)/bin/dnsapp

.PHONY: demo-loss
demo-loss: build ## one load on nginx, CoreDNS and dnsapp while each reloads: a table of what is lost
	@bench/deps.sh nginx libnginx-mod-stream || true
	@$(GO) run ./bench/loss -bin bin -coredns "$$(bench/loss/coredns.sh)"

.PHONY: soak
soak: build bin/summary ## the long tests: fuzzing, the crash matrix, the end-to-end tests over and over, about an hour
	@test/soak.sh

.PHONY: conformance
conformance: bin/summary ## the published DNS test suites in ../shared/data alone
	@$(GO) test -json -count=1 ./test/conformance/... | bin/summary

.PHONY: fresh
fresh: ## make run and make test in a bare Debian 12 root with only Go, make and git (root)
	@test/fresh.sh

.PHONY: install
install: build ## install binaries, manual pages, completions and units under PREFIX
	@packaging/install.sh bin "$(DESTDIR)" "$(PREFIX)"

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
	$(GO) clean -testcache

.PHONY: help
help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
