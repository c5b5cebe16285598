/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The version of Remora, of its programs as of its modules. */
#ifndef REMORA_VERSION_H
#define REMORA_VERSION_H

#define REMORA_VERSION "0.1.0"

#endif
