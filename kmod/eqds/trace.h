/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of eqds devices.
 *
 *	send      a tunnel header leaves: data, RTS, FIN or control
 *	receive   one has arrived, before the core sees it; of a train, the first
 *	outcome   the core's answer to it
 *
 * These say what else the core is given, so that a run can be repeated without the kernel
 * (selftests/replay):
 *
 *	turn      the lock is taken for events of one time, by a device of a network namespace
 *	open      a tunnel is made, with what was drawn by chance
 *	enqueue   a packet enters a tunnel's queue; of a whole one, what each segment costs
 *	pass      a packet leaves at once, without a number
 *	expire    a sending tunnel's deadline has passed; bytes: in flight
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM eqds

#if !defined(KMOD_EQDS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KMOD_EQDS_TRACE_H

#include <linux/tracepoint.h>
#include <net/net_namespace.h>

#include "eqds/device.h"

#define show_eqds_flags(flags)                                                                     \
	__print_flags(flags, "|", { EQDS_SYN, "syn" }, { EQDS_NACK, "nack" },                      \
		      { EQDS_SACK, "sack" }, { EQDS_ACK, "ack" }, { EQDS_EMPTY, "empty" },         \
		      { EQDS_PAUSE, "pause" }, { EQDS_FIN, "fin" }, { EQDS_TRIM, "trim" })

DECLARE_EVENT_CLASS(eqds_header,
	TP_PROTO(const struct eqds_dev *ed, const struct in6_addr *peer,
		 const struct eqds_head *wire),
	TP_ARGS(ed, peer, wire),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(bool, control)
		__field(u8, flags)
		__field(u8, attempt)
		__field(u32, epoch)
		__field(u32, number)
		__field(u32, pull)
		__field(u16, path)
		__field(u16, busy_us)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, peer, sizeof(*peer));
		__entry->control = wire->control;
		__entry->flags = wire->flags;
		__entry->attempt = wire->attempt;
		__entry->epoch = wire->epoch;
		__entry->number = wire->control ? wire->ack : wire->seq;
		__entry->pull = wire->pull;
		__entry->path = wire->path;
		__entry->busy_us = wire->busy_us;
	),
	TP_printk("ifindex=%d peer=%pI6c %s %s epoch=%#x %s=%u attempt=%u %s=%u path=%u busy=%u us",
		  __entry->ifindex, __entry->peer, __entry->control ? "control" : "data",
		  show_eqds_flags(__entry->flags), __entry->epoch,
		  __entry->control ? "ack" : "seq", __entry->number, __entry->attempt,
		  __entry->control ? "pull" : "target", __entry->pull, __entry->path,
		  __entry->busy_us)
);

DEFINE_EVENT(eqds_header, eqds_send,
	TP_PROTO(const struct eqds_dev *ed, const struct in6_addr *peer,
		 const struct eqds_head *wire),
	TP_ARGS(ed, peer, wire));

DEFINE_EVENT(eqds_header, eqds_receive,
	TP_PROTO(const struct eqds_dev *ed, const struct in6_addr *peer,
		 const struct eqds_head *wire),
	TP_ARGS(ed, peer, wire));

TRACE_EVENT(eqds_outcome,
	TP_PROTO(const struct eqds_dev *ed, const struct eqds_tunnel *tunnel, u8 verdict),
	TP_ARGS(ed, tunnel, verdict),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(bool, sending)
		__field(u8, verdict)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, &tunnel->peer, sizeof(tunnel->peer));
		__entry->sending = tunnel->sending;
		__entry->verdict = verdict;
	),
	TP_printk("ifindex=%d peer=%pI6c %s %s", __entry->ifindex, __entry->peer,
		  __entry->sending ? "sender" : "receiver",
		  __print_symbolic(__entry->verdict, { EQDS_OK, "ok" },
				   { EQDS_DUPLICATE, "duplicate" }, { EQDS_TRIMMED, "trimmed" },
				   { EQDS_BEYOND, "beyond" }, { EQDS_OLD_EPOCH, "old-epoch" },
				   { EQDS_WRONG_EPOCH, "wrong-epoch" },
				   { EQDS_BAD_ACK, "bad-ack" }, { EQDS_BAD_PULL, "bad-pull" },
				   { EQDS_BAD_NACK, "bad-nack" }, { EQDS_RESTARTED, "restarted" },
				   { EQDS_CLOSED, "closed" }, { EQDS_NO_TUNNEL, "no-tunnel" }))
);

TRACE_EVENT(eqds_turn,
	TP_PROTO(const struct eqds_dev *ed, u8 kind, u64 now_ns),
	TP_ARGS(ed, kind, now_ns),
	TP_STRUCT__entry(
		__field(u32, net)
		__field(int, ifindex)
		__field(u8, kind)
		__field(u64, now_ns)
	),
	TP_fast_assign(
		__entry->net = ed->net->ns.inum;
		__entry->ifindex = ed->dev->ifindex;
		__entry->kind = kind;
		__entry->now_ns = now_ns;
	),
	TP_printk("net=%u ifindex=%d kind=%s now=%llu", __entry->net, __entry->ifindex,
		  __print_symbolic(__entry->kind, { EQDS_TURN_XMIT, "xmit" },
				   { EQDS_TURN_POLL, "poll" }, { EQDS_TURN_DUE, "due" },
				   { EQDS_TURN_PULL, "pull" }), __entry->now_ns)
);

TRACE_EVENT(eqds_open,
	TP_PROTO(const struct eqds_dev *ed, const struct eqds_tunnel *tunnel, u16 id, u32 epoch,
		 u64 chance),
	TP_ARGS(ed, tunnel, id, epoch, chance),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(bool, sending)
		__field(u16, id)
		__field(u32, epoch)
		__field(u64, chance)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, &tunnel->peer, sizeof(tunnel->peer));
		__entry->sending = tunnel->sending;
		__entry->id = id;
		__entry->epoch = epoch;
		__entry->chance = chance;
	),
	TP_printk("ifindex=%d peer=%pI6c %s id=%u epoch=%#x %s=%#llx", __entry->ifindex,
		  __entry->peer, __entry->sending ? "sender" : "receiver", __entry->id,
		  __entry->epoch, __entry->sending ? "seed" : "cookie", __entry->chance)
);

TRACE_EVENT(eqds_enqueue,
	TP_PROTO(const struct eqds_dev *ed, const struct eqds_tx *tx, const struct eqds_node *node,
		 u32 each_bytes),
	TP_ARGS(ed, tx, node, each_bytes),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(u16, id)
		__field(u32, bytes)
		__field(u8, next_proto)
		__field(u16, segments)
		__field(u32, each_bytes)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, &tx->tunnel.peer, sizeof(tx->tunnel.peer));
		__entry->id = tx->core.id;
		__entry->bytes = node->core.bytes;
		__entry->next_proto = node->core.next_proto;
		__entry->segments = node->segments;
		__entry->each_bytes = each_bytes;
	),
	TP_printk("ifindex=%d peer=%pI6c id=%u bytes=%u proto=%u segments=%u each=%u",
		  __entry->ifindex, __entry->peer, __entry->id, __entry->bytes, __entry->next_proto,
		  __entry->segments, __entry->each_bytes)
);

TRACE_EVENT(eqds_pass,
	TP_PROTO(const struct eqds_dev *ed, const struct eqds_tx *tx, u32 bytes, u8 next_proto),
	TP_ARGS(ed, tx, bytes, next_proto),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(u16, id)
		__field(u32, bytes)
		__field(u8, next_proto)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, &tx->tunnel.peer, sizeof(tx->tunnel.peer));
		__entry->id = tx->core.id;
		__entry->bytes = bytes;
		__entry->next_proto = next_proto;
	),
	TP_printk("ifindex=%d peer=%pI6c id=%u bytes=%u proto=%u", __entry->ifindex, __entry->peer,
		  __entry->id, __entry->bytes, __entry->next_proto)
);

TRACE_EVENT(eqds_expire,
	TP_PROTO(const struct eqds_dev *ed, const struct eqds_tx *tx),
	TP_ARGS(ed, tx),
	TP_STRUCT__entry(
		__field(int, ifindex)
		__array(u8, peer, 16)
		__field(u16, id)
		__field(u32, bytes)
	),
	TP_fast_assign(
		__entry->ifindex = ed->dev->ifindex;
		memcpy(__entry->peer, &tx->tunnel.peer, sizeof(tx->tunnel.peer));
		__entry->id = tx->core.id;
		__entry->bytes = tx->core.in_flight.bytes;
	),
	TP_printk("ifindex=%d peer=%pI6c id=%u bytes=%u", __entry->ifindex, __entry->peer,
		  __entry->id, __entry->bytes)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH eqds
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
