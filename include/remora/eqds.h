/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The wire format of EQDS tunnels, version 1. This header is its specification.
 *
 * After EQDS (Olteanu et al., NSDI'22), section 5, figure 4 and appendix A. A tunnel carries
 * packets one way, from a sender to a receiver, over UDP. The sender sends data packets, the
 * receiver control packets. All fields are big-endian.
 *
 * Two profiles. Both ends of a tunnel MUST use the same one.
 *   extended  the default: struct eqds_data, struct eqds_control; port EQDS_PORT
 *   paper     as printed: struct eqds_paper_data, struct eqds_paper_control; EQDS_PAPER_PORT
 *
 * Sequence numbers count packets. Each packet of a tunnel has one; a retransmission keeps its
 * number. Numbers wrap; of two numbers, the later one is less than half the space ahead.
 *
 * Epochs. One life of a tunnel is an epoch. A sender that opens a tunnel chooses an epoch at
 * random. It sets SYN in every packet until a control packet with SYN and that epoch arrives.
 *   extended  Every packet carries the epoch. The first sequence number of an epoch is 0. A sender
 *             MUST NOT use a number twice in an epoch: it opens a later one in time.
 *   paper     Only packets with SYN tell the epoch: it is the upper 6 bits of their sequence
 *             number or ack number. The first sequence number of an epoch has ten zero bits below.
 * A receiver that holds state answers a SYN of an older epoch by a control packet with SYN that
 * tells the epoch it is in. The sender then MUST open the tunnel again in a later epoch. A SYN of
 * a later epoch replaces the receiver's state. A receiver without state accepts any SYN and
 * answers packets without SYN by RST. A receiver with state answers them by RST if their epoch is
 * not its own.
 *   extended  An RST tells the epoch of the packet it answers and the receiver's own. A sender
 *             MUST ignore an RST for another epoch than its own. Otherwise it MUST open the
 *             tunnel again in an epoch later than both.
 *   The sender of an earlier tunnel might have left the receiver in the epoch that a sender opens.
 *   Then an ack lies beyond the next sequence number, or a pull number beyond the target. A
 *   sender that gets such a number with its epoch MUST open the tunnel again in a later epoch.
 *   A receiver that forgot an epoch can learn of it again by a copy of an old SYN. Numbers then
 *   tell it: before it forgot, it acknowledged each number before seq - unacked, and each pull more
 *   than one bandwidth-delay product before the target. It MUST NOT wait for either.
 *
 * Credit. A sender needs one byte of credit for each byte it sends. One pull is worth one MTU of
 * credit; both ends are configured with the same MTU. The pull number counts the pulls sent in
 * the epoch, from 0. When the highest pull number a sender has seen rises by n, the sender has
 * gained n MTUs. The pull target is the pull number the sender asks for. A sender MUST NOT ask
 * for more than one bandwidth-delay product beyond the pull number it has seen. A receiver MUST
 * NOT send a pull number beyond the target. Both numbers wrap as sequence numbers do.
 *
 * RTS. A data packet with EMPTY carries no packet of the user. Its sequence number is the next
 * one to be used. It tells the pull target. A receiver MUST answer it, so that a pull that was
 * lost is told again.
 *
 * TRIM. A switch that cuts the payload off sets TRIM. The receiver answers with NACK.
 *
 * Addresses (extended). Control packets carry a cookie that the receiver derives from the peer's
 * address. The sender MUST repeat the last cookie in its data packets. A receiver MUST answer a SYN
 * that would open a tunnel or replace one, and lacks the cookie of its address, by PAUSE, which
 * tells the cookie. It keeps no state then, delivers nothing and gives no credit. The sender then
 * sends its SYNs again, with the cookie and of a later epoch. A sender without a cookie SHOULD open
 * by an RTS, since its packets would be dropped. A receiver SHOULD change its cookies now and then,
 * and MUST accept those of before for a while. Answers go to EQDS_PORT of the address, so a cookie
 * proves that the peer is whoever has that port.
 *
 * Translated addresses (extended). A sender without cookie and key SHOULD send some RTSs from
 * EQDS_PORT as claims: attempt is EQDS_CLAIM; cookie is SipHash-2-4, with a key of zeros, of eight
 * zero bytes and the source address (IPv4: mapped). A hash of 0 is sent as 1.
 * A receiver that sees another address SHOULD answer by a PAUSE with EQDS_MARK_TRANSLATED and no
 * cookie, from EQDS_PORT to the claim's source port. It sends the cookie, too, only if that port is
 * EQDS_PORT. A sender that gets no other answer for a second SHOULD end the tunnel.
 *
 * Packets given up (extended). A sender MAY give up a packet that does not arrive. It then counts
 * its number as acknowledged, so that unacked tells the receiver not to wait for it. It MUST tell
 * that by a data packet or RTS until the receiver has acknowledged the number.
 *
 * Lack of memory (extended). A receiver that has no memory for a packet SHOULD answer it by a NACK
 * with EQDS_MARK_NO_ROOM. The packet got through, so a sender MUST NOT take that for a reason to
 * give it up. Ends that don't know the mark take the packet for a trimmed one.
 *
 * Congestion (extended). A receiver that lowers its pulls for any packets that arrive with
 * congestion experienced sets EQDS_MARK_ECN in its control packets. The sender of such a tunnel
 * SHOULD send data packets with a payload as ECN-capable. Where the payload is not, the receiver
 * MUST NOT drop it for the mark. Without EQDS_MARK_ECN a packet's outer ECN field is the inner one.
 *
 * Unnumbered packets (extended, without tags). A receiver that takes them sets EQDS_MARK_UNNUMBERED
 * in its control packets. If the last control packet of the epoch has it, a sender MAY send a
 * packet of at most EQDS_UNNUMBERED_MAX bytes without a number. It MUST NOT send a packet so whose
 * user depends on its delivery more than IP promises: pure acknowledgements of TCP are the example.
 * Its kind is EQDS_KIND_UNNUMBERED, and seq is the next number to be used, which MUST be within a
 * window of the oldest number that is not acknowledged. It MUST NOT have flags. It costs credit as
 * other packets do. A sender MUST NOT send it while other packets of the tunnel wait for credit. A
 * receiver MUST drop it if its seq is not within a window of the lowest number that has not
 * arrived. Else the receiver delivers it at once, before numbers that are missing. A receiver MUST
 * NOT answer an unnumbered packet of its epoch. A switch treats one as a header, and MUST NOT trim
 * it. Ends that don't know the kind drop it, and don't set the mark.
 *
 * Tags (extended). Both ends MAY be configured with a 128-bit key. Then every packet MUST have
 * EQDS_KIND_TAGGED in its kind and struct eqds_tag behind its header, and the payload begins behind
 * that. A receiver with a key MUST drop packets without a tag, and those whose tag does not verify.
 * A receiver without a key MUST drop packets that have a tag. None of these is answered.
 *   payload  SipHash-2-4 of EQDS_TAG_PAYLOAD and the payload, as it was sent
 *   head     SipHash-2-4 of EQDS_TAG_HEAD, the IP addresses of sender and receiver (IPv4 as mapped
 *            addresses), the header with TRIM cleared, and the payload's tag
 * A trimmed packet keeps its tag. Its receiver verifies head alone.
 *   So that packets of the past prove nothing, a receiver with a key MUST answer a SYN that would
 *   open a tunnel or replace one by PAUSE, unless it has the peer's current cookie. It MUST change
 *   a peer's cookie when a tunnel from that peer ends or is replaced.
 *   Both ends count the tag as a part of the header: it costs credit.
 *
 * Counted numbers (extended, IPv4 without tags). A sender MAY send up to 256 packets of consecutive
 * numbers with copies of one header, as segmentation offload makes them. The header then has
 * EQDS_KIND_COUNTED in its kind, and is as follows:
 *   seq      the number of the first packet, and its low 16 bits are the IP ID of that packet
 *   attempt  how many packets follow the first one, 1 .. 255
 *   bytes    each packet's cost; the last one MAY cost less
 * The IP ID of each further packet is one more. A receiver adds to seq, and to unacked, the
 * difference of IP ID and seq modulo 2^16. It MUST drop a packet whose difference is above attempt.
 * It answers as if attempt were 0. A sender MUST NOT retransmit by a counted number. It MUST NOT
 * rely on counted numbers until the peer acknowledges a packet whose difference is above 0.
 */
#ifndef REMORA_EQDS_H
#define REMORA_EQDS_H

#include <linux/types.h>

#define EQDS_VERSION 1
#define EQDS_PORT 7671
#define EQDS_PAPER_PORT 7672

/* Low bits of a paper profile's sequence number that are 0 at the start of an epoch. */
#define EQDS_PAPER_START_BITS 10

/*
 * flags, both profiles. A control packet has one of ACK, SACK and NACK at least; a data packet has
 * none of them. That tells the two apart in the paper profile.
 */
#define EQDS_SYN 0x01	/* the tunnel isn't known to be open yet; control: answers such a packet */
#define EQDS_NACK 0x02	/* control: the packet echo was trimmed, or refused: send it again */
#define EQDS_SACK 0x04	/* control: the packet echo has arrived */
#define EQDS_ACK 0x08	/* control: all packets before ack have arrived */
#define EQDS_EMPTY 0x10 /* data: an RTS, or with FIN the end of the tunnel */
#define EQDS_PAUSE 0x20 /* control, with SYN and NACK: come again with this cookie */
#define EQDS_FIN 0x40	/* data: the sender dropped its state; control, with NACK: RST */
#define EQDS_TRIM 0x80	/* data: the payload was cut off by a switch */

#define EQDS_RST (EQDS_FIN | EQDS_NACK)
#define EQDS_CONTROL_FLAGS (EQDS_ACK | EQDS_SACK | EQDS_NACK)

/* next_proto: an IP protocol number names the payload's kind. */
#define EQDS_PROTO_NONE 59 /* nothing: EMPTY */
#define EQDS_PROTO_IPV4 4
#define EQDS_PROTO_IPV6 41
#define EQDS_PROTO_NATIVE 0xfc

/* kind: the version in the upper four bits, and below */
#define EQDS_KIND_DATA (EQDS_VERSION << 4 | 1)
#define EQDS_KIND_CONTROL (EQDS_VERSION << 4 | 2)
/* Data without a number, and without TAGGED and COUNTED. */
#define EQDS_KIND_UNNUMBERED (EQDS_VERSION << 4 | 3)
/* Bytes of its payload. */
#define EQDS_UNNUMBERED_MAX 120
/* Added to DATA or CONTROL. */
#define EQDS_KIND_TAGGED 0x04
/* Added to data, without TAGGED. */
#define EQDS_KIND_COUNTED 0x08
/* Numbers that one header is for. */
#define EQDS_COUNTED_MAX 256

struct eqds_data {
	__u8 kind;	     /* EQDS_KIND_DATA or _UNNUMBERED */
	__u8 flags;	     /* SYN, EMPTY, FIN, TRIM */
	__u8 next_proto;     /* EQDS_PROTO_* or another IP protocol number */
	__u8 attempt;	     /* 0 the first time this number is sent, wrapping; COUNTED; or CLAIM */
	__be32 epoch;
	__be32 seq;
	__be32 pull_target;  /* pull number asked for */
	__be16 path;	     /* path id, which also chose the UDP source port */
	__be16 sender;	     /* tells tunnels from the same address apart */
	__be16 bytes;	     /* credit the packet cost, even if a switch cut it; EMPTY: 0 */
	__be16 unacked;	     /* numbers before seq from the oldest one not acknowledged on */
	__be32 stamp;	     /* the sender's clock in units of 16 ns, wrapping */
	__be32 backlog;	     /* bytes the sender has queued beyond those of the pull target */
	__be64 cookie;	     /* as the receiver gave it, 0, or a claim */
};

/* marks. Receivers of a control packet ignore other bits. */
#define EQDS_MARK_CE 0x01      /* the packet echo arrived with congestion experienced */
#define EQDS_MARK_NO_ROOM 0x02 /* NACK: the packet echo arrived, but there is no memory for it */
#define EQDS_MARK_ECN 0x04     /* marks of congestion count on any packet */
#define EQDS_MARK_TRANSLATED 0x08 /* PAUSE: the packet came from another address than it claims */

#define EQDS_MARK_UNNUMBERED 0x10 /* the receiver takes unnumbered packets */

/* attempt of an RTS with SYN: cookie is a claim. */
#define EQDS_CLAIM 1

struct eqds_control {
	__u8 kind;	     /* EQDS_KIND_CONTROL */
	__u8 flags;	     /* SYN, NACK, SACK, ACK, PAUSE, FIN */
	__u8 marks;	     /* EQDS_MARK_* */
	__u8 attempt;	     /* SACK, NACK: of the packet echo */
	__be32 epoch;	     /* the receiver's; RST, PAUSE: of the packet that is answered */
	/*
	 * ACK: every packet before this number has arrived. RST: the epoch that the receiver is in,
	 * without state that of the packet. Else 0.
	 */
	__be32 ack;
	__be32 pull;	     /* pull number */
	__be16 sender;	     /* of the data packets */
	__be16 busy_us;	     /* the receiver's link is busy for so long; 65535: or longer */
	__be32 echo;	     /* SACK, NACK: a sequence number; else 0 */
	__be64 sack;	     /* bit i, from the lowest: packet ack + 1 + i has arrived */
	__be64 cookie;	     /* to be repeated in data packets */
};

#define EQDS_DATA_BYTES 40
/* Not above EQDS_DATA_BYTES, so that an answer is never longer than the packet it answers. */
#define EQDS_CONTROL_BYTES 40

/* Behind the header, if the kind says so. Both little-endian. */
struct eqds_tag {
	__u8 payload[8];
	__u8 head[8];
};

#define EQDS_TAG_BYTES 16
/* Each hash begins with one of these, as 64 bits little-endian: no head is a payload to it. */
#define EQDS_TAG_PAYLOAD 1
#define EQDS_TAG_HEAD 2

/* EQDS_PROTO_NATIVE: in front of the payload. Ports tell the programs of a host apart. */
struct eqds_native_head {
	__be16 to, from;
	__u8 reserved[4]; /* 0; receivers ignore it */
};

#define EQDS_NATIVE_BYTES 8

/* The paper's figure 4. */
struct eqds_paper_data {
	__u8 flags;
	__u8 next_proto;
	__be16 seq;
	__be16 pull_target;
	__u8 path;
	__u8 sender;
};

/* number is echo with NACK or SACK, else ack. The paper gives busy_us no unit, nor RST a form. */
struct eqds_paper_control {
	__u8 flags;
	__u8 sender;
	__be16 number;
	__be16 pull;
	__be16 busy_us;
};

#define EQDS_PAPER_BYTES 8

#ifdef __cplusplus
#define EQDS_ASSERT static_assert
#else
#define EQDS_ASSERT _Static_assert
#endif

EQDS_ASSERT(sizeof(struct eqds_data) == EQDS_DATA_BYTES, "data has no padding");
EQDS_ASSERT(__builtin_offsetof(struct eqds_data, seq) == 8, "seq");
EQDS_ASSERT(__builtin_offsetof(struct eqds_data, path) == 16, "path");
EQDS_ASSERT(__builtin_offsetof(struct eqds_data, stamp) == 24, "stamp");
EQDS_ASSERT(__builtin_offsetof(struct eqds_data, cookie) == 32, "cookie");
EQDS_ASSERT(sizeof(struct eqds_control) == EQDS_CONTROL_BYTES, "control has no padding");
EQDS_ASSERT(__builtin_offsetof(struct eqds_control, ack) == 8, "ack");
EQDS_ASSERT(__builtin_offsetof(struct eqds_control, sender) == 16, "sender");
EQDS_ASSERT(__builtin_offsetof(struct eqds_control, sack) == 24, "sack");
EQDS_ASSERT(EQDS_CONTROL_BYTES <= EQDS_DATA_BYTES, "no amplification");
EQDS_ASSERT(sizeof(struct eqds_tag) == EQDS_TAG_BYTES, "tag has no padding");
EQDS_ASSERT(sizeof(struct eqds_native_head) == EQDS_NATIVE_BYTES, "native has no padding");
EQDS_ASSERT(sizeof(struct eqds_paper_data) == EQDS_PAPER_BYTES, "paper's data");
EQDS_ASSERT(sizeof(struct eqds_paper_control) == EQDS_PAPER_BYTES, "paper's control");

#undef EQDS_ASSERT

#endif
