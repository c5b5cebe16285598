// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/session.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/share.h"
#include "core/rmem/node/undo.h"

#define WORD_BITS 64
#define HALF_BITS 24 /* of a name without its slot */
#define HALF_MASK ((1ULL << HALF_BITS) - 1)
#define SLOT_MASK ((1U << RMEM_SESSION_SLOT_BITS) - 1)

static bool session_equal_16(const u8 *a, const u8 *b)
{
	return base_load_le64(a) == base_load_le64(b) &&
	       base_load_le64(a + 8) == base_load_le64(b + 8);
}

bool rmem_peer_equal(const struct rmem_peer *a, const struct rmem_peer *b)
{
	return a->port == b->port && session_equal_16(a->addr, b->addr);
}

/* Bytes of one of the two bit maps. */
static size_t session_map_bytes(u32 window_ids)
{
	return base_round_up(window_ids, WORD_BITS) / 8;
}

static u32 session_replay_ids_of(u32 window_ids)
{
	return window_ids < RMEM_REPLAY ? window_ids : RMEM_REPLAY;
}

size_t rmem_session_window_bytes(u32 window_ids)
{
	return 2 * session_map_bytes(window_ids) +
	       session_replay_ids_of(window_ids) * sizeof(struct rmem_found);
}

static void session_locate(struct rmem_session *session, void *memory, u32 window_ids)
{
	u8 *at = memory;

	session->executed = (u64 *)at;
	session->refused = (u64 *)(at + session_map_bytes(window_ids));
	session->found = (struct rmem_found *)(at + 2 * session_map_bytes(window_ids));
	session->window_ids = window_ids;
	session->replay_ids = session_replay_ids_of(window_ids);
}

void rmem_session_init(struct rmem_session *session, void *memory, u32 window_ids)
{
	base_zero(session, sizeof(*session));
	base_zero(memory, rmem_session_window_bytes(window_ids));
	session_locate(session, memory, window_ids);
	session->name = RMEM_SESSION_NONE;
	session->floor = 1;
}

/* rmem_sessions_names() reads it without the slot's lock. */
static void session_set_name(struct rmem_session *session, u64 name)
{
	__atomic_store_n(&session->name, name, __ATOMIC_RELEASE);
}

static u32 session_place_of(const struct rmem_session *session, u64 id)
{
	return id & (session->window_ids - 1);
}

static bool session_is_set(const struct rmem_session *session, const u64 *map, u64 id)
{
	u32 place = session_place_of(session, id);

	return map[place / WORD_BITS] >> (place % WORD_BITS) & 1;
}

static void session_set(const struct rmem_session *session, u64 *map, u64 id)
{
	u32 place = session_place_of(session, id);

	map[place / WORD_BITS] |= 1ULL << (place % WORD_BITS);
}

/* Clear the bits of ids from .. to - 1, so that they can stand for the next ones. */
static void session_forget(const struct rmem_session *session, u64 *map, u64 from, u64 to)
{
	u32 window = session->window_ids;

	if (to - from >= window) {
		base_zero(map, session_map_bytes(window));
		return;
	}
	while (from < to) {
		u32 place = session_place_of(session, from);
		u32 bit = place % WORD_BITS;
		u64 count = to - from;

		if (count > window - place)
			count = window - place;
		if (count > WORD_BITS - bit)
			count = WORD_BITS - bit;
		map[place / WORD_BITS] &= ~(~0ULL >> (WORD_BITS - count) << bit);
		from += count;
	}
}

static void session_raise_floor(struct rmem_session *session, u64 floor)
{
	/* A process killed here leaves `rising`: the same bits are cleared again. */
	session->rising = floor;
	rmem_undo_order();
	session_forget(session, session->executed, session->floor, floor);
	/* Refusals are rare, so the map is rarely looked at. */
	if (session->refused_id >= session->floor)
		session_forget(session, session->refused, session->floor, floor);
	rmem_undo_order();
	session->floor = floor;
}

enum rmem_session_verdict rmem_session_check(struct rmem_session *session, u64 id, u64 floor)
{
	if (floor > session->floor)
		session_raise_floor(session, floor);
	if (id < session->floor)
		return RMEM_SESSION_STALE;
	if (id - session->floor >= session->window_ids)
		return RMEM_SESSION_BEYOND;
	if (!session_is_set(session, session->executed, id))
		return session->running && session_is_set(session, session->refused, id) ?
			       RMEM_SESSION_RUNNING : RMEM_SESSION_FRESH;
	return session_is_set(session, session->refused, id) ? RMEM_SESSION_REFUSED :
							       RMEM_SESSION_REPEATED;
}

static bool session_is_remembered(const struct rmem_session *session, u64 id)
{
	return id >= session->floor && id - session->floor < session->window_ids;
}

void rmem_session_done(struct rmem_session *session, u64 id)
{
	if (session_is_remembered(session, id))
		session_set(session, session->executed, id);
}

bool rmem_session_is_done(const struct rmem_session *session, u64 id)
{
	return session_is_remembered(session, id) && session_is_set(session, session->executed, id);
}

void rmem_session_refuse(struct rmem_session *session, u64 id)
{
	if (!session_is_remembered(session, id))
		return;
	if (id > session->refused_id)
		session->refused_id = id;
	session_set(session, session->refused, id);
	rmem_undo_order();
	session_set(session, session->executed, id);
}

static struct rmem_found *session_found_of(const struct rmem_session *session, u64 id)
{
	return &session->found[id & (session->replay_ids - 1)];
}

bool rmem_session_has_place(const struct rmem_session *session, u64 id)
{
	return id - session->floor < session->replay_ids;
}

void rmem_session_keep(struct rmem_session *session, u64 id, const struct rmem_found *found)
{
	*session_found_of(session, id) = *found;
	rmem_undo_order();
	rmem_session_done(session, id);
}

void rmem_session_replay(const struct rmem_session *session, u64 id, struct rmem_found *found)
{
	if (rmem_session_has_place(session, id))
		*found = *session_found_of(session, id);
	else
		base_zero(found, sizeof(*found));
}

void rmem_session_keep_refusal(struct rmem_session *session, u64 id, u64 first, u64 second)
{
	struct rmem_found *found = session_found_of(session, id);

	base_store_le64(&found->value[0], first);
	base_store_le64(&found->value[1], second);
	rmem_undo_order();
	rmem_session_refuse(session, id);
}

/* Read without the slot's lock by those who choose a slot. */
static void session_set_running(struct rmem_session *session, u32 running)
{
	__atomic_store_n(&session->running, running, __ATOMIC_RELAXED);
}

bool rmem_session_run(struct rmem_session *session, u64 id)
{
	session_set_running(session, session->running + 1);
	if (!session_is_remembered(session, id))
		return false;
	session_set(session, session->refused, id);
	if (id > session->refused_id)
		session->refused_id = id;
	return true;
}

void rmem_session_ran(struct rmem_session *session, u64 id, bool marked)
{
	session_set_running(session, session->running - 1);
	if (marked && session_is_remembered(session, id))
		session_forget(session, session->refused, id, id + 1);
}

void rmem_session_drain(struct rmem_session *session, u64 now_ns)
{
	session->drains_ns = now_ns + RMEM_SESSION_DRAIN_NS;
}

void rmem_session_made(struct rmem_session *session, u64 id)
{
	if (id > session->alloc_id)
		session->alloc_id = id;
}

bool rmem_session_owes(const struct rmem_session *session)
{
	return session->alloc_id >= session->floor;
}

/* Read without the slot's lock by those who choose a slot; they confirm under it. */
void rmem_session_touch(struct rmem_session *session, u64 id, u64 now_ns)
{
	if (id > session->newest_id) {
		session->newest_id = id;
		__atomic_store_n(&session->used_ns, now_ns, __ATOMIC_RELAXED);
	}
	if (!__atomic_load_n(&session->used, __ATOMIC_RELAXED))
		__atomic_store_n(&session->used, true, __ATOMIC_RELAXED);
}

static bool session_of_space(const struct rmem_session *session, const struct rmem_attempt *attempt)
{
	return session->place.space == attempt->place.space &&
	       session->place.incarnation == attempt->place.incarnation;
}

/* Is or was the slot's session one of the attempt's client? */
static bool session_of_client(const struct rmem_session *session,
			      const struct rmem_attempt *attempt)
{
	return session_of_space(session, attempt) && session_equal_16(session->client,
								      attempt->client);
}

static bool session_same_client(const struct rmem_session *session,
				const struct rmem_attempt *attempt)
{
	return session->name != RMEM_SESSION_NONE && session_of_client(session, attempt);
}

bool rmem_session_is_attempt(const struct rmem_session *session, const struct rmem_attempt *attempt)
{
	return session_same_client(session, attempt) && session->nonce == attempt->nonce &&
	       session->integrity == attempt->integrity;
}

size_t rmem_sessions_bytes(u32 slots, u32 window_ids)
{
	return slots * (sizeof(struct rmem_session) + rmem_session_window_bytes(window_ids));
}

void rmem_sessions_init(struct rmem_sessions *sessions, void *memory, u32 slots, u32 window_ids,
			u64 generation, const struct base_siphash_key *secret)
{
	u8 *bits = (u8 *)memory + slots * sizeof(struct rmem_session);
	u32 n;

	sessions->slot = memory;
	sessions->slots = slots;
	sessions->undo = NULL;
	sessions->in_use = 0;
	/* Half of the 48 bits are left to count in. */
	sessions->generation = generation & ((1ULL << (63 - RMEM_SESSION_SLOT_BITS)) - 1);
	sessions->foreseen = !secret;
	if (secret)
		sessions->secret = *secret;
	for (n = 0; n < slots; n++) {
		rmem_session_init(&sessions->slot[n], bits, window_ids);
		bits += rmem_session_window_bytes(window_ids);
	}
}

void rmem_sessions_locate(struct rmem_sessions *sessions, void *memory, u32 slots, u32 window_ids)
{
	u8 *bits = (u8 *)memory + slots * sizeof(struct rmem_session);
	u32 n;

	sessions->slot = memory;
	for (n = 0; n < slots; n++) {
		session_locate(&sessions->slot[n], bits, window_ids);
		bits += rmem_session_window_bytes(window_ids);
	}
}

static void session_rebuild(struct rmem_session *session, u64 now_ns)
{
	u32 words = session_map_bytes(session->window_ids) / sizeof(u64), n;

	if (session->rising > session->floor)
		session_raise_floor(session, session->rising);
	/* A refusal without the mark wasn't complete, and no call runs. */
	for (n = 0; n < words; n++)
		session->refused[n] &= session->executed[n];
	session->running = 0;
	session->stops = false;
	session->drains_ns = 0;
	session->fence_id = 0;
	session->used_ns = now_ns;
}

void rmem_sessions_rebuild(struct rmem_sessions *sessions, u64 now_ns)
{
	u32 n;

	sessions->in_use = 0;
	for (n = 0; n < sessions->slots; n++) {
		struct rmem_session *session = &sessions->slot[n];

		if (session->name == RMEM_SESSION_NONE) {
			rmem_session_forget_keys(session);
			continue;
		}
		session_rebuild(session, now_ns);
		sessions->in_use++;
	}
}

struct rmem_session *rmem_sessions_by_origin(const struct rmem_sessions *sessions, u64 origin)
{
	/* Renewals keep the slot. */
	struct rmem_session *session = &sessions->slot[rmem_sessions_slot_of(sessions, origin)];

	return session->name != RMEM_SESSION_NONE && session->origin == origin ? session : NULL;
}

static u64 session_challenge_of(const struct rmem_sessions *sessions, u64 boot, u32 space,
				const struct rmem_peer *peer, u64 period)
{
	u64 in[5] = { base_load_le64(peer->addr), base_load_le64(peer->addr + 8),
		      (u64)space << 16 | peer->port, boot, period };
	u64 challenge = base_siphash(&sessions->secret, in, sizeof(in));

	return challenge ? challenge : 1;
}

u64 rmem_sessions_challenge(const struct rmem_sessions *sessions, u64 boot, u32 space,
			    const struct rmem_peer *peer, u64 now_ns)
{
	return session_challenge_of(sessions, boot, space, peer, now_ns >> 32);
}

bool rmem_sessions_meets(const struct rmem_sessions *sessions, u64 challenge, u64 boot, u32 space,
			 const struct rmem_peer *peer, u64 now_ns)
{
	u64 period = now_ns >> 32;

	return challenge == session_challenge_of(sessions, boot, space, peer, period) ||
	       challenge == session_challenge_of(sessions, boot, space, peer, period - 1);
}

u32 rmem_sessions_slot_of(const struct rmem_sessions *sessions, u64 name)
{
	u32 slot = name & SLOT_MASK;

	return slot < sessions->slots ? slot : 0;
}

struct rmem_session *rmem_sessions_find(const struct rmem_sessions *sessions, u64 name)
{
	struct rmem_session *session = &sessions->slot[rmem_sessions_slot_of(sessions, name)];

	return name != RMEM_SESSION_NONE && session->name == name ? session : NULL;
}

bool rmem_sessions_names(const struct rmem_sessions *sessions, u64 name, u32 *space)
{
	const struct rmem_session *session =
		&sessions->slot[rmem_sessions_slot_of(sessions, name)];

	if (name == RMEM_SESSION_NONE || __atomic_load_n(&session->name, __ATOMIC_ACQUIRE) != name)
		return false;
	*space = __atomic_load_n(&session->place.space, __ATOMIC_RELAXED);
	/* Pairs with rmem_sessions_open(). */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&session->name, __ATOMIC_RELAXED) == name;
}

bool rmem_sessions_is_late(const struct rmem_sessions *sessions, const struct rmem_attempt *attempt)
{
	u32 n;

	for (n = 0; n < sessions->slots; n++) {
		const struct rmem_session *session = &sessions->slot[n];

		if (session_of_client(session, attempt) &&
		    (session->nonce > attempt->nonce ||
		     (session->nonce == attempt->nonce && session->name == RMEM_SESSION_NONE &&
		      __atomic_load_n(&session->used, __ATOMIC_RELAXED))))
			return true;
	}
	return false;
}

int rmem_sessions_superseded(const struct rmem_sessions *sessions,
			     const struct rmem_attempt *attempt)
{
	u32 n;

	for (n = 0; n < sessions->slots; n++) {
		const struct rmem_session *session = &sessions->slot[n];

		if (session_same_client(session, attempt) &&
		    !rmem_session_is_attempt(session, attempt))
			return n;
	}
	return -1;
}

/* How long the slot's session hasn't been used; another CPU's clock might be a bit ahead. */
static u64 session_idle_for_ns(const struct rmem_session *session, u64 now_ns)
{
	u64 used_ns = __atomic_load_n(&session->used_ns, __ATOMIC_RELAXED);

	return used_ns < now_ns ? now_ns - used_ns : 0;
}

/* The content of the slots as an attempt sees it. Slots by index; -1: none. */
struct survey {
	int its;  /* the attempt's own */
	int free; /* unused for longest */
	int idle; /* the same, of sessions that can be evicted */
	int own_idle; /* of the attempt's space */
	u32 idles;    /* sessions that can be evicted */
	u32 has;      /* sessions of the attempt's space */
};

/* The slot unused for longer. */
static int session_longer_idle(const struct rmem_sessions *sessions, int than, int slot, u64 now_ns)
{
	return than < 0 || session_idle_for_ns(&sessions->slot[slot], now_ns) >
				   session_idle_for_ns(&sessions->slot[than], now_ns) ? slot : than;
}

static void session_survey_add(const struct rmem_sessions *sessions,
			       const struct rmem_attempt *attempt, u64 now_ns, u64 idle_ns, int n,
			       struct survey *survey)
{
	const struct rmem_session *session = &sessions->slot[n];
	bool own = session_of_space(session, attempt);

	if (session->name == RMEM_SESSION_NONE) {
		survey->free = session_longer_idle(sessions, survey->free, n, now_ns);
		return;
	}
	if (rmem_session_is_attempt(session, attempt))
		survey->its = n;
	survey->has += own;
	/* Confirmed under the slot's lock. */
	if (session_idle_for_ns(session, now_ns) < idle_ns ||
	    __atomic_load_n(&session->running, __ATOMIC_RELAXED))
		return;
	survey->idles++;
	survey->idle = session_longer_idle(sessions, survey->idle, n, now_ns);
	if (own)
		survey->own_idle = session_longer_idle(sessions, survey->own_idle, n, now_ns);
}

/*
 * A space that has its share gets the place of an idle session of its own. Other spaces lose idle
 * sessions to it only if that leaves enough free ones: all those evicted are counted first.
 */
int rmem_sessions_choose(const struct rmem_sessions *sessions, const struct rmem_attempt *attempt,
			 u32 spaces, u64 now_ns, u64 idle_ns)
{
	struct survey survey = { .its = -1, .free = -1, .idle = -1, .own_idle = -1 };
	u32 slots = sessions->slots, free = slots - sessions->in_use;
	u32 n;

	for (n = 0; n < slots && survey.its < 0; n++)
		session_survey_add(sessions, attempt, now_ns, idle_ns, n, &survey);
	if (survey.its >= 0)
		return survey.its;
	if (attempt->replaces || rmem_share_permits(slots, free, spaces, survey.has))
		return survey.free >= 0 ? survey.free : survey.idle;
	if (survey.own_idle >= 0)
		return survey.own_idle;
	return rmem_share_permits(slots, free + survey.idles, spaces, survey.has) ? survey.idle
										  : -1;
}

bool rmem_sessions_may_open(const struct rmem_sessions *sessions, u32 slot, u64 now_ns, u64 idle_ns)
{
	const struct rmem_session *session = &sessions->slot[slot];

	return session->name == RMEM_SESSION_NONE ||
	       (!session->running && session_idle_for_ns(session, now_ns) >= idle_ns);
}

/*
 * Another one for each generation, of 48 bits: four rounds over its halves (Luby and Rackoff,
 * "How to construct pseudorandom permutations", 1988).
 */
static u64 session_shuffled(const struct rmem_sessions *sessions, u64 generation)
{
	u64 left = generation >> HALF_BITS & HALF_MASK;
	u64 right = generation & HALF_MASK;
	u64 round;

	for (round = 0; round < 4; round++) {
		u64 in[2] = {round, right};
		u64 next = left ^ (base_siphash(&sessions->secret, in, sizeof(in)) & HALF_MASK);

		left = right;
		right = next;
	}
	return left << HALF_BITS | right;
}

static u64 session_next_name(struct rmem_sessions *sessions, u32 slot)
{
	u64 name;

	do {
		u64 generation = ++sessions->generation;

		name = sessions->foreseen ? generation : session_shuffled(sessions, generation);
	} while (!name); /* with slot 0 it would be none */
	return name << RMEM_SESSION_SLOT_BITS | slot;
}

#define KEY_WORDS (sizeof(struct rmem_seal_keys) / sizeof(u64))

/* Written while the slot has no name: rmem_sessions_keys() reads them without the slot's lock. */
static void session_set_keys(struct rmem_session *session, const struct rmem_seal_keys *keys)
{
	const u64 *from = (const u64 *)keys;
	u64 *to = (u64 *)&session->keys;
	size_t n;

	for (n = 0; n < KEY_WORDS; n++)
		__atomic_store_n(&to[n], from[n], __ATOMIC_RELAXED);
}

void rmem_session_forget_keys(struct rmem_session *session)
{
	static const struct rmem_seal_keys none;

	if (session->integrity == RMEM_SEALED)
		session_set_keys(session, &none);
}

bool rmem_sessions_keys(const struct rmem_sessions *sessions, u64 name, u32 space,
			struct rmem_seal_keys *keys)
{
	const struct rmem_session *session =
		&sessions->slot[rmem_sessions_slot_of(sessions, name)];
	const u64 *from = (const u64 *)&session->keys;
	u64 *to = (u64 *)keys;
	u64 bits = 0;
	size_t n;

	if (name == RMEM_SESSION_NONE || __atomic_load_n(&session->name, __ATOMIC_ACQUIRE) != name)
		return false;
	if (__atomic_load_n(&session->place.space, __ATOMIC_RELAXED) != space ||
	    __atomic_load_n(&session->integrity, __ATOMIC_RELAXED) != RMEM_SEALED)
		return false;
	for (n = 0; n < KEY_WORDS; n++)
		bits |= to[n] = __atomic_load_n(&from[n], __ATOMIC_RELAXED);
	/* Pairs with session_take_name(). */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	/* Without a bit they were forgotten. */
	return bits && __atomic_load_n(&session->name, __ATOMIC_RELAXED) == name;
}

/* The slot has no name from here until it gets its next one. */
static void session_take_name(struct rmem_session *session)
{
	session_set_name(session, RMEM_SESSION_NONE);
	/* Pairs with rmem_sessions_names() and rmem_sessions_keys(): nothing of another name. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Keys of a session that is about to have this name, if it is sealed. */
static bool session_make_keys(struct rmem_session *session, u64 name,
			      const struct rmem_attempt *attempt)
{
	struct rmem_seal_attempt *seal = attempt->seal;
	struct rmem_seal_keys keys;
	bool done;

	if (!seal)
		return true;
	base_store_le64(&seal->keying.session, name);
	done = rmem_seal_derive(seal->cipher, seal->space_key, &seal->keying, &keys);
	if (done) {
		session_set_keys(session, &keys);
		base_copy(session->node_key, seal->keying.node_key, sizeof(session->node_key));
	}
	rmem_seal_wipe(&keys, sizeof(keys));
	return done;
}

static void session_unused(struct rmem_session *session, u64 now_ns)
{
	__atomic_store_n(&session->used, false, __ATOMIC_RELAXED);
	__atomic_store_n(&session->used_ns, now_ns, __ATOMIC_RELAXED);
}

static bool session_open(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			 const struct rmem_attempt *attempt, const struct rmem_peer *peer)
{
	struct rmem_session *session = &sessions->slot[slot];
	u64 name = session_next_name(sessions, slot);

	rmem_sessions_close(sessions, slot);
	session_take_name(session);
	if (!session_make_keys(session, name, attempt))
		return false;
	sessions->in_use++;
	base_zero(session->executed, rmem_session_window_bytes(session->window_ids));
	session->place = attempt->place;
	__atomic_store_n(&session->integrity, attempt->integrity, __ATOMIC_RELAXED);
	session_set_name(session, name);
	session->origin = session->name;
	session->before = RMEM_SESSION_NONE;
	session->floor = 1;
	session->rising = 0;
	session->newest_id = 0;
	session->refused_id = 0;
	session->alloc_id = 0;
	session->drains_ns = 0;
	__atomic_store_n(&session->stops, false, __ATOMIC_RELAXED);
	session->fence_id = 0;
	session->datagram_bytes = attempt->datagram_bytes;
	session->peer = *peer;
	session->nonce = attempt->nonce;
	base_copy(session->client, attempt->client, sizeof(session->client));
	session_unused(session, now_ns);
	return true;
}

/* No keys that the session no longer has stay in the copy. */
static void session_undo_end(struct rmem_undo *undo)
{
	rmem_undo_end(undo);
	if (undo)
		rmem_seal_wipe(undo->old, sizeof(struct rmem_session));
}

bool rmem_sessions_open(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			const struct rmem_attempt *attempt, const struct rmem_peer *peer)
{
	bool opened;

	rmem_undo_begin(sessions->undo, &sessions->slot[slot], sizeof(*sessions->slot));
	opened = session_open(sessions, slot, now_ns, attempt, peer);
	session_undo_end(sessions->undo);
	return opened;
}

bool rmem_session_may_renew(const struct rmem_session *session, const struct rmem_attempt *attempt)
{
	if (attempt->renews == RMEM_SESSION_NONE || !session_same_client(session, attempt) ||
	    session->integrity != attempt->integrity)
		return false;
	return session->name == attempt->renews ||
	       (session->before == attempt->renews && !session->used);
}

static bool session_renew(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			  const struct rmem_attempt *attempt, const struct rmem_peer *peer)
{
	struct rmem_session *session = &sessions->slot[slot];
	u64 name = session_next_name(sessions, slot);

	if (attempt->seal) {
		u64 last = session->name;

		session_take_name(session);
		if (!session_make_keys(session, name, attempt)) {
			session_set_name(session, last);
			return false;
		}
	}
	session->before = attempt->renews;
	session_set_name(session, name);
	session->datagram_bytes = attempt->datagram_bytes;
	session->peer = *peer;
	session->nonce = attempt->nonce;
	session->drains_ns = 0;
	session_unused(session, now_ns);
	return true;
}

bool rmem_sessions_renew(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			 const struct rmem_attempt *attempt, const struct rmem_peer *peer)
{
	bool renewed;

	rmem_undo_begin(sessions->undo, &sessions->slot[slot], sizeof(*sessions->slot));
	renewed = session_renew(sessions, slot, now_ns, attempt, peer);
	session_undo_end(sessions->undo);
	return renewed;
}

void rmem_sessions_close(struct rmem_sessions *sessions, u32 slot)
{
	struct rmem_session *session = &sessions->slot[slot];

	if (session->name == RMEM_SESSION_NONE)
		return;
	session_take_name(session);
	sessions->in_use--;
	rmem_session_forget_keys(session);
}
