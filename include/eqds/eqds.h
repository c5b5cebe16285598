/* SPDX-License-Identifier: MIT */
/*
 * libeqds: packets through the tunnels of an eqds device, without sockets. The receiver's link
 * clocks each packet, so queues in the network stay short. After EQDS (NSDI'22), the native class.
 *
 *	eqds_t *e;
 *	struct eqds_address to;
 *	struct eqds_packet packet;
 *
 *	eqds_open(&e, "eqds0", NULL);
 *	eqds_address_parse("10.0.0.2", 7, &to);
 *	packet = (struct eqds_packet){.bytes = 5, .address = to};
 *	eqds_buffer(e, &packet.data);
 *	memcpy(packet.data, "hello", 5);
 *	eqds_send(e, &packet, 1);
 *	eqds_wait(e, -1);
 *	n = eqds_receive(e, &packet, 1);
 *	eqds_release(e, packet.data);
 *	eqds_close(e);
 *
 * A call returns 0 or more on success, else a negative errno.
 *
 * Buffers. All packets lie in buffers of the handle, eqds_packet_bytes() each. A buffer is the
 * caller's from eqds_buffer() until eqds_send(), and from eqds_receive() until eqds_release().
 * After eqds_send() the network reads it, so the caller MUST NOT write to it until its completion
 * has come.
 *
 * Delivery. A packet arrives once or not at all, and packets to one host arrive in the order they
 * were sent. A tunnel that begins anew, as when the peer restarts, can break both rules: packets
 * that the peer had can come again. A completion says that the peer's kernel has the packet. The
 * peer's program can still miss it, if it doesn't receive as fast as packets come.
 *
 * Structures that can grow begin with their size, which the caller sets.
 *
 * Threads. One thread at a time MAY use a handle. fork(): the child MUST NOT use it.
 */
#ifndef EQDS_EQDS_H
#define EQDS_EQDS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct eqds eqds_t;

struct eqds_options {
	size_t bytes;	  /* sizeof(struct eqds_options) */
	uint32_t packets; /* each way, a power of two, 8 .. 16384; 0: 256 */
	uint16_t port;	  /* where packets for this handle come to; 0: any that is free */
	uint16_t reserved[5]; /* 0 */
};

/* host: IPv6, or IPv4 as mapped address: ::ffff:10.0.0.2 */
struct eqds_address {
	uint8_t host[16];
	uint16_t port;
};

struct eqds_packet {
	void *data;
	size_t bytes;
	uint64_t cookie;	     /* sending: comes back in the completion */
	struct eqds_address address; /* sending: of the receiver; receiving: of the sender */
};

enum eqds_status {
	EQDS_DELIVERED, /* the peer's kernel has it */
	EQDS_DROPPED,	/* the queue was full, the peer silent or the device down */
	EQDS_INVALID,	/* longer than the device's MTU allows now, or an impossible host or port */
};

struct eqds_completion {
	uint64_t cookie;
	enum eqds_status status;
	uint32_t rtt_ns;    /* of this packet; 0: it was retransmitted */
	uint32_t path;	    /* path of the last transmission */
	uint32_t attempts;  /* transmissions after the first */
	uint32_t queued;    /* packets that wait in the transmit queue to that host */
	uint32_t pulls;	    /* MTUs of credit that this machine has asked for and not got */
	uint32_t busy_us;   /* time that the pull queue of the peer takes */
};

struct eqds_path_info {
	uint32_t rtt_ns, sent, trimmed, lost;
};

#define EQDS_PATH_COUNT 16

struct eqds_peer_info {
	size_t bytes; /* sizeof(struct eqds_peer_info) */
	uint64_t rtt_ns, credit_bytes;
	uint32_t queued, in_flight, pulls, busy_us;
	struct eqds_path_info path[EQDS_PATH_COUNT];
};

/* device: name of the eqds device. options: NULL for defaults. -EPERM: needs CAP_NET_RAW. */
int eqds_open(eqds_t **e, const char *device, const struct eqds_options *options);
/*
 * Packets that are under way can still arrive; their completions are lost. Closing NULL or a closed
 * handle has no effect. Other calls with one return -EBADF, or 0 if they return an unsigned number.
 */
void eqds_close(eqds_t *e);

uint16_t eqds_port(const eqds_t *e);
size_t eqds_packet_bytes(const eqds_t *e);
/* Becomes readable when there is a packet or a completion; hangs up when the device is gone. */
int eqds_fd(const eqds_t *e);
/* Packets dropped because the caller did not receive and release fast enough. */
uint64_t eqds_dropped(const eqds_t *e);

/* A buffer to send from. -EAGAIN: all are under way. */
int eqds_buffer(eqds_t *e, void **data);
/* Gives a buffer back: received, or not sent. */
int eqds_release(eqds_t *e, void *data);

/*
 * Sends packets, and returns how many: fewer if as many completions as packets of the handle are
 * outstanding or unread. -EINVAL: data isn't the beginning of a buffer that the caller has, a buffer
 * comes twice, or bytes is 0 or above eqds_packet_bytes(); none was sent. -ENODEV: the device is gone.
 */
int eqds_send(eqds_t *e, const struct eqds_packet *packets, size_t count);
/* Takes packets that have come, count at most; returns how many. */
int eqds_receive(eqds_t *e, struct eqds_packet *packets, size_t count);
/* Takes completions, count at most; returns how many. Their buffers are free again. */
int eqds_complete(eqds_t *e, struct eqds_completion *completions, size_t count);
/*
 * Waits for a packet or a completion. Returns 1 if there is one, 0 after timeout_ms, -ENODEV when
 * the device is gone. timeout_ms below 0: for ever.
 */
int eqds_wait(eqds_t *e, int timeout_ms);

/* The tunnel to a host. Zeros while there is none. */
int eqds_peer(eqds_t *e, const struct eqds_address *to, struct eqds_peer_info *info);

/* host: 10.0.0.2 or fd00::2 */
int eqds_address_parse(const char *host, uint16_t port, struct eqds_address *address);

#ifdef __cplusplus
}
#endif

#endif
