#!/usr/bin/env bash
# The long tests: every fuzz target for FUZZTIME (default 2m) each, the long
# walks of the reload machine, fifty million mutated frames, the whole crash matrix, upgrades with kills at each step, the tests of load at full
# load, those of DPDK with many reloads and kills, then the end-to-end tests ROUNDS times (default 5). What a fuzz target finds stays in
# its package's testdata/fuzz, to be committed as a test.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-2m}
rounds=${ROUNDS:-5}

grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | while read -r file; do
	pkg=$(dirname "$file")
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "# $pkg $target, $fuzztime" >&2
		go test -run='^$' -fuzz="^$target\$" -fuzztime="$fuzztime" "$pkg"
	done
done

echo "# the walks of the reload machine" >&2
go test -count=1 -timeout 1h ./server/reload -soak

echo "# mutated frames" >&2
go test -count=1 -timeout 1h -run '^TestSoakFrames$' -v ./server/packet -soak

echo "# the crash matrix, and upgrades" >&2
DNSAPP_BIN=$PWD/bin go test -json -count=1 -timeout 1h -run '^Test(Proxy)?(CrashMatrix|TroubledReload|Upgrade)' ./test/e2e -soak | bin/summary

echo "# full load, with limits on times" >&2
DNSAPP_BIN=$PWD/bin go test -json -count=1 -timeout 1h -run '^Test(Ownership|FourGenerations|EndlessFlows|ReloadStorm|Transfers|ProxyManyFlows)$' ./test/e2e -soak | bin/summary

echo "# the data path DPDK, where there is libdpdk 22.11" >&2
go test -json -count=1 -timeout 1h ./test/dpdk -soak | bin/summary

echo "# end to end, $rounds times" >&2
DNSAPP_BIN=$PWD/bin go test -json -count="$rounds" -timeout 4h ./test/e2e | bin/summary
