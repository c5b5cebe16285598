// SPDX-License-Identifier: GPL-2.0
/*
 * The ports that a started node has: UDP's, and one of each kind that a module has registered. A
 * module is held while its port is open. All under node_control.
 */
#include <linux/module.h>
#include <linux/netlink.h>

#include "compat/compat.h"
#include "rmem/node/ports.h"
#include "rmem/node/types.h"

static const struct rmem_port_ops *ports_kinds[NODE_PORTS_MAX] = { &rmem_udp_port_ops };

static int ports_open_one(struct node_host *host, unsigned int i, struct netlink_ext_ack *extack)
{
	const struct rmem_port_config config = {
		.net = host->net,
		.slots = host->core.config.sessions_max,
		.number = host->port_number,
	};
	const struct rmem_port_ops *ops = ports_kinds[i];
	struct rmem_port *port;

	if (!try_module_get(ops->owner)) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "the module of port '%s' is being removed",
				       ops->name);
		return -ENODEV;
	}
	port = ops->open(host, &config, extack);
	if (IS_ERR(port)) {
		module_put(ops->owner);
		return PTR_ERR(port);
	}
	host->port[i] = port;
	return 0;
}

void node_ports_close(struct node_host *host)
{
	for (unsigned int i = NODE_PORTS_MAX; i--;) {
		const struct rmem_port *port = host->port[i];
		struct module *owner;

		if (!port)
			continue;
		owner = port->ops->owner;
		port->ops->close(host->port[i]);
		host->port[i] = NULL;
		module_put(owner);
	}
}

int node_ports_open(struct node_host *host, struct netlink_ext_ack *extack)
{
	for (unsigned int i = 0; i < NODE_PORTS_MAX; i++) {
		int err = ports_kinds[i] ? ports_open_one(host, i, extack) : 0;

		if (err) {
			node_ports_close(host);
			return err;
		}
	}
	return 0;
}

/* A node that is started gets the port at once. */
int rmem_port_register(const struct rmem_port_ops *ops)
{
	int err = -ENOSPC;

	mutex_lock(&node_control);
	for (unsigned int i = 0; err == -ENOSPC && i < NODE_PORTS_MAX; i++) {
		if (ports_kinds[i])
			continue;
		ports_kinds[i] = ops;
		err = node_running ? ports_open_one(node_running, i, NULL) : 0;
		if (err)
			ports_kinds[i] = NULL;
	}
	mutex_unlock(&node_control);
	return err;
}
EXPORT_SYMBOL_GPL(rmem_port_register);

/* Its module goes, so no node has such a port any more. */
void rmem_port_unregister(const struct rmem_port_ops *ops)
{
	mutex_lock(&node_control);
	for (unsigned int i = 0; i < NODE_PORTS_MAX; i++)
		if (ports_kinds[i] == ops)
			ports_kinds[i] = NULL;
	mutex_unlock(&node_control);
}
EXPORT_SYMBOL_GPL(rmem_port_unregister);
