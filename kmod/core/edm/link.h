/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A host's link to one scheduler (remora/edm.h, "Joining" and "Leases").
 *
 *   DOWN --JOIN, CHALLENGE, JOIN, WELCOME--> UP --nothing heard for 3 leases--> DOWN
 *
 *   heard    + 1/4 lease ...   + 2 leases          + 3 leases
 *     |---- DEMANDs ----------->|---- mute -------->| DOWN: JOINs
 *
 * A mute host's lease ends before the host follows another scheduler, so no two schedulers can book
 * its port at a time.
 */
#ifndef REMORA_EDM_LINK_H
#define REMORA_EDM_LINK_H

#include "core/edm/demand.h"
#include "core/edm/wire.h"

struct edm_link {
	struct base_siphash_key key; /* of datagrams but JOIN, CHALLENGE, WELCOME */
	u64 cookie;
	u64 heard_ns; /* last datagram of this life that verified */
	u64 told_ns;  /* last DEMAND; 0: tell at once */
	u64 join_ns;  /* next JOIN; EDM_NEVER: none is needed */
	u64 lease_ns;
	u32 life;
	u32 seq_in;  /* greatest received */
	u32 seq_out; /* last sent */
	u32 chunk_bytes;
	u8 active_max;
	bool up;
};

/* A host's own values in JOIN. */
struct edm_link_config {
	struct base_siphash_key key; /* the operator's */
	u64 join_ns;		     /* between JOINs, 1 or more */
	u32 epoch;		     /* edm_link_epoch() */
	u32 rate_mbps;
	u16 port;
	u16 slots; /* at most those of the scheduler */
};

/* Is a host's life with epoch a before the one with b? b 0: there was none. */
static inline bool edm_link_is_before(u32 a, u32 b)
{
	return b && (s32)(a - b) < 0;
}

/* The least epoch after one. */
static inline u32 edm_link_next_epoch(u32 epoch)
{
	return epoch + 1 ? epoch + 1 : 1;
}

/*
 * The epoch of a life that begins. last: of the life before it, or 0: not known. seconds: the
 * clock, which might have gone back, and whose 32 bits wrap every 136 years.
 */
u32 edm_link_epoch(u32 last, u64 seconds);

void edm_link_init(struct edm_link *link, u64 now_ns);

/* The JOIN that is due, or false. */
bool edm_link_join(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		   struct edm_message *message);

/* A CHALLENGE or WELCOME. Returns true if the link came up, perhaps in another life. */
bool edm_link_welcome(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		      const struct edm_message *message);

/*
 * Is a GRANT or FORWARD of this life, and newer than all before it? *gap: numbers before it are
 * missing.
 */
bool edm_link_accept(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		     const struct edm_message *message, bool *gap);

/* The heads of a DEMAND or REQUEST, numbered. The link is up and not mute. */
void edm_link_message(struct edm_link *link, const struct edm_link_config *config, u64 now_ns,
		      u8 kind, struct edm_message *message);

static inline bool edm_link_is_mute(const struct edm_link *link, u64 now_ns)
{
	return now_ns - link->heard_ns >= EDM_MUTE_LEASES * link->lease_ns;
}

/* A link that is up has been silent for too long: it goes down. */
bool edm_link_falls(struct edm_link *link, u64 now_ns);

/*
 * Must the host send a DEMAND, if only to keep its lease? A mute link lets the time pass.
 */
bool edm_link_is_due(struct edm_link *link, u64 now_ns);

/* When edm_link_join(), _falls() or _is_due() is next true, or EDM_NEVER. */
u64 edm_link_deadline_ns(const struct edm_link *link);

#endif
