// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/proof.h"

#define PROOF_PROBE_NS	 (100 * BASE_NSEC_PER_MSEC)
#define PROOF_PROBES_MAX 7 /* 12.8 s */
#define PROOF_TOLD_MIN	 2
#define PROOF_MISSED_MAX 64

void eqds_proof_left(struct eqds_proof *proof, u64 now_ns)
{
	if (proof->proven)
		return;
	proof->probe_ns = now_ns + (PROOF_PROBE_NS << proof->probes);
	if (proof->probes < PROOF_PROBES_MAX)
		proof->probes++;
}

void eqds_proof_told(struct eqds_proof *proof, u32 numbers)
{
	proof->missed = 0;
	if (proof->told + numbers < PROOF_TOLD_MIN) {
		proof->told += numbers;
		return;
	}
	proof->told = PROOF_TOLD_MIN;
	proof->proven = true;
	proof->probes = 0;
}

void eqds_proof_missed(struct eqds_proof *proof)
{
	proof->told = 0;
	if (!proof->proven || ++proof->missed < PROOF_MISSED_MAX)
		return;
	proof->proven = false;
	proof->probe_ns = 0;
}
