#!/usr/bin/env bash
# Installs servers that dnsapp is compared with, by the names of their Debian
# packages, without starting them. Exits 1 where it may not install.
set -euo pipefail

missing=()
for p in "$@"; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "bench: not installed and not mine to install: ${missing[*]}" >&2
	exit 1
fi

# Debian starts a daemon when it is installed, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
echo "bench: installing ${missing[*]}" >&2
install=(timeout 120 apt-get install -y -qq --no-install-recommends "${missing[@]}")
"${install[@]}" >/dev/null 2>&1 || { timeout 60 apt-get update -qq && "${install[@]}" >/dev/null; }
