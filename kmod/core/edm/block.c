// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/block.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"

#define BLOCK_DATA_BITS 64U
#define BLOCK_TYPE_BITS 8U
/* sets profile: the field's part below the O code, and where the part above it begins. */
#define BLOCK_SET_LOW_BITS 24U
#define BLOCK_SET_CODE_AT  32U
#define BLOCK_SET_HIGH_AT  36U

/* By enum edm_block_kind, from EDM_BLOCK_N on. */
static const u8 block_types[] = {EDM_TYPE_N, EDM_TYPE_G, EDM_TYPE_MS, EDM_TYPE_MT, EDM_TYPE_MST};
static const u8 block_sets[] = {EDM_SET_N, EDM_SET_G, EDM_SET_MS, EDM_SET_MT, EDM_SET_MST};

#define BLOCK_KINDS (EDM_BLOCK_MST - EDM_BLOCK_N + 1)

static u64 block_low(u32 bits)
{
	return bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
}

static u32 block_field_bits(const struct edm_line *line)
{
	return line->profile == EDM_PROFILE_TYPES ? EDM_TYPES_FIELD_BITS : EDM_SETS_FIELD_BITS;
}

/* ---- control blocks ---- */

static struct edm_block block_control(const struct edm_line *line, enum edm_block_kind kind,
				      u64 field)
{
	const u32 n = kind - EDM_BLOCK_N;
	u64 payload;

	if (line->profile == EDM_PROFILE_TYPES)
		payload = block_types[n] | field << BLOCK_TYPE_BITS;
	else
		payload = EDM_TYPE_SET |
			  (field & block_low(BLOCK_SET_LOW_BITS)) << BLOCK_TYPE_BITS |
			  (u64)block_sets[n] << BLOCK_SET_CODE_AT |
			  field >> BLOCK_SET_LOW_BITS << BLOCK_SET_HIGH_AT;
	return (struct edm_block){.payload = payload, .sync = EDM_SYNC_CONTROL};
}

static enum edm_block_kind block_find(const u8 *values, u8 value)
{
	for (u32 n = 0; n < BLOCK_KINDS; n++)
		if (values[n] == value)
			return (enum edm_block_kind)(EDM_BLOCK_N + n);
	return EDM_BLOCK_FRAME;
}

enum edm_block_kind edm_block_kind_of(const struct edm_line *line, const struct edm_block *block,
				      u64 *field)
{
	const u64 p = block->payload;
	const u8 type = (u8)p;

	if (block->sync == EDM_SYNC_DATA)
		return EDM_BLOCK_DATA;
	if (block->sync != EDM_SYNC_CONTROL)
		return EDM_BLOCK_INVALID;
	if (type == EDM_TYPE_IDLE)
		return EDM_BLOCK_IDLE;
	if (line->profile == EDM_PROFILE_TYPES) {
		*field = p >> BLOCK_TYPE_BITS;
		return block_find(block_types, type);
	}
	if (type != EDM_TYPE_SET)
		return EDM_BLOCK_FRAME;
	*field = (p >> BLOCK_TYPE_BITS & block_low(BLOCK_SET_LOW_BITS)) |
		 p >> BLOCK_SET_HIGH_AT << BLOCK_SET_LOW_BITS;
	return block_find(block_sets, p >> BLOCK_SET_CODE_AT & 15);
}

struct edm_block edm_block_idle(void)
{
	return (struct edm_block){.payload = EDM_TYPE_IDLE, .sync = EDM_SYNC_CONTROL};
}

bool edm_block_is_end(const struct edm_block *block)
{
	static const u8 ends[] = EDM_TYPES_END;

	for (u32 n = 0; n < sizeof(ends); n++)
		if ((u8)block->payload == ends[n])
			return true;
	return false;
}

/* ---- N and G ---- */

#define BLOCK_NOTE_BITS (EDM_DESTINATION_BITS + EDM_ID_BITS + EDM_SIZE_BITS + 1)

static u64 block_note_check(u64 bits)
{
	u8 bytes[8];

	base_store_le64(bytes, bits);
	return base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, bytes, sizeof(bytes))) &
	       block_low(EDM_NOTE_CHECK_BITS);
}

struct edm_block edm_block_note_write(const struct edm_line *line, enum edm_block_kind kind,
				      const struct edm_block_note *note)
{
	const u64 bits = note->destination | (u64)note->id << EDM_DESTINATION_BITS |
			 (u64)note->size << (EDM_DESTINATION_BITS + EDM_ID_BITS) |
			 (u64)note->answer << (BLOCK_NOTE_BITS - 1);

	return block_control(line, kind, bits | block_note_check(bits) << BLOCK_NOTE_BITS);
}

bool edm_block_note_read(u64 field, struct edm_block_note *note)
{
	const u64 bits = field & block_low(BLOCK_NOTE_BITS);

	note->destination = bits & block_low(EDM_DESTINATION_BITS);
	note->id = (u8)(bits >> EDM_DESTINATION_BITS);
	note->size = (u16)(bits >> (EDM_DESTINATION_BITS + EDM_ID_BITS));
	note->answer = bits >> (BLOCK_NOTE_BITS - 1);
	return field >> BLOCK_NOTE_BITS == block_note_check(bits);
}

/* ---- the string of a message ---- */

static u64 block_head_bits(const struct edm_block_head *head)
{
	return head->kind | (u64)head->destination << 2 | (u64)head->id << 11 |
	       (u64)head->size << 19;
}

static u32 block_address_bits(const struct edm_block_head *head)
{
	return head->kind == EDM_RRES ? 0 : EDM_ADDRESS_BITS;
}

static u32 block_opcode_bits(const struct edm_block_head *head)
{
	return head->kind == EDM_RMWREQ ? EDM_OPCODE_BITS : 0;
}

/* Where the data begin, and where the check does. */
static u32 block_data_at(const struct edm_block_head *head)
{
	return EDM_HEAD_BITS + block_address_bits(head) + block_opcode_bits(head);
}

static u32 block_check_at(const struct edm_block_head *head)
{
	return block_data_at(head) + 8 * edm_block_data_bytes(head);
}

static u32 block_bits(const struct edm_line *line, const struct edm_block_head *head)
{
	return block_check_at(head) + (line->checked ? EDM_CHECK_BITS : 0);
}

static u32 block_check(const struct edm_block_head *head, const u8 *data)
{
	u8 bytes[17];
	u32 used = 8, crc;

	base_store_le64(bytes, block_head_bits(head));
	if (block_address_bits(head)) {
		base_store_le64(bytes + used, head->address);
		used += 8;
	}
	if (block_opcode_bits(head))
		bytes[used++] = head->opcode;
	crc = base_crc32c_update(BASE_CRC32C_SEED, bytes, used);
	return base_crc32c_final(base_crc32c_update(crc, data, edm_block_data_bytes(head)));
}

u32 edm_block_count(const struct edm_line *line, const struct edm_block_head *head)
{
	const u32 bits = block_bits(line, head), field = block_field_bits(line);

	if (bits <= field)
		return 1;
	return 2 +
	       (bits > 2 * field ? (bits - 2 * field + BLOCK_DATA_BITS - 1) / BLOCK_DATA_BITS : 0);
}

/* ---- write ---- */

/* Bits of the string from w->at on, in the part that holds that place: at most `most` of them. */
static u64 block_take(struct edm_block_writer *w, u32 most, u32 *taken)
{
	const struct edm_block_head *head = w->head;
	const u32 address_at = EDM_HEAD_BITS, data_at = block_data_at(head);
	const u32 opcode_at = data_at - block_opcode_bits(head), check_at = block_check_at(head);
	u32 from, end;
	u64 part;

	if (w->at < address_at) {
		from = 0;
		end = address_at;
		part = block_head_bits(head);
	} else if (w->at < opcode_at) {
		from = address_at;
		end = opcode_at;
		part = head->address;
	} else if (w->at < data_at) {
		from = opcode_at;
		end = data_at;
		part = head->opcode;
	} else if (w->at < check_at) {
		from = data_at + (w->at - data_at) / 8 * 8;
		end = from + 8;
		part = w->data[(w->at - data_at) / 8];
	} else {
		from = check_at;
		end = check_at + EDM_CHECK_BITS;
		part = w->check;
	}
	*taken = (u32)base_min(most, end - w->at);
	return part >> (w->at - from) & block_low(*taken);
}

void edm_block_begin(const struct edm_line *line, struct edm_block_writer *w,
		     const struct edm_block_head *head, const u8 *data)
{
	*w = (struct edm_block_writer){
		.head = head,
		.data = data,
		.bits = block_bits(line, head),
		.check = line->checked ? block_check(head, data) : 0,
	};
}

/* The next bits of the string, at most so many; bits behind its end are 0. */
static u64 block_next_bits(struct edm_block_writer *w, u32 most)
{
	u64 bits = 0;
	u32 filled = 0, taken;

	while (filled < most && w->at < w->bits) {
		bits |= block_take(w, most - filled, &taken) << filled;
		filled += taken;
		w->at += taken;
	}
	return bits;
}

bool edm_block_write(const struct edm_line *line, struct edm_block_writer *w,
		     struct edm_block *block)
{
	const u32 field = block_field_bits(line), left = w->bits - w->at;

	if (!left)
		return false;
	if (!w->at && left <= field)
		*block = block_control(line, EDM_BLOCK_MST, block_next_bits(w, field));
	else if (!w->at)
		*block = block_control(line, EDM_BLOCK_MS, block_next_bits(w, field));
	else if (left <= field)
		*block = block_control(line, EDM_BLOCK_MT, block_next_bits(w, field));
	else
		*block = (struct edm_block){
			.payload = block_next_bits(w, (u32)base_min(BLOCK_DATA_BITS, left - 1)),
			.sync = EDM_SYNC_DATA,
		};
	return true;
}

/* ---- read ---- */

void edm_block_reader_init(struct edm_block_reader *r, u8 *data, u32 data_bytes_max)
{
	*r = (struct edm_block_reader){.data = data, .data_bytes_max = data_bytes_max};
}

/* The head is the first part of the first block. */
static bool block_read_head(const struct edm_line *line, struct edm_block_reader *r, u64 bits)
{
	struct edm_block_head *head = &r->head;

	*head = (struct edm_block_head){
		.kind = bits & 3,
		.destination = bits >> 2 & block_low(EDM_DESTINATION_BITS),
		.id = (u8)(bits >> 11),
		.size = (u16)(bits >> 19),
	};
	r->at = 0;
	r->check = 0;
	r->bits = block_bits(line, head);
	return !(bits >> (EDM_HEAD_BITS - 1) & 1) && head->size &&
	       edm_block_data_bytes(head) <= r->data_bytes_max;
}

/* A bit of the string behind the head. */
static void block_put(struct edm_block_reader *r, u64 bit)
{
	struct edm_block_head *head = &r->head;
	const u32 data_at = block_data_at(head), check_at = block_check_at(head);
	const u32 opcode_at = data_at - block_opcode_bits(head);
	const u32 at = r->at++;

	if (at < EDM_HEAD_BITS)
		return;
	if (at < opcode_at) {
		head->address |= bit << (at - EDM_HEAD_BITS);
	} else if (at < data_at) {
		head->opcode |= (u8)(bit << (at - opcode_at));
	} else if (at < check_at) {
		u8 *byte = &r->data[(at - data_at) / 8];

		*byte = (u8)(((at - data_at) % 8 ? *byte : 0) | bit << (at - data_at) % 8);
	} else {
		r->check |= (u32)bit << (at - check_at);
	}
}

/* A block's bits; those behind the string's end are 0. */
static bool block_read_bits(struct edm_block_reader *r, u64 bits, u32 count)
{
	const u32 mine = (u32)base_min(count, r->bits - r->at);

	for (u32 n = 0; n < mine; n++)
		block_put(r, bits >> n & 1);
	return mine >= 64 || !(bits >> mine);
}

static enum edm_block_verdict block_broken(struct edm_block_reader *r)
{
	r->within = false;
	return EDM_BLOCK_BROKEN;
}

enum edm_block_verdict edm_block_read(const struct edm_line *line, struct edm_block_reader *r,
				      enum edm_block_kind kind, u64 bits)
{
	const bool first = kind == EDM_BLOCK_MS || kind == EDM_BLOCK_MST;
	const u32 field = block_field_bits(line);
	u32 room = field;

	/* A message within a message, but MST may stand there: its reader is another one. */
	if (first == r->within)
		return block_broken(r);
	if (first && !block_read_head(line, r, bits))
		return block_broken(r);
	if (kind == EDM_BLOCK_DATA) {
		if (r->bits - r->at <= field)
			return block_broken(r);
		room = (u32)base_min(BLOCK_DATA_BITS, r->bits - r->at - 1);
	}
	if (!block_read_bits(r, bits, room))
		return block_broken(r);
	r->within = kind == EDM_BLOCK_MS || kind == EDM_BLOCK_DATA;
	if (r->within)
		return r->at < r->bits ? EDM_BLOCK_MORE : block_broken(r);
	if (r->at != r->bits || (line->checked && r->check != block_check(&r->head, r->data)))
		return block_broken(r);
	return EDM_BLOCK_MESSAGE;
}

/* ---- scrambler ---- */

#define BLOCK_HISTORY_BITS 58U
#define BLOCK_NEAR_TAP	   39U

/* The two bits before each of the next bits that it is added to; right for 39 of them. */
static u64 block_taps(const struct edm_scrambler *s)
{
	return s->history ^ s->history >> (BLOCK_HISTORY_BITS - BLOCK_NEAR_TAP);
}

static void block_remember(struct edm_scrambler *s, u64 sent, u32 bits)
{
	s->history = s->history >> bits | sent << (BLOCK_HISTORY_BITS - bits);
}

/* Bits of the link are `sent`; both directions keep those. */
static u64 block_pass(struct edm_scrambler *s, u64 in, u32 bits, bool scramble)
{
	const u64 out = (in ^ block_taps(s)) & block_low(bits);

	block_remember(s, scramble ? out : in & block_low(bits), bits);
	return out;
}

static u64 block_pass_all(struct edm_scrambler *s, u64 in, bool scramble)
{
	const u64 low = block_pass(s, in, BLOCK_NEAR_TAP, scramble);

	return low | block_pass(s, in >> BLOCK_NEAR_TAP, 64 - BLOCK_NEAR_TAP, scramble)
			     << BLOCK_NEAR_TAP;
}

u64 edm_block_scramble(struct edm_scrambler *s, u64 payload)
{
	s->history &= block_low(BLOCK_HISTORY_BITS);
	return block_pass_all(s, payload, true);
}

u64 edm_block_descramble(struct edm_scrambler *s, u64 payload)
{
	s->history &= block_low(BLOCK_HISTORY_BITS);
	return block_pass_all(s, payload, false);
}
