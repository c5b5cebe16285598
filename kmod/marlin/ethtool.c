// SPDX-License-Identifier: GPL-2.0
/*
 * ethtool -S: drops of the interface by reason; bulk data of all interfaces; of each peer, whether
 * it is up, and counters, as portN_NAME.
 */
#include <linux/ethtool.h>

#include "marlin/hrdma.h"
#include "marlin/marlin.h"

/* "portN_" goes before a name. */
#define ETHTOOL_NAME_BYTES 16

struct ethtool_counter {
	char name[ETHTOOL_NAME_BYTES];
	u32 offset; /* of a u64 in struct marlin_peer */
};

#define ETHTOOL_WATCH 2

#define COUNTER(name, field) {name, offsetof(struct marlin_peer, field)}

static const struct ethtool_counter ethtool_counters[] = {
	COUNTER("starts", starts),
	COUNTER("faults", faults),
	COUNTER("tx_packets", out_stats.packets),
	COUNTER("tx_bytes", out_stats.bytes),
	COUNTER("tx_bells", out_stats.bells),
	COUNTER("tx_stops", out_stats.stops),
	COUNTER("rx_packets", in_stats.packets),
	COUNTER("rx_bytes", in_stats.bytes),
	COUNTER("rx_tells", in_stats.tells),
	COUNTER("rx_bells", in_stats.bells),
	COUNTER("rx_drop_memory", in_stats.drop_memory),
	COUNTER("rx_drop_offload", in_stats.drop_offload),
	COUNTER("requests_out", ends[MARLIN_CLIENT].stats.out),
	COUNTER("responses_in", ends[MARLIN_CLIENT].stats.in),
	COUNTER("requests_in", ends[MARLIN_NODE].stats.in),
	COUNTER("responses_out", ends[MARLIN_NODE].stats.out),
	COUNTER("requests_lost", ends[MARLIN_NODE].stats.dropped),
	COUNTER("message_bells", message_bells),
};

static const char ethtool_drops[MARLIN_DROPS][ETH_GSTRING_LEN] = {
	[MARLIN_DROP_UNKNOWN] = "tx_drop_unknown",
	[MARLIN_DROP_LINK] = "tx_drop_link",
	[MARLIN_DROP_SIZE] = "tx_drop_size",
	[MARLIN_DROP_FULL] = "tx_drop_full",
};

/* How often the thread of watch.c looked for messages, and how often it found some. */
static const char ethtool_watch[ETHTOOL_WATCH][ETH_GSTRING_LEN] = {"watches", "watch_hits"};

static int ethtool_sset_count(struct net_device *dev, int set)
{
	const struct marlin_dev *md = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return MARLIN_DROPS + ETHTOOL_WATCH + HRDMA_COUNTS +
	       md->peer_count * (1 + ARRAY_SIZE(ethtool_counters));
}

static void ethtool_strings(struct net_device *dev, u32 set, u8 *data)
{
	const struct marlin_dev *md = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return;
	memcpy(data, ethtool_drops, sizeof(ethtool_drops));
	data += sizeof(ethtool_drops);
	memcpy(data, ethtool_watch, sizeof(ethtool_watch));
	data += sizeof(ethtool_watch);
	memcpy(data, hrdma_count_names, sizeof(hrdma_count_names));
	data += sizeof(hrdma_count_names);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		ethtool_sprintf(&data, "port%u_up", md->peers[i].port);
		for (unsigned int n = 0; n < ARRAY_SIZE(ethtool_counters); n++)
			ethtool_sprintf(&data, "port%u_%s", md->peers[i].port,
					ethtool_counters[n].name);
	}
}

static void ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct marlin_dev *md = netdev_priv(dev);

	for (unsigned int i = 0; i < MARLIN_DROPS; i++)
		*data++ = atomic_long_read(&md->drops[i]);
	*data++ = READ_ONCE(md->watch.starts);
	*data++ = READ_ONCE(md->watch.hits);
	for (unsigned int i = 0; i < HRDMA_COUNTS; i++)
		*data++ = atomic_long_read(&hrdma_counts[i]);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		const void *peer = &md->peers[i];

		*data++ = READ_ONCE(md->peers[i].mac) != 0;
		for (unsigned int n = 0; n < ARRAY_SIZE(ethtool_counters); n++)
			*data++ = READ_ONCE(*(const u64 *)(peer + ethtool_counters[n].offset));
	}
}

static void ethtool_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	const struct marlin_dev *md = netdev_priv(dev);

	strscpy(info->driver, "marlin", sizeof(info->driver));
	strscpy(info->bus_info, pci_name(md->ntb->pdev), sizeof(info->bus_info));
}

const struct ethtool_ops marlin_ethtool_ops = {
	.get_drvinfo = ethtool_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = ethtool_sset_count,
	.get_strings = ethtool_strings,
	.get_ethtool_stats = ethtool_stats,
};
