/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The Remora memory protocol, version 1. This header is its specification; include/README.md
 * has the glossary. MUST, MUST NOT and MAY bind both ends.
 *
 * A client sends requests and a memory node answers each with responses. The node's default port
 * is RMEM_PORT. All fields are little-endian.
 *
 * Datagrams. Messages travel in UDP datagrams: a struct rmem_hdr, 1 to RMEM_BUNDLE_MAX messages,
 * each a struct rmem_msg, then their payloads in the same order:
 *
 *   hdr | msg 1 | msg 2 | ... | msg n | payload 1 | payload 2 | ... | payload n
 *
 *   - hdr has the fields that all its messages share: space, session, boot, floor and integrity,
 *     their number n, and one tag for all.
 *   - The payloads of a datagram MUST NOT exceed RMEM_PIECE_BYTES_MAX together.
 *   - The work of a datagram is the bytes it asks to read or copy, those of the results that it
 *     permits, and one 256th of the bytes it asks to discard or zero. It MUST NOT exceed
 *     RMEM_READ_BYTES_MAX if n is more than 1; this bounds the node's time for one datagram.
 *   - Only READ, WRITE, DISCARD, ZERO, ATOMIC, PUT, READV, WRITEV, COPY, QUERY and CALL messages
 *     MAY share a datagram. Other messages MUST travel alone. Requests and responses MUST NOT be
 *     mixed.
 *   - The receiver MUST ignore a datagram that breaks one of these rules, that is longer or
 *     shorter than its messages say, that has a message of unknown type or malformed, or whose
 *     tag does not verify.
 *   - Each message has its own id and answer. One that is refused does not affect the others.
 *   - The node bundles the answers to a datagram in the same order, up to the datagram size that
 *     the client gave in OPEN. It MAY also bundle the answers to datagrams that arrive together,
 *     or that RMEM_FLAGS_MORE connects.
 *   - A client MAY send each message in a datagram of its own.
 *   - No two datagrams that one end sends in a session have the same number. Receivers look at it
 *     only where the session is sealed: see "Sealed sessions".
 *
 * The protocol follows Clio (ASPLOS'22), sections 4.2 to 4.5. There are no connections, and the
 * response is the acknowledgement. A write larger than the path's MTU travels as independent
 * packets, which the node MAY execute in any order. A client retries a whole request. This
 * protocol adds keyed tags, boot epochs and sessions. A session makes a late copy of a finished
 * write harmless.
 *
 * Address spaces. A remote address space (RAS) has a 32-bit id and a 128-bit key. The operator
 * tells both to the node. The node MUST ignore a datagram whose tag does not verify under the
 * key of its space; it sends no answer. A space MAY be a read-only view of another space. A view
 * has all regions of that space at the same addresses. The node answers RMEM_PERM to ALLOC,
 * FREE and every message that would change memory through a view.
 *
 * Keys per client. A space MAY be a member of another space: it has an id and a key of its own, and
 * the other space's regions, names, offloads and quota, at the same addresses. Requests through a
 * member have the effect that they would have through that space. So an operator can give each
 * client of a memory a key of its own. A member's key MUST differ from its space's, and from those
 * of all other members and views of it. A member requires the integrity level that its space
 * requires.
 *
 * Revocation. The operator MAY revoke the key of a space, a view or a member. The node MUST then
 *   - end all sessions of that id, and forget their keys (see "Sealed sessions");
 *   - undo the ALLOCs of these sessions that are not acknowledged, and keep all other regions;
 *   - ignore every datagram of that id, as one of an unknown space.
 * The node MUST have done so when it tells the operator of the success. The other ids that share
 * the memory go on, their sessions too. A datagram under a revoked key gets no answer. A plain
 * message (see "Plain messages") of an ended session is answered RMEM_NO_SESSION. The id of a view
 * or a member MAY be used anew. The operator MUST give it another key: a node forgets a revoked key
 * and need not recognise it. Views of one space MAY share a key. Then a revocation ends the use of
 * the key as that id only.
 *
 * Sessions and stale writes. A client opens a session and numbers its messages in it with ids.
 * It MUST NOT use an id twice, except for retransmissions. Each request carries the session's
 * floor: the oldest id whose answer the client still waits for. For each session the node keeps
 * the highest floor it has seen. For the RMEM_WINDOW ids from that floor on it keeps whether it
 * executed the id. The node decides in this order on a message that changes memory:
 *   - an id below the floor is answered RMEM_STALE;
 *   - an id that was executed is answered again and MUST NOT be executed again;
 *   - an id that was refused as RMEM_FAULT is refused again, even if its address has been
 *     allocated since;
 *   - any other id in the window is executed, and MUST be marked before its answer leaves.
 * A change is therefore executed at most once, and never after the client raised the floor above
 * it. Other refusals need no mark. After RMEM_BUSY and RMEM_DAMAGED the client keeps waiting. The
 * other statuses state a permanent property of the message, its region or its session.
 * One refusal is not permanent: an id beyond the window becomes valid as the floor rises. A
 * client MUST NOT send an id that is RMEM_WINDOW or more above the floor it sends.
 * Only the node names sessions, and it MUST NOT use a name twice. A session ends when it is
 * evicted, closed or superseded (same client id opened again), or when the node restarts. It
 * does not come back, and the node refuses messages sent in it. A client that learns of the end
 * opens a new session and issues its outstanding requests under new ids. RMEM_NO_SESSION does not
 * tell of it: an attacker gets one by a copy of a request that it sends from another address. So
 * the client then sends an OPEN that renews the session, which has ended if rmem_opened.renewed is
 * 0. The node MUST NOT answer RMEM_DAMAGED to anybody but the session's client.
 *
 * Renewal. A client that cancels a change must know that no copy of it is executed later, while
 * other requests of the session are outstanding. It sends an OPEN that names the session. The
 * node gives the session another name. It keeps the session's ids, floor, marks, results and
 * unacknowledged ALLOCs. It refuses messages under the old name from then on. The client
 * retransmits its outstanding requests under the new name with the ids they have. Each is
 * executed once, whichever copy arrived first. The node MUST NOT renew a session that has ended,
 * or that belongs to another client or integrity level. It handles such an OPEN as if it named no
 * session; rmem_opened.renewed tells. Until a request uses the session's new name, an OPEN that
 * gives the name before renews it, too. An OPEN from another address or port than the session's
 * needs a challenge, and MUST NOT end the session that it names: the session belongs to that peer
 * from then on. So an attacker who sends a copy of an OPEN from elsewhere only has the client
 * renew the session once more.
 *
 * Challenge. The node MUST NOT take a session slot, nor end a session, for an OPEN that was
 * recorded and is sent again. An OPEN carries a challenge that the node gave its sender shortly
 * before, in the current boot. To an OPEN without a valid challenge the node answers
 * RMEM_CHALLENGE with one, and keeps nothing. The client sends the OPEN with it, under a fresh
 * nonce: it MUST NOT send two challenges under one nonce. A challenge is valid for 4 to 9 s, for
 * the address and port that the node gave it to; it MAY serve several OPENs. So for 9 s after a
 * CLOSE the node SHOULD remember the session's client and nonce, and ignore an OPEN of that client
 * with no higher nonce. The node MAY accept an OPEN without one that renews a session of its
 * sender's, and where nobody else can send it messages.
 *
 * Exactly once. The value that an ATOMIC found cannot be read again, so the node keeps it until it
 * is acknowledged. For the RMEM_REPLAY ids from the floor on, a copy of an executed ATOMIC MUST get
 * the first answer again. An ATOMIC whose id lies beyond them is answered RMEM_BUSY. A client
 * raises the floor above an ATOMIC's id when it has the answer. If the session ends first, the
 * client cannot learn whether the ATOMIC was executed. The client MUST NOT issue that ATOMIC again
 * by itself. The same holds for a PUT. It also holds for a PUBLISH and a CALL, whose answer, of any
 * status but RMEM_BUSY, the node keeps in the same way.
 *
 * Offloads. An operator MAY load programs into a node, the offloads, each with an id and up to
 * RMEM_FUNCTIONS_MAX functions (remora/offload.h). An offload is bound to one space and reaches no
 * other memory. The clients of that space and of its views can call it, and those of other spaces
 * that the operator names. A function either changes memory and is executed by CALL, or it does
 * not and is executed by QUERY; the offload says which. Its accesses to memory are ordered with
 * other messages no more than those of two clients are: 8 aligned bytes are whole.
 *   - The node MUST NOT execute a CALL twice in a session, and MUST ignore a copy of a QUERY or
 *     CALL that it is executing. A QUERY that has been answered MAY be executed again.
 *   - The node MUST NOT execute any part of a call after it has renewed or ended the call's
 *     session, or answered a FENCE that came after the call.
 *   - A call has a budget of the node's time. The node stops a call that has used it up, between
 *     two accesses to memory. The changes until then stay.
 *   - The node answers RMEM_BUSY while it has no room for another call.
 *
 * Names. A space MAY have up to RMEM_NAMES_MAX names for its regions, several for one region. A
 * name is 1 to RMEM_NAME_BYTES bytes other than 0, with zeros behind them. A name ends when its
 * region does, or when it is withdrawn, not with the session that published it. Only the space and
 * its views find it.
 *
 * Regions outlive the session that allocated them once their client is known to know of them.
 * An ALLOC is acknowledged when a request of its session arrives whose floor is above the
 * ALLOC's id. If the session ends before (evicted, superseded, closed), the node MUST undo the
 * ALLOC, so that a lost answer loses no memory. It MUST end a session with such an ALLOC when the
 * session was idle for a time that its operator chose. Only a request with an id above all earlier
 * ones ends a session's idleness, for the others might be copies. A client therefore
 *   - MUST NOT let its floor pass an ALLOC's id before it has the answer;
 *   - MUST then acknowledge at once, by any request of the same session. It owns the region when
 *     that request is answered RMEM_OK. RMEM_NO_SESSION means that the region might be gone, too;
 *   - MUST end the session to cancel an ALLOC: by an OPEN that does not renew it, or by a CLOSE
 *     whose floor is not above the ALLOC's id.
 *
 * Integrity. The tag is SipHash-2-4 (64 bits) under the space's key over the covered part of each
 * payload, in their order, then all messages' heads, then the header without the tag's bytes. (The
 * header is last so that a sender can hash each message as it comes; and it tells where the others
 * begin, so no two datagrams are the same to the tag.) The session's level says how the data is
 * protected:
 *   RMEM_LINK    the UDP checksum only, which MUST then be present,
 *   RMEM_DIGEST  CRC32C in the message's digest field,
 *   RMEM_FULL    the tag covers it.
 *   RMEM_SEALED  the datagram is encrypted; see below.
 * The level applies to RMEM_READ and RMEM_WRITE in both directions, to answers to RMEM_READV and
 * to the data of RMEM_WRITEV. The tag always covers the ranges of an RMEM_WRITEV and the whole
 * payload of every other message. A payload whose digest fails is damaged. The node answers
 * RMEM_DAMAGED to its message.
 *
 * Sealed sessions. At level RMEM_SEALED the heads and payloads of a datagram travel as one
 * ciphertext, under keys that only this session has. They cannot be found from a recording and the
 * space's key. The header stays in the clear; an observer learns it, and sizes and times.
 *
 *   hdr | ciphertext of msg 1 ... msg n | payload 1 ... payload n | rmem_seal
 *
 *   - The cipher is AEAD_XChaCha20_Poly1305 (draft-irtf-cfrg-xchacha-03). The key is that of the
 *     session and direction. The nonce is the salt, 8 bytes of 0, and the header's number. The
 *     header's bytes before its tag are the associated data. rmem_seal has the salt and the AEAD's
 *     tag. The ciphertext is as long as the plaintext, and follows the header at once.
 *   - The header's tag is SipHash-2-4 under the space's key over the header alone, without the tag.
 *     It costs little, so the node checks it first.
 *   - A sender MUST NOT seal two datagrams of one session under the same number and salt, not even
 *     if its memory is rolled back to a snapshot. So it MUST draw the salt, at least once for each
 *     batch of datagrams that it seals together, from a source that a snapshot does not repeat,
 *     such as the operating system's generator. The salt need not be secret.
 *   - A retransmission is another datagram with another number. A sealed datagram MAY be sent
 *     twice as it is, but never changed and sealed again.
 *   - The limits on payloads and datagrams, the datagram size in OPEN included, are without the
 *     RMEM_SEAL_BYTES of rmem_seal, which come on top. digest is 0.
 *   - An OPEN and its answers have flag RMEM_FLAGS_CLEAR. They are not sealed, and the tag covers
 *     them as at the other levels. Their payloads are rmem_open_sealed and rmem_opened_sealed, with
 *     a fresh X25519 public key each (RFC 7748). The client MAY use one for all OPENs until one is
 *     answered RMEM_OK. The node answers copies of one OPEN with the same one. It SHOULD NOT
 *     compute before the OPEN has met its challenge. Either end MUST ignore a key with which the
 *     shared secret is 0.
 *   - Both ends then compute the session's keys, one for each direction: BLAKE2s with 32 bytes of
 *     output, under the space's key, over a struct rmem_keying (RFC 7693). This is the pattern
 *     NNpsk0 of the Noise framework, with the transcript's fields in place of its hash. They MUST
 *     forget the X25519 secrets then, and the session's keys when the session has ended.
 *   - Renewal gives the session other keys with its other name. The client SHOULD renew once an
 *     hour. While it waits for the answer it keeps the keys of the name before, for answers. It
 *     MUST forget them with the answer.
 *   - A datagram without RMEM_FLAGS_CLEAR that was opened MUST NOT have OPENs or their answers.
 *   - A node that has no keys for the name of a sealed request answers with a notice: the answer to
 *     a CLOSE with id 0, status RMEM_NO_SESSION or RMEM_REBOOTED, and RMEM_FLAGS_CLEAR. It is about
 *     the session that its header names. A client MUST ignore it unless that is its session. To
 *     RMEM_NO_SESSION it renews the session, or ends its CLOSE. With RMEM_REBOOTED the notice has
 *     another boot than the session's.
 *   - No other datagram of this level has RMEM_FLAGS_CLEAR. At other levels the flag MUST be 0.
 *   - A node that does not seal answers such an OPEN RMEM_INVALID. A space MAY require this level:
 *     the node answers RMEM_PERM to an OPEN of another.
 *   - Only UDP datagrams are sealed. A carrier of other records MUST refuse the level.
 * A stolen space's key opens no recording of earlier sessions. With it an attacker who stands
 * between the ends can pose as either in later ones.
 *
 * Plain messages. Into a pair of rings (remora/ring.h) nobody but one client and the node can
 * write, so a message there needs no tag once a tag has opened its session. In a session of level
 * RMEM_LINK that was opened through the pair, a client MAY send READ, WRITE, ATOMIC, PUT, READV,
 * WRITEV and COPY as plain messages. A record is then these instead of a datagram:
 *
 *   plain 1 | payload 1 | plain 2 | payload 2 | ... | plain n | payload n
 *
 *   - Each is a struct rmem_plain with its payload, and begins at a multiple of 8 bytes.
 *   - n, the record's bytes and its work have the bounds of a datagram: RMEM_BUNDLE_MAX,
 *     RMEM_DATAGRAM_BYTES_MAX, and RMEM_READ_BYTES_MAX if n is more than 1. The receiver MUST
 *     ignore the message that breaks a rule, and those behind it.
 *   - The node MUST refuse a plain message whose session was opened another way.
 *   - The answer to a plain message is plain. If it is RMEM_REBOOTED, addr is the current boot.
 *   A small message with the ring's head so fits into one line of the cache.
 */
#ifndef REMORA_RMEM_H
#define REMORA_RMEM_H

#include <linux/types.h>

#define RMEM_VERSION 1
#define RMEM_PORT 7670

/* Ids from the floor on that the node remembers for each session. */
#define RMEM_WINDOW 4096
/* Ids from the floor on for which the node can keep the result of an ATOMIC or PUT. */
#define RMEM_REPLAY 128

/* Largest READ: the node answers it with several packets. */
#define RMEM_READ_BYTES_MAX (256U * 1024)
/*
 * Payload bytes of one packet. The least fits into IPv6's minimum MTU with all headers, the
 * most into a jumbo frame.
 */
#define RMEM_PIECE_BYTES_MIN 1024U
#define RMEM_PIECE_BYTES_MAX 8704U
/* Largest range of one DISCARD or ZERO. */
#define RMEM_ZERO_BYTES_MAX (64U * 1024 * 1024)
/*
 * Largest range of one COPY: the smallest page, so that neither range lies in more than two pages.
 */
#define RMEM_COPY_BYTES_MAX (64U * 1024)
/* Ranges of one READV or WRITEV. */
#define RMEM_RANGES_MAX 128U
/* Bytes of a region's name; names of one space, so that no tenant takes the others' room. */
#define RMEM_NAME_BYTES 64U
#define RMEM_NAMES_MAX 128U
/* Bytes of a call's arguments; functions of an offload. */
#define RMEM_ARGS_BYTES_MAX 1024U
#define RMEM_FUNCTIONS_MAX 32U

#define RMEM_PAGE_SHIFT_MIN 16 /* 64 KiB */
#define RMEM_PAGE_SHIFT_MAX 22 /* 4 MiB */

/* Messages in one datagram, and its largest size. */
#define RMEM_BUNDLE_MAX 16U
#define RMEM_DATAGRAM_BYTES_MAX (RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX) + RMEM_PIECE_BYTES_MAX)

/* A response's type is its request's with RMEM_RESPONSE set. */
#define RMEM_RESPONSE 0x80

enum rmem_type {
	/*
	 * Start or renew a session. In: session 0, or the name of the session to renew; boot 0; id:
	 * a nonce; addr: the challenge, or 0; payload rmem_open. Out: the session's name, boot, the
	 * nonce as id; payload rmem_opened. Or, with RMEM_CHALLENGE: addr, the challenge, not 0.
	 * The nonce MUST be fresh for each attempt to open. An OPEN with the same nonce gets the
	 * same session until a request uses that session. The nonces of one client start anywhere
	 * and MUST grow. The node ignores an OPEN whose nonce is below that of the client's
	 * session: it is a late copy.
	 */
	RMEM_OPEN = 1,
	/*
	 * End the session. No payload. A repeated CLOSE is answered RMEM_NO_SESSION. The floor of a
	 * CLOSE acknowledges like any other.
	 */
	RMEM_CLOSE = 2,
	/* Reserve a range of addresses. Payload rmem_alloc; out: rmem_range, to be acknowledged. */
	RMEM_ALLOC = 3,
	/* Free a whole region. Payload: the rmem_range that ALLOC answered. */
	RMEM_FREE = 4,
	/*
	 * Read len bytes at addr, in packets of at most piece bytes. Out: one packet for each part,
	 * with the part's offset and len. The parts are cut at multiples of piece. An error is one
	 * packet without payload; parts MAY come before it. Memory never written reads as zero.
	 */
	RMEM_READ = 5,
	/* Write len bytes of payload to addr. Each packet has its own id and answer. */
	RMEM_WRITE = 6,
	/* The node MAY forget the range's content; it frees whole pages in the range. */
	RMEM_DISCARD = 7,
	/* The range reads as zero from now on; the node frees whole pages in the range. */
	RMEM_ZERO = 8,
	/*
	 * Read, change and write the little-endian integer of len bytes at addr in one step: the
	 * node MUST NOT execute another message in between. len is 4, 8, or 16 if the node's
	 * processor supports it. addr is a multiple of len. The message's op says how to change it.
	 * Payload rmem_operands; out: rmem_found, the integer before the change.
	 */
	RMEM_ATOMIC = 9,
	/*
	 * No payload; len and addr are 0. The node answers when it has executed all requests to the
	 * space's memory, of any client, whose execution had begun.
	 */
	RMEM_FENCE = 10,
	/*
	 * Write data, then change an integer by which a reader learns that the data is there. Both
	 * go under one id: len bytes to addr, as WRITE, then the integer, as ATOMIC. A reader that
	 * finds the integer changed, and then requests the data, MUST get it. The data is also
	 * written first where data and integer overlap. The node executes both or neither: an error
	 * in one refuses both. The message's op says how to change the integer; CAS is not allowed.
	 * Payload rmem_put, then 1 or more bytes of data, together at most a packet's payload.
	 * Out: rmem_found.
	 */
	RMEM_PUT = 11,
	/*
	 * Read several short ranges under one id. addr is 0; op is the number of ranges,
	 * 1 to RMEM_RANGES_MAX. Payload: one rmem_range for each; their bytes sum to len. Out: one
	 * packet with the bytes of all ranges in their order, so len is at most a packet's payload.
	 * An error in one range refuses all.
	 */
	RMEM_READV = 12,
	/*
	 * Write several short ranges under one id, as READV. Payload: the ranges, then their data,
	 * together at most a packet's payload. The message's len counts the data only. The node
	 * writes in the order of the ranges, which MAY overlap. It writes all or none.
	 */
	RMEM_WRITEV = 13,
	/*
	 * Copy len bytes, 1 to RMEM_COPY_BYTES_MAX, inside the node to addr, as READ and WRITE
	 * would. The two ranges MUST NOT overlap. A client that copies more sends several
	 * messages, each with its own id and answer. The node executes a COPY once in a session,
	 * as it does a WRITE. An error in either range refuses the COPY, and nothing is changed.
	 * Payload rmem_copy.
	 */
	RMEM_COPY = 14,
	/*
	 * Give the region that begins at the payload's addr a name, or with addr 0 withdraw the
	 * name. Payload rmem_named. Executed once in a session, as ATOMIC. RMEM_EXISTS: the space
	 * has the name; RMEM_FAULT: no region begins there; RMEM_NO_NAME: there is none to be
	 * withdrawn; RMEM_NO_MEMORY: the space has RMEM_NAMES_MAX names.
	 */
	RMEM_PUBLISH = 15,
	/*
	 * Find the region of a name. Payload rmem_named with addr 0; out: rmem_range, the whole
	 * region. RMEM_NO_NAME: the space has no such name.
	 */
	RMEM_LOOKUP = 16,
	/*
	 * Find the first region of the space that begins at the payload's addr or behind. Payload
	 * rmem_named with a name of zeros; out: rmem_listed. If there is none, its bytes are 0.
	 */
	RMEM_LIST = 17,
	/*
	 * Execute a function that changes no memory: addr is the offload's id, op the function.
	 * Payload: len bytes of arguments, 0 to RMEM_ARGS_BYTES_MAX. part is the room for the
	 * result, 0 to a packet's payload. Out: the result, len bytes. RMEM_NO_OFFLOAD: the client
	 * can call none of that id; RMEM_INVALID: the function is one for CALL.
	 */
	RMEM_QUERY = 18,
	/*
	 * Execute a function that can change memory, once in a session, as ATOMIC. As QUERY, but
	 * part is 0. Out: rmem_found, the function's result of 16 bytes. RMEM_INVALID: the function
	 * is one for QUERY.
	 */
	RMEM_CALL = 19,
	RMEM_TYPE_END
};

/* The integer's new value. Integers of 16 bytes allow SWAP and CAS only. */
enum rmem_atomic_op {
	RMEM_SWAP = 1, /* value */
	RMEM_CAS = 2,  /* value if the integer equals compare, else unchanged */
	RMEM_ADD = 3,  /* the sum with value, modulo 2^bits */
	RMEM_AND = 4,
	RMEM_OR = 5,
	RMEM_XOR = 6,
	RMEM_MIN = 7, /* the lesser of the integer and value, unsigned */
	RMEM_MAX = 8,
	RMEM_SMIN = 9, /* the same, signed */
	RMEM_SMAX = 10,
	RMEM_ATOMIC_OP_END
};

enum rmem_integrity {
	RMEM_LINK = 0,
	RMEM_DIGEST = 1,
	RMEM_FULL = 2,
	RMEM_SEALED = 3,
};

/* flags: the session's enum rmem_integrity in the low bits. Bits not named here MUST be 0. */
#define RMEM_FLAGS_INTEGRITY 0x03
/*
 * In requests: another datagram of the session follows at once. The node MAY hold answers back to
 * bundle them with the answers to that one. The node MUST NOT hold them for more than some
 * milliseconds, in case that datagram is lost.
 */
#define RMEM_FLAGS_MORE 0x04
/* At level RMEM_SEALED: OPEN, its answers, and notices, which are not sealed. */
#define RMEM_FLAGS_CLEAR 0x08

/* In responses. Only a response with RMEM_OK carries a payload. */
enum rmem_status {
	RMEM_OK = 0,
	RMEM_DAMAGED = 1,    /* payload arrived damaged: retransmit at once */
	RMEM_BUSY = 2,	     /* no zeroed page, session slot or place for a result: retry later */
	RMEM_NO_SESSION = 3, /* the node has no such session, or has it no more */
	RMEM_REBOOTED = 4,   /* the request names another boot; the header has the current one */
	RMEM_STALE = 5,	     /* id below the session's floor: a late copy */
	RMEM_FAULT = 6,	     /* address not allocated in this space */
	RMEM_PERM = 7,	     /* the region or space does not permit this */
	RMEM_INVALID = 8,    /* invalid length, alignment or op; id beyond the window */
	RMEM_NO_MEMORY = 9,  /* ALLOC: larger than the memory left; PUBLISH: no name left */
	RMEM_CHALLENGE = 10, /* OPEN: to be sent again with the answer's addr, the challenge */
	RMEM_EXISTS = 11,    /* PUBLISH: the space has that name */
	RMEM_NO_NAME = 12,   /* PUBLISH, LOOKUP: the space has no such name */
	RMEM_NO_OFFLOAD = 13, /* QUERY, CALL: there is none of that id for this client */
	RMEM_FAILED = 14,    /* QUERY, CALL: the function ended with an error; part is its errno */
	RMEM_OVER_BUDGET = 15, /* QUERY, CALL: stopped; part is the node's time used, in us */
	RMEM_STATUS_COUNT
};

/* A datagram's header. */
struct rmem_hdr {
	__u8 version;	 /* RMEM_VERSION */
	__u8 flags;	 /* RMEM_FLAGS_* */
	__u8 messages;	 /* 1 to RMEM_BUNDLE_MAX */
	__u8 reserved;	 /* 0 */
	__le32 space;	 /* RAS id, not 0 */
	__le64 session;	 /* name the node gave; in OPEN: session to renew, or 0 */
	__le64 boot;	 /* node's boot epoch, random and not 0; 0 in OPEN */
	__le64 floor;	 /* requests: oldest id outstanding, <= each id; responses: 0 */
	__le64 number;	 /* of the datagram; see "Datagrams" */
	__u8 tag[8];	 /* SipHash-2-4, little-endian; see "Integrity" */
};

/* The head of a message. */
struct rmem_msg {
	__u8 type;	 /* enum rmem_type, RMEM_RESPONSE */
	__u8 status;	 /* enum rmem_status; 0 in requests */
	__u8 attempt;	 /* transmission number, wraps; echoed: identifies the round trip */
	/* ATOMIC, PUT: enum rmem_atomic_op; READV, WRITEV: ranges; QUERY, CALL: function; echoed */
	__u8 op;
	__le32 len;	 /* bytes requested, or bytes of data in this message */
	__le64 id;	 /* of the message in its session, from 1 up */
	/* First byte in the RAS; responses: the request's; OPEN: challenge; QUERY, CALL: offload */
	__le64 addr;
	/*
	 * READ requests: payload bytes per response packet, RMEM_PIECE_BYTES_MIN or more, below
	 * 64 KiB. READ responses: offset of the part in the range requested. QUERY requests: room
	 * for the result. RMEM_FAILED, RMEM_OVER_BUDGET: see there. Else 0.
	 */
	__le32 part;
	__le32 digest;	 /* RMEM_DIGEST: CRC32C of the payload, 0 without payload; else 0 */
};

/* The head of a plain message. The fields are those of struct rmem_hdr and struct rmem_msg. */
struct rmem_plain {
	__u8 version;	 /* RMEM_PLAIN, where a datagram has RMEM_VERSION */
	__u8 type;
	__u8 status;
	__u8 attempt;
	__u8 op;
	__u8 reserved;	 /* 0 */
	__le16 above;	 /* requests: the id is so far above the floor; responses: 0 */
	__le64 session;
	__le64 id;
	__le64 addr;
	__le32 len;
	__le32 part;
};

#define RMEM_PLAIN 0x81
#define RMEM_PLAIN_BYTES 40

#define RMEM_HDR_BYTES 48
#define RMEM_TAGGED_BYTES 40 /* of the header; the tag is last */
#define RMEM_MSG_BYTES 32
/* A datagram's bytes before its payloads. */
#define RMEM_HEADS_BYTES(messages) (RMEM_HDR_BYTES + (messages) * RMEM_MSG_BYTES)

/*
 * Payloads. A message with one of these MUST have addr 0 and the payload's size as len. In
 * ATOMIC, PUT, READV, WRITEV, COPY, QUERY and CALL, addr and len have the meaning given at the
 * type, and in OPEN addr.
 */
struct rmem_open {
	__u8 client[16];  /* permanent id of the client; an OPEN supersedes its older session */
	__u8 integrity;	  /* enum rmem_integrity of the session; equal to the header's */
	__u8 reserved;	  /* 0 */
	__le16 datagram_bytes; /* limit for bundled answers; 0: each travels alone */
	__u8 reserved2[4]; /* 0 */
};

struct rmem_opened {
	__le64 memory_bytes; /* all memory of the node */
	__le64 free_bytes;   /* memory not yet promised to a region */
	__le32 page_bytes;   /* unit of allocating and freeing; a power of two */
	__le32 piece_bytes;  /* largest payload of a packet that the node accepts or sends */
	__u8 renewed;	     /* 1: the session that OPEN named; 0: a new one */
	__u8 reserved[7];    /* 0 */
};

/* Bytes of an X25519 key, of a key of the AEAD, and of the end of a sealed datagram. */
#define RMEM_X25519_BYTES 32
#define RMEM_SEAL_KEY_BYTES 32
#define RMEM_SEAL_BYTES 24

/* OPEN's payload at level RMEM_SEALED, and its answer's. */
struct rmem_open_sealed {
	struct rmem_open open;
	__u8 key[RMEM_X25519_BYTES]; /* the client's, public */
};

struct rmem_opened_sealed {
	struct rmem_opened opened;
	__u8 key[RMEM_X25519_BYTES]; /* the node's, public */
};

/* The end of a sealed datagram. */
struct rmem_seal {
	__u8 salt[8];
	__u8 tag[16]; /* the AEAD's */
};

/* The input of the computation of a sealed session's keys. It never travels. */
struct rmem_keying {
	__u8 shared[RMEM_X25519_BYTES]; /* X25519's result */
	__u8 client_key[RMEM_X25519_BYTES]; /* of the OPEN that was answered, */
	__u8 node_key[RMEM_X25519_BYTES];   /* and of the answer */
	__u8 client[16]; /* of the OPEN */
	__le64 nonce;	 /* the OPEN's id */
	__le64 renews;	 /* the session that the OPEN named, or 0 */
	__le64 session;	 /* of the answer */
	__le64 boot;	 /* of the answer */
	__le32 space;
	__u8 from;	 /* RMEM_KEYING_* */
	__u8 label[11];	 /* RMEM_KEYING_LABEL */
};

/* The end whose datagrams the key seals. */
#define RMEM_KEYING_CLIENT 1
#define RMEM_KEYING_NODE 2
#define RMEM_KEYING_LABEL "rmem sealed"

#define RMEM_PERM_READ 1
#define RMEM_PERM_WRITE 2

struct rmem_alloc {
	__le64 bytes;	 /* rounded up to pages */
	__le64 addr;	 /* wanted address, a multiple of the page, or 0; the answer MAY differ */
	__le32 perm;	 /* RMEM_PERM_*; WRITE without READ is refused */
	__le32 reserved; /* 0 */
};

/* A range of addresses. READV, WRITEV: bytes is 1 or more. */
struct rmem_range {
	__le64 addr;
	__le64 bytes;
};

/* ATOMIC's payload. value[0] holds the integer's first 8 bytes; bytes beyond the integer are 0. */
struct rmem_operands {
	__le64 value[2];
	__le64 compare[2]; /* CAS; else 0 */
};

struct rmem_found {
	__le64 value[2];
};

/* PUT's payload before the data: the integer and the operand. */
struct rmem_put {
	__le64 addr;	 /* a multiple of bytes */
	__le64 value;	 /* operand in the first bytes, as many as the integer has */
	__le32 bytes;	 /* 4 or 8 */
	__le32 reserved; /* 0 */
};

/* COPY's payload. */
struct rmem_copy {
	__le64 from; /* first byte of the source */
};

/* PUBLISH's, LOOKUP's and LIST's payload. */
struct rmem_named {
	__le64 addr; /* PUBLISH: first byte of the region, or 0; LOOKUP: 0; LIST: any */
	__u8 name[RMEM_NAME_BYTES];
};

/* LIST's answer: a region. All 0: there is none. */
struct rmem_listed {
	__le64 addr;
	__le64 bytes; /* a multiple of the page */
	__le32 perm;  /* RMEM_PERM_* */
	__le32 names; /* number of its names */
	__u8 name[RMEM_NAME_BYTES]; /* the last of them in the order of their bytes */
};

/*
 * While its id is in the window, a repeated ALLOC or FREE gets the first answer again. A repeated
 * ALLOC whose region was freed since gets RMEM_NO_MEMORY. The node MUST NOT give out the addresses
 * of a freed range again in the same boot, so a late copy of a request finds RMEM_FAULT.
 */

#ifdef __cplusplus
#define RMEM_ASSERT static_assert
#else
#define RMEM_ASSERT _Static_assert
#endif

RMEM_ASSERT(sizeof(struct rmem_hdr) == RMEM_HDR_BYTES, "header has no padding");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, session) == 8, "session");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, tag) == RMEM_TAGGED_BYTES, "tag is last");
RMEM_ASSERT(sizeof(struct rmem_msg) == RMEM_MSG_BYTES, "message has no padding");
RMEM_ASSERT(__builtin_offsetof(struct rmem_msg, addr) == 16, "addr");
RMEM_ASSERT(sizeof(struct rmem_open) == 24, "open");
RMEM_ASSERT(sizeof(struct rmem_opened) == 32, "opened");
RMEM_ASSERT(sizeof(struct rmem_open_sealed) == 56, "open, sealed");
RMEM_ASSERT(sizeof(struct rmem_opened_sealed) == 64, "opened, sealed");
RMEM_ASSERT(sizeof(struct rmem_seal) == RMEM_SEAL_BYTES, "seal");
RMEM_ASSERT(sizeof(struct rmem_keying) == 160, "keying has no padding");
RMEM_ASSERT(sizeof(struct rmem_alloc) == 24, "alloc");
RMEM_ASSERT(sizeof(struct rmem_range) == 16, "range");
RMEM_ASSERT(sizeof(struct rmem_operands) == 32, "operands");
RMEM_ASSERT(sizeof(struct rmem_found) == 16, "found");
RMEM_ASSERT(sizeof(struct rmem_put) == 24, "put");
RMEM_ASSERT(__builtin_offsetof(struct rmem_put, bytes) == 16, "bytes of the integer");
RMEM_ASSERT(sizeof(struct rmem_copy) == 8, "copy");
RMEM_ASSERT(sizeof(struct rmem_named) == 72, "named");
RMEM_ASSERT(sizeof(struct rmem_listed) == 88, "listed");

#undef RMEM_ASSERT

#endif
