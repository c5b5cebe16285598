// SPDX-License-Identifier: GPL-2.0
/*
 * The one node: its configuration, and its parts, brought up and taken down. START makes
 *
 *   memory -> state of the core -> slots -> queue -> port -> threads
 *
 * and STOP takes it down in reverse. The threads go before the port they
 * answer through; until that is closed too, requests are still served, or left
 * in the queue. There is one node. While it is started it holds a reference to
 * the module, so that it can't be unloaded together with the clients' data.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/log2.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>

#include "compat/compat.h"
#include "rmem/node/calls.h"
#include "rmem/node/epoch.h"
#include "rmem/node/host.h"
#include "rmem/node/mem.h"
#include "rmem/node/request.h"
#include "rmem/node/slow.h"
#include "rmem/node/types.h"
#include "rmem_seal_ops.h"

/* Zeroed pages kept ready when START doesn't say: an eighth of the memory, within these. */
#define POOL_PAGES_MIN 2U
#define POOL_PAGES_MAX 4096U
#define POOL_SHARE_SHIFT 3

/* Held from start to end of every control operation; guards node_running. */
DEFINE_MUTEX(node_control);
struct node_host *node_running;

/* ---- configuration ---- */

static u32 host_default_pool_pages(u64 pages)
{
	u64 share = clamp_t(u64, pages >> POOL_SHARE_SHIFT, POOL_PAGES_MIN, POOL_PAGES_MAX);

	return rounddown_pow_of_two(share);
}

static int host_configure(const struct node_start *start, struct rmem_node_config *config,
			  struct netlink_ext_ack *extack)
{
	const char *error;

	*config = (struct rmem_node_config){
		.boot = node_epoch_random(),
		.seed = { get_random_u64(), get_random_u64(), get_random_u64(),
			  get_random_u64() },
		.pages = start->memory_bytes / start->page_bytes,
		.page_shift = ilog2(start->page_bytes),
		.piece_bytes = RMEM_PIECE_BYTES_MAX,
		.spaces_max = start->spaces_max,
		.sessions_max = start->sessions_max,
		.regions_max = start->regions_max,
		.session_idle_ms = start->session_idle_ms,
		.challenges = true,
		.cipher = rmem_skb_prepare_unseal() ? rmem_cipher() : NULL,
	};
	config->pool_pages = start->pool_pages ?: host_default_pool_pages(config->pages);
	error = rmem_node_config_error(config);
	if (error) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "%s", error);
		return -EINVAL;
	}
	return 0;
}

/* ---- parts ---- */

static int host_make_state(struct node_host *host, const struct rmem_node_config *config,
			   struct netlink_ext_ack *extack)
{
	/* kvmalloc() refuses INT_MAX and more, which 2 TiB of 64 KiB pages take. */
	host->state = vzalloc(rmem_node_state_bytes(config));
	if (!host->state) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the page table; lower MEMORY");
		return -ENOMEM;
	}
	rmem_node_init(&host->core, config, host->state);
	return 0;
}

/* The keys are in it. */
static void host_free_state(struct node_host *host)
{
	memzero_explicit(host->state, rmem_node_state_bytes(&host->core.config));
	vfree(host->state);
}

static int host_make_slots(struct node_host *host, u32 slots, struct netlink_ext_ack *extack)
{
	u32 i;

	host->slot = kvcalloc(slots, sizeof(*host->slot), GFP_KERNEL);
	if (!host->slot) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the sessions; lower SESSIONS_MAX");
		return -ENOMEM;
	}
	for (i = 0; i < slots; i++)
		spin_lock_init(&host->slot[i].lock);
	return 0;
}

/* ---- start and stop ---- */

static int host_start_threads(struct node_host *host, struct netlink_ext_ack *extack)
{
	int err = node_mem_start(host);

	if (err)
		goto say_why;
	err = node_slow_start(host);
	if (err)
		goto stop_mem;
	return 0;

stop_mem:
	node_mem_stop(host);
say_why:
	NL_SET_ERR_MSG_FMT_MOD(extack, "can't start a thread: error %d", -err);
	return err;
}

static void host_stop_threads(struct node_host *host)
{
	node_slow_stop(host);
	node_mem_stop(host);
}

/* host: zeroed but for net. */
static int host_bring_up(struct node_host *host, const struct node_start *start,
			 const struct rmem_node_config *config, struct netlink_ext_ack *extack)
{
	u64 state_bytes = rmem_node_state_bytes(config) +
			  (u64)config->sessions_max * sizeof(*host->slot);
	int err;

	mutex_init(&host->call_lock);
	mutex_init(&host->slow_lock);
	host->port_number = start->port;
	host->hibernating = node_epoch_hibernates();
	err = node_mem_reserve(&host->mem, config, state_bytes, extack);
	if (err)
		return err;
	err = host_make_state(host, config, extack);
	if (err)
		goto release_memory;
	err = host_make_slots(host, config->sessions_max, extack);
	if (err)
		goto free_state;
	err = node_slow_init(host);
	if (err) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the slow path's queue");
		goto free_slots;
	}
	err = node_request_open(host, extack);
	if (err)
		goto free_queue;
	err = host_start_threads(host, extack);
	if (err)
		goto close_port;
	return 0;

close_port:
	node_request_close(host);
free_queue:
	node_slow_exit(host);
free_slots:
	kvfree(host->slot);
free_state:
	host_free_state(host);
release_memory:
	node_mem_release(&host->mem);
	return err;
}

static void host_take_down(struct node_host *host)
{
	host_stop_threads(host);
	node_request_close(host);
	node_calls_exit(host);
	node_slow_exit(host);
	kvfree(host->slot);
	host_free_state(host);
	node_mem_release(&host->mem);
}

int node_host_start(struct net *net, const struct node_start *start,
		    struct netlink_ext_ack *extack)
{
	struct rmem_node_config config;
	struct node_host *host;
	int err;

	lockdep_assert_held(&node_control);
	if (node_running) {
		NL_SET_ERR_MSG_MOD(extack, "the node is started already; stop it first");
		return -EALREADY;
	}
	err = host_configure(start, &config, extack);
	if (err)
		return err;
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	host = kvzalloc(sizeof(*host), GFP_KERNEL);
	if (!host) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the node itself");
		err = -ENOMEM;
		goto put_module;
	}
	host->net = get_net(net);
	err = host_bring_up(host, start, &config, extack);
	if (err)
		goto put_net;
	/* Pairs with epoch_end(), which reads it without node_control. */
	smp_store_release(&node_running, host);
	pr_info("lending %llu MiB at port %u\n", start->memory_bytes >> 20, start->port);
	return 0;

put_net:
	put_net(host->net);
	kvfree(host);
put_module:
	module_put(THIS_MODULE);
	return err;
}

/* The node is started. */
void node_host_stop(void)
{
	struct node_host *host = node_running;

	lockdep_assert_held(&node_control);
	WRITE_ONCE(node_running, NULL);
	host_take_down(host);
	put_net(host->net);
	kvfree(host);
	module_put(THIS_MODULE);
	pr_info("stopped\n");
}
