// SPDX-License-Identifier: GPL-2.0
/*
 * eqds.ko: `ip link add link eth0 name eqds0 type eqds`.
 *
 *   made --up--> socket, timers, tunnels on demand --down--> FIN and RST to the peers, all freed
 *
 * A device can leave its link's namespace, for a container's, say. Outer packets stay in that of
 * the link, with which the device goes.
 */
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/rtnetlink.h>

#include "compat/compat.h"
#include "eqds/device.h"

#define CREATE_TRACE_POINTS
#include "eqds/trace.h"

/* Timers of a kernel are late by tens of microseconds; a shorter timeout would be a guess. */
#define NETDEV_RTO_MIN_NS (2 * NSEC_PER_MSEC)
#define NETDEV_RTO_MAX_NS (200 * NSEC_PER_MSEC)

/* All devices: RTNL. */
static LIST_HEAD(netdev_all);

/* GSO: a segment is a packet of the tunnel. */
#define NETDEV_FEATURES                                                                            \
	(NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA | NETIF_F_HW_CSUM | NETIF_F_RXCSUM |      \
	 NETIF_F_GSO_SOFTWARE)

/*
 * A tunnel's queue holds as much of the link's rate, or the paper's 100 packets. TCP queues up to
 * 1 ms of its own rate, twice that while it starts, in packets of many segments: a shorter queue
 * would drop what a lone stream of this machine sends.
 */
#define NETDEV_QUEUE_US 2000U

/* Lock, or the device is down. */
u16 eqds_netdev_train_packets(const struct eqds_dev *ed)
{
	return ed->trains && !ed->tag_bytes ? max(EQDS_TRAIN_BYTES / ed->config.mtu_bytes, 1U) : 1;
}

/* The ingress link's rate, for the next pull and the next packet. Lock, or the device is down. */
int eqds_netdev_set_rate(struct eqds_dev *ed, u32 mbits)
{
	const u32 wider = max(ed->window_mtus, EQDS_WINDOW_MTUS) - EQDS_WINDOW_MTUS;
	const u64 packets = div_u64((u64)mbits * NETDEV_QUEUE_US, ed->config.mtu_bytes * 8);
	const int err = eqds_pull_set_rate(ed, mbits);

	if (err)
		return err;
	ed->class[EQDS_CLASS_TCP].packets_max = max_t(u32, EQDS_CLASS_TCP_PACKETS, packets) + wider;
	ed->rate_mbits = mbits;
	return 0;
}

/* The link has negotiated another speed, which counts unless the operator has set one. RTNL. */
static void netdev_follow_speed(struct eqds_dev *ed)
{
	const u32 mbits = eqds_ethtool_mbits(ed);

	spin_lock_bh(&ed->lock);
	if (ed->up && mbits != ed->rate_mbits)
		eqds_netdev_set_rate(ed, mbits);
	spin_unlock_bh(&ed->lock);
}

/* Sets the parameters of new tunnels. The caller has ended the old ones. */
static int netdev_configure(struct eqds_dev *ed, u32 mbits)
{
	const u32 mtu_bytes = ed->dev->mtu + EQDS_OVERHEAD_BYTES + ed->tag_bytes;
	const u32 wider = max(ed->window_mtus, EQDS_WINDOW_MTUS) - EQDS_WINDOW_MTUS;
	struct eqds_class *tcp = &ed->class[EQDS_CLASS_TCP];

	eqds_config_init(&ed->config, &eqds_profile_extended, mtu_bytes,
			 ed->window_mtus * mtu_bytes);
	ed->config.trimming = ed->burst;
	ed->config.cookies = true;
	ed->config.train_packets = eqds_netdev_train_packets(ed);
	/* Charge IPv6's size; that of IPv4, for packets and their answers, is smaller. */
	ed->config.outer_bytes = EQDS_OUTER_BYTES;
	ed->config.rto_min_ns = NETDEV_RTO_MIN_NS;
	ed->config.rto_max_ns = NETDEV_RTO_MAX_NS;
	if (WARN_ON_ONCE(!eqds_config_is_valid(&ed->config)))
		return -EINVAL;
	eqds_drr_init(&ed->drr);
	for (u32 kind = 0; kind < EQDS_CLASSES; kind++) {
		eqds_class_init(&ed->class[kind], kind);
		eqds_eqif_init(&ed->eqif[kind], 0, mtu_bytes);
	}
	/* A sender asks for what waits, so a larger window needs a longer queue. */
	tcp->low_bytes += wider * mtu_bytes;
	tcp->high_bytes += wider * mtu_bytes;
	ed->class[EQDS_CLASS_RDMA].cnp = rcu_access_pointer(ed->roce);
	return eqds_netdev_set_rate(ed, mbits);
}

/* Ends all tunnels, and makes none until eqds_netdev_fit(). RTNL. */
void eqds_netdev_quiesce(struct eqds_dev *ed)
{
	struct eqds_work work;

	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	if (ed->up) {
		ed->up = false;
		eqds_tunnel_close_all(ed, &work);
	}
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
}

/* Tunnels may be made again. RTNL. */
static int netdev_resume(struct eqds_dev *ed)
{
	const u32 mbits = eqds_ethtool_mbits(ed);
	int err;

	if (!netif_running(ed->dev) || ed->up)
		return 0;
	spin_lock_bh(&ed->lock);
	err = netdev_configure(ed, mbits);
	ed->up = !err;
	spin_unlock_bh(&ed->lock);
	return err;
}

static int netdev_open(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	int err;

	eqds_tunnel_init(ed);
	err = netdev_configure(ed, eqds_ethtool_mbits(ed));
	if (err)
		return err;
	napi_enable(&ed->napi);
	err = eqds_hook_untrack_open(ed);
	if (err)
		goto disable;
	err = eqds_udp_open(ed);
	if (err)
		goto track;
	/* A device that has map rules keeps them while it is down. */
	if (ed->rules[EQDS_RULE_MAP].count)
		err = eqds_hook_open(ed);
	if (err)
		goto close;
	spin_lock_bh(&ed->lock);
	ed->up = true;
	spin_unlock_bh(&ed->lock);
	return 0;

close:
	eqds_udp_close(ed);
track:
	eqds_hook_untrack_close(ed);
disable:
	napi_disable(&ed->napi);
	skb_queue_purge(&ed->backlog);
	return err;
}

static int netdev_stop(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct eqds_work work;

	eqds_hook_close(ed);
	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	ed->up = false; /* nothing arms a timer or makes a tunnel from here on */
	spin_unlock_bh(&ed->lock);
	hrtimer_cancel(&ed->due_timer);
	hrtimer_cancel(&ed->pull_timer);
	spin_lock_bh(&ed->lock);
	eqds_tunnel_close_all(ed, &work);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	eqds_udp_close(ed);
	eqds_hook_untrack_close(ed);
	napi_disable(&ed->napi);
	skb_queue_purge(&ed->backlog);
	return 0;
}

static int netdev_init(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	int err;

	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!dev->tstats)
		return -ENOMEM;
	err = eqds_udp_init(ed);
	if (err)
		goto free_stats;
	err = eqds_memory_open(ed);
	if (err)
		goto exit_udp;
	netif_napi_add(dev, &ed->napi, eqds_recv_poll);
	list_add_tail(&ed->all, &netdev_all);
	return 0;

exit_udp:
	eqds_udp_exit(ed);
free_stats:
	free_percpu(dev->tstats);
	return err;
}

static void netdev_uninit(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);

	list_del(&ed->all);
	eqds_memory_close(ed);
	eqds_native_detach(ed);
	netif_napi_del(&ed->napi);
	eqds_rule_clear(ed);
	eqds_key_clear(ed);
	eqds_rdma_set_cnp(ed, false);
	eqds_udp_exit(ed);
	free_percpu(dev->tstats);
}

/* Both ends count credit in MTUs, so tunnels don't outlive a change. */
static int netdev_change_mtu(struct net_device *dev, int mtu_bytes)
{
	struct eqds_dev *ed = netdev_priv(dev);

	eqds_netdev_quiesce(ed);
	WRITE_ONCE(dev->mtu, mtu_bytes);
	return netdev_resume(ed);
}

/* Tunnels begin anew. RTNL. */
int eqds_netdev_set_window(struct eqds_dev *ed, u16 mtus)
{
	if (mtus == ed->window_mtus)
		return 0;
	eqds_netdev_quiesce(ed);
	ed->window_mtus = mtus;
	return netdev_resume(ed);
}

/* The largest MTU on this link; 0: it has no room for a tunnel's headers. */
static u32 netdev_max_mtu(const struct eqds_dev *ed, const struct net_device *link)
{
	const u32 overhead = EQDS_OVERHEAD_BYTES + ed->tag_bytes;
	const u32 room = min_t(u32, READ_ONCE(link->mtu), U16_MAX);

	return room < ETH_MIN_MTU + overhead ? 0 : room - overhead;
}

/*
 * The link or the tunnels' headers have another size: a device that had the largest MTU has it
 * again, and one with a smaller MTU keeps it as far as there is room. RTNL.
 */
int eqds_netdev_fit(struct eqds_dev *ed, struct netlink_ext_ack *extack)
{
	struct net_device *link = __dev_get_by_index(ed->net, ed->link), *dev = ed->dev;
	const u32 was = dev->max_mtu, max = link ? netdev_max_mtu(ed, link) : was;

	if (!max) {
		NL_SET_ERR_MSG_MOD(extack, "the link's MTU has no room for a tunnel's headers");
		/* Outer packets become fragments. */
		return netdev_resume(ed);
	}
	dev->max_mtu = max;
	if (dev->mtu > max || (dev->mtu == was && was != max)) {
		int err = dev_set_mtu(dev, max);

		/* dev_set_mtu() resumes the device, unless a notifier refuses the change first. */
		if (err)
			netdev_resume(ed);
		return err;
	}
	return netdev_resume(ed);
}

static int netdev_iflink(const struct net_device *dev)
{
	return ((const struct eqds_dev *)netdev_priv(dev))->link;
}

static const struct net_device_ops netdev_ops = {
	.ndo_init = netdev_init,
	.ndo_uninit = netdev_uninit,
	.ndo_open = netdev_open,
	.ndo_stop = netdev_stop,
	.ndo_start_xmit = eqds_xmit,
	.ndo_change_mtu = netdev_change_mtu,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_get_iflink = netdev_iflink,
};

static const struct device_type netdev_type = {.name = "eqds"};

static void netdev_setup(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);

	dev->netdev_ops = &netdev_ops;
	dev->ethtool_ops = &eqds_ethtool_ops;
	SET_NETDEV_DEVTYPE(dev, &netdev_type);
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->features |= NETDEV_FEATURES;
	dev->hw_features |= NETDEV_FEATURES;
	dev->needs_free_netdev = true;
	dev->min_mtu = ETH_MIN_MTU;
	compat_netdev_lltx(dev);
	netif_keep_dst(dev); /* the next hop is the other end of the tunnel */

	ed->dev = dev;
	ed->burst = true;
	ed->window_mtus = EQDS_WINDOW_MTUS;
	ed->tos = EQDS_TOS_INHERIT;
	spin_lock_init(&ed->lock);
	skb_queue_head_init(&ed->backlog);
	compat_hrtimer_setup(&ed->due_timer, eqds_tunnel_fire, CLOCK_MONOTONIC,
			     HRTIMER_MODE_ABS_SOFT);
	compat_hrtimer_setup(&ed->pull_timer, eqds_pull_fire, CLOCK_MONOTONIC,
			     HRTIMER_MODE_ABS_PINNED_SOFT);
}

static int netdev_validate(struct nlattr *tb[], struct nlattr *data[],
			   struct netlink_ext_ack *extack)
{
	if (!tb[IFLA_ADDRESS])
		return 0;
	NL_SET_ERR_MSG_ATTR(extack, tb[IFLA_ADDRESS], "an eqds device has no hardware address");
	return -EINVAL;
}

static int netdev_newlink(struct net *src_net, struct net_device *dev, struct nlattr *tb[],
			  struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct net_device *link;

	if (!tb[IFLA_LINK]) {
		NL_SET_ERR_MSG_MOD(extack, "name the device that tunnels use: link DEV");
		return -EINVAL;
	}
	link = __dev_get_by_index(src_net, nla_get_u32(tb[IFLA_LINK]));
	if (!link) {
		NL_SET_ERR_MSG_MOD(extack, "no such link");
		return -ENODEV;
	}
	if (link->rtnl_link_ops == &eqds_link_ops) {
		NL_SET_ERR_MSG_MOD(extack, "the link is an eqds device: no tunnels in tunnels");
		return -ELOOP;
	}
	dev->max_mtu = netdev_max_mtu(ed, link);
	if (!dev->max_mtu) {
		NL_SET_ERR_MSG_MOD(extack, "the link's MTU has no room for a tunnel's headers");
		return -EINVAL;
	}
	ed->net = src_net;
	ed->link = link->ifindex;
	if (!tb[IFLA_MTU])
		dev->mtu = dev->max_mtu;
	if (dev->mtu > dev->max_mtu) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "MTU %u: with this link at most %u", dev->mtu,
				       dev->max_mtu);
		return -EINVAL;
	}
	dev->needed_headroom = LL_RESERVED_SPACE(link) + EQDS_OVERHEAD_BYTES + EQDS_TAG_BYTES;
	return register_netdevice(dev);
}

static void netdev_dellink(struct net_device *dev, struct list_head *head)
{
	unregister_netdevice_queue(dev, head);
}

static struct net *netdev_link_net(const struct net_device *dev)
{
	return ((const struct eqds_dev *)netdev_priv(dev))->net;
}

struct rtnl_link_ops eqds_link_ops __read_mostly = {
	.kind = "eqds",
	.priv_size = sizeof(struct eqds_dev),
	.setup = netdev_setup,
	.validate = netdev_validate,
	.newlink = netdev_newlink,
	.dellink = netdev_dellink,
	.get_link_net = netdev_link_net,
};

/*
 * A link that goes, or leaves its namespace, takes its eqds devices with it. They follow its speed,
 * and its MTU, for which their tunnels begin anew.
 */
static int netdev_event(struct notifier_block *block, unsigned long event, void *info)
{
	struct net_device *link = netdev_notifier_info_to_dev(info);
	struct eqds_dev *ed;
	LIST_HEAD(gone);

	if (event != NETDEV_UNREGISTER && event != NETDEV_CHANGEMTU && event != NETDEV_CHANGE)
		return NOTIFY_DONE;
	list_for_each_entry(ed, &netdev_all, all) {
		struct net_device *dev = ed->dev;

		/* Also raised when it changes its namespace: programs of the old one lose it. */
		if (dev == link && event == NETDEV_UNREGISTER)
			eqds_native_detach(ed);
		if (ed->link != link->ifindex || !net_eq(ed->net, dev_net(link)) ||
		    dev->reg_state != NETREG_REGISTERED)
			continue;
		if (event == NETDEV_UNREGISTER)
			unregister_netdevice_queue(dev, &gone);
		else if (event == NETDEV_CHANGE)
			netdev_follow_speed(ed);
		else if (eqds_netdev_fit(ed, NULL))
			netdev_err(dev, "MTU %u doesn't fit %s, which has %u now\n", dev->mtu,
				   link->name, link->mtu);
	}
	unregister_netdevice_many(&gone);
	return NOTIFY_DONE;
}

static struct notifier_block netdev_notifier = {.notifier_call = netdev_event};

static int __init netdev_module_init(void)
{
	int err;

	err = eqds_memory_register();
	if (err)
		return err;
	err = register_netdevice_notifier(&netdev_notifier);
	if (err)
		goto unregister_memory;
	err = rtnl_link_register(&eqds_link_ops);
	if (err)
		goto unregister_notifier;
	err = eqds_netlink_register();
	if (err)
		goto unregister_link;
	err = eqds_native_register();
	if (err)
		goto unregister_netlink;
	return 0;

unregister_netlink:
	eqds_netlink_unregister();
unregister_link:
	rtnl_link_unregister(&eqds_link_ops);
unregister_notifier:
	unregister_netdevice_notifier(&netdev_notifier);
unregister_memory:
	eqds_memory_unregister();
	return err;
}

static void __exit netdev_module_exit(void)
{
	eqds_netlink_unregister();
	rtnl_link_unregister(&eqds_link_ops);
	unregister_netdevice_notifier(&netdev_notifier);
	eqds_native_unregister();
	eqds_memory_unregister();
}

module_init(netdev_module_init);
module_exit(netdev_module_exit);

MODULE_ALIAS_RTNL_LINK("eqds");
MODULE_DESCRIPTION("EQDS: network devices whose receivers clock every packet");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
