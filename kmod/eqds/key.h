/* SPDX-License-Identifier: GPL-2.0 */
/* Tags, and cookies that prove that a packet is new. */
#ifndef KMOD_EQDS_KEY_H
#define KMOD_EQDS_KEY_H

#include "eqds/device.h"

struct eqds_tag_ends;

struct eqds_key *eqds_key_make(const u8 *bytes);
void eqds_key_replace(struct eqds_dev *ed, struct eqds_key *key);
void eqds_key_clear(struct eqds_dev *ed);
bool eqds_key_seal(struct eqds_dev *ed, struct sk_buff *skb, const struct eqds_tag_ends *ends);
bool eqds_key_verify(struct eqds_dev *ed, struct sk_buff *skb);
u64 eqds_key_cookie(struct eqds_dev *ed, const struct in6_addr *peer, u64 offered);
void eqds_key_cookie_used(struct eqds_dev *ed, const struct in6_addr *peer);

#endif
