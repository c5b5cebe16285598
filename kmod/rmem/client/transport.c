// SPDX-License-Identifier: GPL-2.0
/*
 * The transports there are, by the schemes of their addresses. One that isn't there is asked for as
 * module rmem-transport-SCHEME. A device holds its transport's module from attach to detach.
 */
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/netlink.h>

#include "compat/compat.h"
#include "rmem/client/transport.h"
#include "rmem/client/types.h"

/* One for each kind of path that a machine can have; more are a mistake. */
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

static bool transport_has_scheme(const char *address, const char *scheme)
{
	size_t bytes = strlen(scheme);

	return !strncmp(address, scheme, bytes) && address[bytes] == ':';
}

/* The transport of an address's scheme, whose module is held now; or NULL. */
static const struct rmem_transport_ops *transport_find(const char *address)
{
	const struct rmem_transport_ops *found = NULL;
	unsigned int i;

	mutex_lock(&transports_lock);
	for (i = 0; i < TRANSPORTS_MAX; i++) {
		if (transports[i] && transport_has_scheme(address, transports[i]->name))
			found = transports[i];
	}
	if (found && !try_module_get(found->owner))
		found = NULL;
	mutex_unlock(&transports_lock);
	return found;
}

/*
 * The length of the address's scheme; 0: it has none. An IPv6 address has no letter beyond f, a
 * scheme has no digit.
 */
static int transport_scheme_bytes(const char *address)
{
	bool beyond_f = false;
	int i;

	for (i = 0; address[i] >= 'a' && address[i] <= 'z'; i++)
		beyond_f |= address[i] > 'f';
	return address[i] == ':' && beyond_f ? i : 0;
}

const struct rmem_transport_ops *rmem_transport_get(const char *address,
						    struct netlink_ext_ack *extack)
{
	const struct rmem_transport_ops *found;
	int bytes = transport_scheme_bytes(address);

	found = transport_find(address);
	if (!found && bytes) {
		request_module("rmem-transport-%.*s", bytes, address);
		found = transport_find(address);
	}
	/* An address without a scheme is one of UDP's, which is always there. */
	if (!found && !bytes)
		found = transport_find("udp:");
	if (!found)
		NL_SET_ERR_MSG_FMT(extack, "there is no transport '%.*s': is its module loaded?",
				   bytes, address);
	return found;
}

void rmem_transport_put(const struct rmem_transport_ops *ops)
{
	module_put(ops->owner);
}
