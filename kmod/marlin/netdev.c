// SPDX-License-Identifier: GPL-2.0
/*
 * The interface eopN: its life, and what it tells the stack of itself.
 *
 * A transmit queue for each peer, so that a peer without room holds up no other's frames, and one
 * for multicast frames. The links exist while the interface is up.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>

#include "marlin/marlin.h"

/*
 * Checksums are left to the receiver, which marks frames as a VIRTIO device does: memory and the
 * bus between it have their own, so one in software would find nothing. A frame that is forwarded
 * into another network gets its checksum there.
 */
#define NETDEV_FEATURES                                                                            \
	(NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA | NETIF_F_HW_CSUM | NETIF_F_RXCSUM |      \
	 NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN)

/* A peer whose queue is stopped for so long is taken for stuck. */
#define NETDEV_TIMEOUT (5 * HZ)

#define NETDEV_MTU_MAX (MARLIN_FRAME_BYTES_MAX - VLAN_ETH_HLEN - 1) /* 65535 */

static int netdev_open(struct net_device *dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	u64 bells = md->bell_data | md->bell_link;
	int err = marlin_watch_start(md);

	if (err)
		return err;
	marlin_link_publish(md);
	napi_enable(&md->napi);
	napi_enable(&md->messages_napi);
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

	ntb_db_set_mask(md->ntb, md->bell_data | md->bell_link);
	WRITE_ONCE(md->open, false);
	/* Stops all peers. */
	marlin_link_changed(md);
	flush_work(&md->link_work);
	ntb_link_disable(md->ntb);
	marlin_watch_stop(md);
	napi_disable(&md->napi);
	napi_disable(&md->messages_napi);
	return 0;
}

static void netdev_stats(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct marlin_dev *md = netdev_priv(dev);

	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_peer *peer = &md->peers[i];

		spin_lock_bh(&peer->out_lock);
		stats->tx_packets += peer->out_stats.packets;
		stats->tx_bytes += peer->out_stats.bytes;
		spin_unlock_bh(&peer->out_lock);
		spin_lock_bh(&peer->in_lock);
		stats->rx_packets += peer->in_stats.packets;
		stats->rx_bytes += peer->in_stats.bytes;
		stats->rx_dropped += peer->in_stats.drop_memory;
		stats->rx_errors += peer->in_stats.drop_offload;
		spin_unlock_bh(&peer->in_lock);
	}
	for (unsigned int i = 0; i < MARLIN_DROPS; i++)
		stats->tx_dropped += atomic_long_read(&md->drops[i]);
}

static const struct net_device_ops netdev_ops = {
	.ndo_open = netdev_open,
	.ndo_stop = netdev_stop,
	.ndo_start_xmit = marlin_xmit,
	.ndo_select_queue = marlin_xmit_queue,
	.ndo_get_stats64 = netdev_stats,
	.ndo_validate_addr = eth_validate_addr,
	/* Refused while the interface is up: peers learn the address by the handshake. */
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_tx_timeout = marlin_xmit_timeout,
};

struct net_device *marlin_netdev_alloc(unsigned int peer_count)
{
	struct marlin_dev *md;
	struct net_device *dev;

	dev = alloc_netdev_mqs(struct_size(md, peers, peer_count), "eop%d", NET_NAME_ENUM,
			       ether_setup, peer_count + 1, 1);
	if (!dev)
		return NULL;
	md = netdev_priv(dev);
	md->dev = dev;
	md->peer_count = peer_count;
	dev->netdev_ops = &netdev_ops;
	dev->ethtool_ops = &marlin_ethtool_ops;
	dev->features |= NETDEV_FEATURES;
	dev->hw_features |= NETDEV_FEATURES;
	dev->vlan_features |= NETDEV_FEATURES;
	dev->watchdog_timeo = NETDEV_TIMEOUT;
	/* A poll by netpoll, for a message that is printed under out_lock, would take that lock. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->max_mtu = NETDEV_MTU_MAX;
	dev->mtu = NETDEV_MTU_MAX;
	eth_hw_addr_random(dev);
	netif_carrier_off(dev);
	netif_napi_add(dev, &md->napi, marlin_recv_poll);
	netif_napi_add(dev, &md->messages_napi, marlin_messages_poll);
	return dev;
}
