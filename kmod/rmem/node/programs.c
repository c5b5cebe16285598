// SPDX-License-Identifier: GPL-2.0
/*
 * The modules with programs for the run table (rmem_offload_ops.h), and the functions that they
 * call. A program that was loaded holds its module.
 */
#include <linux/export.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "rmem/node/calls.h"
#include "rmem/node/programs.h"
#include "rmem/node/types.h"
#include "rmem_offload_ops.h"

struct programs_entry {
	struct list_head list;
	const struct rmem_offload_ops *ops;
	struct module *owner;
};

static LIST_HEAD(programs_list);
static DEFINE_MUTEX(programs_lock);

static struct programs_entry *programs_find(const char *name)
{
	struct programs_entry *program;

	lockdep_assert_held(&programs_lock);
	list_for_each_entry(program, &programs_list, list) {
		if (!strncmp(program->ops->name, name, RMEM_OFFLOAD_NAME_BYTES))
			return program;
	}
	return NULL;
}

int rmem_offload_register(const struct rmem_offload_ops *ops, struct module *owner)
{
	struct programs_entry *program = kzalloc(sizeof(*program), GFP_KERNEL);
	int err = 0;

	if (!program)
		return -ENOMEM;
	program->ops = ops;
	program->owner = owner;
	mutex_lock(&programs_lock);
	if (programs_find(ops->name))
		err = -EEXIST;
	else
		list_add_tail(&program->list, &programs_list);
	mutex_unlock(&programs_lock);
	if (err)
		kfree(program);
	return err;
}
EXPORT_SYMBOL_GPL(rmem_offload_register);

EXPORT_SYMBOL_GPL(rmem_function);
EXPORT_SYMBOL_GPL(rmem_args);
EXPORT_SYMBOL_GPL(rmem_args_bytes);
EXPORT_SYMBOL_GPL(rmem_result);
EXPORT_SYMBOL_GPL(rmem_scratch);
EXPORT_SYMBOL_GPL(rmem_look);
EXPORT_SYMBOL_GPL(rmem_at);
EXPORT_SYMBOL_GPL(rmem_read);
EXPORT_SYMBOL_GPL(rmem_write);
EXPORT_SYMBOL_GPL(rmem_error);
EXPORT_SYMBOL_GPL(rmem_prefetch);
EXPORT_SYMBOL_GPL(rmem_persistent_bytes);
EXPORT_SYMBOL_GPL(rmem_persist);
EXPORT_SYMBOL_GPL(rmem_drain);
EXPORT_SYMBOL_GPL(rmem_key_lock);
EXPORT_SYMBOL_GPL(rmem_forward);
EXPORT_SYMBOL_GPL(rmem_forwarded);
EXPORT_SYMBOL_GPL(rmem_call_fails);

void rmem_offload_unregister(const struct rmem_offload_ops *ops)
{
	struct programs_entry *program;

	mutex_lock(&node_control);
	mutex_lock(&programs_lock);
	program = programs_find(ops->name);
	list_del(&program->list);
	mutex_unlock(&programs_lock);
	if (node_running)
		node_calls_drop(node_running, ops);
	mutex_unlock(&node_control);
	kfree(program);
}
EXPORT_SYMBOL_GPL(rmem_offload_unregister);

int rmem_offload_replace(const struct rmem_offload_ops *from, const struct rmem_offload_ops *to)
{
	bool uses;

	if (from->id != to->id || from->once_mask != to->once_mask ||
	    strncmp(from->name, to->name, RMEM_OFFLOAD_NAME_BYTES))
		return -EINVAL;
	if (from == to)
		return 0;
	mutex_lock(&node_control);
	mutex_lock(&programs_lock);
	programs_find(from->name)->ops = to;
	mutex_unlock(&programs_lock);
	if (node_running)
		node_calls_replace(node_running, from, to);
	mutex_unlock(&node_control);
	/* Commands and a stop come between. */
	do {
		mutex_lock(&node_control);
		uses = node_running && node_calls_use(node_running, from);
		mutex_unlock(&node_control);
	} while (uses);
	return 0;
}
EXPORT_SYMBOL_GPL(rmem_offload_replace);

int rmem_offload_check(const struct rmem_offload_ops *ops)
{
	return rmem_run_is_sound(ops) ? 0 : -EINVAL;
}
EXPORT_SYMBOL_GPL(rmem_offload_check);

static const struct rmem_offload_ops *programs_get(const char *name, struct module **owner)
{
	const struct rmem_offload_ops *ops = NULL;
	struct programs_entry *program;

	mutex_lock(&programs_lock);
	program = programs_find(name);
	if (program && try_module_get(program->owner)) {
		ops = program->ops;
		*owner = program->owner;
	}
	mutex_unlock(&programs_lock);
	return ops;
}

int node_programs_load(struct node_host *host, const struct node_offload *offload,
		       struct netlink_ext_ack *extack)
{
	const struct rmem_offload_ops *ops;
	struct module *owner;
	int err;

	ops = programs_get(offload->name, &owner);
	if (!ops) {
		NL_SET_ERR_MSG_FMT_MOD(extack,
				       "no module has an offload %s; modprobe remora-offload-%s",
				       offload->name, offload->name);
		return -ENOENT;
	}
	err = node_calls_load(host, offload, ops, owner, extack);
	if (err)
		module_put(owner);
	return err;
}
