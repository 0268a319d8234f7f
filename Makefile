# Every target says what it is for; make without one lists them.
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every check and test; installs redis-server and faketime if missing
	@./scripts/test

demo: ## the main job, self-contained
	@go run ./cmd/dueq demo

build: ## the command line, to bin/dueq
	@go build -trimpath -o bin/dueq ./cmd/dueq

bench: ## measure the store that DUEQ_STORE names, for example redis://127.0.0.1:6379
	@go run ./cmd/dueq bench

kill-rounds: ## 100 rounds of killing workers, producers and Redis under load, instead of 5
	@DUEQ_KILL_ROUNDS=100 go test -p 1 -run Kill -v -timeout 60m ./redisstore ./sqlitestore ./cmd/dueq

layouts: ## the whole suite over TLS and Sentinel too, and outages of a minute instead of seconds
	@DUEQ_LAYOUTS=all DUEQ_OUTAGE=60s go test -run 'TestStoreO|TestCluster' -v -timeout 60m ./redisstore

chaos: ## 2 minutes of random faults on all targets; DUEQ_CHAOS=10m for each, DUEQ_CHAOS_TARGET, DUEQ_CHAOS_SEED
	@DUEQ_CHAOS_TOTAL=2m go test -run 'TestChaos$$' -v -count=1 -timeout 0 ./internal/chaos

fuzz: ## a minute each of fuzzing the member grammar, CSV and NDJSON
	@go test -run '^$$' -fuzz FuzzParseMember -fuzztime 1m .
	@go test -run '^$$' -fuzz FuzzCSV -fuzztime 1m ./internal/bulk
	@go test -run '^$$' -fuzz FuzzNDJSON -fuzztime 1m ./internal/bulk

mutations: ## break each rule on purpose and see that a test catches it
	@go run ./internal/mutate

bulk: ## a million tasks through every long command, with time and memory
	@DUEQ_BULK=1 go test -run 'TestScheduleFromBulk|TestMemory' -v -timeout 30m ./cmd/dueq

.PHONY: help test demo build bench kill-rounds layouts chaos fuzz mutations bulk
