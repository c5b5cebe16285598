/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The client's decisions, packet by packet: events/rmem in tracefs. A message shows as
 * device.channel, type, id, attempt, floor, address and length.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rmem

#if !defined(REMORA_RMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define REMORA_RMEM_TRACE_H

#include <linux/tracepoint.h>

#include "compat/compat.h"
#include "rmem/client/count.h"

#define rmem_trace_type(type) __print_symbolic((type) & ~RMEM_RESPONSE, RMEM_TYPE_SYMBOLS)

#define rmem_trace_status(status)                                                                  \
	__print_symbolic(status, { RMEM_OK, "ok" }, { RMEM_DAMAGED, "damaged" },                   \
			 { RMEM_BUSY, "busy" }, { RMEM_NO_SESSION, "no-session" },                 \
			 { RMEM_REBOOTED, "rebooted" }, { RMEM_STALE, "stale" },                   \
			 { RMEM_FAULT, "fault" }, { RMEM_PERM, "perm" },                           \
			 { RMEM_INVALID, "invalid" }, { RMEM_NO_MEMORY, "no-memory" },     \
			 { RMEM_CHALLENGE, "challenge" },                                         \
			 { RMEM_EXISTS, "exists" }, { RMEM_NO_NAME, "no-name" }, \
			 { RMEM_NO_OFFLOAD, "no-offload" }, { RMEM_FAILED, "failed" },              \
			 { RMEM_OVER_BUDGET, "over-budget" })

#define rmem_trace_result(result)                                                                  \
	__print_symbolic(result, { RMEM_CLIENT_OK, "ok" }, { RMEM_CLIENT_LOST, "lost" },           \
			 { RMEM_CLIENT_REFUSED, "refused" }, { RMEM_CLIENT_TIMEOUT, "timeout" },   \
			 { RMEM_CLIENT_CANCELLED, "cancelled" }, { RMEM_CLIENT_UNKNOWN, "unknown" })

#define rmem_trace_channel_state(state)                                                            \
	__print_symbolic(state, { RMEM_CHANNEL_CLOSED, "closed" },                                 \
			 { RMEM_CHANNEL_OPENING, "opening" }, { RMEM_CHANNEL_OPEN, "open" },       \
			 { RMEM_CHANNEL_LOST, "lost" })

#define rmem_trace_device_state(state)                                                             \
	__print_symbolic(state, { RMEM_DEVICE_UP, "up" }, { RMEM_DEVICE_DOWN, "down" },            \
			 { RMEM_DEVICE_LOST, "lost" })

TRACE_EVENT(rmem_submit,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_op *op),
	TP_ARGS(c, op),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(const void *, op)
		__field(u64, addr)
		__field(u32, len)
		__field(u32, outstanding)
		__field(u8, type)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->op = op;
		__entry->addr = op->addr;
		__entry->len = op->len;
		__entry->outstanding = c->client.outstanding_ops;
		__entry->type = op->type;
	),
	TP_printk("%s.%u op %p %s addr 0x%llx len %u, %u before it", __get_str(device),
		  __entry->channel, __entry->op, rmem_trace_type(__entry->type), __entry->addr,
		  __entry->len, __entry->outstanding)
);

TRACE_EVENT(rmem_finish,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_op *op,
		 enum rmem_client_result result),
	TP_ARGS(c, op, result),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(const void *, op)
		__field(u8, type)
		__field(u8, status)
		__field(u8, result)
		__field(u8, attempt)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->op = op;
		__entry->type = op->type;
		__entry->status = op->status;
		__entry->result = result;
		__entry->attempt = op->attempt;
	),
	TP_printk("%s.%u op %p %s %s (%s) attempt %u", __get_str(device), __entry->channel,
		  __entry->op, rmem_trace_type(__entry->type), rmem_trace_result(__entry->result),
		  rmem_trace_status(__entry->status), __entry->attempt)
);

DECLARE_EVENT_CLASS(rmem_request,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_head *msg),
	TP_ARGS(c, msg),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, session)
		__field(u64, id)
		__field(u64, floor)
		__field(u64, addr)
		__field(u32, len)
		__field(u8, type)
		__field(u8, attempt)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->session = msg->session;
		__entry->id = msg->id;
		__entry->floor = msg->floor;
		__entry->addr = msg->addr;
		__entry->len = msg->len;
		__entry->type = msg->type;
		__entry->attempt = msg->attempt;
	),
	TP_printk("%s.%u %s session 0x%llx id %llu attempt %u floor %llu addr 0x%llx len %u",
		  __get_str(device), __entry->channel, rmem_trace_type(__entry->type),
		  __entry->session, __entry->id, __entry->attempt, __entry->floor, __entry->addr,
		  __entry->len)
);

DEFINE_EVENT(rmem_request, rmem_send,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_head *msg),
	TP_ARGS(c, msg)
);

/* There was no memory for the packet. */
DEFINE_EVENT(rmem_request, rmem_unsent,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_head *msg),
	TP_ARGS(c, msg)
);

TRACE_EVENT(rmem_receive,
	TP_PROTO(const struct rmem_channel *c, const struct rmem_head *msg, bool accepted,
		 bool damaged),
	TP_ARGS(c, msg, accepted, damaged),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, id)
		__field(u64, rtt_ns)
		__field(u32, cwnd)
		__field(u32, offset)
		__field(u32, len)
		__field(u8, type)
		__field(u8, status)
		__field(u8, attempt)
		__field(bool, accepted)
		__field(bool, damaged)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->id = msg->id;
		__entry->rtt_ns = c->client.rtt.srtt_ns;
		__entry->cwnd = c->client.window.cwnd;
		__entry->offset = msg->offset;
		__entry->len = msg->len;
		__entry->type = msg->type;
		__entry->status = msg->status;
		__entry->attempt = msg->attempt;
		__entry->accepted = accepted;
		__entry->damaged = damaged;
	),
	TP_printk("%s.%u %s id %llu attempt %u %s%s%s offset %u len %u, cwnd %u/1024 rtt %llu ns",
		  __get_str(device), __entry->channel, rmem_trace_type(__entry->type), __entry->id,
		  __entry->attempt, rmem_trace_status(__entry->status),
		  __entry->damaged ? ", payload damaged" : "",
		  __entry->accepted ? "" : ", ignored", __entry->offset, __entry->len,
		  __entry->cwnd, __entry->rtt_ns)
);

/* The timer went off, with the counters so far; sends of higher attempts follow. */
TRACE_EVENT(rmem_expire,
	TP_PROTO(const struct rmem_channel *c),
	TP_ARGS(c),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, timeouts)
		__field(u64, retries)
		__field(u64, rto_ns)
		__field(u32, silent)
		__field(u32, cwnd)
		__field(u32, outstanding)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->timeouts = c->client.count.timeouts;
		__entry->retries = c->client.count.retries;
		__entry->rto_ns = c->client.rto_ns;
		__entry->silent = c->client.silent;
		__entry->cwnd = c->client.window.cwnd;
		__entry->outstanding = c->client.outstanding_ops;
	),
	TP_printk("%s.%u %u outstanding, %u timeouts in a row, %llu in all, %llu retries, rto %llu ns, cwnd %u/1024",
		  __get_str(device), __entry->channel, __entry->outstanding, __entry->silent,
		  __entry->timeouts, __entry->retries, __entry->rto_ns, __entry->cwnd)
);

/* Ops are left that can't go now: windows are closed, or they wait for company. */
TRACE_EVENT_CONDITION(rmem_wait,
	TP_PROTO(const struct rmem_channel *c),
	TP_ARGS(c),
	TP_CONDITION(c->client.waiting.ops || c->client.again.ops || c->client.sending),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, incast_bytes)
		__field(u32, waiting)
		__field(u32, again)
		__field(u32, in_flight)
		__field(u32, cwnd)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->incast_bytes = rmem_incast_used_bytes(c->client.incast);
		__entry->waiting = c->client.waiting.ops;
		__entry->again = c->client.again.ops;
		__entry->in_flight = c->client.window.in_flight;
		__entry->cwnd = c->client.window.cwnd;
	),
	TP_printk("%s.%u %u new, %u to go again; under way to the node: %u packets of cwnd %u/1024, to this machine: %llu bytes",
		  __get_str(device), __entry->channel, __entry->waiting, __entry->again,
		  __entry->in_flight, __entry->cwnd, __entry->incast_bytes)
);

/* Delay or loss made the channel's window smaller. */
TRACE_EVENT_CONDITION(rmem_shrink,
	TP_PROTO(const struct rmem_channel *c, u32 before),
	TP_ARGS(c, before),
	TP_CONDITION(c->client.window.cwnd < before),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, rtt_ns)
		__field(u32, before)
		__field(u32, after)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->rtt_ns = c->client.rtt.srtt_ns;
		__entry->before = before;
		__entry->after = c->client.window.cwnd;
	),
	TP_printk("%s.%u cwnd %u/1024 -> %u/1024 rtt %llu ns", __get_str(device),
		  __entry->channel, __entry->before, __entry->after, __entry->rtt_ns)
);

/* reason: enum rmem_count. */
TRACE_EVENT(rmem_drop,
	TP_PROTO(const struct rmem_channel *c, u32 bytes, unsigned int reason),
	TP_ARGS(c, bytes, reason),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u32, bytes)
		__field(const char *, reason)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->bytes = bytes;
		__entry->reason = rmem_count_name(reason);
	),
	TP_printk("%s.%u %s, %u bytes", __get_str(device), __entry->channel,
		  __entry->reason, __entry->bytes)
);

TRACE_EVENT(rmem_channel_state,
	TP_PROTO(const struct rmem_channel *c, u8 before, u8 after),
	TP_ARGS(c, before, after),
	TP_STRUCT__entry(
		__string(device, c->device->name)
		__field(u32, channel)
		__field(u64, session)
		__field(u64, boot)
		__field(u8, before)
		__field(u8, after)
	),
	TP_fast_assign(
		compat_assign_str(device, c->device->name);
		__entry->channel = c->index;
		__entry->session = c->client.session;
		__entry->boot = c->client.boot;
		__entry->before = before;
		__entry->after = after;
	),
	TP_printk("%s.%u %s -> %s session 0x%llx boot 0x%llx", __get_str(device),
		  __entry->channel, rmem_trace_channel_state(__entry->before),
		  rmem_trace_channel_state(__entry->after), __entry->session, __entry->boot)
);

TRACE_EVENT(rmem_device_state,
	TP_PROTO(const struct rmem_device *device, u8 before, u8 after),
	TP_ARGS(device, before, after),
	TP_STRUCT__entry(
		__string(device, device->name)
		__field(u8, before)
		__field(u8, after)
	),
	TP_fast_assign(
		compat_assign_str(device, device->name);
		__entry->before = before;
		__entry->after = after;
	),
	TP_printk("%s %s -> %s", __get_str(device), rmem_trace_device_state(__entry->before),
		  rmem_trace_device_state(__entry->after))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH rmem/client
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
