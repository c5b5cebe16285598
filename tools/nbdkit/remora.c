// SPDX-License-Identifier: GPL-2.0
/*
 * nbdkit-remora-plugin: a disk in remote memory for NBD's clients, by libremote. No module is needed.
 *
 * State: one region, and one handle that all connections share. The region is made before nbdkit
 * forks, so that its errors reach the command line; the handle is opened anew in the child, for a
 * handle belongs to its process (remote.h, "fork"). If nbdkit then fails to start, it calls no
 * function of the plug-in any more: a destructor frees the region.
 *
 * A request is a call of libremote, in nbdkit's thread for it. Calls of threads at one time travel
 * together. A write has been executed by the node when it is answered, so a flush has nothing to
 * do, and all connections see it.
 *
 * A region that this process has allocated and that has no name is written by this process alone.
 * `written` then has a bit for each chunk that might hold something else than zeros. It is set
 * before the write and never cleared: a clear could race with a write to another part of the chunk.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <remote/remote.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#define CHUNK_BYTES (64 << 10)
/* Source of remote_copy() for zeros. */
#define ZEROS_BYTES (1 << 20)
#define TIMEOUT_DEFAULT_S 30

static struct {
	char *target; /* allocated */
	const char *name;
	uint64_t bytes; /* 0: not given */
	unsigned int timeout_s; /* 0: no limit */
	bool keep;
} options = {.timeout_s = TIMEOUT_DEFAULT_S};

static remote_t *remote;
static raddr_t disk, zeros;
static bool allocated; /* by this process, as against kept */
static atomic_uchar *written; /* a bit for each chunk; NULL: unknown */
/* This process has made the region, and neither serves it nor has a child that does. */
static bool unserved;

/* Length of the text before the path in a part of a target; 0: the part has no path. */
static size_t remora_path_at(const char *part)
{
	static const char *const before[] = {"shm:", "dev:", "key=", "rack="};
	size_t i;

	for (i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		if (!strncmp(part, before[i], strlen(before[i])))
			return strlen(before[i]);
	return 0;
}

/*
 * Appends `length` bytes of a target, a part of it, with an absolute path. Returns -1 after an
 * error of nbdkit's.
 */
static int remora_add_part(FILE *target, const char *part, size_t length)
{
	const size_t at = remora_path_at(part);
	char *path, *absolute;

	if (!at || at >= length) {
		fprintf(target, "%.*s", (int)length, part);
		return 0;
	}
	path = strndup(part + at, length - at);
	absolute = path ? nbdkit_absolute_path(path) : NULL;
	if (absolute)
		fprintf(target, "%.*s%s", (int)at, part, absolute);
	free(path);
	free(absolute);
	return absolute ? 0 : -1;
}

/*
 * A copy of the target with absolute paths, for nbdkit goes to the folder / before
 * remora_after_fork() opens it. NULL after an error.
 */
static char *remora_absolute_target(const char *target)
{
	char *text = NULL;
	size_t bytes;
	FILE *absolute = open_memstream(&text, &bytes);
	int error = absolute ? 0 : -1;

	while (!error && *target) {
		const size_t length = strcspn(target, ",");

		error = remora_add_part(absolute, target, length);
		target += length;
		if (*target)
			fputc(*target++, absolute);
	}
	if (absolute && fclose(absolute))
		error = -1;
	if (error) {
		nbdkit_error("no absolute paths for the target");
		free(text);
		return NULL;
	}
	return text;
}

static int remora_config(const char *key, const char *value)
{
	if (!strcmp(key, "target")) {
		free(options.target);
		options.target = remora_absolute_target(value);
		return options.target ? 0 : -1;
	} else if (!strcmp(key, "name")) {
		options.name = value;
	} else if (!strcmp(key, "size")) {
		const int64_t bytes = nbdkit_parse_size(value);

		if (bytes < 0)
			return -1;
		if (!bytes) {
			nbdkit_error("size=0: a disk needs some bytes, for instance size=1G");
			return -1;
		}
		options.bytes = (uint64_t)bytes;
	} else if (!strcmp(key, "keep")) {
		const int keep = nbdkit_parse_bool(value);

		if (keep < 0)
			return -1;
		options.keep = keep;
	} else if (!strcmp(key, "timeout")) {
		return nbdkit_parse_unsigned("timeout", value, &options.timeout_s);
	} else {
		nbdkit_error("unknown parameter '%s': use target, size, name, keep or timeout", key);
		return -1;
	}
	return 0;
}

/* A node inside the process: its memory ends with the handle, and doesn't come along through fork(). */
static bool remora_is_embedded(void)
{
	return !strncmp(options.target, "embedded:", strlen("embedded:"));
}

static int remora_config_complete(void)
{
	const char *fault = NULL;

	if (!options.target)
		fault = "no target: give one, for instance udp:HOST,key=FILE";
	else if (options.keep && !options.name)
		fault = "keep=true needs name=NAME, by which the disk is found again";
	else if (!options.keep && !options.bytes)
		fault = "no size: give one, for instance size=1G";
	else if (options.name && remora_is_embedded())
		fault = "name: an embedded node ends with nbdkit, so use another target";
	if (fault)
		nbdkit_error("%s", fault);
	return fault ? -1 : 0;
}

#define REMORA_CONFIG_HELP                                                                         \
	"[target=]TARGET         (required) The memory: udp:HOST,key=FILE, shm:PATH,key=FILE ...\n"   \
	"size=SIZE               Size of the disk; required unless it is kept.\n"                  \
	"name=NAME               Its name at the node. The disk outlives nbdkit.\n"                \
	"keep=true               Use the disk of that name again, with its content.\n"             \
	"timeout=SECONDS         Fail when the node is silent for so long; 0: never (default 30)."

/* NBD has few errors, and nbdkit makes EINVAL of the others. */
static int remora_failed(const char *what, int error)
{
	const bool known = error == -ENOMEM || error == -ENOSPC || error == -EINVAL || error == -EPERM;

	nbdkit_error("%s: %s", what, remote_strerror(error));
	nbdkit_set_error(known ? -error : EIO);
	return -1;
}

static int remora_connect(void)
{
	struct remote_options with = {.size = sizeof(with)};
	int error;

	with.timeout_us = options.timeout_s ? options.timeout_s * UINT64_C(1000000) : UINT64_MAX;
	error = remote_open(&remote, options.target, &with);
	if (error)
		nbdkit_error("%s", remote_why());
	return error ? -1 : 0;
}

/*
 * Looks the name up. With keep, sets `disk` if the node has it. Otherwise frees the disk that has
 * the name.
 */
static int remora_find(uint64_t *bytes)
{
	int error = remote_lookup(remote, options.name, &disk, bytes);

	if (error == -ENOENT) {
		disk = 0;
		return options.keep && !options.bytes ? remora_failed(options.name, error) : 0;
	}
	if (error)
		return remora_failed(options.name, error);
	if (options.keep) {
		if (options.bytes > *bytes) {
			nbdkit_error("'%s' has %llu bytes at the node: give no larger size, or leave it out", options.name,
				     (unsigned long long)*bytes);
			return -1;
		}
		return 0;
	}
	error = remote_free_sized(remote, disk, *bytes);
	disk = 0;
	return error ? remora_failed(options.name, error) : 0;
}

static void remora_free(raddr_t address, uint64_t bytes)
{
	struct remote_node node = {.size = sizeof(node)};
	int error;

	if (!address)
		return;
	error = remote_info(remote, &node);
	if (!error)
		error = remote_free_sized(remote, address, bytes < node.page_bytes ? node.page_bytes : bytes);
	if (error && error != -ESTALE)
		nbdkit_error("memory stays at the node: %s", remote_strerror(error));
}

static int remora_allocate(void)
{
	int error = remote_alloc(remote, options.bytes, REMOTE_RW | REMOTE_OWN_PAGES, &disk);

	if (error)
		return remora_failed("allocation of the disk", error);
	allocated = true;
	if (!options.name) {
		const size_t chunks = (options.bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;

		written = calloc((chunks + CHAR_BIT - 1) / CHAR_BIT, 1);
		if (!written)
			return remora_failed("a map of the disk", -ENOMEM);
		return 0;
	}
	error = remote_publish(remote, options.name, disk);
	if (!error)
		return 0;
	remora_free(disk, options.bytes); /* without its name nobody finds it */
	disk = 0;
	return remora_failed(options.name, error);
}

static void remora_drop(void)
{
	if (allocated && !options.name)
		remora_free(disk, options.bytes);
	remora_free(zeros, ZEROS_BYTES);
	disk = zeros = 0;
}

/*
 * The disk, found or made, and zeros to copy. A read-only view of a space allocates none: its disk
 * is read-only.
 */
static int remora_make(void)
{
	uint64_t bytes = 0;
	int error = options.name ? remora_find(&bytes) : 0;

	if (!error && disk)
		options.bytes = options.bytes ? options.bytes : bytes;
	else if (!error)
		error = remora_allocate();
	if (!error) {
		error = remote_alloc(remote, ZEROS_BYTES, REMOTE_READ | REMOTE_OWN_PAGES, &zeros);
		if (error == -EACCES && !allocated)
			error = 0;
		if (error)
			remora_failed("allocation of zeros", error);
	}
	if (error)
		remora_drop();
	return error;
}

/* fork()'s handler in the parent: from here on the child owns the disk. */
static void remora_forked(void)
{
	unserved = false;
}

/* In the foreground: errors end the command with a line. */
static int remora_get_ready(void)
{
	int error;

	if (remora_is_embedded())
		return 0;
	if (remora_connect())
		return -1;
	error = pthread_atfork(NULL, remora_forked, NULL) ? remora_failed("fork", -ENOMEM) : remora_make();
	remote_close(remote);
	remote = NULL;
	unserved = !error;
	return error ? -1 : 0;
}

static int remora_after_fork(void)
{
	if (remora_connect())
		return -1;
	if (!disk && remora_make())
		return -1;
	unserved = false;
	return 0;
}

static void remora_cleanup(void)
{
	if (remote) {
		remora_drop();
		remote_close(remote);
	}
	free(written);
}

/* nbdkit exits without remora_cleanup() if it can't bind its socket, for instance. */
static void __attribute__((destructor)) remora_free_unserved(void)
{
	if (unserved && !remora_connect()) {
		remora_drop();
		remote_close(remote);
	}
	free(options.target);
}

static void *remora_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t remora_get_size(void *handle)
{
	return (int64_t)options.bytes;
}

static int remora_yes(void *handle)
{
	return 1;
}

static int remora_can_write(void *handle)
{
	return zeros != 0;
}

static int remora_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

static int remora_can_extents(void *handle)
{
	return written != NULL;
}

static int remora_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	*minimum = 1;
	*preferred = 4096;
	*maximum = UINT32_MAX;
	return 0;
}

static bool remora_is_written(uint64_t chunk)
{
	return !written || atomic_load(&written[chunk / CHAR_BIT]) >> (chunk % CHAR_BIT) & 1;
}

static void remora_mark(uint64_t offset, uint32_t count)
{
	uint64_t chunk;

	for (chunk = offset / CHUNK_BYTES; written && chunk <= (offset + count - 1) / CHUNK_BYTES; chunk++)
		if (!remora_is_written(chunk))
			atomic_fetch_or(&written[chunk / CHAR_BIT], (unsigned char)(1 << (chunk % CHAR_BIT)));
}

/* Bytes from offset on, at most `count`, in chunks that are all written or all not. */
static uint64_t remora_run(uint64_t offset, uint64_t count, bool *is_written)
{
	uint64_t at = offset;

	*is_written = remora_is_written(at / CHUNK_BYTES);
	do
		at = (at / CHUNK_BYTES + 1) * CHUNK_BYTES;
	while (at < offset + count && remora_is_written(at / CHUNK_BYTES) == *is_written);
	return at < offset + count ? at - offset : count;
}

static int remora_pread(void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
	const int error = remote_read(remote, disk + offset, buffer, count);

	return error ? remora_failed("read", error) : 0;
}

static int remora_pwrite(void *handle, const void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
	int error;

	remora_mark(offset, count);
	error = remote_write(remote, disk + offset, buffer, count);
	return error ? remora_failed("write", error) : 0;
}

/* The node copies zeros, so none crosses the network. */
static int remora_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	uint64_t bytes, end = offset + count;
	bool is_written;

	for (; offset < end; offset += bytes) {
		int error;

		bytes = remora_run(offset, end - offset, &is_written);
		if (!is_written)
			continue;
		bytes = bytes < ZEROS_BYTES ? bytes : ZEROS_BYTES;
		error = remote_copy(remote, disk + offset, zeros, bytes);
		if (error)
			return remora_failed("zero", error);
	}
	return 0;
}

static int remora_flush(void *handle, uint32_t flags)
{
	return 0;
}

static int remora_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags, struct nbdkit_extents *extents)
{
	uint64_t bytes, end = offset + count;
	bool is_written;

	for (; offset < end; offset += bytes) {
		bytes = remora_run(offset, end - offset, &is_written);
		if (nbdkit_add_extent(extents, offset, bytes, is_written ? 0 : NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO))
			return -1;
	}
	return 0;
}

static struct nbdkit_plugin plugin = {
	.name = "remora",
	.longname = "Remora",
	.description = "a disk in the memory of another machine",
	.magic_config_key = "target",
	.config = remora_config,
	.config_complete = remora_config_complete,
	.config_help = REMORA_CONFIG_HELP,
	.get_ready = remora_get_ready,
	.after_fork = remora_after_fork,
	.cleanup = remora_cleanup,
	.open = remora_open,
	.get_size = remora_get_size,
	.can_write = remora_can_write,
	.can_multi_conn = remora_yes,
	.can_flush = remora_yes,
	.can_fua = remora_can_fua,
	.can_fast_zero = remora_yes,
	.can_extents = remora_can_extents,
	.block_size = remora_block_size,
	.pread = remora_pread,
	.pwrite = remora_pwrite,
	.zero = remora_zero,
	.flush = remora_flush,
	.extents = remora_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
