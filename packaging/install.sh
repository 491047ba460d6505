#!/bin/sh
# install.sh BIN DESTDIR PREFIX: install what "make build" has put into BIN, with its
# manual pages, completions and systemd units. DESTDIR is put before every path, for
# those who build packages.
set -eu
bin=$1 destdir=$2 prefix=$3
here=$(dirname "$0")
root=$destdir$prefix

install -D -m 0755 -t "$root/bin" "$bin/dnsapp" "$bin/dnsappctl"
install -D -m 0644 -t "$root/share/man/man8" "$here"/man/*.8

# Completions are the binary's own: they cannot be of another version.
complete() { # SHELL FOLDER PATTERN
	mkdir -p "$root/$2"
	for program in dnsapp dnsappctl; do
		"$bin/$program" completion "$1" >"$root/$2/$(printf "$3" "$program")"
	done
}
complete bash share/bash-completion/completions '%s'
complete zsh share/zsh/site-functions '_%s'
complete fish share/fish/vendor_completions.d '%s.fish'

# Units name the binaries by their path.
for unit in "$here"/systemd/*.service; do
	to=$root/lib/systemd/system/$(basename "$unit")
	install -D -m 0644 "$unit" "$to"
	sed -i "s|/usr/bin/|$prefix/bin/|g" "$to"
done

# What changes with DPDK is for the administrator to copy: see docs/dpdk.md.
install -D -m 0644 -t "$root/share/dnsapp/dnsapp.service.d" "$here"/systemd/dnsapp.service.d/dpdk.conf
