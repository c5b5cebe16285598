/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ntb_hw_ivshmem: what its files share. include/remora/ntb.h specifies the registers.
 *
 *   pci.c      the devices, from probe to remove
 *   ops.c      struct ntb_dev_ops
 *   event.c    interrupts, links, doorbells, message registers
 *   pages.c    which pages of peers the switch opens to this machine (../ntb_ops.h)
 *   bus.c      faults of the lab (../ntb_ops.h)
 *   window.c   memory windows, and the DMA operations that give out their memory
 *
 * Invariants
 *   Every index a client gets (peer, doorbell, message) is in range, whatever peers write.
 *   A word of shared memory is read once, by ivshmem_read32() or ivshmem_read64().
 *   A client's callback runs from an interrupt or from irq_work, never from within a call of the
 *   client's, whose locks it may want.
 */
#ifndef REMORA_NTB_IVSHMEM_H
#define REMORA_NTB_IVSHMEM_H

#include <linux/irq_work.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/spinlock.h>

#include "ntb_ops.h"
#include "remora/ntb.h"

#define IVSHMEM_PEERS_MAX (NTB_PORTS_MAX - 1)
#define IVSHMEM_DOORBELLS_ALL GENMASK_ULL(NTB_DOORBELLS - 1, 0)

/* Message status and mask bits. */
#define IVSHMEM_MESSAGE_OUT_SHIFT 16
#define IVSHMEM_MESSAGES_IN GENMASK_ULL(NTB_MESSAGES - 1, 0)
#define IVSHMEM_MESSAGES_OUT (IVSHMEM_MESSAGES_IN << IVSHMEM_MESSAGE_OUT_SHIFT)

struct ivshmem_window {
	bool used; /* a client has its memory */
	struct task_struct *asked_by; /* last task that asked for its limits; only compared */
	u64 asked_at;
};

struct ivshmem_peer {
	unsigned int port;
	struct ntb_port_page *page;
	phys_addr_t out_base; /* our window into the peer's RAM, as our CPU sees it */
	u64 out_translation; /* the same as the peer sees it */
	resource_size_t out_bytes;
	phys_addr_t ram_base; /* all of the peer's RAM, as our CPU sees it */
	u64 ram_bytes;
	u32 link_epoch; /* as it was when the link came up */
	struct ivshmem_window in; /* the peer's window into our RAM */
};

struct ivshmem_vector {
	struct ivshmem_ntb *nt;
	unsigned int number;
	int irq;
};

struct ivshmem_ntb {
	struct ntb_dev ntb;
	void __iomem *registers; /* BAR 0 of the doorbell device */
	struct ntb_switch_page *switch_page;
	struct ntb_port_page *own;
	unsigned int port;
	unsigned int peer_count;
	struct ivshmem_peer peers[IVSHMEM_PEERS_MAX]; /* by port number, our own left out */
	struct ivshmem_vector vectors[NTB_VECTORS];
	struct irq_work events;
	struct timer_list event_rest; /* ends the rest of NTB_VECTOR_EVENT's interrupt */
	unsigned long event_jiffy; /* of the last one; the interrupt alone uses these two */
	unsigned int event_count; /* within that */
	bool registered; /* there may be a client to tell */
	u32 policy_told; /* number of the switch's policy that the client was told of */

	spinlock_t lock; /* guards the members below, the peers' link_epoch and the windows */
	u64 doorbells; /* rung and not cleared */
	u64 doorbell_mask;
	u64 doorbells_resting; /* masked, and their interrupts disabled */
	u64 message_mask;
	u64 messages_failed; /* of IVSHMEM_MESSAGES_OUT */
	bool enabled; /* the client wants links */
	u32 generation;
	u64 linked; /* bits of peers */
	u64 asked_count;

	void *windows; /* inbound, one after the other by peer */
	phys_addr_t windows_base;
	size_t window_bytes;
	bool ram; /* clients are offered windows that show whole RAM */
	u64 ram_bytes; /* of this machine */
};

#define to_ivshmem(dev) container_of(dev, struct ivshmem_ntb, ntb)

static inline u32 ivshmem_read32(const __le32 *word)
{
	return le32_to_cpu(READ_ONCE(*word));
}

static inline u64 ivshmem_read64(const __le64 *word)
{
	return le64_to_cpu(READ_ONCE(*word));
}

static inline bool ivshmem_is_peer(struct ivshmem_ntb *nt, int pidx)
{
	return pidx >= 0 && (unsigned int)pidx < nt->peer_count;
}

extern const struct ntb_host_ops ivshmem_ops;

/* bus.c */
bool ivshmem_bus_is_on(struct ntb_dev *ntb);
bool ivshmem_bus_carries(struct ntb_dev *ntb, int pidx);
void ivshmem_bus_load(struct ntb_dev *ntb, u32 loads);

/* event.c */
irqreturn_t ivshmem_interrupt(int irq, void *vector);
void ivshmem_events(struct irq_work *work);
void ivshmem_ring(struct ivshmem_ntb *nt, struct ivshmem_peer *peer, unsigned int vector);
void ivshmem_event_rest_end(struct timer_list *timer);
void ivshmem_doorbells_rise(struct ivshmem_ntb *nt, u64 bits);
u32 ivshmem_link_epoch(struct ntb_dev *ntb, int pidx);
void ivshmem_link_set(struct ivshmem_ntb *nt, bool up);
u64 ivshmem_message_status(struct ivshmem_ntb *nt);
u32 ivshmem_message_read(struct ivshmem_ntb *nt, int *pidx, unsigned int number);
int ivshmem_message_write(struct ivshmem_ntb *nt, struct ivshmem_peer *peer, unsigned int number,
			  u32 value);
void ivshmem_message_clear(struct ivshmem_ntb *nt, u64 bits);

/* pages.c */
int ivshmem_pages_read(struct ntb_dev *ntb, int pidx, struct ntb_pages *pages);
void ivshmem_pages_seen(struct ntb_dev *ntb, u32 policy);
void ivshmem_pages_look(struct ivshmem_ntb *nt);

/* window.c */
int ivshmem_windows_init(struct ivshmem_ntb *nt);
int ivshmem_window_init_out(struct ivshmem_ntb *nt, struct ivshmem_peer *peer,
			    struct pci_dev *memory);
unsigned int ivshmem_window_count(struct ivshmem_ntb *nt);
struct ivshmem_peer *ivshmem_window_out(struct ivshmem_ntb *nt, int widx);
bool ivshmem_window_is_ram(struct ivshmem_ntb *nt, int widx);
int ivshmem_window_limits(struct ivshmem_ntb *nt, int pidx, int widx);
int ivshmem_window_set(struct ivshmem_ntb *nt, int pidx, int widx, u64 address, u64 bytes);

#endif
