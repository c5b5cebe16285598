/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A message that came in, as a transport hands it to the client (rmem_ops.h) and a port to the
 * node (rmem_port_ops.h).
 *
 * Some peers can still write records that they have sent. So a header is handed up only as a copy
 * that was parsed and verified, and a payload only as something to copy out of: nobody reads either
 * twice.
 */
#ifndef REMORA_RMEM_RECORD_H
#define REMORA_RMEM_RECORD_H

#include <linux/types.h>

struct rmem_head;

/* Bytes that came with a message. */
struct rmem_payload {
	u32 bytes;
	/* offset and n lie within bytes. Any context. */
	void (*copy)(const struct rmem_payload *payload, u32 offset, void *to, u32 n);
};

struct rmem_record {
	const struct rmem_head *head; /* its tag verified */
	const struct rmem_payload *payload;
	bool damaged; /* the payload differs from the sender's */
	bool last;    /* of those that came together */
};

#endif
