/* SPDX-License-Identifier: GPL-2.0 */
/* Words of the operator, by prefix. */
#ifndef KMOD_EQDS_RULE_H
#define KMOD_EQDS_RULE_H

#include "eqds/device.h"

struct netlink_ext_ack;

const struct eqds_rule *eqds_rule_find(struct eqds_rules *rules, const struct in6_addr *address);
const struct eqds_rule *eqds_rule_of_packet(struct eqds_dev *ed, const struct sk_buff *skb);
int eqds_rule_set(struct eqds_dev *ed, const struct eqds_rule *rule,
		  struct netlink_ext_ack *extack);
int eqds_rule_remove(struct eqds_dev *ed, const struct eqds_rule *like);
void eqds_rule_clear(struct eqds_dev *ed);
void eqds_rule_share(struct eqds_dev *ed, struct eqds_rx *rx);

#endif
