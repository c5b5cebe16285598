/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels, 6.1 and later: the one place that knows of them.
 * Compile probes where there is something to probe, version numbers else. Each
 * entry says which kernel changed what, so that it can go when that is the oldest.
 */
#ifndef REMORA_COMPAT_H
#define REMORA_COMPAT_H

#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/netlink.h>

/*
 * 6.2: extack carries formatted text in a buffer of its own. Before, the text
 * must live until the acknowledgement is built, just after the command returns:
 * a ring of texts serves, and eight refusals would have to be written within that
 * instant for one to be seen with another's words.
 */
#ifndef NL_SET_ERR_MSG_FMT
#define COMPAT_EXTACK_TEXTS 8
#define COMPAT_EXTACK_BYTES 80

static inline char *compat_extack_text(void)
{
	static char text[COMPAT_EXTACK_TEXTS][COMPAT_EXTACK_BYTES];
	static atomic_t next;

	return text[(unsigned int)atomic_inc_return(&next) % COMPAT_EXTACK_TEXTS];
}

#define NL_SET_ERR_MSG_FMT(extack, fmt, args...)                                                   \
	do {                                                                                       \
		struct netlink_ext_ack *__extack = (extack);                                       \
		char *__text;                                                                      \
                                                                                                   \
		if (__extack) {                                                                    \
			__text = compat_extack_text();                                             \
			snprintf(__text, COMPAT_EXTACK_BYTES, fmt, ##args);                        \
			__extack->_msg = __text;                                                   \
		}                                                                                  \
	} while (0)

#define NL_SET_ERR_MSG_FMT_MOD(extack, fmt, args...)                                               \
	NL_SET_ERR_MSG_FMT((extack), KBUILD_MODNAME ": " fmt, ##args)
#endif

#endif
