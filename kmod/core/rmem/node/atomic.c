// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/atomic.h"

#include "core/base/bytes.h"

/* An integer in the processor's own order; hi of those of 16 bytes only. */
struct integer {
	u64 lo, hi;
};

static struct integer atomic_integer_load(const __le64 value[2])
{
	return (struct integer){base_load_le64(&value[0]), base_load_le64(&value[1])};
}

/* ---- the processor ---- */

/* If the integer isn't *expected, *expected gets its value and nothing is changed. */

static bool atomic_exchange_4(void *at, struct integer *expected, struct integer desired)
{
	u32 was, want;
	bool done;

	base_store_le32(&was, (u32)expected->lo);
	base_store_le32(&want, (u32)desired.lo);
	done = __atomic_compare_exchange_n((u32 *)at, &was, want, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
	expected->lo = base_load_le32(&was);
	return done;
}

static bool atomic_exchange_8(void *at, struct integer *expected, struct integer desired)
{
	u64 was, want;
	bool done;

	base_store_le64(&was, expected->lo);
	base_store_le64(&want, desired.lo);
	done = __atomic_compare_exchange_n((u64 *)at, &was, want, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
	expected->lo = base_load_le64(&was);
	return done;
}

#if defined(__x86_64__)

#define CPUID_FEATURES 1
#define CPUID_ECX_CX16 (1U << 13)

bool rmem_atomic_has_16(void)
{
	u32 eax = CPUID_FEATURES, ebx, ecx = 0, edx;

	asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
	return ecx & CPUID_ECX_CX16;
}

static bool atomic_exchange_16(void *at, struct integer *expected, struct integer desired)
{
	u64(*both)[2] = at;
	bool done;

	asm volatile("lock cmpxchg16b %1"
		     : "=@ccz"(done), "+m"(*both), "+a"(expected->lo), "+d"(expected->hi)
		     : "b"(desired.lo), "c"(desired.hi)
		     : "memory");
	return done;
}

#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

bool rmem_atomic_has_16(void)
{
	return true;
}

static bool atomic_exchange_16(void *at, struct integer *expected, struct integer desired)
{
	u64(*both)[2] = at;
	u64 lo, hi;
	u32 failed;

	/* Both halves are one value only if a store succeeds: store the old value at least. */
	do {
		u64 store_lo, store_hi;

		asm volatile("ldaxp %0, %1, %2" : "=&r"(lo), "=&r"(hi) : "Q"(*both) : "memory");
		store_lo = lo == expected->lo && hi == expected->hi ? desired.lo : lo;
		store_hi = lo == expected->lo && hi == expected->hi ? desired.hi : hi;
		asm volatile("stlxp %w0, %2, %3, %1"
			     : "=&r"(failed), "=Q"(*both)
			     : "r"(store_lo), "r"(store_hi)
			     : "memory");
	} while (failed);
	if (lo == expected->lo && hi == expected->hi)
		return true;
	expected->lo = lo;
	expected->hi = hi;
	return false;
}

#else

bool rmem_atomic_has_16(void)
{
	return false;
}

static bool atomic_exchange_16(void *at, struct integer *expected, struct integer desired)
{
	return true;
}

#endif

static bool atomic_exchange_sized(void *at, u32 bytes, struct integer *expected,
				  struct integer desired)
{
	switch (bytes) {
	case 4:
		return atomic_exchange_4(at, expected, desired);
	case 8:
		return atomic_exchange_8(at, expected, desired);
	default:
		return atomic_exchange_16(at, expected, desired);
	}
}

/* ---- the operations ---- */

/* Brings the sign of 32 bits to where that of 64 is. */
static s64 atomic_as_signed(u64 value, u32 bytes)
{
	return bytes == 4 ? (s32)value : (s64)value;
}

static u64 atomic_result_of(u8 op, u32 bytes, u64 was, u64 value)
{
	switch (op) {
	case RMEM_ADD:
		return was + value;
	case RMEM_AND:
		return was & value;
	case RMEM_OR:
		return was | value;
	case RMEM_XOR:
		return was ^ value;
	case RMEM_MIN:
		return was < value ? was : value;
	case RMEM_MAX:
		return was > value ? was : value;
	case RMEM_SMIN:
		return atomic_as_signed(was, bytes) < atomic_as_signed(value, bytes) ? was : value;
	case RMEM_SMAX:
		return atomic_as_signed(was, bytes) > atomic_as_signed(value, bytes) ? was : value;
	default:
		return value; /* SWAP */
	}
}

bool rmem_atomic_is_known(u8 op, u32 bytes)
{
	if (bytes == 16)
		return op == RMEM_SWAP || op == RMEM_CAS;
	return (bytes == 4 || bytes == 8) && op && op < RMEM_ATOMIC_OP_END;
}

void rmem_atomic_apply(void *place, u8 op, u32 bytes, const struct rmem_operands *in,
		       struct rmem_found *found)
{
	struct integer value = atomic_integer_load(in->value), becomes = value, was;

	/* The upper half of an operand is undefined for 4 bytes. */
	if (bytes == 4)
		value.lo = (u32)value.lo;
	if (op == RMEM_CAS) {
		was = atomic_integer_load(in->compare);
		if (bytes == 4)
			was.lo = (u32)was.lo;
		atomic_exchange_sized(place, bytes, &was, value);
	} else {
		/* A guess; the first exchange tells if it's wrong. */
		was = (struct integer){0, 0};
		do {
			becomes.lo = atomic_result_of(op, bytes, was.lo, value.lo);
		} while (!atomic_exchange_sized(place, bytes, &was, becomes));
	}
	base_store_le64(&found->value[0], was.lo);
	base_store_le64(&found->value[1], bytes == 16 ? was.hi : 0);
}
