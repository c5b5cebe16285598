// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/eqds: a program's area and rings, from setup to the end of its file.
 *
 *   open --SETUP--> area pinned, rings made, port taken --close, or death--> all given back
 *                                  |
 *                                  +-- the eqds device goes: POLLHUP, nothing is sent any more
 */
#include "eqds/native.h"

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/rtnetlink.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>

#include "eqds/native_report.h"
#include "eqds/native_tx.h"
#include "eqds/native_types.h"
#include "eqds/xmit.h"

/* Pages pinned by one call, so that a signal is seen in between. */
#define NATIVE_PIN_PAGES 1024

static struct workqueue_struct *native_ends;

/* Locked memory counts as long as a packet keeps pages of it. */
static void native_unaccount(struct eqds_native *native)
{
	if (!native->mm)
		return;
	account_locked_vm(native->mm, native->page_count, false);
	mmdrop(native->mm);
	native->mm = NULL;
}

static void native_end(struct work_struct *work)
{
	struct eqds_native *native = container_of(work, struct eqds_native, end);

	native_unaccount(native);
	vfree(native->rings);
	kfree_rcu(native, rcu);
}

/* Any context. */
static void native_free(struct kref *refs)
{
	struct eqds_native *native = container_of(refs, struct eqds_native, refs);

	queue_work(native_ends, &native->end);
}

/* ---- the area ---- */

static void native_unpin(struct eqds_native *native, unsigned long pinned)
{
	if (!native->pages)
		return;
	unpin_user_pages_dirty_lock(native->pages, pinned, true);
	kvfree(native->pages);
	native->pages = NULL;
}

static int native_pin(struct eqds_native *native, const struct eqds_native_setup *setup)
{
	const unsigned long count = setup->area_bytes >> PAGE_SHIFT;
	unsigned long done = 0;
	int got, err = account_locked_vm(current->mm, count, true);

	if (err)
		return err;
	native->pages = kvcalloc(count, sizeof(*native->pages), GFP_KERNEL_ACCOUNT);
	if (!native->pages) {
		account_locked_vm(current->mm, count, false);
		return -ENOMEM;
	}
	native->mm = current->mm;
	mmgrab(native->mm);
	native->page_count = count;
	while (done < count) {
		got = pin_user_pages_fast(setup->area + (done << PAGE_SHIFT),
					  min_t(unsigned long, count - done, NATIVE_PIN_PAGES),
					  FOLL_WRITE | FOLL_LONGTERM, native->pages + done);
		if (got <= 0 || fatal_signal_pending(current)) {
			native_unpin(native, done + max(got, 0));
			native_unaccount(native);
			return got < 0 ? got : -EINTR;
		}
		done += got;
		cond_resched();
	}
	native->area_bytes = setup->area_bytes;
	return 0;
}

/* ---- the rings ---- */

static int native_make_rings(struct eqds_native *native, struct eqds_native_setup *setup)
{
	const u32 n = setup->ring_entries;
	void *base;

	setup->fill = sizeof(struct eqds_native_rings);
	setup->rx = setup->fill + n * sizeof(struct eqds_native_fill);
	setup->tx = setup->rx + n * sizeof(struct eqds_native_packet);
	setup->completion = setup->tx + n * sizeof(struct eqds_native_packet);
	native->map_bytes =
		PAGE_ALIGN(setup->completion + n * sizeof(struct eqds_native_completion));
	setup->map_bytes = native->map_bytes;
	base = vmalloc_user(native->map_bytes);
	if (!base)
		return -ENOMEM;
	native->fill = base + setup->fill;
	native->rx = base + setup->rx;
	native->tx = base + setup->tx;
	native->completion = base + setup->completion;
	native->entries = n;
	/* Last, and for good: native_mmap() and native_poll() read it without a lock. */
	smp_store_release(&native->rings, base);
	return 0;
}

/* ---- setup ---- */

static bool native_port_is_free(struct eqds_dev *ed, u16 port)
{
	struct eqds_native *other;

	hlist_for_each_entry(other, eqds_native_bucket(ed, port), port_hash)
		if (other->port == port)
			return false;
	return true;
}

/* RTNL. */
static int native_take_port(struct eqds_native *native, struct eqds_dev *ed, u16 wanted)
{
	u16 port = wanted;

	if (!wanted)
		for (port = 0xc000; port && !native_port_is_free(ed, port); port++)
			;
	if (!port || !native_port_is_free(ed, port))
		return -EADDRINUSE;
	native->port = port;
	return 0;
}

static int native_bind(struct eqds_native *native, struct eqds_native_setup *setup)
{
	struct net *net = current->nsproxy->net_ns;
	struct net_device *dev;
	struct eqds_dev *ed;
	int err = -ENODEV;

	if (!ns_capable(net->user_ns, CAP_NET_RAW))
		return -EPERM;
	rtnl_lock();
	dev = __dev_get_by_index(net, setup->ifindex);
	if (!dev || !eqds_xmit_is_device(dev) || dev->reg_state != NETREG_REGISTERED)
		goto unlock;
	ed = netdev_priv(dev);
	err = native_take_port(native, ed, setup->port);
	if (err)
		goto unlock;
	setup->port = native->port;
	setup->packet_bytes = dev->mtu - sizeof(struct eqds_native_head);
	rcu_assign_pointer(native->ed, ed);
	hlist_add_head_rcu(&native->port_hash, eqds_native_bucket(ed, native->port));
unlock:
	rtnl_unlock();
	return err;
}

static bool native_setup_is_good(const struct eqds_native_setup *setup)
{
	return setup->bytes == sizeof(*setup) && !setup->reserved &&
	       PAGE_ALIGNED(setup->area) && setup->area_bytes &&
	       PAGE_ALIGNED(setup->area_bytes) && setup->area_bytes <= EQDS_NATIVE_AREA_MAX &&
	       is_power_of_2(setup->ring_entries) &&
	       setup->ring_entries >= EQDS_NATIVE_ENTRIES_MIN &&
	       setup->ring_entries <= EQDS_NATIVE_ENTRIES_MAX;
}

static int native_setup(struct eqds_native *native, void __user *from)
{
	struct eqds_native_setup setup;
	int err;

	if (native->rings)
		return -EBUSY;
	if (copy_from_user(&setup, from, sizeof(setup)))
		return -EFAULT;
	if (!native_setup_is_good(&setup))
		return -EINVAL;
	err = native_pin(native, &setup);
	if (err)
		return err;
	err = native_make_rings(native, &setup);
	if (!err)
		err = native_bind(native, &setup);
	if (!err && copy_to_user(from, &setup, sizeof(setup)))
		err = -EFAULT;
	/* A setup that failed late can't be repeated: the file's end takes back all it has. */
	if (err && !native->rings) {
		native_unpin(native, native->page_count);
		native_unaccount(native);
	}
	return err;
}

/* The device goes. RTNL; the caller waits for readers under RCU. */
void eqds_native_detach(struct eqds_dev *ed)
{
	struct eqds_native *native;
	struct hlist_node *next;

	for (u32 i = 0; i < EQDS_NATIVE_BUCKETS; i++)
		hlist_for_each_entry_safe(native, next, &ed->natives[i], port_hash) {
			hlist_del_init_rcu(&native->port_hash);
			RCU_INIT_POINTER(native->ed, NULL);
			wake_up_interruptible_poll(&native->wait, EPOLLHUP);
		}
}

/* ---- the file ---- */

static int native_open(struct inode *inode, struct file *file)
{
	struct eqds_native *native = kzalloc(sizeof(*native), GFP_KERNEL_ACCOUNT);

	if (!native)
		return -ENOMEM;
	kref_init(&native->refs);
	native->free = native_free;
	INIT_WORK(&native->end, native_end);
	mutex_init(&native->calls);
	spin_lock_init(&native->lock);
	init_waitqueue_head(&native->wait);
	INIT_HLIST_NODE(&native->port_hash);
	file->private_data = native;
	return 0;
}

static int native_release(struct inode *inode, struct file *file)
{
	struct eqds_native *native = file->private_data;

	rtnl_lock();
	hlist_del_init_rcu(&native->port_hash);
	RCU_INIT_POINTER(native->ed, NULL);
	rtnl_unlock();
	synchronize_net(); /* a packet that is copied into the area */
	native_unpin(native, native->page_count);
	eqds_native_put(native);
	return 0;
}

static int native_describe(struct eqds_native *native, void __user *from)
{
	struct eqds_native_peer peer;
	struct eqds_dev *ed;

	if (copy_from_user(&peer, from, offsetof(struct eqds_native_peer, rtt_ns)))
		return -EFAULT;
	if (peer.bytes != sizeof(peer) || peer.reserved)
		return -EINVAL;
	memset((u8 *)&peer + offsetof(struct eqds_native_peer, rtt_ns), 0,
	       sizeof(peer) - offsetof(struct eqds_native_peer, rtt_ns));
	rcu_read_lock();
	ed = rcu_dereference(native->ed);
	if (ed)
		eqds_native_describe(ed, &peer);
	rcu_read_unlock();
	if (!ed)
		return -ENODEV;
	return copy_to_user(from, &peer, sizeof(peer)) ? -EFAULT : 0;
}

static long native_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct eqds_native *native = file->private_data;
	long err = -ENOTTY;

	if (mutex_lock_interruptible(&native->calls))
		return -ERESTARTSYS;
	if (command == EQDS_NATIVE_SETUP)
		err = native_setup(native, (void __user *)argument);
	else if (!native->rings)
		err = -ENXIO;
	else if (command == EQDS_NATIVE_KICK)
		err = eqds_native_kick(native);
	else if (command == EQDS_NATIVE_PEER)
		err = native_describe(native, (void __user *)argument);
	mutex_unlock(&native->calls);
	return err;
}

static int native_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct eqds_native *native = file->private_data;
	/* Pairs with native_make_rings(). Not under calls, whose holders take the mmap_lock. */
	void *rings = smp_load_acquire(&native->rings);

	return rings ? remap_vmalloc_range(vma, rings, vma->vm_pgoff) : -ENXIO;
}

static __poll_t native_poll(struct file *file, poll_table *table)
{
	struct eqds_native *native = file->private_data;
	struct eqds_native_rings *rings;
	__poll_t mask = 0;

	poll_wait(file, &native->wait, table);
	rings = smp_load_acquire(&native->rings); /* pairs with native_make_rings() */
	if (!rings)
		return EPOLLERR;
	if (READ_ONCE(native->rx_produced) != READ_ONCE(rings->rx.consumed) ||
	    READ_ONCE(native->completion_produced) != READ_ONCE(rings->completion.consumed))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (!rcu_access_pointer(native->ed))
		mask |= EPOLLHUP;
	return mask;
}

static const struct file_operations native_file_ops = {
	.owner = THIS_MODULE,
	.open = native_open,
	.release = native_release,
	.unlocked_ioctl = native_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = native_mmap,
	.poll = native_poll,
};

static struct miscdevice native_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "eqds",
	.fops = &native_file_ops,
};

int eqds_native_register(void)
{
	int err;

	native_ends = alloc_workqueue("eqds_native", 0, 0);
	if (!native_ends)
		return -ENOMEM;
	err = misc_register(&native_misc);
	if (err)
		destroy_workqueue(native_ends);
	return err;
}

void eqds_native_unregister(void)
{
	misc_deregister(&native_misc);
	eqds_native_drain();
	destroy_workqueue(native_ends); /* runs what is queued */
}
