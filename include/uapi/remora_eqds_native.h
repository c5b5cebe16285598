/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/eqds: packets of a program straight into tunnels, without sockets and, for those it sends,
 * without a copy. After EQDS (NSDI'22), the native class.
 *
 * A program opens the device, calls EQDS_NATIVE_SETUP once, and maps the rings. It owns an area of
 * memory in which all packets lie. Four rings pass pieces of the area back and forth:
 *
 *   fill        program -> kernel   pieces for packets to come
 *   rx          kernel -> program   packets that came, in pieces of fill
 *   tx          program -> kernel   packets to send; EQDS_NATIVE_KICK has the kernel look
 *   completion  kernel -> program   packets of tx that are settled: their pieces are free again
 *
 * A ring is struct eqds_native_ring and, at the offset that the setup tells, its entries. Entry n
 * is at n modulo ring_entries. The producer writes entries, then with release the number of those
 * it has produced. The consumer reads that with acquire, then entries, and then writes with
 * release the number it has consumed. Numbers wrap at 2^32.
 *   The kernel reads each word once, and trusts none: an entry that points out of the area is
 *   consumed and answered by EQDS_NATIVE_BAD (tx) or skipped (fill).
 *   A program MUST NOT write to a piece in tx before its completion: the bytes that arrive would be
 *   undefined, and the kernel can retransmit them until the tunnel gives up.
 *
 * poll() says POLLIN if rx or completion has an entry, and POLLHUP once the eqds device is gone.
 * No packet leaves out of turn: a completion is guaranteed a place, so the kernel leaves entries
 * in tx while as many packets are unsettled, or completions unread, as the ring has entries.
 */
#ifndef _UAPI_REMORA_EQDS_NATIVE_H
#define _UAPI_REMORA_EQDS_NATIVE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EQDS_NATIVE_DEVICE "/dev/eqds"
#define EQDS_NATIVE_ENTRIES_MIN 8U
#define EQDS_NATIVE_ENTRIES_MAX 16384U
#define EQDS_NATIVE_AREA_MAX (1ULL << 30)
#define EQDS_NATIVE_PATHS 16

struct eqds_native_ring {
	__u32 produced;
	__u32 reserved[15];
	__u32 consumed;
	__u32 reserved2[15];
};

/* At offset 0 of the mapping. */
struct eqds_native_rings {
	struct eqds_native_ring fill, rx, tx, completion;
	__u64 rx_dropped;  /* packets that fill's next piece, or rx, had no room for */
	__u64 fill_skipped; /* entries of fill that were no piece of the area */
	__u64 reserved[6];
};

struct eqds_native_fill {
	__u64 at; /* offset in the area */
	__u32 bytes;
	__u32 reserved;
};

/* rx and tx */
struct eqds_native_packet {
	__u64 at;	/* offset in the area */
	__u64 cookie;	/* tx: comes back in the completion */
	__u32 bytes;
	__u16 port;	/* tx: of the receiver; rx: of the sender */
	__u16 reserved; /* 0 */
	__u8 peer[16];	/* host at the other end of the tunnel; IPv4 as mapped address */
};

enum eqds_native_status {
	EQDS_NATIVE_DELIVERED, /* the peer's kernel has it */
	EQDS_NATIVE_DROPPED,   /* queue full, peer silent or device down: might have arrived */
	EQDS_NATIVE_BAD,       /* out of the area, too long, or an impossible peer */
};

struct eqds_native_completion {
	__u64 cookie;
	__u32 status;	/* enum eqds_native_status */
	__u32 rtt_ns;	/* of this packet; 0: it was retransmitted, or longer than 4 s */
	__u16 path;
	__u16 attempts; /* transmissions after the first */
	__u32 queued;	/* packets that wait for credit in the tunnel */
	__u32 pulls;	/* MTUs asked for, which the peer has in its queue of pulls */
	__u32 busy_us;	/* time that the peer's pull queue takes */
};

struct eqds_native_setup {
	__u32 bytes;	      /* sizeof this structure */
	__u32 ifindex;	      /* eqds device of the caller's network namespace */
	__u64 area;	      /* address, a multiple of the page size */
	__u64 area_bytes;     /* likewise; counts as locked memory */
	__u32 ring_entries;   /* power of two */
	__u16 port;	      /* tells a host's programs apart; 0: one is chosen. Out: the port */
	__u16 reserved;	      /* 0 */
	/* out */
	__u64 map_bytes;
	__u32 packet_bytes;   /* the largest packet; the device's MTU can change later */
	__u32 fill, rx, tx, completion; /* offsets of entries in the mapping */
	__u32 reserved2;
};

struct eqds_native_path {
	__u32 rtt_ns, sent, trimmed, lost;
};

/* The tunnel to a peer, as completions tell of it, and its paths. Zeros if there is none. */
struct eqds_native_peer {
	__u32 bytes;	/* sizeof this structure */
	__u32 reserved; /* 0 */
	__u8 peer[16];
	/* out */
	__u64 rtt_ns;	/* smoothed */
	__u64 credit_bytes;
	__u32 queued, in_flight, pulls, busy_us;
	struct eqds_native_path path[EQDS_NATIVE_PATHS];
};

#define EQDS_NATIVE_SETUP _IOWR('Q', 0x10, struct eqds_native_setup)
#define EQDS_NATIVE_KICK _IO('Q', 0x11)
#define EQDS_NATIVE_PEER _IOWR('Q', 0x12, struct eqds_native_peer)

#endif
