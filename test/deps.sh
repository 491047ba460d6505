#!/usr/bin/env bash
# Installs the Debian packages that the tests use: a C compiler for the race
# detector, ip for network namespaces, dig for the examples in README.md, tcpdump
# to read traces, ping and iperf3 for the kernel beside DPDK. Says what is missing where it may not install; the tests concerned
# then skip.
set -euo pipefail

packages=(gcc libc6-dev iproute2 bind9-dnsutils tcpdump iputils-ping iperf3)

# DPDK where it is the version that the binding knows.
if apt-cache policy libdpdk-dev 2>/dev/null | grep -q 'Candidate: 22\.11'; then
	packages+=(libdpdk-dev pkg-config)
fi

missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "deps: not installed and not mine to install: ${missing[*]}" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "deps: installing ${missing[*]}" >&2
install=(apt-get install -y --no-install-recommends "${missing[@]}")
# The package lists may be absent or too old: then once more with new ones.
"${install[@]}" >"$log" 2>&1 || { apt-get update >>"$log" 2>&1 && "${install[@]}" >>"$log" 2>&1; } || {
	cat "$log" >&2
	exit 1
}
