# Every target says what it is for; make without one lists them.
.DEFAULT_GOAL := help
FUZZTIME ?= 1m
MODEL_CHECKS ?= 22000

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every check and test; installs redis-server, a JDK and others if missing
	@./scripts/test

demo: ## the main job, self-contained
	@go run ./cmd/dueq demo

build: ## the command line, to bin/dueq
	@go build -trimpath -o bin/dueq ./cmd/dueq

bench: ## measure the store that DUEQ_STORE names, for example redis://127.0.0.1:6379
	@go run ./cmd/dueq bench

bench-peers: bin/bench ## dueq beside textbook ZADD, asynq, BullMQ, beanstalkd, raw Redis; FLAGS=-quick, -full (10 M) or -help
	@cd bench && ./install && ../bin/bench -docs ../docs/performance.md $(FLAGS)

bench-growth: bin/bench ## dueq with up to 10,000,000 tasks and 1,000 queues; FLAGS as above
	@cd bench && ./install && ../bin/bench -growth -budget 20m -docs ../docs/performance.md $(FLAGS)

bin/bench:
	@go build -C bench -o ../bin/bench .

kill-rounds: ## 100 rounds of killing workers, producers and Redis under load, instead of 5
	@DUEQ_KILL_ROUNDS=100 go test -p 1 -run Kill -v -timeout 60m ./redisstore ./sqlitestore ./cmd/dueq

layouts: ## the whole suite over TLS and Sentinel too, and outages of a minute instead of seconds
	@DUEQ_LAYOUTS=all DUEQ_OUTAGE=60s go test -run 'TestLayout|TestCluster' -v -timeout 60m ./redisstore

chaos: ## 2 minutes of random faults on all targets; DUEQ_CHAOS=10m for each, DUEQ_CHAOS_TARGET, DUEQ_CHAOS_SEED
	@DUEQ_CHAOS_TOTAL=2m go test -run 'TestChaos$$' -v -count=1 -timeout 0 ./internal/chaos

fuzz: ## a minute of each fuzz target, or FUZZTIME
	@for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$f of $$p"; \
		go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$p || exit 1; done; done

model: ## a million random operations on each store, compared with the one in memory; an hour, or MODEL_CHECKS of 48 operations each
	@TMPDIR=$(or $(wildcard /dev/shm),/tmp) go test -run '^TestModel' -v -timeout 0 ./sqlitestore -rapid.checks=$(MODEL_CHECKS)
	@go test -run '^TestModel$$' -v -timeout 0 ./redisstore -rapid.checks=$(MODEL_CHECKS)

mutations: ## break each rule on purpose and see that a test catches it
	@go run ./internal/mutate

bulk: ## a million tasks through every long command, with time and memory
	@DUEQ_BULK=1 go test -run 'TestScheduleFromBulk|TestMemory' -v -timeout 30m ./cmd/dueq

.PHONY: help test demo build bench bench-peers bench-growth bin/bench kill-rounds layouts chaos fuzz model mutations bulk
