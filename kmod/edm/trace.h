/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of a membership, in the order of a message's stages. Their times differ by the
 * stages' times.
 *
 *	announce  N: the host tells the scheduler of a message, or asks for a read
 *	grant     G: the scheduler grants bytes of a message
 *	leave     a datagram of the message leaves; of an answer: bytes may leave
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM edm

#if !defined(KMOD_EDM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KMOD_EDM_TRACE_H

#include <linux/tracepoint.h>

#include "remora/edm.h"

#define show_edm_type(type)                                                                        \
	__print_symbolic(type, { EDM_WRITE, "write" }, { EDM_READ, "read" },                       \
			 { EDM_ANSWER, "answer" })

/* bytes: announce: of the message; grant: that are granted, up to end. */
DECLARE_EVENT_CLASS(edm_item,
	TP_PROTO(u16 port, const struct edm_item *item),
	TP_ARGS(port, item),
	TP_STRUCT__entry(
		__field(u16, port)
		__field(u16, peer)
		__field(u8, type)
		__field(u32, id)
		__field(u32, bytes)
		__field(u32, end)
	),
	TP_fast_assign(
		__entry->port = port;
		__entry->peer = item->peer;
		__entry->type = item->type;
		__entry->id = item->id;
		__entry->bytes = item->size;
		__entry->end = item->granted;
	),
	TP_printk("port=%u peer=%u %s id=%u bytes=%u end=%u", __entry->port, __entry->peer,
		  show_edm_type(__entry->type), __entry->id, __entry->bytes, __entry->end)
);

DEFINE_EVENT(edm_item, edm_announce,
	TP_PROTO(u16 port, const struct edm_item *item),
	TP_ARGS(port, item)
);

DEFINE_EVENT(edm_item, edm_grant,
	TP_PROTO(u16 port, const struct edm_item *item),
	TP_ARGS(port, item)
);

TRACE_EVENT(edm_leave,
	TP_PROTO(u16 port, u16 peer, u8 type, u32 id, u32 from, u32 bytes, bool unscheduled),
	TP_ARGS(port, peer, type, id, from, bytes, unscheduled),
	TP_STRUCT__entry(
		__field(u16, port)
		__field(u16, peer)
		__field(u8, type)
		__field(bool, unscheduled)
		__field(u32, id)
		__field(u32, from)
		__field(u32, bytes)
	),
	TP_fast_assign(
		__entry->port = port;
		__entry->peer = peer;
		__entry->type = type;
		__entry->unscheduled = unscheduled;
		__entry->id = id;
		__entry->from = from;
		__entry->bytes = bytes;
	),
	TP_printk("port=%u peer=%u %s id=%u from=%u bytes=%u%s", __entry->port, __entry->peer,
		  show_edm_type(__entry->type), __entry->id, __entry->from, __entry->bytes,
		  __entry->unscheduled ? " unscheduled" : "")
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH edm
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
