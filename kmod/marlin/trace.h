/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stages of a copy: events/marlin in tracefs. A copy's transactions, and a transaction's
 * events, have one pointer in common, `request`.
 *
 *	cmmc_start   a program's call begins                      | pre-processing: pages locked,
 *	hrdma_start  a transaction is handed to hrdma.c           | parts cut, copy announced
 *	hrdma_issue  the engine has its descriptors               | pre-DMA
 *	hrdma_done   all bytes were moved, by the engine or CPU   | DMA
 *	cmmc_end     the copy's end is told, the call returns     | post-DMA
 *
 * And of an owner: cmmc_revoke, a grant is revoked, and so many copies that it saw are waited for;
 * cmmc_free, none is under way, and its pages are the program's alone.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM marlin

#if !defined(REMORA_MARLIN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define REMORA_MARLIN_TRACE_H

#include <linux/tracepoint.h>

#include "marlin/hrdma.h"

TRACE_EVENT(cmmc_start,
	TP_PROTO(unsigned int port, u64 bytes, bool write),
	TP_ARGS(port, bytes, write),
	TP_STRUCT__entry(
		__field(u32, port)
		__field(u64, bytes)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->port = port;
		__entry->bytes = bytes;
		__entry->write = write;
	),
	TP_printk("port=%u %s bytes=%llu", __entry->port, __entry->write ? "write" : "read",
		  __entry->bytes)
);

TRACE_EVENT(cmmc_end,
	TP_PROTO(unsigned int port, u64 done, int err),
	TP_ARGS(port, done, err),
	TP_STRUCT__entry(
		__field(u32, port)
		__field(u64, done)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->port = port;
		__entry->done = done;
		__entry->err = err;
	),
	TP_printk("port=%u done=%llu err=%d", __entry->port, __entry->done, __entry->err)
);

DECLARE_EVENT_CLASS(cmmc_grant,
	TP_PROTO(unsigned int port, u32 grant, unsigned int copies),
	TP_ARGS(port, grant, copies),
	TP_STRUCT__entry(
		__field(u32, port)
		__field(u32, grant)
		__field(u32, copies)
	),
	TP_fast_assign(
		__entry->port = port;
		__entry->grant = grant;
		__entry->copies = copies;
	),
	TP_printk("port=%u grant=%u copies=%u", __entry->port, __entry->grant, __entry->copies)
);

DEFINE_EVENT(cmmc_grant, cmmc_revoke,
	TP_PROTO(unsigned int port, u32 grant, unsigned int copies),
	TP_ARGS(port, grant, copies));

DEFINE_EVENT(cmmc_grant, cmmc_free,
	TP_PROTO(unsigned int port, u32 grant, unsigned int copies),
	TP_ARGS(port, grant, copies));

DECLARE_EVENT_CLASS(hrdma_request,
	TP_PROTO(const struct hrdma_request *request),
	TP_ARGS(request),
	TP_STRUCT__entry(
		__field(const void *, request)
		__field(u32, port)
		__field(int, channel)
		__field(u32, parts)
		__field(u64, bytes)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->request = request;
		__entry->port = request->window->port;
		__entry->channel = request->channel ? (int)request->channel->number : -1;
		__entry->parts = request->count;
		__entry->bytes = request->bytes;
		__entry->write = request->flags & HRDMA_WRITE;
	),
	TP_printk("request=%p port=%u channel=%d %s parts=%u bytes=%llu", __entry->request,
		  __entry->port, __entry->channel, __entry->write ? "write" : "read",
		  __entry->parts, __entry->bytes)
);

#define HRDMA_EVENT(name)                                 \
	DEFINE_EVENT(hrdma_request, name,                  \
		TP_PROTO(const struct hrdma_request *request), \
		TP_ARGS(request))

HRDMA_EVENT(hrdma_start);
HRDMA_EVENT(hrdma_issue);
HRDMA_EVENT(hrdma_done);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH ../../kmod/marlin
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
