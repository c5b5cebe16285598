// SPDX-License-Identifier: GPL-2.0
/*
 * Rules by prefix: what the operator says about destinations and peers, at run time.
 *
 *   map    the peer for these destinations, whether a route leads into the device (xmit.c) or
 *          the packets leave by its link (hook.c)
 *   allow  peers that may open tunnels to this machine; without such a rule, all may
 *   share  priority and weight of these peers' tunnels when credit is given
 *
 * A kind is a hash table of (prefix, length). A look-up tries the lengths in use, the longest
 * first. Readers are under RCU; writers hold RTNL.
 */
#include "eqds/rule.h"

#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/ipv6.h>

/* Of a kind: a bound on memory that a mistaken script takes. */
#define RULES_MAX 4096U

static struct hlist_head *rule_bucket(struct eqds_rules *rules, const struct in6_addr *prefix,
				      u8 length)
{
	return &rules->hash[(__ipv6_addr_jhash(prefix, length)) & (EQDS_RULE_BUCKETS - 1)];
}

static struct eqds_rule *rule_get(struct eqds_rules *rules, const struct in6_addr *prefix,
				  u8 length)
{
	struct eqds_rule *rule;

	hlist_for_each_entry_rcu(rule, rule_bucket(rules, prefix, length), hash,
				 lockdep_rtnl_is_held())
		if (rule->length == length && ipv6_addr_equal(&rule->prefix, prefix))
			return rule;
	return NULL;
}

/* The rule of the longest prefix that address is in; NULL: none. RCU. */
const struct eqds_rule *eqds_rule_find(struct eqds_rules *rules, const struct in6_addr *address)
{
	u32 end = EQDS_RULE_LENGTHS, length;
	struct in6_addr prefix;
	struct eqds_rule *rule;

	if (!READ_ONCE(rules->count))
		return NULL;
	while ((length = find_last_bit(rules->lengths, end)) < end) {
		ipv6_addr_prefix(&prefix, address, length);
		rule = rule_get(rules, &prefix, length);
		if (rule)
			return rule;
		end = length;
	}
	return NULL;
}

/* The map rule for where a packet goes; NULL: none. RCU. */
const struct eqds_rule *eqds_rule_of_packet(struct eqds_dev *ed, const struct sk_buff *skb)
{
	struct in6_addr to;

	if (skb->protocol == htons(ETH_P_IPV6))
		to = ipv6_hdr(skb)->daddr;
	else
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &to);
	return eqds_rule_find(&ed->rules[EQDS_RULE_MAP], &to);
}

/* Copies *rule, in place of one for the same prefix. RTNL. */
int eqds_rule_set(struct eqds_dev *ed, const struct eqds_rule *rule, struct netlink_ext_ack *extack)
{
	struct eqds_rules *rules = &ed->rules[rule->kind];
	struct eqds_rule *fresh, *old;
	struct in6_addr prefix;

	ipv6_addr_prefix(&prefix, &rule->prefix, rule->length);
	if (!ipv6_addr_equal(&prefix, &rule->prefix)) {
		NL_SET_ERR_MSG_MOD(extack, "the prefix has bits set beyond its length");
		return -EINVAL;
	}
	old = rule_get(rules, &rule->prefix, rule->length);
	if (!old && rules->count >= RULES_MAX) {
		NL_SET_ERR_MSG_MOD(extack, "too many rules: use shorter prefixes");
		return -ENOSPC;
	}
	fresh = kmemdup(rule, sizeof(*rule), GFP_KERNEL);
	if (!fresh)
		return -ENOMEM;
	if (old) {
		hlist_replace_rcu(&old->hash, &fresh->hash);
		kfree_rcu(old, rcu);
		return 0;
	}
	hlist_add_head_rcu(&fresh->hash, rule_bucket(rules, &rule->prefix, rule->length));
	if (!rules->of_length[rule->length]++)
		set_bit(rule->length, rules->lengths);
	WRITE_ONCE(rules->count, rules->count + 1);
	return 0;
}

static void rule_free(struct eqds_rules *rules, struct eqds_rule *rule)
{
	hlist_del_rcu(&rule->hash);
	if (!--rules->of_length[rule->length])
		clear_bit(rule->length, rules->lengths);
	WRITE_ONCE(rules->count, rules->count - 1);
	kfree_rcu(rule, rcu);
}

/* RTNL. */
int eqds_rule_remove(struct eqds_dev *ed, const struct eqds_rule *like)
{
	struct eqds_rules *rules = &ed->rules[like->kind];
	struct eqds_rule *rule = rule_get(rules, &like->prefix, like->length);

	if (!rule)
		return -ENOENT;
	rule_free(rules, rule);
	return 0;
}

/* RTNL, or no user of the device is left. */
void eqds_rule_clear(struct eqds_dev *ed)
{
	struct eqds_rule *rule;
	struct hlist_node *next;

	for (u32 kind = 0; kind < EQDS_RULE_KINDS; kind++)
		for (u32 i = 0; i < EQDS_RULE_BUCKETS; i++)
			hlist_for_each_entry_safe(rule, next, &ed->rules[kind].hash[i], hash)
				rule_free(&ed->rules[kind], rule);
}

/* Priority and weight of a tunnel, as the rules of now say. Lock, RCU. */
void eqds_rule_share(struct eqds_dev *ed, struct eqds_rx *rx)
{
	const struct eqds_rule *rule =
		eqds_rule_find(&ed->rules[EQDS_RULE_SHARE], &rx->tunnel.peer);

	eqds_asl_set(&rx->core.share, rule ? rule->priority : 0, rule ? rule->weight : 1);
}
