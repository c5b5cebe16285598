// SPDX-License-Identifier: GPL-2.0
/*
 * The client's transport over UDP/IP (path.h): a path is a connected socket (socket.c), a batch is
 * a list of datagrams (packet.c), and a record is a message of one.
 */
#include <linux/module.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "rmem/transport/udp/packet.h"
#include "rmem/transport/udp/path.h"
#include "rmem/carrier/cipher.h"
#include "rmem/carrier/skb.h"

/* ---- out ---- */

struct udp_batch {
	struct sk_buff *first, *last; /* whole datagrams */
	struct rmem_packet packet;    /* the one that others can join */
	bool reads;		      /* its messages do */
	bool sealed;		      /* there are datagrams that this key seals */
	struct rmem_seal_key key;
};

static_assert(sizeof(struct udp_batch) <= sizeof(struct rmem_batch));

static void udp_close_packet(struct udp_batch *batch, const struct rmem_session *session)
{
	struct sk_buff *skb = rmem_packet_take(&batch->packet, session);

	if (!skb)
		return;
	if (batch->first)
		batch->last->next = skb;
	else
		batch->first = skb;
	batch->last = skb;
}

/* A gate wants messages that read apart from others, for only these have answers that are long. */
static bool udp_takes(struct rmem_path *path, const struct udp_batch *batch,
		      const struct rmem_client_tx *tx)
{
	if (udp_path_of(path)->gate && batch->reads != rmem_type_answers_data(tx->head.type))
		return false;
	return rmem_packet_takes(&batch->packet, tx, path->batch_bytes);
}

bool rmem_udp_add(struct rmem_path *path, struct rmem_batch *batch, struct rmem_client_tx *tx,
		  u32 row)
{
	struct udp_batch *mine = (struct udp_batch *)batch;
	bool copied = false;

	if (!udp_takes(path, mine, tx))
		udp_close_packet(mine, path->session);
	if (path->session->integrity == RMEM_SEALED && !tx->head.clear && !mine->sealed) {
		mine->key = *path->to->sealing_key(path->channel);
		mine->sealed = true;
	}
	mine->reads = rmem_type_answers_data(tx->head.type);
	if (unlikely(!rmem_packet_add(&mine->packet, path->session, tx, row, &copied))) {
		rmem_path_count(path, RMEM_PATH_NO_BUFFER);
		return false;
	}
	if (unlikely(copied))
		rmem_path_count(path, RMEM_PATH_COPIED);
	return true;
}
EXPORT_SYMBOL_GPL(rmem_udp_add);

void rmem_udp_transmit(struct udp_path *path, struct sk_buff *skb)
{
	int how = rmem_socket_transmit(&path->socket, skb);

	if (unlikely(how))
		rmem_path_count(&path->path, how > 0	      ? RMEM_PATH_SPARE
					     : how == -ENOMEM ? RMEM_PATH_NO_BUFFER
							      : RMEM_PATH_NO_ROUTE);
}
EXPORT_SYMBOL_GPL(rmem_udp_transmit);

/* Seals a datagram, if it is to be. False: that can't be, and it counts as lost. */
static bool udp_seal(struct udp_path *path, struct udp_batch *batch, struct sk_buff *skb, u64 salt)
{
	static_assert(sizeof(salt) == RMEM_SEAL_SALT_BYTES);

	if (likely(!rmem_wire_is_sealed(skb->data) ||
		   rmem_packet_seal(skb, &batch->key, (const u8 *)&salt)))
		return true;
	rmem_path_count(&path->path, RMEM_PATH_NO_BUFFER);
	kfree_skb(skb);
	return false;
}

void rmem_udp_flush(struct rmem_path *path, struct rmem_batch *batch)
{
	struct udp_batch *mine = (struct udp_batch *)batch;
	struct udp_path *udp = udp_path_of(path);
	struct sk_buff *skb, *next;
	u64 salt;

	udp_close_packet(mine, path->session);
	salt = mine->sealed ? rmem_cipher_salt() : 0;
	if (udp->gate && mine->first) {
		udp->gate->pass(udp, mine->first);
	} else {
		skb_list_walk_safe(mine->first, skb, next) {
			skb_mark_not_on_list(skb);
			if (udp_seal(udp, mine, skb, salt))
				rmem_udp_transmit(udp, skb);
		}
	}
	mine->first = NULL;
	if (mine->sealed)
		rmem_seal_wipe(&mine->key, sizeof(mine->key));
	mine->sealed = false;
}
EXPORT_SYMBOL_GPL(rmem_udp_flush);

/* ---- in ---- */

/* Is it from the path's node, and unchanged? */
static bool udp_verify(struct rmem_path *path, const struct rmem_datagram *d,
		       const struct sk_buff *skb, const void *heads,
		       enum rmem_path_count *reason)
{
	if (d->head.space != path->session->space ||
	    d->head.integrity != path->session->integrity)
		*reason = RMEM_PATH_DROP_STRANGER;
	else if (d->head.integrity == RMEM_LINK && !udp_hdr(skb)->check)
		*reason = RMEM_PATH_DROP_NO_CHECKSUM;
	else if (!rmem_skb_verifies(d, &path->session->key, skb, heads))
		*reason = RMEM_PATH_DROP_WIRE + RMEM_WIRE_TAG;
	else
		return true;
	return false;
}

/*
 * Opens a sealed datagram. Returns its header, heads and payloads, or NULL: it isn't from the
 * path's node, or was changed.
 */
static const void *udp_open_sealed(struct rmem_path *path, struct rmem_datagram *d,
				   const struct sk_buff *skb, const void *hdr,
				   enum rmem_path_count *reason)
{
	u32 bytes = skb->len - RMEM_SKB_HEADS, messages;
	enum rmem_wire_verdict verdict;
	struct rmem_seal_key key;
	const void *plain = NULL;

	verdict = rmem_wire_parse_hdr(hdr, &d->head, &messages);
	if (verdict == RMEM_WIRE_GOOD && !rmem_seal_fits(bytes))
		verdict = RMEM_WIRE_MALFORMED;
	*reason = RMEM_PATH_DROP_STRANGER;
	if (verdict == RMEM_WIRE_GOOD && (d->head.space != path->session->space ||
					  path->session->integrity != RMEM_SEALED))
		return NULL;
	if (verdict == RMEM_WIRE_GOOD && !rmem_seal_hdr_verifies(hdr, &path->session->key))
		verdict = RMEM_WIRE_TAG;
	if (verdict == RMEM_WIRE_GOOD) {
		if (!path->to->opening_key(path->channel, d->head.session, &key))
			return NULL;
		plain = rmem_skb_unseal(skb, &key);
		rmem_seal_wipe(&key, sizeof(key));
		verdict = plain ? rmem_datagram_open_unsealed(d, plain, bytes - RMEM_SEAL_BYTES,
							      true) :
				  RMEM_WIRE_SEAL;
	}
	*reason = RMEM_PATH_DROP_WIRE + verdict;
	return verdict == RMEM_WIRE_GOOD ? plain : NULL;
}

/* As it came. False: the same. */
static bool udp_open_plain(struct rmem_path *path, struct rmem_datagram *d,
			   const struct sk_buff *skb, const void *heads,
			   enum rmem_path_count *reason)
{
	enum rmem_wire_verdict verdict = rmem_skb_open(d, skb, heads, true);

	*reason = RMEM_PATH_DROP_WIRE + verdict;
	return likely(verdict == RMEM_WIRE_GOOD && udp_verify(path, d, skb, heads, reason));
}

/*
 * A packet came in; its UDP checksum, if it has one, was right. It can lie in memory reserved for
 * swap (skb_pfmemalloc()), so it is used or dropped at once, and never kept.
 */
static int udp_receive(struct sock *sk, struct sk_buff *skb)
{
	struct udp_path *mine = rcu_dereference_sk_user_data(sk);
	const void *heads, *plain = NULL;
	struct rmem_skb_heads buffer;
	enum rmem_path_count reason;
	struct rmem_skb_record r;
	struct rmem_path *path;
	struct rmem_datagram d;
	bool good;

	if (unlikely(!mine || READ_ONCE(mine->socket.moves))) {
		kfree_skb(skb);
		return 0;
	}
	path = &mine->path;
	heads = rmem_skb_copy_heads(skb, &buffer);
	if (heads && rmem_wire_is_sealed(heads)) {
		plain = udp_open_sealed(path, &d, skb, heads, &reason);
		heads = plain;
		good = plain;
	} else {
		good = udp_open_plain(path, &d, skb, heads, &reason);
	}
	if (unlikely(!good)) {
		path->to->drop(path->channel, reason, skb->len);
		kfree_skb(skb);
		return 0;
	}
	while (rmem_datagram_step(&d, heads)) {
		rmem_skb_record_init(&r, &d, skb, plain);
		if (mine->gate && rmem_type_answers_data(d.head.type))
			mine->gate->answered(mine, &d.head);
		path->to->receive(path->channel, &r.record);
	}
	consume_skb(skb);
	rmem_socket_heard(&mine->socket);
	path->to->settle(path->channel);
	return 0;
}

/* ---- life ---- */

int rmem_udp_open(struct rmem_path *path, const union udp_address *to)
{
	return rmem_socket_open(&udp_path_of(path)->socket, to, udp_receive, udp_path_of(path));
}
EXPORT_SYMBOL_GPL(rmem_udp_open);

void rmem_udp_quiesce(struct rmem_path *path)
{
	rmem_socket_deafen(&udp_path_of(path)->socket);
}
EXPORT_SYMBOL_GPL(rmem_udp_quiesce);

void rmem_udp_close(struct rmem_path *path)
{
	rmem_socket_close(&udp_path_of(path)->socket);
}
EXPORT_SYMBOL_GPL(rmem_udp_close);

/* As the route's MTU has it. */
int rmem_udp_limits(struct rmem_path *path, struct rmem_limits *limits,
		    struct netlink_ext_ack *extack)
{
	struct rmem_socket *socket = &udp_path_of(path)->socket;
	u32 seal = path->session->integrity == RMEM_SEALED ? RMEM_SEAL_BYTES : 0;
	u32 below = rmem_socket_header_bytes(socket) + seal;
	u32 headers = below + RMEM_HEADS_BYTES(1);
	bool offload;
	u32 mtu = rmem_socket_mtu_bytes(socket, &offload);

	if (!mtu) {
		NL_SET_ERR_MSG(extack, "there is no route to the node");
		return -EHOSTUNREACH;
	}
	if (mtu < headers + RMEM_PIECE_BYTES_MIN) {
		NL_SET_ERR_MSG_FMT(extack, "the route's MTU is %u, but %u is the least", mtu,
				   headers + RMEM_PIECE_BYTES_MIN);
		return -EMSGSIZE;
	}
	*limits = (struct rmem_limits){
		.payload_bytes = min(mtu - headers, RMEM_PIECE_BYTES_MAX),
		.batch_bytes = min(mtu - below, RMEM_DATAGRAM_BYTES_MAX),
		.checks_payload = true,
		.reads_early = !offload,
		.may_lose = true,
	};
	return 0;
}
EXPORT_SYMBOL_GPL(rmem_udp_limits);

static int udp_open(struct rmem_path *path, const struct rmem_address *to)
{
	return rmem_udp_open(path, udp_address_of(to));
}

static const struct rmem_transport_ops udp_transport = {
	.name = "udp",
	.owner = THIS_MODULE,
	.path_bytes = sizeof(struct udp_path),
	.seals = true,
	.no_answer = "the node does not answer: is its UDP port open, do space and key match?",
	.address_get = udp_address_get,
	.address_put = udp_address_put,
	.open = udp_open,
	.quiesce = rmem_udp_quiesce,
	.close = rmem_udp_close,
	.limits = rmem_udp_limits,
	.add = rmem_udp_add,
	.flush = rmem_udp_flush,
};

int rmem_udp_register(void)
{
	return rmem_transport_register(&udp_transport);
}

void rmem_udp_unregister(void)
{
	rmem_transport_unregister(&udp_transport);
}
