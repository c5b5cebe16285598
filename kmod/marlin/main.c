// SPDX-License-Identifier: GPL-2.0
/*
 * marlin.ko: a client of the NTB core. Each NTB device becomes an interface eopN, with the machines
 * at its other ports as peers.
 */
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/suspend.h>

#include "marlin/hrdma.h"
#include "marlin/marlin.h"

/* The highest port: it has a doorbell, and the links have another, of 64. */
#define MAIN_PORT_MAX 61

/* Links can swap pages, so their works have a thread when memory is short. */
static struct workqueue_struct *main_queue;

void marlin_peer_changed(struct marlin_peer *peer)
{
	queue_work(main_queue, &peer->link_work);
}

void marlin_link_changed(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++)
		marlin_peer_changed(&md->peers[i]);
}

/*
 * Links of a driver without epochs, by its events: a link that is down is lost, and each of them if
 * none has changed, for then one was down and is up again. The core calls this once at a time.
 */
static void main_count_losses(struct marlin_dev *md)
{
	u64 linked = ntb_link_is_up(md->ntb, NULL, NULL);
	u64 lost = linked == md->linked ? ~0ULL : ~linked;

	md->linked = linked;
	for (unsigned int i = 0; i < md->peer_count; i++)
		if (lost & BIT_ULL(i))
			atomic_inc(&md->peers[i].bus.losses);
}

static void main_link_event(void *context)
{
	struct marlin_dev *md = context;

	main_count_losses(md);
	marlin_link_changed(md);
}

/* A poll or work has looked at the words that these bells ring for: they interrupt again. */
void marlin_bells_rise(struct marlin_dev *md, u64 bells)
{
	if (READ_ONCE(md->open))
		ntb_db_clear_mask(md->ntb, bells);
}

static void main_doorbell_event(void *context, int vector)
{
	struct marlin_dev *md = context;
	u64 bits = ntb_db_read(md->ntb) & marlin_bells(md);

	/* A peer can ring all the time, and an interrupt costs more than a look at the ring. */
	ntb_db_set_mask(md->ntb, bits);
	ntb_db_clear(md->ntb, bits);
	if (bits & md->bell_link)
		marlin_link_changed(md);
	/* Even if there is nothing: the peer has reset the flag that says that we sleep. */
	for (unsigned int k = 0; k < md->rings; k++)
		if (bits & marlin_bell_frames(md, k))
			napi_schedule(&md->queues[k].napi);
	if (bits & marlin_bell_messages(md)) {
		napi_schedule(&md->messages.napi);
		marlin_cmmc_bell(md);
	}
}

static const struct ntb_ctx_ops main_context_ops = {
	.link_event = main_link_event,
	.db_event = main_doorbell_event,
};

/* The doorbells that each port has; or an error, if the NTB lacks what so many peers need. */
static int main_check(struct ntb_dev *ntb, int peer_count)
{
	u64 bells = ntb_db_valid_mask(ntb);
	unsigned int bell_link = bells ? fls64(bells) - 1 : 0;
	int port_max = ntb_port_number(ntb);

	for (int i = 0; i < peer_count; i++)
		port_max = max(port_max, ntb_peer_port_number(ntb, i));
	if (port_max < 0 || port_max > MAIN_PORT_MAX) {
		dev_err(&ntb->dev, "marlin: a port %d is not served\n", port_max);
		return -EINVAL;
	}
	if (ntb_spad_count(ntb) <= MARLIN_SPAD_PAIR + port_max) {
		dev_err(&ntb->dev, "marlin: needs %d scratchpads, there are %d\n",
			MARLIN_SPAD_PAIR + port_max + 1, ntb_spad_count(ntb));
		return -ENODEV;
	}
	if (bell_link <= port_max || ~bells & GENMASK_ULL(bell_link, 0)) {
		dev_err(&ntb->dev, "marlin: needs doorbells 0 to %d, there are %#llx\n",
			port_max + 1, bells);
		return -ENODEV;
	}
	if (ntb_peer_mw_count(ntb) < peer_count) {
		dev_err(&ntb->dev, "marlin: needs a memory window for each of %d peers, there are %d\n",
			peer_count, ntb_peer_mw_count(ntb));
		return -ENODEV;
	}
	return bell_link / (port_max + 1);
}

/*
 * The bridge's own requests and completions keep their order (remora/marlin.h, "Order"), whatever
 * its driver or firmware chose. Processors set neither attribute in theirs.
 */
static void main_order(struct pci_dev *pdev)
{
	pcie_capability_clear_word(pdev, PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_RELAX_EN);
	pcie_capability_clear_word(pdev, PCI_EXP_DEVCTL2,
				   PCI_EXP_DEVCTL2_IDO_REQ_EN | PCI_EXP_DEVCTL2_IDO_CMP_EN);
}

/* ---- sleep ---- */

/*
 * A peer's copy into memory of which an image was taken is lost, and the peer has been told that it
 * is done. So the links are down, and copies have ended, before a machine sleeps.
 */
static int main_go_to_sleep(struct marlin_dev *md)
{
	int err = 0;

	rtnl_lock();
	if (marlin_netdev_pause(md)) {
		err = marlin_link_wait_quiet(md);
		if (err)
			marlin_netdev_resume(md);
		md->sleeps = !err;
	}
	rtnl_unlock();
	if (err)
		netdev_err(md->dev, "no sleep while a peer stands still in a copy\n");
	return notifier_from_errno(err);
}

static int main_wake_up(struct marlin_dev *md)
{
	rtnl_lock();
	if (md->sleeps)
		marlin_netdev_resume(md);
	md->sleeps = false;
	rtnl_unlock();
	return NOTIFY_OK;
}

static int main_sleep_event(struct notifier_block *block, unsigned long event, void *unused)
{
	struct marlin_dev *md = container_of(block, struct marlin_dev, sleep);

	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		return main_go_to_sleep(md);
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		return main_wake_up(md);
	}
	return NOTIFY_DONE;
}

/* ---- a device's life ---- */

static void main_init(struct marlin_dev *md, struct ntb_dev *ntb)
{
	md->ntb = ntb;
	md->port = ntb_port_number(ntb);
	md->bell = md->port * md->bells;
	md->bell_link = BIT_ULL(fls64(ntb_db_valid_mask(ntb)) - 1);
	spin_lock_init(&md->links_lock);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_peer *peer = &md->peers[i];

		peer->md = md;
		peer->index = i;
		peer->port = ntb_peer_port_number(ntb, i);
		peer->bell = peer->port * md->bells;
		INIT_WORK(&peer->link_work, marlin_link_work);
		peer->bus.ntb = ntb;
		peer->bus.peer = i;
		peer->bus.host = ntb_host_ops(ntb);
		if (peer->bus.host && peer->bus.host->bus_is_on(ntb))
			peer->bus.faults = peer->bus.host;
		for (unsigned int k = 0; k < MARLIN_RINGS_MAX; k++) {
			peer->out[k].peer = peer;
			peer->out[k].number = k;
			spin_lock_init(&peer->out[k].lock);
			timer_setup(&peer->out[k].stuck, marlin_xmit_stuck, 0);
			peer->in[k].peer = peer;
			peer->in[k].number = k;
			spin_lock_init(&peer->in[k].lock);
		}
		marlin_messages_init(peer);
		pair_init(&peer->pair, get_random_u32(), MARLIN_RING_LOG_MIN);
	}
}

static int main_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	int peer_count = ntb_peer_port_count(ntb);
	struct marlin_dev *md;
	struct net_device *dev;
	int bells, err;

	if (peer_count <= 0)
		return -ENODEV;
	bells = main_check(ntb, peer_count);
	if (bells < 0)
		return bells;
	dev = marlin_netdev_alloc(peer_count, bells);
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &ntb->dev);
	md = netdev_priv(dev);
	main_init(md, ntb);
	main_order(ntb->pdev);
	marlin_cmmc_attach(md);
	ntb_db_set_mask(ntb, ntb_db_valid_mask(ntb));
	err = ntb_set_ctx(ntb, md, &main_context_ops);
	if (err)
		goto free_dev;
	err = register_netdev(dev);
	if (err)
		goto clear_context;
	marlin_messages_attach(md);
	md->sleep.notifier_call = main_sleep_event;
	/* After remote memory's, which refuses to hibernate while it is in use. */
	md->sleep.priority = -1;
	register_pm_notifier(&md->sleep);
	return 0;

clear_context:
	ntb_clear_ctx(ntb);
	marlin_link_cancel(md);
free_dev:
	marlin_cmmc_detach(md);
	marlin_netdev_free(md);
	return err;
}

static void main_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct marlin_dev *md = ntb->ctx;

	unregister_pm_notifier(&md->sleep);
	/* Early, for the users of messages are told so that their wait for room ends. */
	unregister_netdev(md->dev);
	marlin_messages_detach(md);
	ntb_clear_ctx(ntb);
	marlin_link_cancel(md);
	marlin_cmmc_detach(md);
	/* Until then calls of programs could find a fault, and ask for it. */
	marlin_link_cancel(md);
	marlin_link_free(md);
	marlin_netdev_free(md);
}

static struct ntb_client main_client = {
	.ops = {
		.probe = main_probe,
		.remove = main_remove,
	},
};

static int __init main_module_init(void)
{
	int err;

	main_queue = alloc_workqueue("marlin", WQ_MEM_RECLAIM, 0);
	if (!main_queue)
		return -ENOMEM;
	err = hrdma_engine_init();
	if (err)
		goto destroy_queue;
	err = marlin_cmmc_register();
	if (err)
		goto exit_engine;
	err = ntb_register_client(&main_client);
	if (err)
		goto unregister;
	return 0;

unregister:
	marlin_cmmc_unregister();
exit_engine:
	hrdma_engine_exit();
destroy_queue:
	destroy_workqueue(main_queue);
	marlin_loans_exit();
	return err;
}

static void __exit main_module_exit(void)
{
	ntb_unregister_client(&main_client);
	marlin_cmmc_unregister();
	hrdma_engine_exit();
	destroy_workqueue(main_queue);
	marlin_loans_exit();
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("Marlin: Ethernet among machines with windows into each other's memory");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
