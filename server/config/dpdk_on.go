//go:build dpdk

package config

const builtWithDPDK = true
