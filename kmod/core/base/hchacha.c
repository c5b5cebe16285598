// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/hchacha.h"

#include "core/base/bytes.h"

#define WORDS	      16
#define DOUBLE_ROUNDS 10

static u32 hchacha_rotated(u32 x, u32 bits)
{
	return x << bits | x >> (32 - bits);
}

static void hchacha_quarter(u32 *x, u32 a, u32 b, u32 c, u32 d)
{
	x[a] += x[b];
	x[d] = hchacha_rotated(x[d] ^ x[a], 16);
	x[c] += x[d];
	x[b] = hchacha_rotated(x[b] ^ x[c], 12);
	x[a] += x[b];
	x[d] = hchacha_rotated(x[d] ^ x[a], 8);
	x[c] += x[d];
	x[b] = hchacha_rotated(x[b] ^ x[c], 7);
}

void base_hchacha20(u8 out[BASE_HCHACHA_KEY_BYTES], const u8 key[BASE_HCHACHA_KEY_BYTES],
		    const u8 input[BASE_HCHACHA_INPUT_BYTES])
{
	/* "expand 32-byte k" */
	u32 x[WORDS] = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 };
	u32 n;

	for (n = 0; n < 8; n++)
		x[4 + n] = base_load_le32(key + 4 * n);
	for (n = 0; n < 4; n++)
		x[12 + n] = base_load_le32(input + 4 * n);
	for (n = 0; n < DOUBLE_ROUNDS; n++) {
		hchacha_quarter(x, 0, 4, 8, 12);
		hchacha_quarter(x, 1, 5, 9, 13);
		hchacha_quarter(x, 2, 6, 10, 14);
		hchacha_quarter(x, 3, 7, 11, 15);
		hchacha_quarter(x, 0, 5, 10, 15);
		hchacha_quarter(x, 1, 6, 11, 12);
		hchacha_quarter(x, 2, 7, 8, 13);
		hchacha_quarter(x, 3, 4, 9, 14);
	}
	for (n = 0; n < 4; n++) {
		base_store_le32(out + 4 * n, x[n]);
		base_store_le32(out + 16 + 4 * n, x[12 + n]);
	}
}
