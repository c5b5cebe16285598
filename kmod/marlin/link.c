// SPDX-License-Identifier: GPL-2.0
/*
 * Links to peers: windows, and the handshake by pair words (core/marlin/pair.h).
 *
 *   link event, link doorbell, fault -> marlin_link_work, of each peer -> link_look
 *                                         pair_look: STOP, CLEAN, PUBLISH, START
 *
 * A link that was down lost stores, be it up again by now: a session ends with its link's epoch.
 *
 * Window w of a machine leads to its peer w. The peer knows the same window by that number.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/sched/mm.h>

#include "marlin/marlin.h"

/* Rings no smaller than this, eight frames of 64 KiB, unless there is no room for one. */
#define LINK_RING_BYTES_GOOD (512u << 10)
/* Longer than a peer that is alive takes to end its copies when its link goes. */
#define LINK_QUIET (5 * HZ)

/* Whether a refusal is to be told: once while the link is up, and not each time a peer flaps it. */
static bool link_may_say(const struct marlin_peer *peer)
{
	return !peer->refused && net_ratelimit();
}

/* ---- windows ---- */

/* The number that a peer has for its window into own memory. */
int marlin_link_window_number(struct marlin_peer *peer)
{
	struct marlin_dev *md = peer->md;
	int number = peer->port < md->port ? -1 : 0;

	for (unsigned int i = 0; i < md->peer_count; i++)
		number += md->peers[i].port < md->port;
	return number;
}

static int link_window_in(struct marlin_peer *peer)
{
	struct ntb_dev *ntb = peer->md->ntb;
	resource_size_t address_align, size_align, bytes;
	int number = marlin_link_window_number(peer);
	int err;

	err = ntb_mw_get_align(ntb, peer->index, number, &address_align, &size_align, &bytes);
	if (err)
		return err;
	peer->in_area_bytes = frames_ring_bytes(bytes);
	if (!peer->in_area_bytes)
		return -ENOSPC;
	peer->in_bytes = round_up(MARLIN_RING_OFFSET + peer->in_area_bytes +
					  sizeof(struct marlin_messages), size_align);
	peer->in_memory = dma_alloc_coherent(&ntb->pdev->dev, peer->in_bytes, &peer->in_handle,
					     GFP_KERNEL);
	if (!peer->in_memory)
		return -ENOMEM;
	err = IS_ALIGNED(peer->in_handle, address_align) ?
		ntb_mw_set_trans(ntb, peer->index, number, peer->in_handle, peer->in_bytes) :
		-EINVAL;
	if (err) {
		dma_free_coherent(&ntb->pdev->dev, peer->in_bytes, peer->in_memory,
				  peer->in_handle);
		peer->in_memory = NULL;
	}
	return err;
}

static int link_window_out(struct marlin_peer *peer)
{
	resource_size_t bytes;
	phys_addr_t address;
	int err;

	err = ntb_peer_mw_get_addr(peer->md->ntb, peer->index, &address, &bytes);
	if (err)
		return err;
	peer->out_memory = memremap(address, bytes, MEMREMAP_WC);
	if (!peer->out_memory)
		return -ENOMEM;
	peer->out_bytes = bytes;
	return 0;
}

/* How many rings, of which size, the peer will have here. Its pair word is DOWN. */
static void link_shape(struct marlin_peer *peer)
{
	struct marlin_dev *md = peer->md;
	unsigned int rings = md->rings;

	while (rings > 1 && peer->in_area_bytes / rings < LINK_RING_BYTES_GOOD)
		rings /= 2;
	peer->in_rings = rings;
	peer->in_ring_bytes = min(peer->in_area_bytes / rings, md->ring_bytes_max);
	peer->pair.rings_log = ilog2(rings);
	peer->pair.ring_log = ilog2(peer->in_ring_bytes);
}

/* Both windows, when the link is up for the first time; they stay. */
static int link_windows(struct marlin_peer *peer)
{
	int err = 0;

	if (!peer->out_memory)
		err = link_window_out(peer);
	if (!err && !peer->in_memory)
		err = link_window_in(peer);
	if (!err && peer->pair.stage == MARLIN_STAGE_DOWN)
		link_shape(peer);
	/* After -ENOTCONN the link's next event brings the work back. */
	if (err && err != -ENOTCONN && link_may_say(peer)) {
		netdev_err(peer->md->dev, "port %u: no memory windows: error %d\n", peer->port,
			   err);
		peer->refused = true;
	}
	return err;
}

void marlin_link_free(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_peer *peer = &md->peers[i];

		marlin_loans_free(peer);
		for (unsigned int k = 0; k < MARLIN_RINGS_MAX; k++)
			del_timer_sync(&peer->out[k].stuck);
		if (peer->in_memory) {
			ntb_mw_clear_trans(md->ntb, i, marlin_link_window_number(peer));
			dma_free_coherent(&md->ntb->pdev->dev, peer->in_bytes, peer->in_memory,
					  peer->in_handle);
		}
		if (peer->out_memory)
			memunmap(peer->out_memory);
	}
}

/* ---- scratchpads ---- */

/* Own address and version, before the link is enabled. */
void marlin_link_publish(struct marlin_dev *md)
{
	const u8 *mac = md->dev->dev_addr;

	for (unsigned int i = 0; i < md->peer_count; i++)
		ntb_spad_write(md->ntb, MARLIN_SPAD_PAIR + md->peers[i].port, 0);
	ntb_spad_write(md->ntb, MARLIN_SPAD_MAC_LOW,
		       mac[0] | mac[1] << 8 | mac[2] << 16 | (u32)mac[3] << 24);
	ntb_spad_write(md->ntb, MARLIN_SPAD_MAC_HIGH, mac[4] | mac[5] << 8 |
			       (rcu_access_pointer(md->xdp) ? MARLIN_PLAIN : 0));
	ntb_spad_write(md->ntb, MARLIN_SPAD_VERSION, MARLIN_MAGIC | MARLIN_VERSION);
}

/* A peer's pair word; 0 if the peer speaks another version. */
static u32 link_peer_word(struct marlin_peer *peer)
{
	struct ntb_dev *ntb = peer->md->ntb;
	u32 version = ntb_peer_spad_read(ntb, peer->index, MARLIN_SPAD_VERSION);
	u32 word = ntb_peer_spad_read(ntb, peer->index, MARLIN_SPAD_PAIR + peer->md->port);

	if (!(word >> MARLIN_STAGE_SHIFT & MARLIN_STAGE_MASK))
		return 0;
	if (version == (MARLIN_MAGIC | MARLIN_VERSION))
		return word;
	if (link_may_say(peer))
		netdev_err(peer->md->dev,
			   "port %u: version word %#x, here %#x: load the same module on both\n",
			   peer->port, version, MARLIN_MAGIC | MARLIN_VERSION);
	peer->refused = true;
	return 0;
}

/*
 * A peer's address; 0 if it isn't one, or if another machine has it. A peer keeps its address while
 * its link restarts, and until it has another: else a hostile one could take it meanwhile.
 */
static u64 link_peer_mac(struct marlin_peer *peer)
{
	struct marlin_dev *md = peer->md;
	u32 low = ntb_peer_spad_read(md->ntb, peer->index, MARLIN_SPAD_MAC_LOW);
	u32 high = ntb_peer_spad_read(md->ntb, peer->index, MARLIN_SPAD_MAC_HIGH);
	u8 address[ETH_ALEN] = {low, low >> 8, low >> 16, low >> 24, high, high >> 8};
	u64 mac = ether_addr_to_u64(address);

	if (!is_valid_ether_addr(address) || ether_addr_equal(address, md->dev->dev_addr))
		return 0;
	for (unsigned int i = 0; i < md->peer_count; i++)
		if (&md->peers[i] != peer && md->peers[i].mac_kept == mac)
			return 0;
	return mac;
}

/* ---- pages that the management host opens ---- */

/* Of hardware without a management host, all; of a host that can't be asked, none. */
static struct ntb_pages link_pages(struct marlin_peer *peer, bool *changed)
{
	const struct ntb_host_ops *host = peer->bus.host;
	struct ntb_pages pages = {};
	int err;

	if (!host) {
		pages.range[0].end = U64_MAX;
	} else {
		err = host->pages_read(peer->md->ntb, peer->index, &pages);
		if (err == -EAGAIN)
			pages = peer->pages;
		else if (err)
			pages = (struct ntb_pages){};
	}
	/* Not as before. */
	*changed = memcmp(pages.range, peer->pages.range, sizeof(pages.range));
	return pages;
}

/* Nothing copies by an older policy any more. */
static void link_pages_seen(struct marlin_dev *md)
{
	const struct ntb_host_ops *host = md->peers[0].bus.host;
	u32 policy = READ_ONCE(md->peers[0].pages.policy);

	lockdep_assert_held(&md->links_lock);
	for (unsigned int i = 0; i < md->peer_count; i++)
		if (READ_ONCE(md->peers[i].pages.policy) != policy)
			return; /* the policy is changing, or another link's work has yet to look */
	if (host && policy)
		host->pages_seen(md->ntb, policy);
}

/* A page's address in the peer's RAM. Copies are under way, or may be. */
bool marlin_link_may_copy(const struct marlin_peer *peer, u64 page)
{
	for (unsigned int i = 0; i < NTB_PAGES_RANGES; i++)
		if (page >= peer->pages.range[i].begin && page < peer->pages.range[i].end)
			return true;
	return false;
}

/* ---- start and stop ---- */

static void link_stop(struct marlin_peer *peer)
{
	struct marlin_dev *md = peer->md;

	if (peer->up && net_ratelimit())
		netdev_info(md->dev, "port %u: down\n", peer->port);
	WRITE_ONCE(peer->up, false);
	spin_lock_bh(&md->links_lock);
	WRITE_ONCE(peer->mac, 0);
	spin_unlock_bh(&md->links_lock);
	for (unsigned int k = 0; k < MARLIN_RINGS_MAX; k++) {
		struct marlin_out *out = &peer->out[k];
		struct marlin_in *in = &peer->in[k];

		spin_lock_bh(&out->lock);
		out->live = false;
		out->unrung = false;
		out->waits = false;
		spin_unlock_bh(&out->lock);
		spin_lock_bh(&in->lock);
		in->live = false;
		spin_unlock_bh(&in->lock);
	}
	marlin_messages_stop(peer);
	marlin_cmmc_stop(peer);
	/* The peer cleans its memory when it has read the next pair word: no store may follow. */
	if (peer->out_memory)
		marlin_flush(peer);
	/* Frames that wait for room are dropped for want of a link. */
	for (unsigned int k = 0; k < md->rings_max; k++)
		netif_tx_wake_queue(netdev_get_tx_queue(md->dev, marlin_out_queue(&peer->out[k])));
}

static void link_clean(struct marlin_peer *peer)
{
	for (unsigned int k = 0; k < peer->in_rings; k++) {
		memset(marlin_own_window(peer, k), 0, sizeof(struct marlin_window));
		memset(peer->in_memory + MARLIN_RING_OFFSET + k * peer->in_ring_bytes, 0,
		       MARLIN_LINE_BYTES);
	}
	marlin_messages_clean(peer);
	marlin_cmmc_clean(peer);
	wmb(); /* before the pair word that says so */
}

static void link_start_rings(struct marlin_peer *peer)
{
	for (unsigned int k = 0; k < peer->out_rings; k++) {
		struct marlin_in *in = &peer->in[k];
		struct marlin_out *out = &peer->out[k];

		spin_lock_bh(&in->lock);
		frames_in_init(&in->frames,
			       peer->in_memory + MARLIN_RING_OFFSET + k * peer->in_ring_bytes,
			       peer->in_ring_bytes,
			       marlin_word(&marlin_peer_window(peer, k)->tail));
		in->live = true;
		spin_unlock_bh(&in->lock);
		spin_lock_bh(&out->lock);
		frames_out_init(&out->frames,
				peer->out_memory + MARLIN_RING_OFFSET + k * peer->out_ring_bytes,
				peer->out_ring_bytes,
				marlin_word(&marlin_own_window(peer, k)->tail));
		out->live = true;
		spin_unlock_bh(&out->lock);
	}
}

/*
 * Frames need an address of the peer's own. A peer whose address another machine has exchanges
 * none; messages and copies go by ports, and don't suffer. Each look tries again.
 */
static void link_start_frames(struct marlin_peer *peer)
{
	struct marlin_dev *md = peer->md;
	u64 mac, before;

	spin_lock_bh(&md->links_lock);
	before = peer->mac_kept;
	mac = link_peer_mac(peer);
	if (mac)
		peer->mac_kept = mac;
	spin_unlock_bh(&md->links_lock);
	/* A peer that was refused may be waiting for the address. */
	if (mac && before && before != mac)
		marlin_link_changed(md);
	if (!mac) {
		if (link_may_say(peer))
			netdev_err(md->dev, "port %u is not served: %s\n", peer->port,
				   "its MAC address is invalid, or another machine's");
		peer->refused = true;
		return;
	}
	peer->refused = false;
	link_start_rings(peer);
	WRITE_ONCE(peer->mac, mac);
}

static void link_start(struct marlin_peer *peer, u32 word)
{
	struct marlin_dev *md = peer->md;
	u64 out_area_bytes = (u64)pair_word_ring_bytes(word) * pair_word_rings(word);

	if (!out_area_bytes ||
	    MARLIN_RING_OFFSET + out_area_bytes + sizeof(struct marlin_messages) >
		    peer->out_bytes) {
		peer->pair.live = false;
		if (link_may_say(peer))
			netdev_err(md->dev, "port %u is not served: %s\n", peer->port,
				   "its window is too small for its rings");
		peer->refused = true;
		return;
	}
	peer->out_ring_bytes = pair_word_ring_bytes(word);
	WRITE_ONCE(peer->plain, ntb_peer_spad_read(md->ntb, peer->index, MARLIN_SPAD_MAC_HIGH) &
					MARLIN_PLAIN);
	/* Of either machine: a ring and its other direction have one poll. */
	WRITE_ONCE(peer->out_rings, min(peer->in_rings, pair_word_rings(word)));
	marlin_messages_start(peer, out_area_bytes);
	marlin_cmmc_start(peer);
	WRITE_ONCE(peer->up, true);
	link_start_frames(peer);
	peer->starts++;
	if (net_ratelimit())
		netdev_info(md->dev, "port %u: up, %u rings of %u KiB out, %u KiB in\n", peer->port,
			    peer->out_rings, peer->out_ring_bytes >> 10, peer->in_ring_bytes >> 10);
	/* The polls find frames that were posted meanwhile, or tell the peer that they sleep. */
	local_bh_disable();
	for (unsigned int k = 0; k < peer->out_rings; k++)
		napi_schedule(&md->queues[k].napi);
	napi_schedule(&md->messages.napi);
	local_bh_enable();
}

/*
 * A peer broke a rule. The end that found it has set its own live flag to false. It holds its lock,
 * so link_work prints.
 */
void marlin_link_fault(struct marlin_peer *peer, const char *rule)
{
	WRITE_ONCE(peer->fault, rule);
	marlin_peer_changed(peer);
}

/* A store of the session was found lost. The event of such a driver may come later. */
void marlin_link_lost(struct marlin_peer *peer)
{
	if (!bus_is_late(&peer->bus))
		return;
	bus_lost(&peer->bus, READ_ONCE(peer->epoch));
	marlin_peer_changed(peer);
}

static void link_look(struct marlin_peer *peer, bool up)
{
	const char *fault = READ_ONCE(peer->fault);
	struct marlin_dev *md = peer->md;
	u32 epoch = bus_epoch(&peer->bus);
	/* The session's stores may be lost, and so the peer's: neither end can go on. */
	bool lost = peer->pair.stage == MARLIN_STAGE_READY && peer->epoch != epoch;
	u32 word = 0, actions = 0;
	bool pages_changed;
	struct ntb_pages pages = link_pages(peer, &pages_changed);

	rmb(); /* the epoch is no newer than the peer's words */

	if (!up)
		peer->refused = false;
	up = up && READ_ONCE(md->open) && !link_windows(peer);
	if (up)
		word = link_peer_word(peer);
	if (fault) {
		WRITE_ONCE(peer->fault, NULL);
		/* Rules are broken by lost stores, too. */
		peer->faults += !lost;
		if (!lost && net_ratelimit())
			netdev_err(md->dev, "port %u broke a rule: %s; its link starts again\n",
				   peer->port, fault);
		actions = pair_restart(&peer->pair);
	}
	/* Copies by the old ranges end with the session, and so do the peer's grants. */
	if (pages_changed || lost)
		actions |= pair_restart(&peer->pair);
	actions |= pair_look(&peer->pair, up, word);
	if (actions & PAIR_STOP)
		link_stop(peer);
	peer->pages = pages;
	if (actions & PAIR_CLEAN) {
		WRITE_ONCE(peer->epoch, epoch);
		link_clean(peer);
	}
	if (actions & PAIR_PUBLISH) {
		ntb_spad_write(md->ntb, MARLIN_SPAD_PAIR + peer->port, pair_word(&peer->pair));
		ntb_peer_db_set(md->ntb, md->bell_link);
	}
	if (actions & PAIR_START)
		link_start(peer, word);
	else if (peer->pair.live && !peer->mac)
		link_start_frames(peer);
	marlin_cmmc_look(peer);
}

/* Looks at the carrier and the policy, which all links share. */
static void link_look_at_all(struct marlin_dev *md)
{
	bool any = false;

	spin_lock_bh(&md->links_lock);
	link_pages_seen(md);
	for (unsigned int i = 0; i < md->peer_count; i++)
		any |= md->peers[i].mac;
	if (any)
		netif_carrier_on(md->dev);
	else
		netif_carrier_off(md->dev);
	spin_unlock_bh(&md->links_lock);
}

/* A work for each link: one whose copies take their time holds up no other. */
void marlin_link_work(struct work_struct *work)
{
	struct marlin_peer *peer = container_of(work, struct marlin_peer, link_work);
	struct marlin_dev *md = peer->md;
	/* A window's memory is for a new peer, and reclaim may wait for the link to another. */
	unsigned int noio = memalloc_noio_save();

	marlin_bells_rise(md, md->bell_link);
	link_look(peer, ntb_link_is_up(md->ntb, NULL, NULL) & BIT_ULL(peer->index));
	link_look_at_all(md);
	memalloc_noio_restore(noio);
}

void marlin_link_flush(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++)
		flush_work(&md->peers[i].link_work);
}

void marlin_link_cancel(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++)
		cancel_work_sync(&md->peers[i].link_work);
}

/* The links are down. Returns when no copy of a peer is under way; -EBUSY: one stands still. */
int marlin_link_wait_quiet(struct marlin_dev *md)
{
	unsigned long end = jiffies + LINK_QUIET;
	bool quiet;

	for (;;) {
		quiet = true;
		for (unsigned int i = 0; i < md->peer_count; i++)
			quiet &= marlin_cmmc_is_quiet(&md->peers[i]) &&
				 marlin_loans_are_quiet(&md->peers[i]);
		if (quiet || time_after(jiffies, end))
			return quiet ? 0 : -EBUSY;
		msleep(20);
	}
}
