// SPDX-License-Identifier: GPL-2.0
/*
 * The boot epoch, and when it ends: the machine's memory was rolled back, and with it the clients'
 * writes since then. Served under the old epoch, it would be read as if it were current.
 *
 *   hibernation   PM_HIBERNATION_PREPARE  drop all packets: clients wait
 *                 PM_POST_HIBERNATION     new epoch, serve again
 *   snapshot      vmgenid changes         new epoch
 *
 * A hibernation that fails ends the epoch, too: the notifier isn't told which it was. Packets
 * that come between a snapshot's restoration and the hypervisor's notification are still served
 * under the old epoch. Without CONFIG_VMGENID, or a vmgenid device, a restored snapshot goes
 * unnoticed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/notifier.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/suspend.h>

#include "rmem/node/epoch.h"
#include "rmem/node/mem.h"
#include "rmem/node/request.h"
#include "rmem/node/slow.h"
#include "rmem/node/types.h"

static bool epoch_hibernating; /* PM_HIBERNATION_PREPARE to PM_POST_HIBERNATION; node_control */

bool node_epoch_hibernates(void)
{
	return epoch_hibernating;
}

u64 node_epoch_random(void)
{
	u64 boot;

	do {
		boot = get_random_u64();
	} while (!boot);
	return boot;
}

static void epoch_renew(struct node_host *host, const char *why)
{
	struct rmem_node_call call;

	lockdep_assert_held(&node_control);
	rmem_node_reboot(&host->core, 0);
	mutex_lock(&host->call_lock);
	rmem_node_reboot(&host->core, node_epoch_random());
	rmem_node_call_forget(&call);
	node_slow_run(host, &call);
	mutex_unlock(&host->call_lock);
	node_mem_scrub(host);
	pr_info("%s: new boot epoch, lent memory is forgotten\n", why);
}

static int epoch_on_pm(struct notifier_block *block, unsigned long event, void *data)
{
	struct node_host *host;

	if (event != PM_HIBERNATION_PREPARE && event != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	mutex_lock(&node_control);
	host = node_running;
	epoch_hibernating = event == PM_HIBERNATION_PREPARE;
	if (host && event == PM_HIBERNATION_PREPARE) {
		WRITE_ONCE(host->hibernating, true);
		/* Requests that didn't see it end before the image is made. */
		synchronize_rcu();
	} else if (host) {
		epoch_renew(host, "hibernation");
		WRITE_ONCE(host->hibernating, false);
	}
	mutex_unlock(&node_control);
	return NOTIFY_OK;
}

/* Packets are dropped at once; a command of an operator can hold node_control for long. */
static void epoch_end(void)
{
	struct node_host *host;

	rcu_read_lock(); /* node_request_close() waits for it before the host is freed. */
	host = smp_load_acquire(&node_running); /* Pairs with node_host_start(). */
	if (host)
		rmem_node_reboot(&host->core, 0);
	rcu_read_unlock();
}

static int epoch_on_vmfork(struct notifier_block *block, unsigned long event, void *data)
{
	epoch_end();
	mutex_lock(&node_control);
	if (node_running)
		epoch_renew(node_running, "virtual machine restored");
	mutex_unlock(&node_control);
	return NOTIFY_OK;
}

static struct notifier_block epoch_pm = {.notifier_call = epoch_on_pm};
static struct notifier_block epoch_vmfork = {.notifier_call = epoch_on_vmfork};

int node_epoch_register(void)
{
	int err = register_pm_notifier(&epoch_pm);

	if (err)
		return err;
	err = register_random_vmfork_notifier(&epoch_vmfork);
	if (err)
		unregister_pm_notifier(&epoch_pm);
	return err;
}

void node_epoch_unregister(void)
{
	unregister_random_vmfork_notifier(&epoch_vmfork);
	unregister_pm_notifier(&epoch_pm);
}
