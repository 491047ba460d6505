/* The C side of package eal: everything that must be one call per burst, and
 * everything that libdpdk has as inline functions. See doc.go for the marks and
 * sections, on which the audit rests. */
#ifndef DNSAPP_EAL_SHIM_H
#define DNSAPP_EAL_SHIM_H

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;

#define DN_MAX_LCORES 128 /* RTE_MAX_LCORE of the build, checked in shim.c */
#define DN_MAX_PORTS 32   /* RTE_MAX_ETHPORTS of the build */
#define DN_BURST 64       /* mbufs in a burst */
#define DN_HEADROOM 128   /* RTE_PKTMBUF_HEADROOM of the build */

/* What a mark says of an mbuf: who has it. The number is in the low bits. */
#define DN_KIND_SHIFT 24
enum dn_kind {
	DN_FREE = 0,    /* in the pool */
	DN_PROCESS = 1, /* in the hands of the process with this lcore id */
	DN_RING = 2,    /* in the ring with this index */
	DN_RX = 3,      /* given to this port to receive into */
	DN_TX = 4,      /* given to this port to send */
};

/* What an audit found. Counts of mbufs, but for those that say otherwise. */
struct dn_audit {
	uint32_t size, free, rings;
	uint32_t process[DN_MAX_LCORES];
	uint32_t rx[DN_MAX_PORTS], tx[DN_MAX_PORTS];
	uint32_t astray;    /* of nobody: what processes that are gone have left */
	uint32_t duplicate; /* in two places at once: must be 0 */
	uint32_t lost_elements; /* of the stack, in neither of its lists */
	int64_t used_short, free_short; /* what the lists' counters lack */
};

/* What one call of dn_poll looks at. Its arrays are as long as there can be of it. */
#define DN_POLL_QUEUES 256
#define DN_POLL_RINGS 256
struct dn_poll {
	uint32_t queues, rings; /* of the arrays, so many */
	uint32_t next;          /* the queue to look at first */
	uint32_t from;          /* the queue that packets came from */
	bool ringing;           /* some ring is not empty */
	struct {
		uint16_t port, queue;
	} queue[DN_POLL_QUEUES];
	uint32_t ring[DN_POLL_RINGS];
};

/* Everything returns 0 or a negative errno where nothing else is said. */
int dn_errno(void); /* rte_errno */
int dn_create(uint32_t mbufs, uint32_t room, uint32_t workers, uint32_t ring_size);
int dn_attach(uint32_t lcore, uint32_t *workers, uint32_t *ring_size);

int dn_port_start(uint16_t port, uint16_t queues, uint16_t descriptors, uint16_t mtu, bool rests_rx, bool rests_tx);
void dn_link(uint16_t port, uint32_t *speed, bool *up);
int dn_counters(uint16_t port, uint64_t counters[7]);

unsigned dn_alloc(struct rte_mbuf **b, unsigned n);
void dn_free(struct rte_mbuf **b, unsigned n);
unsigned dn_rx(uint16_t port, uint16_t queue, struct rte_mbuf **b, unsigned n);
unsigned dn_tx(uint16_t port, uint16_t queue, struct rte_mbuf **b, unsigned n);
unsigned dn_poll(struct dn_poll *p, struct rte_mbuf **b, unsigned n, unsigned spin_ns);
unsigned dn_send(uint32_t ring, struct rte_mbuf **b, unsigned n);
unsigned dn_receive(uint32_t ring, struct rte_mbuf **b, unsigned n);

void dn_hold(uint32_t milliseconds);
void dn_repair_ring(uint32_t ring, bool producer_gone, bool consumer_gone);
int dn_audit(const bool live[DN_MAX_LCORES], struct dn_audit *a, bool repair);
uint64_t dn_heap_free(void);
bool dn_locks_free(unsigned milliseconds);
#endif
