// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of programs. Sending copies nothing: fragments are pages of the program's area.
 *
 *   tx entry -> skb, fragments of the area -> tunnel's queue -> ... copies under tunnel headers
 *                                                 |                    |
 *                         acknowledged: native_settle                  | freed by NICs, queues
 *                                                 v                    v
 *                         the last of them is freed: native_done -> completion
 *
 * A packet that arrives is copied once, out of the NIC's buffer into a piece of fill.
 *
 * Lent pages are marked as such (struct ubuf_info), so the stack copies them where it would keep
 * them: at a receiver of this kernel, or in a capture.
 */
#include <linux/highmem.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "compat/compat.h"
#include "eqds/native.h"

/* A packet that the program waits for. */
struct native_tx {
	struct ubuf_info ubuf;
	struct eqds_native *native;
	struct eqds_native_completion said;
};

/* Completions that any packet of this module still owes. */
static atomic_t native_owed = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(native_owed_wait);

/* Entries that the other end has produced beyond mine; a number that can't be counts as none. */
static u32 native_available(const u32 *produced, u32 consumed, u32 entries)
{
	/* Pairs with the program's release. */
	u32 n = smp_load_acquire(produced) - consumed;

	return n <= entries ? n : 0;
}

/* Is there room for another entry? */
static bool native_room(const u32 *consumed, u32 produced, u32 entries)
{
	/* Pairs with the program's release. */
	return produced - smp_load_acquire(consumed) < entries;
}

static bool native_in_area(const struct eqds_native *native, u64 at, u32 bytes)
{
	return at < native->area_bytes && bytes <= native->area_bytes - at;
}

/* ---- completions ---- */

static void native_complete(struct eqds_native *native, const struct eqds_native_completion *said)
{
	unsigned long flags;

	spin_lock_irqsave(&native->lock, flags);
	/* Its place is kept: native_may_send(). */
	native->completion[native->completion_produced & (native->entries - 1)] = *said;
	native->completion_produced++;
	native->unsettled--;
	/* Pairs with the program's acquire. */
	smp_store_release(&native->rings->completion.produced, native->completion_produced);
	spin_unlock_irqrestore(&native->lock, flags);
	wake_up_interruptible_poll(&native->wait, EPOLLIN | EPOLLRDNORM);
}

/* One of the packets that lend the pages is gone. Any context. */
static void native_done(struct sk_buff *skb, struct ubuf_info *ubuf, bool success)
{
	struct native_tx *tx = container_of(ubuf, struct native_tx, ubuf);

	if (!refcount_dec_and_test(&ubuf->refcnt))
		return;
	rcu_read_lock(); /* eqds_native_drain() waits for it */
	native_complete(tx->native, &tx->said);
	eqds_native_put(tx->native);
	kfree(tx);
	if (atomic_dec_and_test(&native_owed))
		wake_up(&native_owed_wait);
	rcu_read_unlock();
}

COMPAT_UBUF_OPS(native_ubuf_ops, native_done);

/* Before the module goes, with all devices and files gone. */
void eqds_native_drain(void)
{
	wait_event(native_owed_wait, !atomic_read(&native_owed));
	synchronize_rcu(); /* for the last native_done() */
}

static u32 native_busy_us(const struct eqds_tx *tx, u64 now_ns)
{
	u64 until = tx->core.busy_until_ns;

	return until > now_ns ? (u32)div_u64(until - now_ns, NSEC_PER_USEC) : 0;
}

/* The tunnel lets the packet go. delivered: the peer has acknowledged it. Device's lock. */
void eqds_native_settle(struct eqds_tx *tx, const struct eqds_packet *packet, struct sk_buff *skb,
			bool delivered)
{
	struct ubuf_info *ubuf = skb_zcopy(skb);
	struct eqds_native_completion *said;
	const u64 now_ns = ktime_get_ns();

	if (!ubuf || !compat_ubuf_is(ubuf, native_ubuf_ops) || !delivered)
		return;
	said = &container_of(ubuf, struct native_tx, ubuf)->said;
	said->status = EQDS_NATIVE_DELIVERED;
	said->path = packet->path;
	said->attempts = packet->attempt;
	if (!packet->attempt && now_ns - packet->sent_ns <= U32_MAX)
		said->rtt_ns = now_ns - packet->sent_ns;
	said->queued = tx->core.queue.count;
	said->pulls = tx->core.target - tx->core.pull;
	said->busy_us = native_busy_us(tx, now_ns);
}

/* ---- sending ---- */

static void native_lend(const struct eqds_native *native, struct sk_buff *skb, u64 at, u32 bytes)
{
	const u32 total = bytes;

	for (int i = 0; bytes; i++) {
		struct page *page = native->pages[at >> PAGE_SHIFT];
		u32 now = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));

		get_page(page);
		skb_fill_page_desc(skb, i, page, offset_in_page(at), now);
		at += now;
		bytes -= now;
	}
	skb->len += total;
	skb->data_len += total;
	skb->truesize += total;
}

static struct sk_buff *native_skb(struct eqds_native *native, const struct eqds_dev *ed,
				  const struct eqds_native_packet *packet)
{
	const u32 headroom = READ_ONCE(ed->dev->needed_headroom);
	struct eqds_native_head *head;
	struct native_tx *tx;
	struct sk_buff *skb;

	tx = kzalloc(sizeof(*tx), GFP_ATOMIC | __GFP_NOWARN);
	if (!tx)
		return NULL;
	skb = alloc_skb(headroom + sizeof(*head), GFP_ATOMIC | __GFP_NOWARN);
	if (!skb) {
		kfree(tx);
		return NULL;
	}
	skb_reserve(skb, headroom);
	skb_reset_network_header(skb);
	head = skb_put_zero(skb, sizeof(*head));
	head->to = htons(packet->port);
	head->from = htons(native->port);
	native_lend(native, skb, packet->at, packet->bytes);
	tx->native = native;
	tx->said = (struct eqds_native_completion){
		.cookie = packet->cookie,
		.status = EQDS_NATIVE_DROPPED,
	};
	compat_ubuf_set(&tx->ubuf, native_ubuf_ops);
	tx->ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	refcount_set(&tx->ubuf.refcnt, 1);
	eqds_native_get(native);
	atomic_inc(&native_owed);
	skb_zcopy_init(skb, &tx->ubuf);
	return skb;
}

/* Keeps a place for the completion of one more packet. */
static bool native_may_send(struct eqds_native *native)
{
	const u32 *consumed = &native->rings->completion.consumed;
	unsigned long flags;
	bool may;

	spin_lock_irqsave(&native->lock, flags);
	/* The program's word alone would bound nothing. */
	may = native->unsettled < native->entries &&
	      native_room(consumed, native->completion_produced + native->unsettled,
			  native->entries);
	native->unsettled += may;
	spin_unlock_irqrestore(&native->lock, flags);
	return may;
}

static void native_forget(struct eqds_native *native)
{
	unsigned long flags;

	spin_lock_irqsave(&native->lock, flags);
	native->unsettled--;
	spin_unlock_irqrestore(&native->lock, flags);
}

/* Returns 0, also for one that is refused by a completion, else -ENOMEM: it stays in tx. RCU. */
static int native_send(struct eqds_native *native, struct eqds_dev *ed,
		       const struct eqds_native_packet *packet)
{
	struct eqds_native_completion bad = {
		.cookie = packet->cookie,
		.status = EQDS_NATIVE_BAD,
	};
	const u32 bytes_max = READ_ONCE(ed->dev->mtu) - sizeof(struct eqds_native_head);
	struct in6_addr peer;
	struct sk_buff *skb;

	memcpy(&peer, packet->peer, sizeof(peer));
	if (!packet->bytes || packet->bytes > bytes_max || packet->reserved || !packet->port ||
	    packet->bytes > (MAX_SKB_FRAGS - 1) * PAGE_SIZE ||
	    !native_in_area(native, packet->at, packet->bytes) || !eqds_xmit_peer_is_good(&peer)) {
		native_complete(native, &bad);
		return 0;
	}
	skb = native_skb(native, ed, packet);
	if (!skb)
		return -ENOMEM;
	eqds_xmit_native(ed, skb, &peer);
	return 0;
}

/*
 * Send what is in tx, as far as there is room for completions, and one ring's worth at most.
 * Returns 0, -ENODEV if the device is gone, or -ENOMEM. calls.
 */
int eqds_native_kick(struct eqds_native *native)
{
	u32 n = native_available(&native->rings->tx.produced, native->tx_consumed,
				 native->entries);
	struct eqds_native_packet packet;
	struct eqds_dev *ed;
	int err = rcu_access_pointer(native->ed) ? 0 : -ENODEV;

	while (n-- && !err && native_may_send(native)) {
		packet = native->tx[native->tx_consumed & (native->entries - 1)];
		barrier(); /* the program may change the entry: only the copy is looked at */
		rcu_read_lock_bh();
		ed = rcu_dereference_bh(native->ed);
		err = ed ? native_send(native, ed, &packet) : -ENODEV;
		rcu_read_unlock_bh();
		if (err) {
			native_forget(native);
			break;
		}
		native->tx_consumed++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->tx.consumed, native->tx_consumed);
		cond_resched();
	}
	return err;
}

/* ---- receiving ---- */

/* Entries that are no piece of the area: a packet passes so many, with interrupts off. */
#define NATIVE_SKIPPED_MAX 16U

/*
 * The next piece of fill, if it has room for bytes; false: there is none, or it is too small. The
 * kernel leaves such a piece for smaller packets.
 */
static bool native_take_fill(struct eqds_native *native, u32 bytes, u64 *at)
{
	u32 n = native_available(&native->rings->fill.produced, native->fill_consumed,
				 native->entries);
	struct eqds_native_fill fill;
	bool good;

	lockdep_assert_held(&native->lock);
	for (n = min(n, NATIVE_SKIPPED_MAX); n; n--) {
		fill = native->fill[native->fill_consumed & (native->entries - 1)];
		barrier();
		good = native_in_area(native, fill.at, fill.bytes);
		if (good && fill.bytes < bytes)
			return false;
		native->fill_consumed++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->fill.consumed, native->fill_consumed);
		if (good) {
			*at = fill.at;
			return true;
		}
		WRITE_ONCE(native->rings->fill_skipped, ++native->fill_skipped);
	}
	return false;
}

static bool native_copy(const struct eqds_native *native, const struct sk_buff *skb, u64 at,
			u32 offset, u32 bytes)
{
	while (bytes) {
		u32 now = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));
		void *to = kmap_local_page(native->pages[at >> PAGE_SHIFT]);
		int err = skb_copy_bits(skb, offset, to + offset_in_page(at), now);

		kunmap_local(to);
		if (err)
			return false;
		at += now;
		offset += now;
		bytes -= now;
	}
	return true;
}

static bool native_receive(struct eqds_native *native, const struct sk_buff *skb, u16 from,
			   const struct in6_addr *peer, u32 offset)
{
	struct eqds_native_packet packet = {.bytes = skb->len - offset, .port = from};
	unsigned long flags;
	bool good;

	memcpy(packet.peer, peer, sizeof(*peer));
	spin_lock_irqsave(&native->lock, flags);
	good = native_room(&native->rings->rx.consumed, native->rx_produced, native->entries) &&
	       native_take_fill(native, packet.bytes, &packet.at) &&
	       native_copy(native, skb, packet.at, offset, packet.bytes);
	if (good) {
		native->rx[native->rx_produced & (native->entries - 1)] = packet;
		native->rx_produced++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->rx.produced, native->rx_produced);
	} else {
		WRITE_ONCE(native->rings->rx_dropped, ++native->rx_dropped);
	}
	spin_unlock_irqrestore(&native->lock, flags);
	if (good)
		wake_up_interruptible_poll(&native->wait, EPOLLIN | EPOLLRDNORM);
	return good;
}

struct hlist_head *eqds_native_bucket(struct eqds_dev *ed, u16 port)
{
	return &ed->natives[port % EQDS_NATIVE_BUCKETS];
}

/*
 * A native packet whose turn it is; skb begins with a UDP header. Returns false if it is dropped.
 * The caller frees it. RCU.
 */
bool eqds_native_deliver(struct eqds_dev *ed, struct sk_buff *skb, u32 head_bytes)
{
	const u32 payload = head_bytes + sizeof(struct eqds_native_head);
	struct eqds_native *native;
	struct eqds_native_head head;

	if (skb->len <= payload || skb_copy_bits(skb, head_bytes, &head, sizeof(head)))
		return false;
	hlist_for_each_entry_rcu(native, eqds_native_bucket(ed, ntohs(head.to)), port_hash)
		if (native->port == ntohs(head.to))
			return native_receive(native, skb, ntohs(head.from), &EQDS_CB(skb)->peer,
					      payload);
	return false;
}

/* ---- what a tunnel is like ---- */

void eqds_native_describe(struct eqds_dev *ed, struct eqds_native_peer *peer)
{
	struct in6_addr address;
	struct eqds_tx *tx;

	memcpy(&address, peer->peer, sizeof(address));
	spin_lock_bh(&ed->lock);
	tx = ed->up ? eqds_tunnel_tx(ed, &address, EQDS_CLASS_NATIVE) : NULL;
	if (tx) {
		peer->rtt_ns = tx->core.rtt_ns;
		peer->credit_bytes = max_t(s64, tx->core.credit_bytes, 0);
		peer->queued = tx->core.queue.count;
		peer->in_flight = tx->core.in_flight.count + tx->core.retransmit.count;
		peer->pulls = tx->core.target - tx->core.pull;
		peer->busy_us = native_busy_us(tx, ktime_get_ns());
		for (u32 i = 0; i < EQDS_NATIVE_PATHS; i++)
			peer->path[i] = (struct eqds_native_path){
				.rtt_ns = tx->path[i].rtt_ns,
				.sent = tx->path[i].sent,
				.trimmed = tx->path[i].trimmed,
				.lost = tx->path[i].lost,
			};
	}
	spin_unlock_bh(&ed->lock);
}
