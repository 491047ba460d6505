#!/usr/bin/env bash
# Prints the path of a CoreDNS program. Builds it first, once, into the user's
# cache: from the Go module proxy, with the plugins that are used here. Says why
# on standard error where that cannot be done, and prints a path all the same.
set -euo pipefail

version=v1.15.0
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/dnsapp-bench/coredns-$version
echo "$dir/coredns"
[ ! -x "$dir/coredns" ] || exit 0

echo "bench: building CoreDNS $version, a minute or so, this once" >&2
mkdir -p "$dir/src"
cd "$dir/src"
cat >main.go <<'EOF'
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "file"}
	coremain.Run()
}
EOF
rm -f go.mod go.sum
go=${GO:-go}
{
	"$go" mod init coredns-for-dnsapp &&
		timeout 60 "$go" get "github.com/coredns/coredns@$version" &&
		timeout 120 "$go" mod tidy &&
		timeout 240 env CGO_ENABLED=0 "$go" build -trimpath -ldflags '-s -w' -o "$dir/coredns.new" .
} >"$dir/log" 2>&1 || {
	echo "bench: CoreDNS cannot be built, see $dir/log: $(tail -n 1 "$dir/log")" >&2
	exit 0
}
mv "$dir/coredns.new" "$dir/coredns"
rm -rf "$dir/src"
