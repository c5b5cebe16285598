// SPDX-License-Identifier: GPL-2.0
/*
 * remora_core.ko: messages in and out of their bytes, for the memory node and the client.
 * It does nothing by itself; these functions are exported to the two.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "core/base/crc32c.h"
#include "core/base/siphash.h"
#include "core/rmem/datagram.h"
#include "core/rmem/seal.h"
#include "rmem/carrier/cipher.h"
#include "rmem/carrier/record.h"
#include "rmem/carrier/skb.h"
#include "rmem/carrier/socket.h"

EXPORT_SYMBOL_GPL(base_siphash);
EXPORT_SYMBOL_GPL(base_siphash_final);
EXPORT_SYMBOL_GPL(base_siphash_init);
EXPORT_SYMBOL_GPL(base_siphash_key_load);
EXPORT_SYMBOL_GPL(base_siphash_update);

EXPORT_SYMBOL_GPL(rmem_type_table);

EXPORT_SYMBOL_GPL(rmem_wire_payload_bytes);
EXPORT_SYMBOL_GPL(rmem_wire_parse_hdr);
EXPORT_SYMBOL_GPL(rmem_wire_seal);
EXPORT_SYMBOL_GPL(rmem_wire_seal_hdr);

EXPORT_SYMBOL_GPL(rmem_bundle_joins);
EXPORT_SYMBOL_GPL(rmem_datagram_build_one);
EXPORT_SYMBOL_GPL(rmem_datagram_open_unsealed);
EXPORT_SYMBOL_GPL(rmem_datagram_step);

EXPORT_SYMBOL_GPL(rmem_seal_derive);
EXPORT_SYMBOL_GPL(rmem_seal_hdr_verifies);
EXPORT_SYMBOL_GPL(rmem_seal_wipe);

EXPORT_SYMBOL_GPL(rmem_cipher);

EXPORT_SYMBOL_GPL(rmem_skb_begin);
EXPORT_SYMBOL_GPL(rmem_skb_put_msg);
EXPORT_SYMBOL_GPL(rmem_skb_add);
EXPORT_SYMBOL_GPL(rmem_skb_copy_heads);
EXPORT_SYMBOL_GPL(rmem_skb_pull_heads);
EXPORT_SYMBOL_GPL(rmem_skb_open);
EXPORT_SYMBOL_GPL(rmem_skb_verifies);
EXPORT_SYMBOL_GPL(rmem_skb_add_own);
EXPORT_SYMBOL_GPL(rmem_skb_take_back);
EXPORT_SYMBOL_GPL(rmem_skb_own);
EXPORT_SYMBOL_GPL(rmem_skb_seal);
EXPORT_SYMBOL_GPL(rmem_skb_prepare_unseal);
EXPORT_SYMBOL_GPL(rmem_skb_unseal);
EXPORT_SYMBOL_GPL(rmem_skb_record_init);

EXPORT_SYMBOL_GPL(rmem_socket_parse);
EXPORT_SYMBOL_GPL(rmem_socket_open);
EXPORT_SYMBOL_GPL(rmem_socket_mark);
EXPORT_SYMBOL_GPL(rmem_socket_deafen);
EXPORT_SYMBOL_GPL(rmem_socket_close);
EXPORT_SYMBOL_GPL(rmem_socket_mtu_bytes);
EXPORT_SYMBOL_GPL(rmem_socket_header_bytes);
EXPORT_SYMBOL_GPL(rmem_socket_transmit);

EXPORT_SYMBOL_GPL(rmem_marlin_writer_begin);
EXPORT_SYMBOL_GPL(rmem_marlin_writer_add);
EXPORT_SYMBOL_GPL(rmem_marlin_writer_end);
EXPORT_SYMBOL_GPL(rmem_marlin_write_plains);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_open);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_verifies);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_answers);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_set_space);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_step);
EXPORT_SYMBOL_GPL(rmem_marlin_reader_pieces);

static int __init core_init(void)
{
	base_crc32c_setup();
	return rmem_socket_start();
}

static void __exit core_exit(void)
{
	rmem_socket_stop();
	rmem_skb_stop();
}

module_init(core_init);
module_exit(core_exit);

MODULE_DESCRIPTION("Remora remote memory: messages of client and node");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
