// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/link.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

u32 edm_link_epoch(u32 last, u64 seconds)
{
	const u32 now = (u32)seconds, next = edm_link_next_epoch(last);

	if (!now || (last && edm_link_is_before(now, next)))
		return next;
	return now;
}

void edm_link_init(struct edm_link *link, u64 now_ns)
{
	base_zero(link, sizeof(*link));
	link->join_ns = now_ns;
}

bool edm_link_join(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		   struct edm_message *message)
{
	if (link->join_ns > now_ns)
		return false;
	link->join_ns = now_ns + config->join_ns;
	*message = (struct edm_message){
		.kind = EDM_JOIN,
		.port = config->port,
		.epoch = config->epoch,
		.cookie = link->cookie,
		.rate_mbps = config->rate_mbps,
	};
	return true;
}

bool edm_link_welcome(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		      const struct edm_message *message)
{
	/* Without a JOIN of its own under way, it is late or a copy. */
	if (link->join_ns == EDM_NEVER || message->epoch != config->epoch ||
	    message->port != config->port)
		return false;
	if (message->kind == EDM_CHALLENGE) {
		if (link->cookie == message->cookie)
			return false;
		link->cookie = message->cookie;
		link->join_ns = now_ns;
		return false;
	}
	if (message->cookie != link->cookie || message->slots < config->slots)
		return false;
	if (message->life != link->life) {
		link->life = message->life;
		link->seq_in = 0;
		link->seq_out = 0;
	}
	/* The key has the cookie and the life in it. */
	edm_wire_derive(&link->key, &config->key, message);
	link->lease_ns = message->lease_us * BASE_NSEC_PER_USEC;
	link->chunk_bytes = message->chunk_bytes;
	link->active_max = message->active_max;
	link->heard_ns = now_ns;
	link->told_ns = 0;
	link->join_ns = EDM_NEVER;
	link->up = true;
	return true;
}

bool edm_link_accept(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		     const struct edm_message *message, bool *gap)
{
	if (!link->up || message->life != link->life || message->epoch != config->epoch ||
	    message->port != config->port || (s32)(message->seq - link->seq_in) <= 0)
		return false;
	*gap = message->seq != link->seq_in + 1;
	link->seq_in = message->seq;
	link->heard_ns = now_ns;
	return true;
}

void edm_link_message(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		      u8 kind, struct edm_message *message)
{
	/* A scheduler passes a REQUEST on: it is DEMANDs that it acknowledges. */
	if (kind == EDM_DEMAND)
		link->told_ns = now_ns;
	*message = (struct edm_message){
		.kind = kind,
		.port = config->port,
		.epoch = config->epoch,
		.life = link->life,
		.seq = ++link->seq_out,
		.seen = link->seq_in,
	};
}

bool edm_link_falls(struct edm_link *link, u64 now_ns)
{
	if (!link->up || now_ns - link->heard_ns < EDM_SILENT_LEASES * link->lease_ns)
		return false;
	link->up = false;
	link->join_ns = now_ns;
	return true;
}

bool edm_link_is_due(struct edm_link *link, u64 now_ns)
{
	if (!link->up || (link->told_ns && now_ns - link->told_ns < link->lease_ns / 4))
		return false;
	if (!edm_link_is_mute(link, now_ns))
		return true;
	link->told_ns = now_ns;
	return false;
}

u64 edm_link_deadline_ns(const struct edm_link *link)
{
	if (!link->up)
		return link->join_ns;
	return base_min(link->told_ns + link->lease_ns / 4,
			link->heard_ns + EDM_SILENT_LEASES * link->lease_ns);
}
