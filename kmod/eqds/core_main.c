// SPDX-License-Identifier: GPL-2.0
/*
 * eqds_core.ko: the protocol of EQDS tunnels. It does nothing by itself; these functions are
 * exported to the modules that have packets.
 */
#include <linux/module.h>

#include "core/eqds/class.h"
#include "core/eqds/cookie.h"
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/eqds/reply.h"
#include "core/eqds/roce.h"
#include "core/eqds/tag.h"

EXPORT_SYMBOL_GPL(eqds_profile_extended);
EXPORT_SYMBOL_GPL(eqds_profile_paper);
EXPORT_SYMBOL_GPL(eqds_config_init);
EXPORT_SYMBOL_GPL(eqds_config_is_valid);

EXPORT_SYMBOL_GPL(eqds_wire_parse);
EXPORT_SYMBOL_GPL(eqds_wire_bytes);
EXPORT_SYMBOL_GPL(eqds_wire_encode);
EXPORT_SYMBOL_GPL(eqds_cookie);
EXPORT_SYMBOL_GPL(eqds_cookie_claim);

EXPORT_SYMBOL_GPL(eqds_tag_payload_begin);
EXPORT_SYMBOL_GPL(eqds_tag_seal);
EXPORT_SYMBOL_GPL(eqds_tag_check);
EXPORT_SYMBOL_GPL(eqds_tag_covers_payload);
EXPORT_SYMBOL_GPL(eqds_tag_payload_verifies);

EXPORT_SYMBOL_GPL(eqds_class_init);
EXPORT_SYMBOL_GPL(eqds_class_queue_init);
EXPORT_SYMBOL_GPL(eqds_class_arrive);
EXPORT_SYMBOL_GPL(eqds_class_depart);

EXPORT_SYMBOL_GPL(eqds_roce_init);
EXPORT_SYMBOL_GPL(eqds_roce_track);
EXPORT_SYMBOL_GPL(eqds_roce_source);
EXPORT_SYMBOL_GPL(eqds_roce_cnp);

EXPORT_SYMBOL_GPL(eqds_paths_init);
EXPORT_SYMBOL_GPL(eqds_sender_init);
EXPORT_SYMBOL_GPL(eqds_sender_enqueue_whole);
EXPORT_SYMBOL_GPL(eqds_sender_unnumbered);
EXPORT_SYMBOL_GPL(eqds_sender_receive);
EXPORT_SYMBOL_GPL(eqds_sender_deadline_ns);
EXPORT_SYMBOL_GPL(eqds_sender_expire);
EXPORT_SYMBOL_GPL(eqds_sender_close);

EXPORT_SYMBOL_GPL(eqds_drr_init);
EXPORT_SYMBOL_GPL(eqds_eqif_init);
EXPORT_SYMBOL_GPL(eqds_drr_update);
EXPORT_SYMBOL_GPL(eqds_drr_send);
EXPORT_SYMBOL_GPL(eqds_drr_remove);
EXPORT_SYMBOL_GPL(eqds_drr_remove_eqif);

EXPORT_SYMBOL_GPL(eqds_receiver_admit);
EXPORT_SYMBOL_GPL(eqds_receiver_init);
EXPORT_SYMBOL_GPL(eqds_receiver_receive);
EXPORT_SYMBOL_GPL(eqds_receiver_next);
EXPORT_SYMBOL_GPL(eqds_receiver_restarts);
EXPORT_SYMBOL_GPL(eqds_receiver_deadline_ns);
EXPORT_SYMBOL_GPL(eqds_receiver_expire);
EXPORT_SYMBOL_GPL(eqds_receiver_close);

EXPORT_SYMBOL_GPL(eqds_asl_init);
EXPORT_SYMBOL_GPL(eqds_asl_set);
EXPORT_SYMBOL_GPL(eqds_asl_deadline_ns);
EXPORT_SYMBOL_GPL(eqds_asl_busy_us);
EXPORT_SYMBOL_GPL(eqds_rate_init);
EXPORT_SYMBOL_GPL(eqds_reply_add);

MODULE_DESCRIPTION("EQDS: edge-queued datagram tunnels, protocol core");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
