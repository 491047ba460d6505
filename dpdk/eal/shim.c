//go:build dpdk

/* The 128-bit exchange below rte_stack_push, which callers of it need not allow. */
#define ALLOW_EXPERIMENTAL_API

#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal_memconfig.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_memzone.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_stack.h>

_Static_assert(DN_MAX_LCORES == RTE_MAX_LCORE, "DN_MAX_LCORES");
_Static_assert(DN_MAX_PORTS == RTE_MAX_ETHPORTS, "DN_MAX_PORTS");
_Static_assert(DN_HEADROOM == RTE_PKTMBUF_HEADROOM, "DN_HEADROOM");
/* mbuf_unsafe.go reads these without a call. */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "buf_addr");
_Static_assert(offsetof(struct rte_mbuf, data_off) == 16, "data_off");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "nb_segs");
_Static_assert(offsetof(struct rte_mbuf, port) == 22, "port");
_Static_assert(offsetof(struct rte_mbuf, ol_flags) == 24, "ol_flags");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "pkt_len");
_Static_assert(offsetof(struct rte_mbuf, data_len) == 40, "data_len");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == 54, "buf_len");
_Static_assert(offsetof(struct rte_mbuf, next) == 64, "next");

#define MAGIC UINT64_C(0x616b706474756f79)
#define LAYOUT 1
#define LAYOUT_ZONE "dnsapp_layout"
#define RINGS_ZONE "dnsapp_rings"
#define OPS "dnsapp_stack"

/* section is how often a process has entered and left a stretch of code in which
 * marks and places disagree: odd while it is in one. */
struct section {
	uint64_t seq;
} __rte_aligned(64);

struct layout {
	uint64_t magic;
	uint32_t version, workers, processes, ring_size;
	int32_t mark, seen; /* offsets in the mbuf */
	uint64_t stride;    /* octets of a ring */
	struct rte_mempool *pool;
	uint8_t rests_rx[DN_MAX_PORTS], rests_tx[DN_MAX_PORTS];
	uint32_t walk; /* of the primary alone */
	uint64_t hold __rte_aligned(64); /* monotonic ms until which nobody should enter a section */
	struct section sections[DN_MAX_LCORES];
};

static struct layout *shared;
static char *rings;
static struct section *mine;
static unsigned depth;
static uint32_t my_mark;    /* of what I have */
static uint32_t alloc_mark; /* of what is taken from the pool at this moment */

static inline uint32_t mark_of(enum dn_kind k, uint32_t n) { return (uint32_t)k << DN_KIND_SHIFT | n; }
static inline uint32_t *mark(void *m) { return RTE_PTR_ADD(m, shared->mark); }
static inline uint32_t *seen(void *m) { return RTE_PTR_ADD(m, shared->seen); }

static inline void mark_all(struct rte_mbuf **b, unsigned n, uint32_t to)
{
	for (unsigned i = 0; i < n; i++)
		for (struct rte_mbuf *m = b[i]; m != NULL; m = m->next)
			__atomic_store_n(mark(m), to, __ATOMIC_RELAXED);
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void enter(void)
{
	if (depth++ > 0)
		return;
	/* Only a courtesy to the audit, which without it may find no quiet moment:
	 * nothing breaks for a process that does not wait. */
	if (unlikely(__atomic_load_n(&shared->hold, __ATOMIC_RELAXED) != 0))
		while (__atomic_load_n(&shared->hold, __ATOMIC_RELAXED) > now_ms())
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	__atomic_store_n(&mine->seq, mine->seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void leave(void)
{
	if (--depth == 0)
		__atomic_store_n(&mine->seq, mine->seq + 1, __ATOMIC_RELEASE);
}

/* The pool: the lock-free stack of libdpdk, with marks. Drivers take from it and
 * give back to it by these functions, too. */
static int stack_alloc(struct rte_mempool *mp)
{
	char name[RTE_STACK_NAMESIZE];
	snprintf(name, sizeof name, "dn_%s", mp->name);
	mp->pool_data = rte_stack_create(name, mp->size, mp->socket_id, RTE_STACK_F_LF);
	return mp->pool_data == NULL ? -rte_errno : 0;
}

static void stack_free(struct rte_mempool *mp) { rte_stack_free(mp->pool_data); }

static int stack_enqueue(struct rte_mempool *mp, void *const *objects, unsigned n)
{
	enter();
	for (unsigned i = 0; i < n; i++)
		__atomic_store_n(mark(objects[i]), DN_FREE, __ATOMIC_RELAXED);
	unsigned done = rte_stack_push(mp->pool_data, objects, n);
	leave();
	return done == n ? 0 : -ENOBUFS;
}

static int stack_dequeue(struct rte_mempool *mp, void **objects, unsigned n)
{
	enter();
	unsigned done = rte_stack_pop(mp->pool_data, objects, n);
	for (unsigned i = 0; i < done; i++)
		__atomic_store_n(mark(objects[i]), alloc_mark, __ATOMIC_RELAXED);
	leave();
	return done == n ? 0 : -ENOBUFS;
}

static unsigned stack_count(const struct rte_mempool *mp) { return rte_stack_count(mp->pool_data); }

static const struct rte_mempool_ops ops = {
	.name = OPS,
	.alloc = stack_alloc,
	.free = stack_free,
	.enqueue = stack_enqueue,
	.dequeue = stack_dequeue,
	.get_count = stack_count,
};
/* A constructor, so it has the same index in every process: that of the first,
 * because the drivers of libdpdk are loaded later. */
RTE_MEMPOOL_REGISTER_OPS(ops);

static void become(uint32_t lcore)
{
	mine = &shared->sections[lcore];
	if (mine->seq & 1) /* whoever had the id before died in a section, and was swept */
		__atomic_store_n(&mine->seq, mine->seq + 1, __ATOMIC_RELEASE);
	my_mark = alloc_mark = mark_of(DN_PROCESS, lcore);
	/* A sleep of Poller.Poll is meant to be as short as it says, not 50 us longer. */
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
}

int dn_errno(void) { return rte_errno; }

static struct rte_ring *ring_at(uint32_t i) { return (struct rte_ring *)(rings + i * shared->stride); }

int dn_create(uint32_t mbufs, uint32_t room, uint32_t workers, uint32_t ring_size)
{
	static const struct rte_mbuf_dynfield mark_field = {.name = "dnsapp_mark", .size = 4, .align = 4};
	static const struct rte_mbuf_dynfield seen_field = {.name = "dnsapp_seen", .size = 4, .align = 4};
	const struct rte_memzone *z = rte_memzone_reserve_aligned(LAYOUT_ZONE, sizeof *shared, SOCKET_ID_ANY, 0, 64);
	if (z == NULL)
		return -rte_errno;
	memset(z->addr, 0, sizeof *shared);
	shared = z->addr;
	shared->mark = rte_mbuf_dynfield_register(&mark_field);
	shared->seen = rte_mbuf_dynfield_register(&seen_field);
	if (shared->mark < 0 || shared->seen < 0)
		return -rte_errno;
	shared->version = LAYOUT;
	shared->workers = workers;
	shared->processes = 4 * workers;
	shared->ring_size = ring_size;
	ssize_t stride = rte_ring_get_memsize(ring_size);
	if (stride < 0)
		return stride;
	shared->stride = stride;
	become(0);
	uint32_t n = 2 * shared->processes * shared->processes;
	z = rte_memzone_reserve_aligned(RINGS_ZONE, (size_t)n * stride, SOCKET_ID_ANY, 0, 64);
	if (z == NULL)
		return -rte_errno;
	rings = z->addr;
	for (uint32_t i = 0; i < n; i++) {
		int rc = rte_ring_init(ring_at(i), "dnsapp", ring_size, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (rc != 0)
			return rc;
	}
	shared->pool = rte_pktmbuf_pool_create_by_ops("dnsapp", mbufs, 0, 0, RTE_PKTMBUF_HEADROOM + room, SOCKET_ID_ANY, OPS);
	if (shared->pool == NULL)
		return -rte_errno;
	__atomic_store_n(&shared->magic, MAGIC, __ATOMIC_RELEASE);
	return 0;
}

int dn_attach(uint32_t lcore, uint32_t *workers, uint32_t *ring_size)
{
	const struct rte_memzone *z = rte_memzone_lookup(LAYOUT_ZONE), *r = rte_memzone_lookup(RINGS_ZONE);
	if (z == NULL || r == NULL)
		return -ENOENT;
	struct layout *l = z->addr;
	if (z->len < sizeof *l || __atomic_load_n(&l->magic, __ATOMIC_ACQUIRE) != MAGIC || l->version != LAYOUT)
		return -EPROTO;
	if (lcore == 0 || lcore > l->processes)
		return -ERANGE;
	/* Calls go by the index in this process's own table: it must be ours. */
	if (rte_mempool_get_ops(l->pool->ops_index)->dequeue != stack_dequeue)
		return -EPROTO;
	shared = l;
	rings = r->addr;
	become(lcore);
	*workers = l->workers;
	*ring_size = l->ring_size;
	return 0;
}

int dn_port_start(uint16_t port, uint16_t queues, uint16_t descriptors, uint16_t mtu, bool rests_rx, bool rests_tx)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);
	if (rc != 0)
		return rc;
	struct rte_eth_conf conf = {.rxmode = {.mtu = mtu}};
	if (queues > 1 && info.flow_type_rss_offloads != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP) & info.flow_type_rss_offloads;
	}
	uint16_t nrx = descriptors, ntx = descriptors;
	if ((rc = rte_eth_dev_configure(port, queues, queues, &conf)) != 0 ||
	    (rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &nrx, &ntx)) != 0)
		return rc;
	shared->rests_rx[port] = rests_rx;
	shared->rests_tx[port] = rests_tx;
	alloc_mark = mark_of(DN_RX, port);
	for (uint16_t q = 0; q < queues && rc == 0; q++)
		if ((rc = rte_eth_rx_queue_setup(port, q, nrx, rte_eth_dev_socket_id(port), NULL, shared->pool)) == 0)
			rc = rte_eth_tx_queue_setup(port, q, ntx, rte_eth_dev_socket_id(port), NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(port);
	alloc_mark = my_mark;
	if (rc == 0)
		rte_eth_allmulticast_enable(port); /* of neighbour discovery; a device that cannot has no filter */
	return rc;
}

void dn_link(uint16_t port, uint32_t *speed, bool *up)
{
	struct rte_eth_link l = {0};
	if (rte_eth_link_get_nowait(port, &l) != 0)
		return;
	*speed = l.link_speed;
	*up = l.link_status == RTE_ETH_LINK_UP;
}

int dn_counters(uint16_t port, uint64_t counters[7])
{
	struct rte_eth_stats s = {0};
	int rc = rte_eth_stats_get(port, &s);
	uint64_t c[7] = {s.ipackets, s.opackets, s.ibytes, s.obytes, s.imissed + s.rx_nombuf, s.ierrors, s.oerrors};
	memcpy(counters, c, sizeof c);
	return rc;
}

unsigned dn_alloc(struct rte_mbuf **b, unsigned n) { return rte_pktmbuf_alloc_bulk(shared->pool, b, n) == 0 ? n : 0; }

void dn_free(struct rte_mbuf **b, unsigned n) { rte_pktmbuf_free_bulk(b, n); }

unsigned dn_rx(uint16_t port, uint16_t queue, struct rte_mbuf **b, unsigned n)
{
	enter();
	alloc_mark = mark_of(DN_RX, port); /* what the driver fills its queue with */
	n = rte_eth_rx_burst(port, queue, b, n);
	alloc_mark = my_mark;
	mark_all(b, n, my_mark);
	leave();
	return n;
}

static unsigned look(struct dn_poll *p, struct rte_mbuf **b, unsigned n)
{
	for (uint32_t i = 0; i < p->queues; i++) {
		uint32_t q = p->next;
		p->next = q + 1 < p->queues ? q + 1 : 0;
		unsigned got = dn_rx(p->queue[q].port, p->queue[q].queue, b, n);
		if (got > 0) {
			p->from = q;
			return got;
		}
	}
	return 0;
}

static bool waiting(const struct dn_poll *p)
{
	for (uint32_t i = 0; i < p->rings; i++)
		if (!rte_ring_empty(ring_at(p->ring[i])))
			return true;
	return false;
}

/* dn_poll receives from the first queue that has something. Where none has, and all
 * rings are empty, it looks again for spin_ns. */
unsigned dn_poll(struct dn_poll *p, struct rte_mbuf **b, unsigned n, unsigned spin_ns)
{
	uint64_t end = 0;
	for (;;) {
		unsigned got = look(p, b, n);
		p->ringing = waiting(p);
		if (got > 0 || p->ringing)
			return got;
		if (spin_ns == 0)
			break;
		uint64_t now = rte_rdtsc();
		if (end == 0)
			end = now + spin_ns * rte_get_tsc_hz() / 1000000000;
		else if (now >= end)
			break;
		rte_pause();
	}
	return 0;
}

unsigned dn_tx(uint16_t port, uint16_t queue, struct rte_mbuf **b, unsigned n)
{
	enter();
	mark_all(b, n, mark_of(DN_TX, port)); /* before: a driver may have freed it when it returns */
	unsigned done = rte_eth_tx_burst(port, queue, b, n);
	mark_all(b + done, n - done, my_mark);
	leave();
	return done;
}

unsigned dn_send(uint32_t ring, struct rte_mbuf **b, unsigned n)
{
	enter();
	mark_all(b, n, mark_of(DN_RING, ring)); /* before: the consumer has it at once */
	unsigned done = rte_ring_sp_enqueue_burst(ring_at(ring), (void **)b, n, NULL);
	mark_all(b + done, n - done, my_mark);
	leave();
	return done;
}

unsigned dn_receive(uint32_t ring, struct rte_mbuf **b, unsigned n)
{
	struct rte_ring *r = ring_at(ring);
	if (rte_ring_empty(r)) /* most rings, most of the time */
		return 0;
	enter();
	n = rte_ring_sc_dequeue_burst(r, (void **)b, n, NULL);
	mark_all(b, n, my_mark);
	leave();
	return n;
}

void dn_hold(uint32_t ms) { __atomic_store_n(&shared->hold, ms == 0 ? 0 : now_ms() + ms, __ATOMIC_RELAXED); }

/* dn_repair_ring undoes what a process that is gone had begun and not published.
 * What it had taken and not published as taken stays in the ring. */
void dn_repair_ring(uint32_t ring, bool producer_gone, bool consumer_gone)
{
	struct rte_ring *r = ring_at(ring);
	if (producer_gone)
		r->prod.head = r->prod.tail;
	if (consumer_gone)
		r->cons.head = r->cons.tail;
}

/* see takes note of one mbuf, with its segments, in one place. */
static void see(struct dn_audit *a, struct rte_mbuf *m, uint32_t stamp, bool chain)
{
	for (; m != NULL; m = chain ? m->next : NULL) {
		if (*seen(m) == stamp) {
			a->duplicate++;
			return;
		}
		*seen(m) = stamp;
	}
}

struct count {
	struct dn_audit *a;
	const bool *live;
	void **astray;
	uint32_t stamp;
};

static void count(struct rte_mempool *mp, void *arg, void *object, unsigned i)
{
	struct count *c = arg;
	uint32_t m = __atomic_load_n(mark(object), __ATOMIC_RELAXED), n = m & ((1u << DN_KIND_SHIFT) - 1);
	bool placed = *seen(object) == c->stamp;
	(void)mp, (void)i;
	switch ((enum dn_kind)(m >> DN_KIND_SHIFT)) {
	case DN_FREE:
		if (placed) {
			c->a->free++;
			return;
		}
		break;
	case DN_RING:
		if (placed) {
			c->a->rings++;
			return;
		}
		break;
	case DN_PROCESS:
		if (n < DN_MAX_LCORES && c->live[n]) {
			c->a->process[n]++;
			c->a->duplicate += placed;
			return;
		}
		break;
	case DN_RX:
		if (n < DN_MAX_PORTS && shared->rests_rx[n]) {
			c->a->rx[n]++;
			return;
		}
		break;
	case DN_TX:
		if (n < DN_MAX_PORTS && shared->rests_tx[n]) {
			c->a->tx[n]++;
			return;
		}
		break;
	}
	if (placed) { /* in the pool or a ring, and marked as if it were not */
		c->a->duplicate++;
		return;
	}
	c->astray[c->a->astray++] = object;
}

static bool quiet(const bool *live, uint64_t *seqs)
{
	for (unsigned i = 0; i < DN_MAX_LCORES; i++) {
		seqs[i] = __atomic_load_n(&shared->sections[i].seq, __ATOMIC_ACQUIRE);
		if (live[i] && i != 0 && (seqs[i] & 1))
			return false;
	}
	return true;
}

/* walk follows a list of the stack and returns its length, or -1 where it is no
 * list: it was changed meanwhile. */
static int64_t walk(struct rte_stack *s, struct rte_stack_lf_list *l, uint8_t *in, struct dn_audit *a, uint32_t stamp)
{
	int64_t n = 0;
	for (struct rte_stack_lf_elem *e = l->head.top; e != NULL; e = e->next, n++) {
		size_t i = e - s->stack_lf.elems;
		if (i >= s->capacity || in[i])
			return -1;
		in[i] = 1;
		if (stamp != 0 && e->data == NULL)
			return -1;
		if (stamp != 0)
			see(a, e->data, stamp, false);
	}
	return n;
}

/* repair gives back what an audit found lost. Nobody who lives can reach any of
 * it, so others may be at work meanwhile. in says which elements are in a list. */
static void repair(struct rte_stack *s, const struct dn_audit *a, void **astray, const uint8_t *in)
{
	struct rte_stack_lf_elem *e = s->stack_lf.elems;
	for (uint32_t i = 0; a->lost_elements > 0 && i < s->capacity; i++)
		if (!in[i])
			__rte_stack_lf_push_elems(&s->stack_lf.free, &e[i], &e[i], 1);
	__atomic_add_fetch(&s->stack_lf.used.len, a->used_short, __ATOMIC_RELEASE);
	__atomic_add_fetch(&s->stack_lf.free.len, a->free_short, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < a->astray; i++) {
		struct rte_mbuf *m = astray[i];
		rte_mbuf_refcnt_set(m, 1);
		m->next = NULL;
		m->nb_segs = 1;
		rte_mempool_put(shared->pool, m);
	}
}

/* dn_audit finds where each mbuf is, and gives back what is lost if it is to.
 * -EAGAIN: a process was busy meanwhile, what was found means nothing, and nothing
 * was given back. */
int dn_audit(const bool live[DN_MAX_LCORES], struct dn_audit *a, bool mend)
{
	struct rte_stack *s = shared->pool->pool_data;
	uint64_t before[DN_MAX_LCORES], after[DN_MAX_LCORES];
	memset(a, 0, sizeof *a);
	a->size = shared->pool->size;
	uint8_t *in = calloc(1, s->capacity);
	void **astray = calloc(a->size, sizeof *astray);
	int rc = in == NULL || astray == NULL ? -ENOMEM : -EAGAIN;
	if (rc == -ENOMEM || !quiet(live, before))
		goto out;
	uint32_t stamp = ++shared->walk;
	if (stamp == 0)
		stamp = ++shared->walk;
	int64_t used = walk(s, &s->stack_lf.used, in, a, stamp), unused = walk(s, &s->stack_lf.free, in, a, 0);
	if (used < 0 || unused < 0)
		goto out;
	a->used_short = used - (int64_t)s->stack_lf.used.len;
	a->free_short = unused - (int64_t)s->stack_lf.free.len;
	a->lost_elements = s->capacity - used - unused;
	uint32_t n = 2 * shared->processes * shared->processes;
	for (uint32_t i = 0; i < n; i++) {
		struct rte_ring *r = ring_at(i);
		void **slots = (void **)&r[1];
		for (uint32_t j = r->cons.tail, left = r->prod.tail - j; left > 0 && left <= r->capacity; j++, left--)
			see(a, slots[j & r->mask], stamp, true);
	}
	struct count c = {a, live, astray, stamp};
	rte_mempool_obj_iter(shared->pool, count, &c);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (!quiet(live, after) || memcmp(before, after, sizeof before) != 0)
		goto out;
	rc = 0;
	if (mend)
		repair(s, a, astray, in);
out:
	free(in);
	free(astray);
	return rc;
}

uint64_t dn_heap_free(void)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < rte_socket_count(); i++) {
		struct rte_malloc_socket_stats s;
		if (rte_malloc_get_socket_stats(rte_socket_id_by_idx(i), &s) == 0)
			n += s.heap_freesz_bytes;
	}
	return n;
}

static void *take_locks(void *done)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	rte_mcfg_mem_write_lock();
	rte_mcfg_mem_write_unlock();
	rte_mcfg_tailq_write_lock();
	rte_mcfg_tailq_write_unlock();
	rte_mcfg_mempool_write_lock();
	rte_mcfg_mempool_write_unlock();
	rte_mcfg_timer_lock();
	rte_mcfg_timer_unlock();
	rte_memzone_lookup(LAYOUT_ZONE);
	__atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* dn_locks_free reports whether the locks that EAL's processes share can be had
 * within a time. A process that was killed while it held one has it for ever. */
bool dn_locks_free(unsigned ms)
{
	pthread_t t;
	bool done = false;
	if (pthread_create(&t, NULL, take_locks, &done) != 0)
		return false;
	for (uint64_t end = now_ms() + ms; !__atomic_load_n(&done, __ATOMIC_ACQUIRE) && now_ms() < end;)
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	if (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		pthread_cancel(t); /* it spins, and holds nothing */
	pthread_join(t, NULL);
	return done;
}
