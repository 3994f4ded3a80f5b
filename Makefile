# fenced: "make help" lists what there is.

GO       ?= go
BIN      := bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.DEFAULT_GOAL := help
.PHONY: help build run test test-fast test-compose race10 demo lab bench lint fuzz dist need-postgres need-peers clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build fenced and fencectl into bin/
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

run: build ## Build and start the server: etcd inside, HTTP on 127.0.0.1:7420
	$(BIN)/fenced serve

# Most tests wait for leases to run out, so more than one a core may wait at once. No
# test reads DWARF, which takes a third of the linking, and the race detector need not
# sleep for a second at the end of each package.
test: need-postgres need-peers ## Run every test with the race detector; installs what they need
	GORACE=atexit_sleep_ms=0 $(GO) test -race -vet=all -ldflags=-w -parallel 3 -timeout 20m ./...

test-fast: ## Run the tests without the race detector
	$(GO) test ./...

test-compose: need-postgres ## Start docker-compose.yml from images made here, and break it; without a Docker engine only compile for it
	-@.ci/need prometheus prometheus
	FENCED_DOCKERFILE=1 $(GO) test -count=1 -run TestDockerfile ./packaging/compose
	@if compose=$$(GO='$(GO)' .ci/need-compose); then FENCED_COMPOSE="$$compose" $(GO) test -count=1 -timeout 15m ./packaging/compose; \
	else echo "test-compose: the images are skipped"; fi

race10: ## Run the core packages ten times in a row with the race detector
	$(GO) test -race -count=10 -timeout 60m ./lockserver/... ./tokens/... ./clientsdk/... ./httpapi/...

demo: need-postgres ## Show the main job: a stalled worker, a stale write, the refusal
	$(GO) run ./internal/demo

lab: need-postgres ## Race lab: seven ways of locking under stalls, a table and racelab-report.html
	-@.ci/need redis-server redis-server
	$(GO) run ./examples/racelab

bench: need-postgres ## Measure fenced beside etcd, ZooKeeper, Redis and PostgreSQL; writes bench/RESULTS.md
	-@.ci/need redis-server redis-server
	-@.ci/need zookeeper /usr/share/zookeeper/bin/zkServer.sh
	$(GO) run ./bench

lint: ## gofmt, go vet, staticcheck and govulncheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	@GO='$(GO)' .ci/vulncheck $(GOVULNCHECK)

FUZZTIME ?= 10s
fuzz: ## Run every fuzz target for FUZZTIME (default 10s), two at a time
	@GO='$(GO)' .ci/fuzz $(FUZZTIME)

dist: ## Build the release archives of both programs for six platforms into dist/
	@GO='$(GO)' .ci/dist '$(VERSION)' '$(LDFLAGS)'

need-postgres:
	@.ci/need postgresql initdb /usr/lib/postgresql/*/bin/initdb

# The tests of the adapters and peers skip, with one line, what cannot be had.
need-peers:
	-@.ci/need pgbouncer pgbouncer /usr/sbin/pgbouncer
	-@.ci/need mariadb-server mariadbd /usr/sbin/mariadbd
	-@.ci/need redis-server redis-server
	-@.ci/need chromium chromium
	-@.ci/need curl curl
	-@.ci/need iproute2 ip
	-@.ci/need prometheus promtool
	-@.ci/need jq jq
	-@.ci/need python3-psycopg /usr/lib/python3/dist-packages/psycopg/__init__.py
	-@.ci/need nodejs node nodejs
	-@.ci/need node-pg /usr/share/nodejs/pg/package.json

clean: ## Remove what was built
	rm -rf $(BIN) dist
