# What there is to do here. Everything works on a machine with only Go on it;
# what a target leaves out for want of a tool, it says.

GO       ?= go
FUZZTIME ?= 10s
TESTS    ?= ./...

GORELEASER  := github.com/goreleaser/goreleaser/v2@v2.17.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
TARGETS     := linux/amd64 linux/arm64 windows/amd64 windows/arm64 darwin/amd64 darwin/arm64
TOOLS       := $(CURDIR)/bin/tools

.PHONY: build test lint fuzz bench check-release clean

# Static binaries. Go itself stamps them with the version that git knows.
build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...

# Every test, with the race detector where a C compiler is there; skipped tests
# and their reasons come last. TESTS picks packages and flags of go test.
test:
	$(GO) run ./integration/testreport $(TESTS)

lint:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (run gofmt -w):"; echo "$$files"; exit 1; fi
	@set -e; for target in $(TARGETS); do \
		export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
		echo "build and vet $$target"; \
		$(GO) build ./...; $(GO) vet ./...; \
	done
	@# The tool is built for this machine, then told which system to look at.
	GOBIN=$(TOOLS) $(GO) install $(STATICCHECK)
	@set -e; for os in linux windows darwin; do \
		echo "staticcheck $$os"; CGO_ENABLED=0 GOOS=$$os $(TOOLS)/staticcheck ./...; \
	done
	$(GO) mod tidy -diff

# Each fuzz target of the tree for FUZZTIME.
fuzz:
	@GO='$(GO)' bash integration/fuzz.sh $(FUZZTIME)

# Speed beside raw limits and beside Codex, as a table; wants a quiet machine.
# BENCH picks rows and flags, see docs/performance.md.
bench:
	@$(GO) run ./integration/bench $(BENCH)

# Whether .goreleaser.yaml is right. The first time it compiles goreleaser, which takes ten minutes of two processors
# and 3 GB of cache; so no commit waits for it, and only a change of that file needs it.
check-release:
	GOBIN=$(TOOLS) $(GO) install $(GORELEASER)
	$(TOOLS)/goreleaser check

clean:
	rm -rf bin
