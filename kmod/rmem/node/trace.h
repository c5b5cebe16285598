/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the memory node: one for every decision it takes.
 *
 *	request    a message verified, before anything is done
 *	decision   the node's decision on it, and why
 *	drop       a message ended before that, by counter name
 *	session    opened; closed; ended, as it was superseded or evicted
 *	region     allocated, freed
 *	scrub      a page was zeroed, or is still referred to and was put off
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rmem_node

#if !defined(REMORA_RMEM_NODE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define REMORA_RMEM_NODE_TRACE_H

#include <linux/tracepoint.h>

#include "compat/compat.h"
#include "rmem/node/count.h"

#define show_rmem_type(type) __print_symbolic(type, RMEM_TYPE_SYMBOLS)

#define show_rmem_action(action) __print_symbolic(action, RMEM_NODE_ACTION_SYMBOLS)

TRACE_EVENT(rmem_node_request,
	TP_PROTO(const struct rmem_head *msg),
	TP_ARGS(msg),
	TP_STRUCT__entry(
		__field(u8, type)
		__field(u8, attempt)
		__field(u32, space)
		__field(u64, session)
		__field(u64, id)
		__field(u64, floor)
		__field(u64, addr)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->type = msg->type;
		__entry->attempt = msg->attempt;
		__entry->space = msg->space;
		__entry->session = msg->session;
		__entry->id = msg->id;
		__entry->floor = msg->floor;
		__entry->addr = msg->addr;
		__entry->len = msg->len;
	),
	TP_printk("%s space=%u session=%#llx id=%llu floor=%llu attempt=%u addr=%#llx len=%u",
		  show_rmem_type(__entry->type), __entry->space, __entry->session, __entry->id,
		  __entry->floor, __entry->attempt, __entry->addr, __entry->len)
);

TRACE_EVENT(rmem_node_decision,
	TP_PROTO(const struct rmem_head *msg, const struct rmem_answer *answer),
	TP_ARGS(msg, answer),
	TP_STRUCT__entry(
		__field(u8, type)
		__field(u8, status)
		__field(u8, action)
		__string(reason, node_count_name[NODE_COUNT_REASON + answer->reason])
		__field(u64, session)
		__field(u64, id)
	),
	TP_fast_assign(
		__entry->type = msg->type;
		__entry->status = answer->action == RMEM_ACT_DROP ? 0 : answer->reply.status;
		__entry->action = answer->action;
		compat_assign_str(reason, node_count_name[NODE_COUNT_REASON + answer->reason]);
		__entry->session = msg->session;
		__entry->id = msg->id;
	),
	TP_printk("%s session=%#llx id=%llu %s %s status=%u", show_rmem_type(__entry->type),
		  __entry->session, __entry->id, show_rmem_action(__entry->action),
		  __get_str(reason), __entry->status)
);

TRACE_EVENT(rmem_node_drop,
	TP_PROTO(unsigned int count, unsigned int bytes),
	TP_ARGS(count, bytes),
	TP_STRUCT__entry(
		__string(reason, node_count_name[count])
		__field(unsigned int, bytes)
	),
	TP_fast_assign(
		compat_assign_str(reason, node_count_name[count]);
		__entry->bytes = bytes;
	),
	TP_printk("%s bytes=%u", __get_str(reason), __entry->bytes)
);

TRACE_EVENT(rmem_node_session,
	TP_PROTO(const char *event, u32 slot, u64 session),
	TP_ARGS(event, slot, session),
	TP_STRUCT__entry(
		__string(event, event)
		__field(u32, slot)
		__field(u64, session)
	),
	TP_fast_assign(
		compat_assign_str(event, event);
		__entry->slot = slot;
		__entry->session = session;
	),
	TP_printk("%s slot=%u session=%#llx", __get_str(event), __entry->slot, __entry->session)
);

TRACE_EVENT(rmem_node_region,
	TP_PROTO(const struct rmem_head *msg, u64 addr, u64 bytes),
	TP_ARGS(msg, addr, bytes),
	TP_STRUCT__entry(
		__field(u8, type)
		__field(u32, space)
		__field(u64, addr)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->type = msg->type;
		__entry->space = msg->space;
		__entry->addr = addr;
		__entry->bytes = bytes;
	),
	TP_printk("%s space=%u addr=%#llx bytes=%llu", show_rmem_type(__entry->type),
		  __entry->space, __entry->addr, __entry->bytes)
);

TRACE_EVENT(rmem_node_scrub,
	TP_PROTO(u32 page, int references),
	TP_ARGS(page, references),
	TP_STRUCT__entry(
		__field(u32, page)
		__field(int, references)
	),
	TP_fast_assign(
		__entry->page = page;
		__entry->references = references;
	),
	TP_printk("page=%u %s references=%d", __entry->page,
		  __entry->references ? "held" : "zeroed", __entry->references)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH rmem/node
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
