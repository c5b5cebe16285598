// SPDX-License-Identifier: GPL-2.0
/*
 * remora_core.ko: the cores that both the memory node and the client link
 * against. It does nothing by itself; its functions are exported to the two.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "core/base/crc32c.h"
#include "core/base/siphash.h"
#include "core/rmem/wire.h"

EXPORT_SYMBOL_GPL(base_siphash_key_load);
EXPORT_SYMBOL_GPL(base_siphash_init);
EXPORT_SYMBOL_GPL(base_siphash_update);
EXPORT_SYMBOL_GPL(base_siphash_final);
EXPORT_SYMBOL_GPL(base_siphash);

EXPORT_SYMBOL_GPL(base_crc32c_setup);
EXPORT_SYMBOL_GPL(base_crc32c_update);

EXPORT_SYMBOL_GPL(rmem_wire_tags_payload);
EXPORT_SYMBOL_GPL(rmem_wire_payload_bytes);
EXPORT_SYMBOL_GPL(rmem_wire_parse);
EXPORT_SYMBOL_GPL(rmem_wire_count);
EXPORT_SYMBOL_GPL(rmem_wire_joins);
EXPORT_SYMBOL_GPL(rmem_wire_hash_begin);
EXPORT_SYMBOL_GPL(rmem_wire_tag_equal);
EXPORT_SYMBOL_GPL(rmem_wire_encode);
EXPORT_SYMBOL_GPL(rmem_wire_seal);
EXPORT_SYMBOL_GPL(rmem_wire_verify);
EXPORT_SYMBOL_GPL(rmem_wire_build);

static int __init core_init(void)
{
	base_crc32c_setup();
	return 0;
}

static void __exit core_exit(void)
{
}

module_init(core_init);
module_exit(core_exit);

MODULE_DESCRIPTION("Remora remote memory: wire format and base of client and node");
MODULE_LICENSE("Dual MIT/GPL");
