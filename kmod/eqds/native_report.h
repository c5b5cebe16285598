/* SPDX-License-Identifier: GPL-2.0 */
/* Completions of programs' packets, and how a tunnel does. */
#ifndef KMOD_EQDS_NATIVE_REPORT_H
#define KMOD_EQDS_NATIVE_REPORT_H

#include "eqds/native_types.h"

/* The packet, which lends pages of the program, owes it a completion. False: no memory. */
bool eqds_native_owe(struct eqds_native *native, struct sk_buff *skb, u64 cookie);
void eqds_native_complete(struct eqds_native *native, const struct eqds_native_completion *said);
void eqds_native_settle(struct eqds_tx *tx, const struct eqds_packet *packet, struct sk_buff *skb,
			bool delivered);
void eqds_native_describe(struct eqds_dev *ed, struct eqds_native_peer *peer);
void eqds_native_drain(void);

#endif
