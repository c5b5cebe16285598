/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that the client keeps for its machine's network while disks are attached.
 *
 *       free pages of a zone
 *   low  ----------------------------  the reserve is filled again while more is free
 *   min  ----------------------------  tasks must reclaim: they write pages out, and wait
 *        |  rmem_reserve_tend() gives blocks back
 *   3/8  ----------------------------  GFP_ATOMIC fails: no buffer to receive into
 *        |  PF_MEMALLOC: tasks that reclaim, and this module's packets
 *     0  ----------------------------
 *
 * A disk that is written to free memory needs memory itself: to send, and for its network card to
 * receive answers. virtio_net, once it finds no buffer, stops receiving and leaves the matter to a
 * task. That task reclaims, so it waits for the disk, whose answers nobody receives: the machine
 * stands still for ever. No bound on this module's messages prevents that, for others take from the
 * same pages. So this module adds to them. Below min, tasks don't get its pages, but for real-time
 * ones and victims of the OOM killer.
 *
 * If the network stopped nevertheless, the node falls silent. Then the module gives half of its
 * pages, as long as tasks find none, so that the one which has to find receive buffers can go on.
 * The other half stays for the network of nodes that answer, until the silence lasts too long.
 *
 * To find memory, that task can write a page to this very disk. If all tags of the disk's queue
 * belong to writes that wait for the silent node, the task waits for a tag. So once tasks find
 * memory, the module ends the writes of swap that were never sent, with an error. Their pages stay
 * in memory, and tasks that wait for a tag go on.
 */
#ifndef REMORA_RMEM_RESERVE_H
#define REMORA_RMEM_RESERVE_H

#include <linux/types.h>

struct rmem_device;

/*
 * A disk is attached or gone; sealed: its messages are. The first of either kind has the reserve
 * filled, the last frees its part. May sleep.
 */
void rmem_reserve_get(bool sealed);
void rmem_reserve_put(bool sealed);
/* No device is left: nothing of the reserve is under way after this. */
void rmem_reserve_stop(void);

/*
 * Gives memory back if the network is about to find none. silent_ns: this disk's node has been
 * silent for that long, so do it also if tasks find none; 0: it hasn't. BHs disabled, with every
 * row of packets.
 */
void rmem_reserve_tend(struct rmem_device *device, u64 silent_ns);

/* Tasks find memory without reclaim. */
bool rmem_reserve_tasks_have_memory(void);

/*
 * vm.min_free_kbytes, less up to a page for each zone: the memory that tasks leave to the network.
 */
unsigned long rmem_reserve_min_free_kib(void);

#endif
