// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/crc32c.h"

#include "core/base/bytes.h"

#define CASTAGNOLI_REFLECTED 0x82f63b78U

static u32 table[8][256];

void base_crc32c_setup(void)
{
	for (u32 n = 0; n < 256; n++) {
		u32 crc = n;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CASTAGNOLI_REFLECTED : 0);
		table[0][n] = crc;
	}
	for (int k = 1; k < 8; k++)
		for (u32 n = 0; n < 256; n++)
			table[k][n] = table[k - 1][n] >> 8 ^ table[0][table[k - 1][n] & 0xff];
}

u32 base_crc32c_update(u32 crc, const void *data, size_t bytes)
{
	const u8 *p = data;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		u32 low = base_load_le32(p) ^ crc;
		u32 high = base_load_le32(p + 4);

		crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^
		      table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
		      table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
		      table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
	}
	for (; bytes; bytes--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return crc;
}
