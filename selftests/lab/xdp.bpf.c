// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of XDP attach this program. A frame of the experimental type tells the program what to do with it:
 *
 *	destination 6 | source 6 | 0x88b5 | verdict 1 | where 6 | ...
 *
 * Any other frame passes. No library: the helpers are called by their numbers.
 */
#include <linux/bpf.h>

#define TYPE_LOW 0x88
#define TYPE_HIGH 0xb5
#define ADDRESS_BYTES 6
#define GROWTH_BYTES 32

enum { GROW = 100, SWAP_AND_TX, TO_WHERE };

static int (*const adjust_head)(struct xdp_md *context,
				int delta) = (void *)BPF_FUNC_xdp_adjust_head;
static int (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

static inline void copy_address(__u8 *to, const __u8 *from)
{
	for (int i = 0; i < ADDRESS_BYTES; i++)
		to[i] = from[i];
}

__attribute__((section("xdp"), used)) int verdict(struct xdp_md *context)
{
	__u8 *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u8 old[14];

	if (frame + 21 > end || frame[12] != TYPE_LOW || frame[13] != TYPE_HIGH)
		return XDP_PASS;
	switch (frame[14]) {
	case GROW:
		for (int i = 0; i < 14; i++)
			old[i] = frame[i];
		if (adjust_head(context, -GROWTH_BYTES))
			return XDP_ABORTED;
		frame = (void *)(long)context->data;
		end = (void *)(long)context->data_end;
		if (frame + 14 + GROWTH_BYTES > end)
			return XDP_ABORTED;
		for (int i = 0; i < 14; i++)
			frame[i] = old[i];
		for (int i = 14; i < 14 + GROWTH_BYTES; i++)
			frame[i] = GROW;
		return XDP_PASS;
	case SWAP_AND_TX:
		copy_address(old, frame);
		copy_address(frame, frame + ADDRESS_BYTES);
		copy_address(frame + ADDRESS_BYTES, old);
		return XDP_TX;
	case TO_WHERE:
		copy_address(frame + ADDRESS_BYTES, frame);
		copy_address(frame, frame + 15);
		return redirect(context->ingress_ifindex, 0);
	}
	return frame[14];
}

__attribute__((section("license"), used)) char licence_name[] = "GPL";
