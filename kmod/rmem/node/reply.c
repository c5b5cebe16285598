// SPDX-License-Identifier: GPL-2.0
/*
 * Answers that come late: those of the slow path, of QUERY and CALL messages, and those that say
 * why a sealed request can't be answered.
 */
#include "rmem/node/count.h"
#include "rmem/node/reply.h"
#include "rmem/node/types.h"

void node_reply_notice(const struct node_host *host, const struct rmem_head *head,
		       struct rmem_head *notice)
{
	rmem_node_notice(&host->core, head, notice);
	node_count(NODE_COUNT_REASON + (notice->status == RMEM_REBOOTED ? RMEM_NODE_REBOOTED :
									  RMEM_NODE_NO_SESSION));
}

/*
 * A sealed session that has ended, or has another name, has no key for the answer, and its client
 * takes none. But a CLOSE has just ended it, and its client waits.
 */
void node_reply(struct node_host *host, struct rmem_port *port, const struct rmem_port_path *path,
		const struct base_siphash_key *key, const struct rmem_head *request,
		struct rmem_head *reply, const void *payload)
{
	bool sealed = reply->integrity == RMEM_SEALED && !reply->clear;
	struct rmem_seal_keys keys;
	struct rmem_head notice;

	if (!sealed) {
		port->ops->reply(port, path, key, NULL, reply, payload);
	} else if (rmem_node_keys(&host->core, reply, &keys)) {
		port->ops->reply(port, path, key, &keys.from_node, reply, payload);
		rmem_seal_wipe(&keys, sizeof(keys));
	} else if (request->type == RMEM_CLOSE) {
		node_reply_notice(host, request, &notice);
		port->ops->reply(port, path, key, NULL, &notice, NULL);
	}
}
