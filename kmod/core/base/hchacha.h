/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * HChaCha20 (draft-irtf-cfrg-xchacha-03, section 2.2): a key of its own for each 16 bytes of input.
 * A cipher whose nonce has 96 bits takes XChaCha20's of 192 by it. Constant time.
 */
#ifndef REMORA_BASE_HCHACHA_H
#define REMORA_BASE_HCHACHA_H

#include "core/base/types.h"

#define BASE_HCHACHA_KEY_BYTES 32
#define BASE_HCHACHA_INPUT_BYTES 16

void base_hchacha20(u8 out[BASE_HCHACHA_KEY_BYTES], const u8 key[BASE_HCHACHA_KEY_BYTES],
		    const u8 input[BASE_HCHACHA_INPUT_BYTES]);

#endif
