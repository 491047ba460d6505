#!/usr/bin/env bash
# Does what a newcomer does, on a machine that has nothing but Go, make and git:
# a bare Debian 12 root, a fresh clone, `make run` and a question to it, `make
# test`. Needs root, debootstrap, and the network for Debian's packages and Go's
# modules.
#
#   test/fresh.sh [FOLDER]     keeps FOLDER, for the next time; default: a new one, removed at the end
set -euo pipefail

project=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo 'fresh: needs root' >&2; exit 1; }
command -v debootstrap >/dev/null || {
	apt-get install -y -qq debootstrap >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq debootstrap >/dev/null; }
}

root=${1:-}
keep=$root
[ -n "$root" ] || root=$(mktemp -d)
mounts=()
cleanup() {
	for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do umount -l "${mounts[i]}" || true; done
	[ -n "$keep" ] || rm -rf --one-file-system "$root"
}
trap cleanup EXIT

if [ ! -e "$root/bin/bash" ]; then
	# The mirror that this machine uses; debootstrap makes it the new root's.
	mirror=$(grep -rhsoE '^(deb|URIs:) .*' /etc/apt --include='*.list' --include='*.sources' | grep -oE 'https?://[^ ]+' | grep -v security | head -1 || true)
	echo "fresh: debootstrap into $root" >&2
	debootstrap --variant=minbase --include=make,git,ca-certificates bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" ||
		{ tail -20 "$root.log" >&2; exit 1; }
	rm -f "$root.log"
fi
# How this machine reaches the network: names and certificates (proxies are below).
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt"

mount_at() { # TYPE-OPTIONS... TARGET
	mkdir -p "${*: -1}"
	mount "$@"
	mounts+=("${*: -1}")
}
mount_at -t proc proc "$root/proc"
mount_at -t sysfs sys "$root/sys"
mount_at --bind /dev "$root/dev"
mount_at -t tmpfs tmpfs "$root/tmp"
mount_at --bind "$(go env GOROOT)" "$root/usr/local/go"

rm -rf "$root/src"
mkdir -p "$root/src"
git clone -q "$project" "$root/src/dnsapp"
[ ! -d "$project/../shared" ] || mount_at --bind "$(cd "$project/../shared" && pwd)" "$root/src/shared"

inside=(env -i HOME=/root PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb
	GOPROXY="$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" GOFLAGS=-buildvcs=false)
for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
	[ -z "${!v:-}" ] || inside+=("$v=${!v}")
done

echo 'fresh: make run, and a question to it' >&2
# The namespace is for the ports: somebody may use 5353 here. Building comes
# first, since nothing can be fetched from inside.
chroot "$root" "${inside[@]}" bash -euc '
	cd /src/dnsapp
	make build
	go build -o /tmp/load ./test/cmd/load
	go run ./test/cmd/inside bash -euc "
		make run >/tmp/run.log 2>&1 &
		server=\$!
		for try in \$(seq 100); do
			/tmp/load -dns www.example.com/A,example.com/SOA -rate 100 -for 100ms 127.0.0.1:5353 >/tmp/answer 2>&1 && break
			kill -0 \$server
			sleep 0.2
		done
		cat /tmp/run.log /tmp/answer
		grep -q answered /tmp/answer
		/tmp/load -dns www.example.com/A -rate 1000 -for 1s 127.0.0.1:5353 \"[::1]:5353\"
		/tmp/load -dns www.example.com/A -tcp -rate 1000 -for 1s 127.0.0.1:5353 \"[::1]:5353\"
		/tmp/load -rate 1000 -for 1s 127.0.0.1:5399
		bin/dnsappctl --control /tmp/dnsapp/control.sock reload
		bin/dnsappctl --control /tmp/dnsapp/control.sock stop --now
		wait \$server
	"
'
echo 'fresh: make test' >&2
chroot "$root" "${inside[@]}" CI="${CI:-}" make -C /src/dnsapp test
