/* SPDX-License-Identifier: GPL-2.0 */
/* The ciphers of sealed sessions, for the ends that open them; the transports seal by carrier/. */
#ifndef REMORA_RMEM_SEAL_OPS_H
#define REMORA_RMEM_SEAL_OPS_H

#include "core/rmem/seal.h"

/*
 * carrier/cipher.c: for OPENs, in any context. encrypt and decrypt are NULL, as datagrams lie in
 * socket buffers. NULL: this kernel was built without the functions that WireGuard uses.
 */
const struct rmem_cipher *rmem_cipher(void);

/*
 * carrier/skb.c: memory for datagrams that are opened, from the first user on; process context.
 * False: there is none, or this kernel has no cipher.
 */
bool rmem_skb_prepare_unseal(void);

#endif
