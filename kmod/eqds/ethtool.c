// SPDX-License-Identifier: GPL-2.0
/*
 * Policies and counters by ethtool: the rate of pulls is the device's speed; whether a new tunnel
 * starts with a burst, and whether packets travel in trains, or whole, are private flags.
 */
#include "eqds/ethtool.h"

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>

#include "eqds/configure.h"

struct ethtool_counter {
	char name[ETH_GSTRING_LEN];
	u32 offset;
};

#define COUNTER(field)                                                                             \
	{                                                                                          \
#field, offsetof(struct eqds_stats, field)                                         \
	}
#define VERDICT(end, name, verdict)                                                                \
	{                                                                                          \
#end "_" #name, offsetof(struct eqds_stats, end[verdict])                          \
	}

static const struct ethtool_counter ethtool_counter[] = {
	COUNTER(tx_packets),
	COUNTER(tx_retransmits),
	COUNTER(tx_control),
	COUNTER(tx_drop_class),
	COUNTER(tx_mark),
	COUNTER(tx_drop_peer),
	COUNTER(tx_drop_size),
	COUNTER(tx_drop_memory),
	COUNTER(tx_drop_held),
	COUNTER(tx_drop_tunnels),
	COUNTER(tx_uncaptured),
	COUNTER(tx_expired),
	COUNTER(tx_timeouts),
	COUNTER(tx_undelivered),
	COUNTER(tx_given_up),
	COUNTER(tx_unreachable),
	COUNTER(tx_translated),
	COUNTER(tx_evicted),
	COUNTER(rx_packets),
	COUNTER(rx_control),
	COUNTER(rx_held_max),
	COUNTER(rx_drop_wire),
	COUNTER(rx_drop_size),
	COUNTER(rx_drop_memory),
	COUNTER(rx_drop_held),
	COUNTER(rx_drop_class),
	COUNTER(rx_drop_backlog),
	COUNTER(rx_drop_stranger),
	COUNTER(rx_drop_untagged),
	COUNTER(rx_drop_tagged),
	COUNTER(rx_drop_tag),
	COUNTER(tx_native),
	COUNTER(rx_native),
	COUNTER(rx_drop_native),
	COUNTER(tx_rdma),
	COUNTER(tx_cnp),
	COUNTER(tx_cnp_unknown),
	COUNTER(rx_rdma),
	COUNTER(rx_drop_rdma),
	COUNTER(rx_evicted),
	COUNTER(shrunk),
	COUNTER(icmp_heard),
	COUNTER(icmp_refused),
	COUNTER(rx_refused),
	COUNTER(rx_translated),
	COUNTER(rx_polls),
	COUNTER(rx_replies_merged),
	COUNTER(rx_trains),
	COUNTER(tx_whole),
	COUNTER(rx_counted),
	COUNTER(tx_unnumbered),
	COUNTER(rx_unnumbered),
	COUNTER(timer_late),
	COUNTER(pulls),
	COUNTER(pull_timers),
	COUNTER(pull_late_ns_sum),
	COUNTER(pull_late_ns_max),
	VERDICT(sender, wrong_epoch, EQDS_WRONG_EPOCH),
	VERDICT(sender, bad_ack, EQDS_BAD_ACK),
	VERDICT(sender, bad_pull, EQDS_BAD_PULL),
	VERDICT(sender, bad_nack, EQDS_BAD_NACK),
	VERDICT(sender, restarted, EQDS_RESTARTED),
	VERDICT(sender, no_tunnel, EQDS_NO_TUNNEL),
	VERDICT(receiver, duplicate, EQDS_DUPLICATE),
	VERDICT(receiver, trimmed, EQDS_TRIMMED),
	VERDICT(receiver, beyond, EQDS_BEYOND),
	VERDICT(receiver, old_epoch, EQDS_OLD_EPOCH),
	VERDICT(receiver, wrong_epoch, EQDS_WRONG_EPOCH),
	VERDICT(receiver, restarted, EQDS_RESTARTED),
};

/* Of the present, not of struct eqds_stats. */
static const char ethtool_gauge[][ETH_GSTRING_LEN] = {
	"tx_tunnels",
	"rx_tunnels",
	"rx_active",
	"rx_owed_mtus",
};

enum {
	PRIVATE_BURST = 1,
	PRIVATE_TRAINS = 2,
	PRIVATE_WHOLE = 4,
};

static const char ethtool_flag[][ETH_GSTRING_LEN] = {"burst", "trains", "whole"};

static int ethtool_sset_count(struct net_device *dev, int set)
{
	if (set == ETH_SS_STATS)
		return ARRAY_SIZE(ethtool_counter) + ARRAY_SIZE(ethtool_gauge);
	if (set == ETH_SS_PRIV_FLAGS)
		return ARRAY_SIZE(ethtool_flag);
	return -EOPNOTSUPP;
}

static void ethtool_strings(struct net_device *dev, u32 set, u8 *data)
{
	if (set == ETH_SS_PRIV_FLAGS)
		memcpy(data, ethtool_flag, sizeof(ethtool_flag));
	if (set != ETH_SS_STATS)
		return;
	for (u32 i = 0; i < ARRAY_SIZE(ethtool_counter); i++, data += ETH_GSTRING_LEN)
		memcpy(data, ethtool_counter[i].name, ETH_GSTRING_LEN);
	memcpy(data, ethtool_gauge, sizeof(ethtool_gauge));
}

static void ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct eqds_dev *ed = netdev_priv(dev);

	spin_lock_bh(&ed->lock);
	for (u32 i = 0; i < ARRAY_SIZE(ethtool_counter); i++)
		*data++ = *(u64 *)((char *)&ed->stats + ethtool_counter[i].offset);
	*data++ = ed->tx.count;
	*data++ = ed->rx.count;
	*data++ = ed->asl.active;
	*data++ = ed->asl.owed_mtus;
	spin_unlock_bh(&ed->lock);
}

static u32 ethtool_get_flags(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);

	return (ed->burst ? PRIVATE_BURST : 0) | (ed->trains ? PRIVATE_TRAINS : 0) |
	       (ed->whole ? PRIVATE_WHOLE : 0);
}

static int ethtool_set_flags(struct net_device *dev, u32 flags)
{
	struct eqds_dev *ed = netdev_priv(dev);

	spin_lock_bh(&ed->lock);
	ed->burst = flags & PRIVATE_BURST;
	ed->config.trimming = ed->burst;
	WRITE_ONCE(ed->trains, !!(flags & PRIVATE_TRAINS));
	WRITE_ONCE(ed->whole, !!(flags & PRIVATE_WHOLE));
	if (ed->up)
		ed->config.train_packets = eqds_configure_train_packets(ed);
	spin_unlock_bh(&ed->lock);
	return 0;
}

static int ethtool_get_link(struct net_device *dev, struct ethtool_link_ksettings *settings)
{
	const struct eqds_dev *ed = netdev_priv(dev);

	settings->base.speed = ed->up ? ed->rate_mbits : eqds_configure_mbits(ed);
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static int ethtool_set_link(struct net_device *dev, const struct ethtool_link_ksettings *settings)
{
	struct eqds_dev *ed = netdev_priv(dev);
	int err = -EINVAL;

	if (!settings->base.speed || settings->base.speed > EQDS_MBITS_MAX ||
	    settings->base.autoneg == AUTONEG_ENABLE)
		return err;
	spin_lock_bh(&ed->lock);
	/* A device that is down has no MTU to count in yet; eqds_configure() sets the rate. */
	err = ed->up ? eqds_configure_rate(ed, settings->base.speed) : 0;
	if (!err)
		ed->mbits = settings->base.speed;
	spin_unlock_bh(&ed->lock);
	return err;
}

static void ethtool_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "eqds", sizeof(info->driver));
}

const struct ethtool_ops eqds_ethtool_ops = {
	.get_drvinfo = ethtool_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = ethtool_sset_count,
	.get_strings = ethtool_strings,
	.get_ethtool_stats = ethtool_stats,
	.get_priv_flags = ethtool_get_flags,
	.set_priv_flags = ethtool_set_flags,
	.get_link_ksettings = ethtool_get_link,
	.set_link_ksettings = ethtool_set_link,
};
