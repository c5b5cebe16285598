/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The registers of a non-transparent bridge (NTB) between virtual machines, version 4. This header
 * is their specification.
 *
 * A fabric joins up to NTB_PORTS_MAX machines. Each has a port, numbered from 0. All fields are
 * little-endian.
 *
 * Devices. A machine of port p finds these on one PCI bus; slot s is wherever device p says it is
 * port p:
 *   slot s          an ivshmem-doorbell device of NTB_VECTORS vectors. Its ID is the port. Its
 *                   shared memory holds the registers of all ports.
 *   slot s - p + q  for every other port q an ivshmem-plain device. Its memory is the RAM of
 *                   machine q: offset in the BAR = physical address in that machine.
 *
 * Registers. The shared memory has a page of NTB_PAGE_BYTES for the switch (struct
 * ntb_switch_page), and then one for each port (struct ntb_port_page). The switch is a program
 * outside the machines. Machines MUST NOT write its page. The memory protects nothing: a machine
 * MUST read each word of a page once and check the copy.
 *
 * Vectors. Vector v < NTB_DOORBELLS of a machine is its doorbell v. Vector NTB_VECTOR_EVENT says
 * that a link word, the presence of a port or a message register might have changed.
 *
 * Windows. The memory window that port p has into port q lies in q's RAM, at
 *   windows_base + i * window_bytes of map[q], where i = p if p < q, else p - 1.
 * The kernel of q MUST NOT use that memory for anything else.
 *
 * Policy. Bit q of map[p].reach permits a link between ports p and q. It never changes, and
 * it is the same for both. Without it, neither rings the other's vectors, and p can find memory in
 * the slot of q that is not q's RAM.
 *
 * Pages. pages[q] of a port's page permits the port's machine to copy to and from pages of the RAM
 * of port q, beside its window there: NTB_RANGES ranges, of which those with count 0 permit
 * nothing. The switch writes them before the machine has power, and MAY change them at any time. It
 * then changes `policy`, and rings NTB_VECTOR_EVENT. While it writes, `policy` is 0: the machine
 * MUST read `policy` before and after the ranges, and take them only if both are the same and not
 * 0. The machine's kernel keeps its programs to that: no memory does. When no copy under earlier
 * ranges is under way any more, the machine SHOULD write the value of `policy` to `policy_seen`.
 *
 * Link. The switch sets a port's bit in `present` while its machine has power and its cable is in.
 * The switch clears the port's page when the machine gets power, before that. Two ports have a link
 * while their policy permits it, both are present and both say NTB_LINK_UP. Each time a machine
 * changes its link word, it MUST change the generation too, so that a peer notices a link that was
 * down for an instant. For the same reason the switch counts in `changes` how often it changed the
 * port's bit: before it clears the bit, and after it sets it. After either change all other ports
 * MUST be told by NTB_VECTOR_EVENT. The switch MAY tell of a bit that it cleared when it sets it
 * again, as a bridge whose interrupt comes late.
 *
 * Messages. A message register that is 0 is empty. A machine writes one by a compare-and-exchange
 * from 0, and then rings NTB_VECTOR_EVENT. The receiver empties it.
 */
#ifndef REMORA_NTB_H
#define REMORA_NTB_H

#include <linux/types.h>

#define NTB_MAGIC 0x42544e52 /* "RNTB" */
#define NTB_VERSION 4

#define NTB_PAGE_BYTES 4096
#define NTB_PORTS_MAX 15 /* with the switch's page: 64 KiB of registers */
#define NTB_DOORBELLS 16
#define NTB_VECTOR_EVENT NTB_DOORBELLS
#define NTB_VECTORS (NTB_DOORBELLS + 1)
#define NTB_MESSAGES 4
#define NTB_SCRATCHPADS 32
#define NTB_RANGES 4

/* A link word: NTB_LINK_UP, and a generation in the other bits. */
#define NTB_LINK_UP 1u
#define NTB_LINK_GENERATION 2u /* the generation's unit */

/* A message register: the value, and above it the sender's port + 1. */
#define NTB_MESSAGE_SENDER_SHIFT 32

struct ntb_port_map {
	__le64 ram_bytes; /* a power of two, the size of the BAR in other machines */
	__le64 windows_base; /* physical address of the port's inbound windows, page-aligned */
	__le64 window_bytes; /* of each, a multiple of a page */
	__le64 reach; /* a bit per port: this one MAY have a link with it */
};

struct ntb_switch_page {
	__le32 magic; /* NTB_MAGIC */
	__le32 version; /* NTB_VERSION */
	__le32 ports; /* 2 to NTB_PORTS_MAX */
	__le32 present; /* a bit per port */
	__u8 reserved[48];
	struct ntb_port_map map[NTB_PORTS_MAX];
};

struct ntb_range {
	__le32 first; /* page, of NTB_PAGE_BYTES */
	__le32 count;
};

struct ntb_port_page {
	__le32 link; /* written by the port's machine */
	__u8 reserved[60];
	__le64 message[NTB_MESSAGES];
	__u8 reserved2[32];
	__le32 scratchpad[NTB_SCRATCHPADS]; /* read and written by any machine */
	__le32 policy; /* written by the switch; 0: it is being changed */
	__le32 changes; /* written by the switch: of the port's bit in `present` */
	__u8 reserved3[56];
	__le32 policy_seen; /* written by the port's machine */
	__u8 reserved4[60];
	struct ntb_range pages[NTB_PORTS_MAX][NTB_RANGES]; /* written by the switch */
};

#ifdef __cplusplus
#define NTB_ASSERT static_assert
#else
#define NTB_ASSERT _Static_assert
#endif

NTB_ASSERT(__builtin_offsetof(struct ntb_switch_page, map) == 64, "layout");
NTB_ASSERT(sizeof(struct ntb_switch_page) == 64 + 32 * NTB_PORTS_MAX, "layout");
NTB_ASSERT(__builtin_offsetof(struct ntb_port_page, message) == 64, "layout");
NTB_ASSERT(__builtin_offsetof(struct ntb_port_page, scratchpad) == 128, "layout");
NTB_ASSERT(__builtin_offsetof(struct ntb_port_page, policy) == 256, "layout");
NTB_ASSERT(__builtin_offsetof(struct ntb_port_page, pages) == 384, "layout");
NTB_ASSERT(sizeof(struct ntb_port_page) <= NTB_PAGE_BYTES, "layout");

#undef NTB_ASSERT

#endif
