// SPDX-License-Identifier: GPL-2.0
/*
 * The transports there are, by the schemes of their addresses. A device holds its transport's
 * module from attach to detach.
 */
#include <linux/module.h>

#include "rmem/client/device.h"

/* One for each kind of path that a machine may have; more are a mistake. */
#define TRANSPORTS_MAX 8

static const struct rmem_transport_ops *transports[TRANSPORTS_MAX];
static DEFINE_MUTEX(transports_lock);

int rmem_transport_register(const struct rmem_transport_ops *ops)
{
	unsigned int i;
	int err = -ENOSPC;

	mutex_lock(&transports_lock);
	for (i = 0; err && i < TRANSPORTS_MAX; i++) {
		if (transports[i])
			continue;
		transports[i] = ops;
		err = 0;
	}
	mutex_unlock(&transports_lock);
	return err;
}
EXPORT_SYMBOL_GPL(rmem_transport_register);

void rmem_transport_unregister(const struct rmem_transport_ops *ops)
{
	unsigned int i;

	mutex_lock(&transports_lock);
	for (i = 0; i < TRANSPORTS_MAX; i++) {
		if (transports[i] == ops)
			transports[i] = NULL;
	}
	mutex_unlock(&transports_lock);
}
EXPORT_SYMBOL_GPL(rmem_transport_unregister);

static bool has_scheme(const char *address, const char *scheme)
{
	size_t bytes = strlen(scheme);

	return !strncmp(address, scheme, bytes) && address[bytes] == ':';
}

const struct rmem_transport_ops *rmem_transport_get(const char *address)
{
	const struct rmem_transport_ops *found = NULL;
	unsigned int i;

	mutex_lock(&transports_lock);
	for (i = 0; i < TRANSPORTS_MAX; i++) {
		if (transports[i] && has_scheme(address, transports[i]->name))
			found = transports[i];
	}
	/* Udp is the first one registered, and an address without a scheme is one of its. */
	if (!found)
		found = transports[0];
	if (!try_module_get(found->owner))
		found = NULL;
	mutex_unlock(&transports_lock);
	return found;
}

void rmem_transport_put(const struct rmem_transport_ops *ops)
{
	module_put(ops->owner);
}
