/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * EDM's 66-bit blocks. This header is their specification. MUST and MUST NOT bind both ends of a
 * link.
 *
 * After EDM (ASPLOS'25), section 3.2. A block has a 2-bit sync header and 64 bits of payload (IEEE
 * 802.3, Clauses 49 and 82). Bit 0 of the payload is sent first. Sync 01 is a control block, whose
 * bits 0 to 7 are its type. Sync 10 is a data block. The sync header is not scrambled.
 *
 * Kinds. N announces a write, G grants, MS begins a message, MT ends it. MST is a whole message.
 * A message's other blocks are data blocks.
 *   - A sender MUST NOT send a frame's data block between MS and MT: data blocks have no type.
 *   - N, G, MST and idle MAY stand anywhere, also within a message or a frame.
 *   - A sender MUST send an idle block at least once in EDM_IDLE_BLOCKS.
 *
 * Two profiles. Both ends MUST use the same one.
 *   types  A kind is a block type of its own. Clause 82 uses none of these five, and the 256B/257B
 *          transcoding of RS-FEC keeps them apart. The field is bits 8 to 63: 56 bits.
 *   sets   Each kind is an ordered set, type EDM_TYPE_SET. Bits 32 to 35 are the O code, the kind.
 *          The field is bits 8 to 31, then 36 to 63: 52 bits. For Clause 49, and any FEC.
 *
 * Field of N and G, from bit 0: destination 9, id 8, size 16, answer 1, check 16.
 *   - answer is 1 in a grant of an answer. Its id then belongs to the destination.
 *   - check is the lower 16 bits of CRC-32C of the 34 bits before, as 8 bytes, little-endian.
 *   - All other bits MUST be 0.
 *
 * A message is a string of bits. MS has as many as its field, data blocks have 64, MT has the rest.
 * MT has a bit at least: the data block before it has fewer than 64 if need be.
 *   head     36: kind 2, destination 9, id 8, size 16, then one 0
 *   address  64, but RRES has none
 *   opcode   8, RMWREQ alone
 *   data     8 a byte: WREQ and RRES size bytes, RMWREQ size bytes of arguments, RREQ none
 *   check    32, if the link is checked: CRC-32C of head (8 bytes), address, opcode and data
 * Numbers are little-endian. Bits behind the string MUST be 0. size is 1 or more. In RREQ it is the
 * number of bytes to read. A string that fits the field of one block MUST be sent as MST.
 */
#ifndef REMORA_EDM_BLOCK_H
#define REMORA_EDM_BLOCK_H

#define EDM_SYNC_CONTROL 1
#define EDM_SYNC_DATA 2

/* types profile */
#define EDM_TYPE_N 0x2d
#define EDM_TYPE_G 0x33
#define EDM_TYPE_MS 0x55
#define EDM_TYPE_MT 0x66
#define EDM_TYPE_MST 0x00
#define EDM_TYPES_FIELD_BITS 56

/* sets profile: O codes. 0 and 15 are the standard's. */
#define EDM_TYPE_SET 0x4b
#define EDM_SET_N 1
#define EDM_SET_G 2
#define EDM_SET_MS 3
#define EDM_SET_MT 4
#define EDM_SET_MST 5
#define EDM_SETS_FIELD_BITS 52

/* Types of frames' control blocks: idle, start, and end behind 0 to 7 bytes. */
#define EDM_TYPE_IDLE 0x1e
#define EDM_TYPE_START 0x78
#define EDM_TYPES_END { 0x87, 0x99, 0xaa, 0xb4, 0xcc, 0xd2, 0xe1, 0xff }

/* Widths in bits. */
#define EDM_DESTINATION_BITS 9
#define EDM_ID_BITS 8
#define EDM_SIZE_BITS 16
#define EDM_HEAD_BITS 36
#define EDM_ADDRESS_BITS 64
#define EDM_OPCODE_BITS 8
#define EDM_CHECK_BITS 32
#define EDM_NOTE_CHECK_BITS 16

/* kind of a message */
#define EDM_RREQ 0
#define EDM_WREQ 1
#define EDM_RMWREQ 2
#define EDM_RRES 3

/* Idle blocks let a receiver with a slower clock drop one; the clocks differ by 200 ppm at most. */
#define EDM_IDLE_BLOCKS 5000

#endif
