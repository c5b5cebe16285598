// SPDX-License-Identifier: GPL-2.0
/*
 * ethtool -S: drops of the interface by reason; bulk data of all interfaces; frames of each queue,
 * and how often its poll looked for an answer, as queueK_NAME; of each peer, whether it is up, and
 * counters, as portN_NAME.
 * -c, -C: how long those polls look (spin.c). -l, -L, -g, -G: rings of each peer, and their size.
 */
#include <linux/ethtool.h>
#include <linux/log2.h>

#include "compat/compat.h"
#include "marlin/hrdma.h"
#include "marlin/marlin.h"

/* "portN_" goes before a name. */
#define ETHTOOL_NAME_BYTES 16

enum ethtool_of { OF_PEER, OF_OUT, OF_IN };

struct ethtool_counter {
	char name[ETHTOOL_NAME_BYTES];
	enum ethtool_of of; /* struct marlin_peer, or the sum of its marlin_out or marlin_in */
	u32 offset; /* of a u64 there */
};

#define COUNTER(name, field) {name, OF_PEER, offsetof(struct marlin_peer, field)}
#define COUNTER_OUT(name, field) {name, OF_OUT, offsetof(struct marlin_out, stats.field)}
#define COUNTER_IN(name, field) {name, OF_IN, offsetof(struct marlin_in, stats.field)}

static const struct ethtool_counter ethtool_counters[] = {
	COUNTER("starts", starts),
	COUNTER("faults", faults),
	COUNTER("loads", bus.loads),
	COUNTER_OUT("tx_packets", packets),
	COUNTER_OUT("tx_bytes", bytes),
	COUNTER_OUT("tx_bells", bells),
	COUNTER_OUT("tx_stops", stops),
	COUNTER_OUT("tx_sleeps", sleeps),
	COUNTER_IN("rx_packets", packets),
	COUNTER_IN("rx_bytes", bytes),
	COUNTER_IN("rx_tells", tells),
	COUNTER_IN("rx_bells", bells),
	COUNTER_IN("rx_sleeps", sleeps),
	COUNTER_IN("rx_drop_memory", drop_memory),
	COUNTER_IN("rx_drop_offload", drop_offload),
	COUNTER_IN("rx_drop_xdp", drop_xdp),
	COUNTER_IN("rx_xdp_tx", xdp_tx),
	COUNTER_IN("rx_xdp_redirect", xdp_redirect),
	COUNTER("requests_out", ends[MARLIN_CLIENT].stats.out),
	COUNTER("responses_in", ends[MARLIN_CLIENT].stats.in),
	COUNTER("requests_in", ends[MARLIN_NODE].stats.in),
	COUNTER("responses_out", ends[MARLIN_NODE].stats.out),
	COUNTER("requests_lost", ends[MARLIN_NODE].stats.dropped),
	COUNTER("message_bells", message_bells),
	COUNTER("message_sleeps", message_sleeps),
	COUNTER("loans_lent", loans_lent),
	COUNTER("loans_copied", loans_copied),
	COUNTER("loans_fetched", loans_fetched),
};

static const char ethtool_drops[MARLIN_DROPS][ETH_GSTRING_LEN] = {
	[MARLIN_DROP_UNKNOWN] = "tx_drop_unknown",
	[MARLIN_DROP_LINK] = "tx_drop_link",
	[MARLIN_DROP_SIZE] = "tx_drop_size",
	[MARLIN_DROP_FULL] = "tx_drop_full",
};

static const char ethtool_messages[][ETH_GSTRING_LEN] = {"message_spins", "message_spins_failed"};

static const char ethtool_queue[][ETH_GSTRING_LEN] = {"tx_packets", "rx_packets", "rx_spins",
						      "rx_spins_failed"};

/* Longer than an answer takes; a poll must not keep a processor for good. */
#define ETHTOOL_SPIN_USECS_MAX 1000

static int ethtool_sset_count(struct net_device *dev, int set)
{
	const struct marlin_dev *md = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return MARLIN_DROPS + ARRAY_SIZE(ethtool_messages) + HRDMA_COUNTS +
	       md->rings_max * ARRAY_SIZE(ethtool_queue) +
	       md->peer_count * (1 + ARRAY_SIZE(ethtool_counters));
}

static void ethtool_strings(struct net_device *dev, u32 set, u8 *data)
{
	const struct marlin_dev *md = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return;
	memcpy(data, ethtool_drops, sizeof(ethtool_drops));
	data += sizeof(ethtool_drops);
	memcpy(data, ethtool_messages, sizeof(ethtool_messages));
	data += sizeof(ethtool_messages);
	memcpy(data, hrdma_count_names, sizeof(hrdma_count_names));
	data += sizeof(hrdma_count_names);
	for (unsigned int k = 0; k < md->rings_max; k++)
		for (unsigned int n = 0; n < ARRAY_SIZE(ethtool_queue); n++)
			ethtool_sprintf(&data, "queue%u_%s", k, ethtool_queue[n]);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		ethtool_sprintf(&data, "port%u_up", md->peers[i].port);
		for (unsigned int n = 0; n < ARRAY_SIZE(ethtool_counters); n++)
			ethtool_sprintf(&data, "port%u_%s", md->peers[i].port,
					ethtool_counters[n].name);
	}
}

static u64 *ethtool_queue_stats(const struct marlin_dev *md, unsigned int k, u64 *data)
{
	u64 out = 0, in = 0;

	for (unsigned int i = 0; i < md->peer_count; i++) {
		out += READ_ONCE(md->peers[i].out[k].stats.packets);
		in += READ_ONCE(md->peers[i].in[k].stats.packets);
	}
	*data++ = out;
	*data++ = in;
	*data++ = READ_ONCE(md->queues[k].spins);
	*data++ = READ_ONCE(md->queues[k].spins_failed);
	return data;
}

static u64 ethtool_peer_stat(const struct marlin_peer *peer, const struct ethtool_counter *counter)
{
	u64 sum = 0;

	if (counter->of == OF_PEER)
		return READ_ONCE(*(const u64 *)((const void *)peer + counter->offset));
	for (unsigned int k = 0; k < MARLIN_RINGS_MAX; k++) {
		const void *ring = counter->of == OF_OUT ? (const void *)&peer->out[k] :
							   (const void *)&peer->in[k];

		sum += READ_ONCE(*(const u64 *)(ring + counter->offset));
	}
	return sum;
}

static void ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct marlin_dev *md = netdev_priv(dev);

	for (unsigned int i = 0; i < MARLIN_DROPS; i++)
		*data++ = atomic_long_read(&md->drops[i]);
	*data++ = READ_ONCE(md->messages.spins);
	*data++ = READ_ONCE(md->messages.spins_failed);
	for (unsigned int i = 0; i < HRDMA_COUNTS; i++)
		*data++ = atomic_long_read(&hrdma_counts[i]);
	for (unsigned int k = 0; k < md->rings_max; k++)
		data = ethtool_queue_stats(md, k, data);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		*data++ = READ_ONCE(md->peers[i].mac) != 0;
		for (unsigned int n = 0; n < ARRAY_SIZE(ethtool_counters); n++)
			*data++ = ethtool_peer_stat(&md->peers[i], &ethtool_counters[n]);
	}
}

static void ethtool_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	const struct marlin_dev *md = netdev_priv(dev);

	strscpy(info->driver, "marlin", sizeof(info->driver));
	strscpy(info->bus_info, pci_name(md->ntb->pdev), sizeof(info->bus_info));
}

static int ethtool_get_coalesce(struct net_device *dev, struct ethtool_coalesce *values,
				struct kernel_ethtool_coalesce *kernel_values,
				struct netlink_ext_ack *extack)
{
	const struct marlin_dev *md = netdev_priv(dev);

	values->rx_coalesce_usecs = md->spin_usecs;
	return 0;
}

static int ethtool_set_coalesce(struct net_device *dev, struct ethtool_coalesce *values,
				struct kernel_ethtool_coalesce *kernel_values,
				struct netlink_ext_ack *extack)
{
	struct marlin_dev *md = netdev_priv(dev);

	if (values->rx_coalesce_usecs > ETHTOOL_SPIN_USECS_MAX) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "rx-usecs: %u at most, for it keeps a processor",
				       ETHTOOL_SPIN_USECS_MAX);
		return -EINVAL;
	}
	WRITE_ONCE(md->spin_usecs, values->rx_coalesce_usecs);
	return 0;
}

/* A channel is a ring of each peer in each direction, as far as the peer has as many. */
static void ethtool_get_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	const struct marlin_dev *md = netdev_priv(dev);

	channels->max_combined = md->rings_max;
	channels->combined_count = md->rings;
}

static int ethtool_set_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	struct marlin_dev *md = netdev_priv(dev);

	if (!is_power_of_2(channels->combined_count))
		return -EINVAL;
	return marlin_netdev_change(md, channels->combined_count, md->ring_bytes_max);
}

/* A ring's size, in lines of MARLIN_LINE_BYTES: what the shortest frame takes is two. */
static void ethtool_get_ringparam(struct net_device *dev, struct ethtool_ringparam *param,
				  struct kernel_ethtool_ringparam *kernel_param,
				  struct netlink_ext_ack *extack)
{
	const struct marlin_dev *md = netdev_priv(dev);
	u32 bytes_max = MARLIN_RING_BYTES_MAX;

	/* Windows are as large as the machines' memory and the bridge permit; links show it. */
	for (unsigned int i = 0; i < md->peer_count; i++)
		if (READ_ONCE(md->peers[i].in_area_bytes))
			bytes_max = min(bytes_max, READ_ONCE(md->peers[i].in_area_bytes));
	param->rx_max_pending = bytes_max / MARLIN_LINE_BYTES;
	param->rx_pending = min(bytes_max / md->rings, md->ring_bytes_max) / MARLIN_LINE_BYTES;
}

static int ethtool_set_ringparam(struct net_device *dev, struct ethtool_ringparam *param,
				 struct kernel_ethtool_ringparam *kernel_param,
				 struct netlink_ext_ack *extack)
{
	struct marlin_dev *md = netdev_priv(dev);
	u64 bytes = (u64)param->rx_pending * MARLIN_LINE_BYTES;

	if (!frames_ring_is_valid(bytes)) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "rx: a power of two, %u lines of %u bytes or more",
				       MARLIN_RING_BYTES_MIN / MARLIN_LINE_BYTES,
				       MARLIN_LINE_BYTES);
		return -EINVAL;
	}
	return marlin_netdev_change(md, md->rings, bytes);
}

const struct ethtool_ops marlin_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS,
	.get_coalesce = ethtool_get_coalesce,
	.set_coalesce = ethtool_set_coalesce,
	.get_channels = ethtool_get_channels,
	.set_channels = ethtool_set_channels,
	.get_ringparam = ethtool_get_ringparam,
	.set_ringparam = ethtool_set_ringparam,
	.get_drvinfo = ethtool_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = ethtool_sset_count,
	.get_strings = ethtool_strings,
	.get_ethtool_stats = ethtool_stats,
};
