// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of tunnels: rate, MTU, window, key. Both ends count credit in MTUs, so all but the
 * rate end the tunnels that are there.
 */
#include "eqds/configure.h"

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>

#include "eqds/key.h"
#include "eqds/life.h"
#include "eqds/pull.h"
#include "eqds/work.h"

/* Timers of a kernel are late by tens of microseconds; a shorter timeout would be a guess. */
#define CONFIGURE_RTO_MIN_NS (2 * NSEC_PER_MSEC)
#define CONFIGURE_RTO_MAX_NS (200 * NSEC_PER_MSEC)

/*
 * A tunnel's queue holds as much of the link's rate, or the paper's 100 packets. TCP queues up to
 * 1 ms of its own rate, twice that while it starts, in packets of many segments: a shorter queue
 * would drop what a lone stream of this machine sends.
 */
#define CONFIGURE_QUEUE_US 2000U

/*
 * The speed that the operator has set, else the link's. A link without carrier knows none: then
 * the one it had. RTNL.
 */
u32 eqds_configure_mbits(const struct eqds_dev *ed)
{
	struct net_device *link = __dev_get_by_index(ed->net, ed->link);
	struct ethtool_link_ksettings settings;

	if (ed->mbits)
		return ed->mbits;
	if (link && !netif_carrier_ok(link) && ed->rate_mbits)
		return ed->rate_mbits;
	if (!link || __ethtool_get_link_ksettings(link, &settings) || !settings.base.speed ||
	    settings.base.speed > EQDS_MBITS_MAX) /* SPEED_UNKNOWN, too */
		return EQDS_MBITS_DEFAULT;
	return settings.base.speed;
}

/* Lock, or the device is down. */
u16 eqds_configure_train_packets(const struct eqds_dev *ed)
{
	return ed->trains && !ed->tag_bytes ? max(EQDS_TRAIN_BYTES / ed->config.mtu_bytes, 1U) : 1;
}

/* The ingress link's rate, for the next pull and the next packet. Lock, or the device is down. */
int eqds_configure_rate(struct eqds_dev *ed, u32 mbits)
{
	const u32 wider = max(ed->window_mtus, EQDS_WINDOW_MTUS) - EQDS_WINDOW_MTUS;
	const u64 packets = div_u64((u64)mbits * CONFIGURE_QUEUE_US, ed->config.mtu_bytes * 8);
	const int err = eqds_pull_set_rate(ed, mbits);

	if (err)
		return err;
	ed->class[EQDS_CLASS_TCP].packets_max = max_t(u32, EQDS_CLASS_TCP_PACKETS, packets) + wider;
	ed->rate_mbits = mbits;
	return 0;
}

/* Sets the parameters of new tunnels. The caller has ended the old ones. */
int eqds_configure(struct eqds_dev *ed, u32 mbits)
{
	const u32 mtu_bytes = ed->dev->mtu + EQDS_OVERHEAD_BYTES + ed->tag_bytes;
	const u32 wider = max(ed->window_mtus, EQDS_WINDOW_MTUS) - EQDS_WINDOW_MTUS;
	struct eqds_class *tcp = &ed->class[EQDS_CLASS_TCP];

	eqds_config_init(&ed->config, &eqds_profile_extended, mtu_bytes,
			 ed->window_mtus * mtu_bytes);
	ed->config.trimming = ed->burst;
	ed->config.cookies = true;
	ed->config.train_packets = eqds_configure_train_packets(ed);
	/* Charge IPv6's size; that of IPv4, for packets and their answers, is smaller. */
	ed->config.outer_bytes = EQDS_OUTER_BYTES;
	ed->config.rto_min_ns = CONFIGURE_RTO_MIN_NS;
	ed->config.rto_max_ns = CONFIGURE_RTO_MAX_NS;
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
	return eqds_configure_rate(ed, mbits);
}

/* Ends all tunnels, and makes none until eqds_configure_fit(). RTNL. */
void eqds_configure_quiesce(struct eqds_dev *ed)
{
	struct eqds_work work;

	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	if (ed->up) {
		ed->up = false;
		eqds_life_close_all(ed, &work);
	}
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
}

/* Tunnels may be made again. RTNL. */
int eqds_configure_resume(struct eqds_dev *ed)
{
	const u32 mbits = eqds_configure_mbits(ed);
	int err;

	if (!netif_running(ed->dev) || ed->up)
		return 0;
	spin_lock_bh(&ed->lock);
	err = eqds_configure(ed, mbits);
	ed->up = !err;
	spin_unlock_bh(&ed->lock);
	return err;
}

/* Tunnels begin anew. RTNL. */
int eqds_configure_window(struct eqds_dev *ed, u16 mtus)
{
	if (mtus == ed->window_mtus)
		return 0;
	eqds_configure_quiesce(ed);
	ed->window_mtus = mtus;
	return eqds_configure_resume(ed);
}

/* The largest MTU on this link; 0: it has no room for a tunnel's headers. */
u32 eqds_configure_max_mtu(const struct eqds_dev *ed, const struct net_device *link)
{
	const u32 overhead = EQDS_OVERHEAD_BYTES + ed->tag_bytes;
	const u32 room = min_t(u32, READ_ONCE(link->mtu), U16_MAX);

	return room < ETH_MIN_MTU + overhead ? 0 : room - overhead;
}

/*
 * The link or the tunnels' headers have another size: a device that had the largest MTU has it
 * again, and one with a smaller MTU keeps it as far as there is room. RTNL.
 */
int eqds_configure_fit(struct eqds_dev *ed, struct netlink_ext_ack *extack)
{
	struct net_device *link = __dev_get_by_index(ed->net, ed->link), *dev = ed->dev;
	const u32 was = dev->max_mtu, max = link ? eqds_configure_max_mtu(ed, link) : was;

	if (!max) {
		NL_SET_ERR_MSG_MOD(extack, "the link's MTU has no room for a tunnel's headers");
		/* Outer packets become fragments. */
		return eqds_configure_resume(ed);
	}
	dev->max_mtu = max;
	if (dev->mtu > max || (dev->mtu == was && was != max)) {
		int err = dev_set_mtu(dev, max);

		/* dev_set_mtu() resumes the device, unless a notifier refuses the change first. */
		if (err)
			eqds_configure_resume(ed);
		return err;
	}
	return eqds_configure_resume(ed);
}

/* bytes: NULL for no key. Tunnels begin anew. RTNL. */
int eqds_configure_key(struct eqds_dev *ed, const u8 *bytes, struct netlink_ext_ack *extack)
{
	struct eqds_key *key = NULL;

	if (bytes) {
		key = eqds_key_make(bytes);
		if (!key)
			return -ENOMEM;
	}
	eqds_configure_quiesce(ed); /* the tunnels' last packets have the old tag */
	eqds_key_replace(ed, key);
	return eqds_configure_fit(ed, extack);
}
