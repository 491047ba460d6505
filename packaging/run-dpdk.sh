#!/usr/bin/env bash
# Serve a configuration on DPDK's net_tap in the foreground, with a client's end of the
# tap in a network namespace. At the end nothing of it is left: the hugepages that it
# took, the namespace, and the primary are gone.
#
#	packaging/run-dpdk.sh BIN CONFIG
set -euo pipefail
bin=$1 config=$2
interface=dnsapptry client=dnsapp-client pages=64 mount=/dev/hugepages knob=/proc/sys/vm/nr_hugepages
export DNSAPP_CONTROL=${XDG_RUNTIME_DIR:-/tmp}/dnsapp-dpdk/control.sock

[ "$(id -u)" -eq 0 ] || { echo 'make run-dpdk needs root: for hugepages, the tap and a network namespace' >&2; exit 1; }

before=$(cat $knob)
free=$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)
mounted=
clean() {
	trap - EXIT INT TERM
	[ -z "${server:-}" ] || { "$bin/dnsappctl" stop --fast >/dev/null 2>&1 || kill "$server" 2>/dev/null || true; wait "$server" || true; }
	"$bin/dnsappctl" primary stop >/dev/null 2>&1 || true
	ip netns del $client 2>/dev/null || true
	[ -z "$mounted" ] || umount $mount || true
	echo "$before" >$knob
}
trap clean EXIT
trap 'exit 0' INT TERM

[ "$free" -ge $pages ] || echo $((before - free + pages)) >$knob
free=$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)
[ "$free" -ge $pages ] || { echo "the kernel gives $free hugepages of 2 MB, $pages are needed" >&2; exit 1; }
if ! grep -q " $mount hugetlbfs " /proc/mounts; then
	mkdir -p $mount
	mount -t hugetlbfs -o pagesize=2M none $mount
	mounted=1
fi

"$bin/dnsapp" serve -c "$config" &
server=$!
for _ in $(seq 300); do
	ip link show $interface >/dev/null 2>&1 && break
	kill -0 $server 2>/dev/null || exit 1
	sleep 0.1
done
ip netns add $client
ip link set $interface netns $client
ip -n $client link set $interface address 02:00:00:00:00:09
ip -n $client addr add 192.0.2.9/24 dev $interface
ip -n $client addr add 2001:db8::9/64 dev $interface nodad
ip -n $client link set $interface up

cat <<END

Serving $config until Ctrl-C. In another terminal, try:

  ip netns exec $client dig @192.0.2.1 www.example.com A
  ip netns exec $client dig @2001:db8::1 generation.dnsapp CH TXT
  export DNSAPP_CONTROL=$DNSAPP_CONTROL
  $bin/dnsappctl status
  $bin/dnsappctl reload
  $bin/dnsappctl primary status

END
wait $server
