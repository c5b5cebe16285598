// SPDX-License-Identifier: GPL-2.0
/*
 * The interface eopN: its life, and what it tells the stack of itself.
 *
 * A transmit queue for each ring of each peer, so that a peer without room holds up no other's
 * frames, and one for multicast frames. A poll for ring k of all peers. The links exist while the
 * interface is up.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/log2.h>

#include "marlin/marlin.h"

/*
 * Checksums are left to the receiver, which marks frames as a VIRTIO device does: memory and the
 * bus between it have their own, so one in software would find nothing. A frame that is forwarded
 * into another network gets its checksum there.
 */
#define NETDEV_FEATURES                                                                            \
	(NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA | NETIF_F_HW_CSUM | NETIF_F_RXCSUM |      \
	 NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN)

/* An answer between emulated machines takes 150 to 400 us, one between real ones less. */
#define NETDEV_SPIN_USECS 500

#define NETDEV_MTU_MAX (MARLIN_FRAME_BYTES_MAX - VLAN_ETH_HLEN - 1) /* 65535 */

static int netdev_open(struct net_device *dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	u64 bells = marlin_bells(md);

	marlin_link_publish(md);
	for (unsigned int k = 0; k < md->rings; k++)
		napi_enable(&md->queues[k].napi);
	napi_enable(&md->messages.napi);
	netif_tx_start_all_queues(dev);
	WRITE_ONCE(md->open, true);
	ntb_db_clear(md->ntb, bells);
	ntb_db_clear_mask(md->ntb, bells);
	ntb_link_enable(md->ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
	marlin_link_changed(md);
	return 0;
}

static int netdev_stop(struct net_device *dev)
{
	struct marlin_dev *md = netdev_priv(dev);

	/* Its polls stopped before the machine went to sleep, and don't start when it wakes up. */
	if (md->sleeps) {
		md->sleeps = false;
		return 0;
	}
	ntb_db_set_mask(md->ntb, marlin_bells(md));
	WRITE_ONCE(md->open, false);
	/* Stops all peers. */
	marlin_link_changed(md);
	marlin_link_flush(md);
	ntb_link_disable(md->ntb);
	for (unsigned int k = 0; k < md->rings; k++)
		napi_disable(&md->queues[k].napi);
	napi_disable(&md->messages.napi);
	/* A poll might just have unmasked its bell. */
	ntb_db_set_mask(md->ntb, marlin_bells(md));
	return 0;
}

/* Stops links and polls of an interface that is up; true: they ran. Under RTNL. */
bool marlin_netdev_pause(struct marlin_dev *md)
{
	if (!netif_running(md->dev) || md->sleeps)
		return false;
	netif_tx_disable(md->dev);
	netdev_stop(md->dev);
	return true;
}

void marlin_netdev_resume(struct marlin_dev *md)
{
	netdev_open(md->dev);
}

/* All links start again, with so many rings. Under RTNL. */
int marlin_netdev_change(struct marlin_dev *md, unsigned int rings, u32 ring_bytes_max)
{
	int err = netif_set_real_num_rx_queues(md->dev, rings);
	bool up;

	if (err)
		return err;
	up = marlin_netdev_pause(md);
	md->rings = rings;
	md->ring_bytes_max = ring_bytes_max;
	if (up)
		marlin_netdev_resume(md);
	return 0;
}

static void netdev_stats(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct marlin_dev *md = netdev_priv(dev);

	for (unsigned int i = 0; i < md->peer_count; i++) {
		for (unsigned int k = 0; k < md->rings_max; k++) {
			struct marlin_out *out = &md->peers[i].out[k];
			struct marlin_in *in = &md->peers[i].in[k];

			spin_lock_bh(&out->lock);
			stats->tx_packets += out->stats.packets;
			stats->tx_bytes += out->stats.bytes;
			spin_unlock_bh(&out->lock);
			spin_lock_bh(&in->lock);
			stats->rx_packets += in->stats.packets;
			stats->rx_bytes += in->stats.bytes;
			stats->rx_dropped += in->stats.drop_memory + in->stats.drop_xdp;
			stats->rx_errors += in->stats.drop_offload;
			spin_unlock_bh(&in->lock);
		}
	}
	for (unsigned int i = 0; i < MARLIN_DROPS; i++)
		stats->tx_dropped += atomic_long_read(&md->drops[i]);
}

static const struct net_device_ops netdev_ops = {
	.ndo_open = netdev_open,
	.ndo_stop = netdev_stop,
	.ndo_start_xmit = marlin_xmit,
	.ndo_select_queue = marlin_xmit_queue,
	.ndo_features_check = marlin_xmit_features,
	.ndo_get_stats64 = netdev_stats,
	.ndo_validate_addr = eth_validate_addr,
	/* Refused while the interface is up: peers learn the address by the handshake. */
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_change_mtu = marlin_xdp_change_mtu,
	.ndo_bpf = marlin_xdp,
	.ndo_xdp_xmit = marlin_xdp_xmit,
};

/* bells: doorbells of each port */
struct net_device *marlin_netdev_alloc(unsigned int peer_count, unsigned int bells)
{
	unsigned int rings_max = min_t(unsigned int, max(bells, 2u) - 1, MARLIN_RINGS_MAX);
	struct marlin_dev *md;
	struct net_device *dev;

	rings_max = rounddown_pow_of_two(min(rings_max, num_possible_cpus()));
	dev = alloc_netdev_mqs(struct_size(md, peers, peer_count), "eop%d", NET_NAME_ENUM,
			       ether_setup, peer_count * rings_max + 1, rings_max);
	if (!dev)
		return NULL;
	md = netdev_priv(dev);
	md->dev = dev;
	md->peer_count = peer_count;
	md->bells = bells;
	md->rings_max = rings_max;
	md->rings = rounddown_pow_of_two(min(rings_max, num_online_cpus()));
	md->ring_bytes_max = MARLIN_RING_BYTES_MAX;
	md->spin_usecs = NETDEV_SPIN_USECS;
	dev->netdev_ops = &netdev_ops;
	dev->ethtool_ops = &marlin_ethtool_ops;
	dev->features |= NETDEV_FEATURES;
	dev->hw_features |= NETDEV_FEATURES;
	dev->vlan_features |= NETDEV_FEATURES;
	/* A poll by netpoll, for a message that is printed under out_lock, would take that lock. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->max_mtu = NETDEV_MTU_MAX;
	dev->mtu = NETDEV_MTU_MAX;
	eth_hw_addr_random(dev);
	netif_carrier_off(dev);
	/* Not registered yet: it can't fail. */
	netif_set_real_num_rx_queues(dev, md->rings);
	for (unsigned int k = 0; k < rings_max; k++) {
		md->queues[k].md = md;
		md->queues[k].number = k;
		netif_napi_add(dev, &md->queues[k].napi, marlin_recv_poll);
	}
	md->messages.md = md;
	md->messages.number = MARLIN_QUEUE_MESSAGES;
	netif_napi_add(dev, &md->messages.napi, marlin_messages_poll);
	if (marlin_recv_init(md))
		goto fail;
	if (marlin_xdp_init(md))
		goto fail_recv;
	return dev;

fail_recv:
	marlin_recv_free(md);
fail:
	free_netdev(dev);
	return NULL;
}

void marlin_netdev_free(struct marlin_dev *md)
{
	marlin_xdp_free(md);
	marlin_recv_free(md);
	free_netdev(md->dev);
}
