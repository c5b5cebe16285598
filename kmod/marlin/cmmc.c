// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/cmmc: open files, their grants and registered buffers, and their calls
 * (include/uapi/remora_cmmc.h).
 *
 * There is one device, of the first NTB device that offers windows into whole RAM. A call that uses
 * it holds cmmc_gate for reading, so that the NTB device does not go under it. It does not while it
 * waits for a program's pages or for a peer.
 */
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "marlin/cmmc.h"

/* The words of the rings come before. */
static_assert(MARLIN_RINGS_MAX * MARLIN_WINDOW_BYTES <= MARLIN_GRANTS_OFFSET);

static DECLARE_RWSEM(cmmc_gate);
/* Guarded by cmmc_gate. A device without such windows has `copies` false, and refuses all calls. */
static struct marlin_dev *cmmc_device;

struct cmmc_buffer {
	refcount_t users;
	struct cmmc_pin pin;
};

struct cmmc_file {
	struct mutex lock; /* guards what follows */
	struct cmmc_grant *grants[CMMC_GRANTS_MAX];
	struct cmmc_buffer *buffers[CMMC_BUFFERS_MAX];
	struct list_head held; /* locks; guarded by lock.c */
};

/* ---- peers ---- */

/* NULL: no copies with this peer, or its link was never up. */
static struct marlin_cmmc *cmmc_of(struct marlin_peer *peer)
{
	return smp_load_acquire(&peer->cmmc); /* pairs with cmmc_add() */
}

/* The peer at a port, or an error. */
static struct marlin_cmmc *cmmc_peer(u32 port)
{
	lockdep_assert_held(&cmmc_gate);
	if (!cmmc_device)
		return ERR_PTR(-ENODEV);
	if (!cmmc_device->copies)
		return ERR_PTR(-EOPNOTSUPP);
	for (unsigned int i = 0; i < cmmc_device->peer_count; i++) {
		struct marlin_peer *peer = &cmmc_device->peers[i];

		if (peer->port == port)
			return cmmc_of(peer) ?: ERR_PTR(-ENOLINK);
	}
	return ERR_PTR(-EINVAL);
}

/* Peers may have ended copies, or signalled. */
static void cmmc_look(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_cmmc *cmmc = cmmc_of(&md->peers[i]);

		if (cmmc)
			cmmc_grants_look(cmmc);
	}
}

/* Holds the device, or an error. */
struct marlin_dev *cmmc_enter_device(void)
{
	int err = down_read_killable(&cmmc_gate);

	if (err)
		return ERR_PTR(err);
	if (cmmc_device)
		return cmmc_device;
	up_read(&cmmc_gate);
	return ERR_PTR(-ENODEV);
}

/* Holds the device: the peer at a port, or an error. */
struct marlin_cmmc *cmmc_enter(u32 port)
{
	struct marlin_cmmc *cmmc;
	int err = down_read_killable(&cmmc_gate);

	if (err)
		return ERR_PTR(err);
	cmmc = cmmc_peer(port);
	if (IS_ERR(cmmc))
		up_read(&cmmc_gate);
	return cmmc;
}

void cmmc_leave(void)
{
	up_read(&cmmc_gate);
}

/* ---- buffers ---- */

static void cmmc_buffer_put(struct cmmc_buffer *buffer)
{
	if (buffer && refcount_dec_and_test(&buffer->users)) {
		cmmc_pin_end(&buffer->pin);
		kfree(buffer);
	}
}

static struct cmmc_buffer *cmmc_buffer_get(struct cmmc_file *file, u32 number)
{
	struct cmmc_buffer *buffer = NULL;

	if (mutex_lock_killable(&file->lock))
		return ERR_PTR(-EINTR);
	if (number < CMMC_BUFFERS_MAX)
		buffer = file->buffers[number];
	if (buffer)
		refcount_inc(&buffer->users);
	mutex_unlock(&file->lock);
	return buffer ?: ERR_PTR(-EBADF);
}

static int cmmc_register(struct cmmc_file *file, struct cmmc_register *in)
{
	struct cmmc_buffer *buffer;
	int err;

	in->buffer = 0;
	if (in->flags || in->reserved)
		return -EINVAL;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL_ACCOUNT);
	if (!buffer)
		return -ENOMEM;
	err = cmmc_pin_start(&buffer->pin, in->address, in->bytes, true);
	if (err) {
		kfree(buffer);
		return err;
	}
	refcount_set(&buffer->users, 1);
	err = mutex_lock_killable(&file->lock);
	if (err)
		goto put;
	while (in->buffer < CMMC_BUFFERS_MAX && file->buffers[in->buffer])
		in->buffer++;
	if (in->buffer < CMMC_BUFFERS_MAX)
		file->buffers[in->buffer] = buffer;
	else
		err = -ENOSPC;
	mutex_unlock(&file->lock);
put:
	if (err)
		cmmc_buffer_put(buffer);
	return err;
}

static int cmmc_unregister(struct cmmc_file *file, const struct cmmc_unregister *in)
{
	struct cmmc_buffer *buffer = NULL;

	if (in->flags || in->reserved)
		return -EINVAL;
	if (mutex_lock_killable(&file->lock))
		return -EINTR;
	if (in->buffer < CMMC_BUFFERS_MAX)
		swap(buffer, file->buffers[in->buffer]);
	mutex_unlock(&file->lock);
	cmmc_buffer_put(buffer);
	return buffer ? 0 : -EBADF;
}

/* ---- grants ---- */

static void cmmc_handle_make(struct cmmc_handle *handle, const struct cmmc_grant *grant)
{
	const struct marlin_peer *peer = grant->cmmc->peer;
	struct marlin_handle out = {
		.magic = cpu_to_le32(MARLIN_HANDLE_MAGIC),
		.index = cpu_to_le16(grant->index),
		.owner = peer->md->port,
		.peer = peer->port,
		.epoch = cpu_to_le64(grant->epoch),
		.key = { cpu_to_le64(grant->key[0]), cpu_to_le64(grant->key[1]) },
	};

	memcpy(handle, &out, sizeof(out));
}

/* Gives a grant to the peer, and to the file. */
static int cmmc_grant_give(struct cmmc_file *file, struct marlin_cmmc *cmmc,
			   struct cmmc_grant *grant, struct cmmc_handle *handle)
{
	int place = 0, err = -ENOSPC;

	lockdep_assert_held(&cmmc_gate);
	if (mutex_lock_killable(&file->lock))
		return -EINTR;
	while (place < CMMC_GRANTS_MAX && file->grants[place])
		place++;
	if (place < CMMC_GRANTS_MAX)
		err = cmmc_grant_publish(cmmc, grant);
	if (!err) {
		file->grants[place] = grant;
		cmmc_handle_make(handle, grant);
	}
	mutex_unlock(&file->lock);
	return err;
}

static int cmmc_translate(struct cmmc_file *file, struct cmmc_translate *in)
{
	const u32 copies = CMMC_GRANT_READ | CMMC_GRANT_WRITE;
	const u32 known = copies | CMMC_GRANT_BELL | CMMC_GRANT_EVENTFD;
	struct marlin_cmmc *cmmc;
	struct cmmc_grant *grant;
	int err;

	memset(&in->handle, 0, sizeof(in->handle));
	if (in->flags & ~known || !(in->flags & copies) == !(in->flags & CMMC_GRANT_BELL) ||
	    (in->eventfd && !(in->flags & CMMC_GRANT_EVENTFD)) ||
	    (in->flags & CMMC_GRANT_BELL && (in->address || in->bytes)))
		return -EINVAL;
	grant = cmmc_grant_new(in);
	if (IS_ERR(grant))
		return PTR_ERR(grant);
	cmmc = cmmc_enter(in->port);
	err = PTR_ERR_OR_ZERO(cmmc);
	if (!err) {
		err = cmmc_grant_give(file, cmmc, grant, &in->handle);
		cmmc_leave();
	}
	if (err)
		cmmc_grant_drop(grant);
	return err;
}

static bool cmmc_is_grant(const struct cmmc_grant *grant, const struct marlin_handle *handle)
{
	return grant && grant->epoch == le64_to_cpu(handle->epoch) &&
	       grant->key[0] == le64_to_cpu(handle->key[0]) &&
	       grant->key[1] == le64_to_cpu(handle->key[1]);
}

/* -EAGAIN: it is revoked, and a copy is under way. */
static int cmmc_revoke_try(struct cmmc_file *file, const struct marlin_handle *handle)
{
	int err = -EPERM;

	if (down_read_killable(&cmmc_gate))
		return -EINTR;
	if (mutex_lock_interruptible(&file->lock)) {
		up_read(&cmmc_gate);
		return -EINTR;
	}
	for (int i = 0; i < CMMC_GRANTS_MAX; i++) {
		if (!cmmc_is_grant(file->grants[i], handle))
			continue;
		err = cmmc_grant_revoke(file->grants[i]);
		if (!err) {
			cmmc_grant_free(file->grants[i]);
			file->grants[i] = NULL;
		}
		break;
	}
	mutex_unlock(&file->lock);
	up_read(&cmmc_gate);
	return err;
}

/* Waits without the device and the file's lock, as long as the peer's copies take. */
static int cmmc_revoke(struct cmmc_file *file, const struct cmmc_revoke *in)
{
	struct marlin_handle handle;
	int changes, err;

	memcpy(&handle, &in->handle, sizeof(handle));
	if (in->flags || le32_to_cpu(handle.magic) != MARLIN_HANDLE_MAGIC)
		return -EINVAL;
	do {
		changes = cmmc_grants_changes();
		err = cmmc_revoke_try(file, &handle);
		if (err == -EAGAIN && cmmc_grants_wait(changes))
			err = -EINTR;
	} while (err == -EAGAIN);
	return err;
}

/* The grant that a handle names, if it is the file's; or NULL. */
static struct cmmc_grant *cmmc_grant_of(struct cmmc_file *file, const struct marlin_handle *handle)
{
	lockdep_assert_held(&file->lock);
	for (int i = 0; i < CMMC_GRANTS_MAX; i++)
		if (cmmc_is_grant(file->grants[i], handle))
			return file->grants[i];
	return NULL;
}

/*
 * A number is taken once the program has it: else an address that can't be written would lose it. A
 * page of the program is waited for without the device, so another thread can be first; then this
 * one goes on with the next number.
 */
static int cmmc_take(struct cmmc_file *file, struct cmmc_take *in, struct cmmc_take __user *user)
{
	struct marlin_handle handle;
	struct cmmc_grant *grant;
	bool taken = true;
	u32 place = 0;
	int err;

	memcpy(&handle, &in->handle, sizeof(handle));
	in->number = 0;
	if (in->flags || le32_to_cpu(handle.magic) != MARLIN_HANDLE_MAGIC)
		return -EINVAL;
	do {
		if (down_read_killable(&cmmc_gate))
			return -EINTR;
		mutex_lock(&file->lock);
		grant = cmmc_grant_of(file, &handle);
		err = grant ? cmmc_grant_peek(grant, &in->number, &place) : -EPERM;
		mutex_unlock(&file->lock);
		up_read(&cmmc_gate);
		if (err)
			return err;
		if (copy_to_user(user, in, sizeof(*in)))
			return -EFAULT;
		down_read(&cmmc_gate);
		mutex_lock(&file->lock);
		grant = cmmc_grant_of(file, &handle);
		taken = !grant || cmmc_grant_taken(grant, place);
		mutex_unlock(&file->lock);
		up_read(&cmmc_gate);
	} while (!taken);
	return 0;
}

/* ---- copies ---- */

#define CMMC_WRITE_FLAGS (CMMC_COPY_SIGNAL | CMMC_COPY_POSTED)

/* memory: a vector of io_uring; or empty, for what `in` names. */
int cmmc_copy_buffer(struct cmmc_file *file, struct cmmc_copy *in, struct cmmc_memory *memory,
		     bool write)
{
	struct cmmc_buffer *buffer = NULL;
	int err;

	in->done = 0;
	if (in->flags & ~(CMMC_COPY_BUFFER | CMMC_WRITE_FLAGS) || in->reserved ||
	    (in->flags & CMMC_WRITE_FLAGS && !write) ||
	    (in->flags & CMMC_COPY_BUFFER ? !!memory->vector : in->buffer))
		return -EINVAL;
	if (in->flags & CMMC_COPY_BUFFER) {
		buffer = cmmc_buffer_get(file, in->buffer);
		if (IS_ERR(buffer))
			return PTR_ERR(buffer);
		memory->pin = &buffer->pin;
	}
	err = cmmc_copy(in, memory, write);
	cmmc_buffer_put(buffer);
	return err;
}

static int cmmc_copy_call(struct cmmc_file *file, struct cmmc_copy *in, bool write)
{
	struct cmmc_memory memory = { };

	return cmmc_copy_buffer(file, in, &memory, write);
}

/* ---- the file ---- */

static int cmmc_open(struct inode *inode, struct file *opened)
{
	struct cmmc_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	mutex_init(&file->lock);
	INIT_LIST_HEAD(&file->held);
	opened->private_data = file;
	return nonseekable_open(inode, opened);
}

static int cmmc_release(struct inode *inode, struct file *opened)
{
	struct cmmc_file *file = opened->private_data;
	bool any = false;

	down_read(&cmmc_gate);
	for (int i = 0; i < CMMC_GRANTS_MAX; i++) {
		if (!file->grants[i])
			continue;
		cmmc_grant_orphan(file->grants[i]);
		any = true;
	}
	if (any && cmmc_device)
		cmmc_look(cmmc_device);
	up_read(&cmmc_gate);
	cmmc_locks_release(&file->held);
	for (int i = 0; i < CMMC_BUFFERS_MAX; i++)
		cmmc_buffer_put(file->buffers[i]);
	kfree(file);
	return 0;
}

static int cmmc_dispatch(struct cmmc_file *file, unsigned int command, void *in)
{
	switch (command) {
	case CMMC_IOC_REGISTER:
		return cmmc_register(file, in);
	case CMMC_IOC_UNREGISTER:
		return cmmc_unregister(file, in);
	case CMMC_IOC_TRANSLATE:
		return cmmc_translate(file, in);
	case CMMC_IOC_WRITE:
		return cmmc_copy_call(file, in, true);
	case CMMC_IOC_READ:
		return cmmc_copy_call(file, in, false);
	case CMMC_IOC_REVOKE:
		return cmmc_revoke(file, in);
	case CMMC_IOC_RING:
		return cmmc_ring(in);
	case CMMC_IOC_LOCK:
		return cmmc_lock(&file->held, in);
	case CMMC_IOC_UNLOCK:
		return cmmc_unlock(&file->held, in);
	}
	return -ENOTTY;
}

/*
 * The program doesn't get the result. A grant that can't be freed, as a signal came, is revoked and
 * goes with the file.
 */
static void cmmc_undo(struct cmmc_file *file, unsigned int command, const void *in)
{
	const struct cmmc_register *registering = in;
	const struct cmmc_translate *translate = in;
	const struct cmmc_lock *lock = in;

	if (command == CMMC_IOC_REGISTER) {
		struct cmmc_unregister unregister = { .buffer = registering->buffer };

		cmmc_dispatch(file, CMMC_IOC_UNREGISTER, &unregister);
	} else if (command == CMMC_IOC_TRANSLATE) {
		struct cmmc_revoke revoke = { .handle = translate->handle };

		cmmc_dispatch(file, CMMC_IOC_REVOKE, &revoke);
	} else if (command == CMMC_IOC_LOCK) {
		struct cmmc_unlock unlock = { .port = lock->port, .number = lock->number };

		cmmc_dispatch(file, CMMC_IOC_UNLOCK, &unlock);
	}
}

static long cmmc_ioctl(struct file *opened, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	union {
		u32 size; /* begins each */
		struct cmmc_register registering;
		struct cmmc_unregister unregister;
		struct cmmc_translate translate;
		struct cmmc_copy copy;
		struct cmmc_revoke revoke;
		struct cmmc_ring ring;
		struct cmmc_take take;
		struct cmmc_lock lock;
		struct cmmc_unlock unlock;
	} in;
	const u32 size = _IOC_SIZE(command);
	int err;

	if (_IOC_TYPE(command) != CMMC_IO_MAGIC || size < sizeof(in.size) || size > sizeof(in))
		return -ENOTTY;
	if (copy_from_user(&in, user, size))
		return -EFAULT;
	if (in.size != size)
		return -EINVAL;
	if (command == CMMC_IOC_TAKE)
		return cmmc_take(opened->private_data, &in.take, user);
	err = cmmc_dispatch(opened->private_data, command, &in);
	/* After an error a copy's struct tells how far it came. */
	if (_IOC_DIR(command) & _IOC_READ && copy_to_user(user, &in, size) && !err) {
		cmmc_undo(opened->private_data, command, &in);
		err = -EFAULT;
	}
	return err;
}

static const struct file_operations cmmc_file_ops = {
	.owner = THIS_MODULE,
	.open = cmmc_open,
	.release = cmmc_release,
	.unlocked_ioctl = cmmc_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = cmmc_uring_cmd,
};

static struct miscdevice cmmc_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "cmmc",
	.fops = &cmmc_file_ops,
};

int marlin_cmmc_register(void)
{
	return misc_register(&cmmc_misc);
}

void marlin_cmmc_unregister(void)
{
	misc_deregister(&cmmc_misc);
}

/* ---- an NTB device's life ---- */

static void cmmc_work(struct work_struct *work)
{
	struct marlin_dev *md = container_of(work, struct marlin_dev, cmmc_work);

	cmmc_look(md);
	cmmc_locks_look(md);
}

static void cmmc_free(struct marlin_peer *peer)
{
	struct marlin_cmmc *cmmc = peer->cmmc;

	if (!cmmc)
		return;
	peer->cmmc = NULL;
	cmmc_grant_exit(cmmc);
	hrdma_window_remove(&cmmc->hrdma);
	memunmap(cmmc->ram);
	ntb_mw_clear_trans(peer->md->ntb, peer->index, cmmc->window);
	kvfree(cmmc);
}

/* Windows into whole RAM, both ways: their numbers follow those of the other windows. */
static int cmmc_windows(struct marlin_cmmc *cmmc)
{
	struct marlin_peer *peer = cmmc->peer;
	struct ntb_dev *ntb = peer->md->ntb;
	resource_size_t address_align, size_align, bytes;
	phys_addr_t address;
	int err;

	err = ntb_mw_get_align(ntb, peer->index, cmmc->window, &address_align, &size_align,
			       &cmmc->own_bytes);
	if (!err)
		err = ntb_mw_set_trans(ntb, peer->index, cmmc->window, 0, cmmc->own_bytes);
	if (err)
		return err;
	err = ntb_peer_mw_get_addr(ntb, peer->md->peer_count + peer->index, &address, &bytes);
	if (!err) {
		cmmc->ram = memremap(address, bytes, MEMREMAP_WC);
		cmmc->ram_bytes = bytes;
		cmmc->hrdma.address = address;
		cmmc->hrdma.ram = cmmc->ram;
		cmmc->hrdma.bus = &peer->bus;
		cmmc->hrdma.word = &marlin_peer_window(peer, 0)->tail;
		cmmc->hrdma.bytes = bytes;
		cmmc->hrdma.port = peer->port;
		err = cmmc->ram ? 0 : -ENOMEM;
	}
	if (err)
		ntb_mw_clear_trans(ntb, peer->index, cmmc->window);
	return err;
}

static int cmmc_add(struct marlin_peer *peer)
{
	struct marlin_cmmc *cmmc = kvzalloc(sizeof(*cmmc), GFP_KERNEL);
	int err;

	if (!cmmc)
		return -ENOMEM;
	cmmc->peer = peer;
	cmmc->window = peer->md->peer_count + marlin_link_window_number(peer);
	err = cmmc_windows(cmmc);
	if (err)
		goto free;
	err = hrdma_window_add(&cmmc->hrdma);
	if (err)
		goto unmap;
	cmmc_copy_init(cmmc);
	cmmc_grant_init(cmmc);
	smp_store_release(&peer->cmmc, cmmc); /* pairs with cmmc_of() */
	return 0;

unmap:
	memunmap(cmmc->ram);
	ntb_mw_clear_trans(peer->md->ntb, peer->index, cmmc->window);
free:
	kvfree(cmmc);
	return err;
}

/* Before the interface is registered. Without windows into whole RAM there are no copies. */
void marlin_cmmc_attach(struct marlin_dev *md)
{
	bool windows = ntb_peer_mw_count(md->ntb) >= 2 * (int)md->peer_count;

	INIT_WORK(&md->cmmc_work, cmmc_work);
	if (cmmc_locks_attach(md))
		dev_err(&md->ntb->dev, "marlin: no memory for locks across machines\n");
	down_write(&cmmc_gate);
	md->copies = windows && (!cmmc_device || !cmmc_device->copies);
	if (!cmmc_device || md->copies)
		cmmc_device = md;
	else if (windows)
		dev_info(&md->ntb->dev, "marlin: /dev/cmmc serves another NTB device already\n");
	up_write(&cmmc_gate);
}

/* After the interface is gone. */
void marlin_cmmc_detach(struct marlin_dev *md)
{
	down_write(&cmmc_gate);
	if (cmmc_device == md)
		cmmc_device = NULL;
	/* Nothing schedules it any more. */
	cancel_work_sync(&md->cmmc_work);
	cmmc_locks_detach(md);
	for (unsigned int i = 0; i < md->peer_count; i++)
		cmmc_free(&md->peers[i]);
	up_write(&cmmc_gate);
}

/* ---- a link's life ---- */

/* Windows are asked for when the link is up for the first time; they stay. */
void marlin_cmmc_start(struct marlin_peer *peer)
{
	int err = peer->md->copies && !peer->cmmc ? cmmc_add(peer) : 0;

	if (err)
		netdev_err(peer->md->dev, "port %u: no copies: error %d\n", peer->port, err);
	cmmc_locks_start(peer);
	if (!peer->cmmc)
		return;
	cmmc_copy_start(peer->cmmc);
	cmmc_grants_start(peer->cmmc);
}

/* The caller flushes its writes to the peer. */
void marlin_cmmc_stop(struct marlin_peer *peer)
{
	cmmc_locks_stop(peer);
	if (!peer->cmmc)
		return;
	cmmc_copy_stop(peer->cmmc);
	cmmc_grants_stop(peer->cmmc);
}

/* Zeroes what the peer wrote; it has ended its copies. */
void marlin_cmmc_clean(struct marlin_peer *peer)
{
	memset(peer->in_memory + MARLIN_GRANTS_OFFSET, 0, sizeof(struct marlin_grants_window));
	memset(peer->in_memory + MARLIN_TABLE_OFFSET, 0,
	       MARLIN_GRANTS * sizeof(struct marlin_grant));
	cmmc_locks_clean(peer);
	if (peer->cmmc)
		cmmc_grants_clean(peer->cmmc);
}

/* The peer's pair word may have changed. */
void marlin_cmmc_look(struct marlin_peer *peer)
{
	if (peer->cmmc)
		cmmc_grants_look_ended(peer->cmmc);
}

/* The link is down, and no copy of the peer is under way. */
bool marlin_cmmc_is_quiet(struct marlin_peer *peer)
{
	struct marlin_cmmc *cmmc = cmmc_of(peer);

	return !cmmc || cmmc_grants_are_quiet(cmmc);
}

/* A doorbell: a peer may have ended a copy or signalled. By an interrupt. */
void marlin_cmmc_bell(struct marlin_dev *md)
{
	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_cmmc *cmmc = cmmc_of(&md->peers[i]);

		if (cmmc && !list_empty_careful(&cmmc->grants)) {
			schedule_work(&md->cmmc_work);
			return;
		}
	}
	if (cmmc_locks_changed(md))
		schedule_work(&md->cmmc_work);
}
