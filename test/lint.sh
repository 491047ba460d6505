#!/usr/bin/env bash
# gofmt, go vet, then golangci-lint by .golangci.yml; where its source cannot be
# fetched, staticcheck; where neither can, it says so and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
staticcheck=honnef.co/go/tools/cmd/staticcheck@2026.2.2

unformatted=$(git ls-files '*.go' | xargs -r gofmt -s -l)
if [ -n "$unformatted" ]; then
	printf 'lint: not formatted by gofmt -s:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...

if command -v golangci-lint >/dev/null && golangci-lint version | grep -q 'version v\?2\.'; then
	exec golangci-lint run ./...
fi
if go run "$golangci" version >/dev/null 2>&1; then
	exec go run "$golangci" run ./...
fi
if go run "$staticcheck" -version >/dev/null 2>&1; then
	echo 'lint: golangci-lint cannot be had here; staticcheck alone' >&2
	exec go run "$staticcheck" ./...
fi
echo 'lint: neither golangci-lint nor staticcheck can be had here' >&2
exit 1
