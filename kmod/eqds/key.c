// SPDX-License-Identifier: GPL-2.0
/*
 * The device's key: packets leave with a tag, and others are dropped before they wait for anything.
 *
 *   eqds_emit -> eqds_key_seal       the outer addresses are known, and no lock is held
 *   eqds_recv -> eqds_key_verify     on each CPU that packets arrive on
 *
 * Old packets are told by the cookie of their peer, which changes when a tunnel from it ends.
 */
#include "eqds/key.h"

#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "core/eqds/tag.h"
#include "eqds/ends.h"

struct eqds_key {
	struct base_siphash_key siphash;
	struct rcu_head rcu;
};

/* Hash the bytes from offset on. */
static void key_hash(const struct sk_buff *skb, u32 offset, struct base_siphash *h)
{
	struct skb_seq_state state;
	unsigned int done = 0, now;
	const u8 *data;

	if (!skb_is_nonlinear(skb)) {
		base_siphash_update(h, skb->data + offset, skb->len - offset);
		return;
	}
	skb_prepare_seq_read((struct sk_buff *)skb, offset, skb->len, &state);
	while ((now = skb_seq_read(done, &data, &state))) {
		base_siphash_update(h, data, now);
		done += now;
	}
}

/* skb begins with a tagged header. Returns false if there is no key, or no memory. RCU, bh. */
bool eqds_key_seal(struct eqds_dev *ed, struct sk_buff *skb, const struct eqds_tag_ends *ends)
{
	const struct eqds_key *key = rcu_dereference_bh(ed->key);
	struct base_siphash payload;

	if (!key)
		return false;
	/* The tag is about the bytes that arrive. A NIC would change them later. */
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		if (skb_checksum_help(skb))
			return false;
		skb->encapsulation = 0;
	}
	eqds_tag_payload_begin(&payload, &key->siphash);
	key_hash(skb, EQDS_DATA_BYTES + EQDS_TAG_BYTES, &payload);
	eqds_tag_seal(skb->data, ends, &key->siphash, &payload);
	return true;
}

static void key_refuse(struct eqds_dev *ed, enum eqds_tag_verdict why,
		       const struct eqds_tag_ends *ends)
{
	static const char *const text[] = {
		[EQDS_TAG_MISSING] = "have no tag: they are forged, or the peer lacks the key",
		[EQDS_TAG_UNEXPECTED] = "have a tag, but this device has no key: give it one",
		[EQDS_TAG_WRONG] = "have a wrong tag: they are forged, or the keys differ",
	};
	bool told;

	spin_lock_bh(&ed->lock);
	if (why == EQDS_TAG_MISSING)
		ed->stats.rx_drop_untagged++;
	else if (why == EQDS_TAG_UNEXPECTED)
		ed->stats.rx_drop_tagged++;
	else
		ed->stats.rx_drop_tag++;
	told = ed->refusals_told & BIT(why);
	ed->refusals_told |= BIT(why);
	spin_unlock_bh(&ed->lock);
	/* Once until the key changes: a flood of forgeries must not fill the log. */
	if (!told)
		netdev_warn(ed->dev, "packets from %pI6c %s; dropped and counted\n", ends->from,
			    text[why]);
}

/* skb begins with a UDP header. Returns false if the packet is to be dropped; counted. RCU. */
bool eqds_key_verify(struct eqds_dev *ed, struct sk_buff *skb)
{
	const struct eqds_key *key = rcu_dereference(ed->key);
	const u32 at = sizeof(struct udphdr), tag_end = at + EQDS_DATA_BYTES + EQDS_TAG_BYTES;
	struct eqds_tag_ends ends;
	enum eqds_tag_verdict why;
	struct base_siphash payload;
	const u8 *header;

	if (!pskb_may_pull(skb, min_t(u32, skb->len, tag_end)))
		return false;
	header = skb->data + at;
	if (!key && !(skb->len > at && header[0] & EQDS_KIND_TAGGED))
		return true;
	eqds_ends(skb, ends.from, ends.to);
	why = eqds_tag_check(header, skb->len - at, &ends, key ? &key->siphash : NULL);
	if (why == EQDS_TAG_GOOD && key && eqds_tag_covers_payload(header)) {
		eqds_tag_payload_begin(&payload, &key->siphash);
		key_hash(skb, tag_end, &payload);
		if (!eqds_tag_payload_verifies(header, &payload))
			why = EQDS_TAG_WRONG;
	}
	if (why == EQDS_TAG_GOOD)
		return true;
	key_refuse(ed, why, &ends);
	return false;
}

/* Changes with each tunnel that ends. Peers share one, which costs them a round trip at times. */
static u32 *key_generation(struct eqds_dev *ed, const struct in6_addr *peer)
{
	return &ed->generation[__ipv6_addr_jhash(peer, ed->hash_seed) % EQDS_GENERATIONS];
}

/*
 * Proves that a peer's packet is new, or without a key that the peer is at its address. offered:
 * the one that the peer sent, which can be of the time before.
 */
u64 eqds_key_cookie(struct eqds_dev *ed, const struct in6_addr *peer, u64 offered)
{
	struct {
		struct in6_addr peer;
		u64 generation;
	} name = {.peer = *peer};

	lockdep_assert_held(&ed->lock);
	if (ed->tag_bytes)
		name.generation = 1ULL + *key_generation(ed, peer);
	return eqds_cookie(&ed->cookie_key, &name, sizeof(name), ktime_get_ns(), offered);
}

/* A tunnel from the peer has ended: its cookie is not the current one any more. */
void eqds_key_cookie_used(struct eqds_dev *ed, const struct in6_addr *peer)
{
	lockdep_assert_held(&ed->lock);
	++*key_generation(ed, peer);
}

/* NULL: no memory. */
struct eqds_key *eqds_key_make(const u8 *bytes)
{
	struct eqds_key *key = kzalloc(sizeof(*key), GFP_KERNEL);

	if (key)
		base_siphash_key_load(&key->siphash, bytes);
	return key;
}

/*
 * key: NULL for none. RTNL, and the device is quiesced. On return no datagram that the old key
 * verified is queued.
 */
void eqds_key_replace(struct eqds_dev *ed, struct eqds_key *key)
{
	struct eqds_key *old = rtnl_dereference(ed->key);

	rcu_assign_pointer(ed->key, key);
	spin_lock_bh(&ed->lock);
	ed->tag_bytes = key ? EQDS_TAG_BYTES : 0;
	ed->refusals_told = 0;
	spin_unlock_bh(&ed->lock);
	/* No datagram that the old key verified, or none, reaches the new tunnels. */
	synchronize_net();
	skb_queue_purge(&ed->backlog);
	kfree_sensitive(old);
}

/* With the device gone. */
void eqds_key_clear(struct eqds_dev *ed)
{
	kfree_sensitive(rcu_dereference_protected(ed->key, true));
	RCU_INIT_POINTER(ed->key, NULL);
}
