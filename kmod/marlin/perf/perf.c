// SPDX-License-Identifier: GPL-2.0
/*
 * marlin_perf.ko: transactions of bulk data without programs, as ntb_perf has for an NTB driver.
 * It moves bytes between a buffer of its own here and that of the same module at a peer.
 *
 *	/sys/kernel/debug/marlin_perf/
 *	  memory  read: physical address and bytes of the buffer
 *	  fill    write a number: the buffer's content is made from that
 *	  digest  write "AT BYTES", then read: the CRC of that piece
 *	  run     write a run, which ends before the write does; then read "NANOSECONDS PARTS"
 *
 * A run is "PORT ADDRESS BYTES COUNT DEPTH SUB RUNS_OWN RUNS_PEER SKEW_OWN SKEW_PEER FLAGS": COUNT
 * transactions of BYTES each, DEPTH of them at once, with the peer at PORT whose buffer is at
 * ADDRESS. SUB other than 0: each transaction has parts of SUB bytes, one behind the other. SUB 0:
 * parts are cut from page lists that have so many contiguous runs. The first byte is SKEW bytes
 * into either buffer. FLAGS: hrdma_request.flags.
 *
 * A run can overwrite any of a peer's memory, so only root can write here.
 */
#include <linux/completion.h>
#include <linux/crc32.h>
#include <linux/debugfs.h>
#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "marlin_ops.h"

#define PERF_ORDER 10 /* 4 MiB: the paper's copies, and the most that is contiguous */
#define PERF_BYTES (PAGE_SIZE << PERF_ORDER)
#define PERF_DEPTH_MAX 16
#define PERF_LINE_BYTES 160

struct perf_run {
	unsigned int port, count, depth, runs_own, runs_peer, flags;
	u64 address, bytes, sub, skew_own, skew_peer;
};

struct perf_flight {
	struct hrdma_request request;
	struct completion moved;
	struct scatter_part parts[SCATTER_PARTS];
	struct hrdma_slot slots[SCATTER_PARTS];
};

static DEFINE_MUTEX(perf_lock); /* guards the members below */
static struct dentry *perf_root;
static u8 *perf_memory;
static u64 perf_ns;
static u32 perf_parts, perf_digest;

/* ---- parts ---- */

/* A list of `count` pages from `first` on, of which each of `runs` pieces is contiguous. */
static void perf_pages(u64 *pages, u64 first, u64 count, unsigned int runs)
{
	u64 piece = DIV_ROUND_UP(count, runs), place = 0;

	/* The last piece comes first, so that no two are neighbours. */
	for (u64 end = count; end; end -= min(end, piece)) {
		u64 begin = end - min(end, piece);

		for (u64 page = begin; page < end; page++)
			pages[place++] = first + page * PAGE_SIZE;
	}
}

/* The parts of a transaction whose pages have runs; their number. */
static int perf_cut(const struct perf_run *run, struct scatter_part *parts)
{
	u64 count = PAGE_ALIGN(run->bytes) / PAGE_SIZE + 1, cut;
	u64 *own, *peer;
	int got = -ENOMEM;

	own = kvmalloc_array(count, sizeof(*own), GFP_KERNEL);
	peer = kvmalloc_array(count, sizeof(*peer), GFP_KERNEL);
	if (own && peer) {
		struct scatter_pages from = { own, run->skew_own };
		struct scatter_pages to = { peer, run->skew_peer };

		perf_pages(own, virt_to_phys(perf_memory), count, run->runs_own);
		perf_pages(peer, run->address, count, run->runs_peer);
		got = marlin_hrdma_cut(parts, &from, &to, run->bytes, &cut);
		if (cut != run->bytes)
			got = -E2BIG;
	}
	kvfree(own);
	kvfree(peer);
	return got;
}

static int perf_parts_of(const struct perf_run *run, struct scatter_part *parts)
{
	u64 count;

	if (!run->sub)
		return perf_cut(run, parts);
	count = DIV_ROUND_UP(run->bytes, run->sub);
	if (count > SCATTER_PARTS)
		return -E2BIG;
	for (u64 n = 0; n < count; n++) {
		parts[n].local = virt_to_phys(perf_memory) + run->skew_own + n * run->sub;
		parts[n].remote = run->address + run->skew_peer + n * run->sub;
		parts[n].bytes = min(run->sub, run->bytes - n * run->sub);
	}
	return count;
}

/* ---- runs ---- */

static void perf_moved(struct hrdma_request *request)
{
	complete(&container_of(request, struct perf_flight, request)->moved);
}

static int perf_flight_init(const struct perf_run *run, struct perf_flight *flight)
{
	int count = perf_parts_of(run, flight->parts);

	if (count < 0)
		return count;
	init_completion(&flight->moved);
	flight->request.parts = flight->parts;
	flight->request.slots = flight->slots;
	flight->request.count = count;
	flight->request.flags = run->flags;
	flight->request.done = perf_moved;
	perf_parts = count;
	return 0;
}

static int perf_transactions(const struct perf_run *run, struct perf_flight *flights)
{
	unsigned int begun = 0, ended = 0;
	u64 start = ktime_get_ns();
	int err = 0;

	lockdep_assert_held(&perf_lock);
	while (!err && begun < run->count) {
		struct perf_flight *flight = &flights[begun % run->depth];

		if (begun - ended == run->depth) {
			wait_for_completion(&flight->moved);
			ended++;
		}
		err = signal_pending(current) ? -EINTR :
						marlin_hrdma_start(run->port, &flight->request);
		begun += !err;
	}
	for (; ended != begun; ended++)
		wait_for_completion(&flights[ended % run->depth].moved);
	perf_ns = ktime_get_ns() - start;
	return err;
}

static int perf_run(const struct perf_run *run)
{
	struct perf_flight *flights;
	int err = 0;

	if (!run->bytes || run->bytes > PERF_BYTES - 2 * PAGE_SIZE || !run->depth ||
	    run->depth > PERF_DEPTH_MAX || !run->runs_own || !run->runs_peer ||
	    run->skew_own >= PAGE_SIZE || run->skew_peer >= PAGE_SIZE ||
	    run->flags & ~(HRDMA_WRITE | HRDMA_HEADROOM))
		return -EINVAL;
	flights = kvcalloc(run->depth, sizeof(*flights), GFP_KERNEL);
	if (!flights)
		return -ENOMEM;
	mutex_lock(&perf_lock);
	for (unsigned int n = 0; n < run->depth && !err; n++)
		err = perf_flight_init(run, &flights[n]);
	if (!err)
		err = perf_transactions(run, flights);
	mutex_unlock(&perf_lock);
	kvfree(flights);
	return err;
}

/* ---- files ---- */

/* A line that was written, without its end. */
static int perf_line(char *line, const char __user *from, size_t bytes)
{
	if (bytes >= PERF_LINE_BYTES)
		return -EINVAL;
	if (copy_from_user(line, from, bytes))
		return -EFAULT;
	line[bytes] = '\0';
	return 0;
}

static ssize_t perf_run_write(struct file *file, const char __user *from, size_t bytes,
			      loff_t *offset)
{
	char line[PERF_LINE_BYTES];
	struct perf_run run;
	int err = perf_line(line, from, bytes);

	if (err)
		return err;
	if (sscanf(line, "%u %llx %llu %u %u %llu %u %u %llu %llu %u", &run.port, &run.address,
		   &run.bytes, &run.count, &run.depth, &run.sub, &run.runs_own, &run.runs_peer,
		   &run.skew_own, &run.skew_peer, &run.flags) != 11)
		return -EINVAL;
	err = perf_run(&run);
	return err ?: bytes;
}

static ssize_t perf_run_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	char line[PERF_LINE_BYTES];
	int count;

	mutex_lock(&perf_lock);
	count = scnprintf(line, sizeof(line), "%llu %u\n", perf_ns, perf_parts);
	mutex_unlock(&perf_lock);
	return simple_read_from_buffer(to, bytes, offset, line, count);
}

static ssize_t perf_memory_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	char line[PERF_LINE_BYTES];
	int count = scnprintf(line, sizeof(line), "%#llx %lu\n", (u64)virt_to_phys(perf_memory),
			      PERF_BYTES);

	return simple_read_from_buffer(to, bytes, offset, line, count);
}

static ssize_t perf_fill_write(struct file *file, const char __user *from, size_t bytes,
			       loff_t *offset)
{
	u64 seed;
	int err = kstrtou64_from_user(from, bytes, 0, &seed);

	if (err)
		return err;
	mutex_lock(&perf_lock);
	for (size_t n = 0; n < PERF_BYTES; n += sizeof(seed)) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		*(u64 *)(perf_memory + n) = seed >> 16 | seed << 48;
	}
	mutex_unlock(&perf_lock);
	return bytes;
}

static ssize_t perf_digest_write(struct file *file, const char __user *from, size_t bytes,
				 loff_t *offset)
{
	char line[PERF_LINE_BYTES];
	u64 at, count;
	int err = perf_line(line, from, bytes);

	if (err)
		return err;
	if (sscanf(line, "%llu %llu", &at, &count) != 2 || at > PERF_BYTES ||
	    count > PERF_BYTES - at)
		return -EINVAL;
	mutex_lock(&perf_lock);
	perf_digest = crc32_le(~0, perf_memory + at, count);
	mutex_unlock(&perf_lock);
	return bytes;
}

static ssize_t perf_digest_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	char line[PERF_LINE_BYTES];
	int count;

	mutex_lock(&perf_lock);
	count = scnprintf(line, sizeof(line), "%08x\n", perf_digest);
	mutex_unlock(&perf_lock);
	return simple_read_from_buffer(to, bytes, offset, line, count);
}

static const struct file_operations perf_memory_ops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = perf_memory_read,
};

static const struct file_operations perf_fill_ops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = perf_fill_write,
};

static const struct file_operations perf_digest_ops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = perf_digest_read,
	.write = perf_digest_write,
};

static const struct file_operations perf_run_ops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = perf_run_read,
	.write = perf_run_write,
};

static int __init perf_module_init(void)
{
	perf_memory = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, PERF_ORDER);
	if (!perf_memory)
		return -ENOMEM;
	perf_root = debugfs_create_dir("marlin_perf", NULL);
	debugfs_create_file("memory", 0400, perf_root, NULL, &perf_memory_ops);
	debugfs_create_file("fill", 0200, perf_root, NULL, &perf_fill_ops);
	debugfs_create_file("digest", 0600, perf_root, NULL, &perf_digest_ops);
	debugfs_create_file("run", 0600, perf_root, NULL, &perf_run_ops);
	return 0;
}

/* A peer that still moves bytes to this buffer is the operator's to stop first. */
static void __exit perf_module_exit(void)
{
	debugfs_remove_recursive(perf_root);
	free_pages((unsigned long)perf_memory, PERF_ORDER);
}

module_init(perf_module_init);
module_exit(perf_module_exit);

MODULE_DESCRIPTION("Marlin's bulk data, measured");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
