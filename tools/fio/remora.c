// SPDX-License-Identifier: GPL-2.0
/*
 * An engine of fio whose I/O is libremote's: each job has a handle, a queue of iodepth operations,
 * and a region of its size, or one that jobs share by its name.
 *
 * queue() collects operations, commit() submits them as one batch, getevents() takes completions.
 * fio calls init() in the job's process or thread, so a handle is never used behind a fork().
 */
#include <fio.h>
#include <optgroup.h>

#include <remote/queue.h>
#include <remote/remote.h>

struct remora_options {
	void *pad; /* fio takes an option at offset 0 for none */
	char *target;
	char *region;
};

static struct fio_option options[] = {
	{
		.name = "target",
		.lname = "Remote memory",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct remora_options, target),
		.help = "Target of libremote: udp:HOST,key=FILE, shm:PATH,key=FILE, dev:/dev/rmemN, embedded:",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "region",
		.lname = "Region's name",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct remora_options, region),
		.help = "Name of memory that outlives the job: found by it, or made",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = NULL,
	},
};

struct remora_job {
	remote_t *remote;
	remote_queue_t *queue;
	raddr_t memory;
	uint64_t bytes;
	bool private;
	unsigned int depth;
	unsigned int collected;
	struct remote_op *ops;
	struct remote_completion *completions;
};

static int remora_failed(const char *what, int error)
{
	log_err("remora: %s: %s\n", what, remote_strerror(error));
	return -error;
}

/* The named region, which another job might make at the same time. */
static int remora_find(struct remora_job *job, const char *name)
{
	raddr_t made;
	uint64_t bytes;
	int error = remote_lookup(job->remote, name, &job->memory, &bytes);

	if (error == -ENOENT) {
		error = remote_alloc(job->remote, job->bytes, REMOTE_RW | REMOTE_OWN_PAGES, &made);
		if (error)
			return remora_failed("allocation", error);
		error = remote_publish(job->remote, name, made);
		if (error)
			remote_free(job->remote, made);
		if (!error || error == -EEXIST)
			error = remote_lookup(job->remote, name, &job->memory, &bytes);
	}
	if (error)
		return remora_failed(name, error);
	if (bytes < job->bytes) {
		log_err("remora: region '%s' has %llu bytes: give a smaller size, or another region\n", name,
			(unsigned long long)bytes);
		return ENOSPC;
	}
	return 0;
}

static int remora_open(struct thread_data *td, struct remora_job *job)
{
	const struct remora_options *with = td->eo;
	struct remote_queue_options queue = {.size = sizeof(queue), .depth = job->depth};
	int error;

	if (remote_open(&job->remote, with->target, NULL)) {
		log_err("remora: %s\n", remote_why());
		return EIO;
	}
	error = remote_queue_open(&job->queue, job->remote, &queue);
	if (error)
		return remora_failed("queue", error);
	if (with->region)
		return remora_find(job, with->region);
	error = remote_alloc(job->remote, job->bytes, REMOTE_RW, &job->memory);
	job->private = !error;
	return error ? remora_failed("allocation", error) : 0;
}

static void remora_cleanup(struct thread_data *td)
{
	struct remora_job *job = td->io_ops_data;
	int error = 0;

	td->io_ops_data = NULL;
	if (!job)
		return;
	remote_queue_close(job->queue);
	if (job->private)
		error = remote_free(job->remote, job->memory);
	if (error)
		remora_failed("the region stays at the node", error);
	remote_close(job->remote);
	free(job->ops);
	free(job->completions);
	free(job);
}

static int remora_init(struct thread_data *td)
{
	const struct remora_options *with = td->eo;
	struct remora_job *job;
	int error;

	if (!with->target) {
		log_err("remora: no target: give one, for instance --target=udp:HOST,key=FILE\n");
		return EINVAL;
	}
	if (td->files_index != 1) {
		log_err("remora: a job has one file, its region: leave nrfiles out\n");
		return EINVAL;
	}
	if (td_max_bs(td) > 1ULL << 30) {
		log_err("remora: blocks of more than 1 GiB: an operation can't be so long\n");
		return EINVAL;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return ENOMEM;
	td->io_ops_data = job;
	job->depth = td->o.iodepth;
	job->bytes = td->files[0]->file_offset + td->files[0]->io_size;
	job->ops = calloc(job->depth, sizeof(*job->ops));
	job->completions = calloc(job->depth, sizeof(*job->completions));
	error = job->ops && job->completions ? remora_open(td, job) : ENOMEM;
	if (error)
		remora_cleanup(td);
	return error;
}

static enum fio_q_status remora_queue(struct thread_data *td, struct io_u *io_u)
{
	struct remora_job *job = td->io_ops_data;
	struct remote_op *op = &job->ops[job->collected];
	const raddr_t at = job->memory + io_u->offset;
	const uint64_t id = (uintptr_t)io_u;

	fio_ro_check(td, io_u);
	if (job->collected == job->depth)
		return FIO_Q_BUSY;
	if (io_u->ddir == DDIR_READ) {
		*op = remote_op_read(at, io_u->xfer_buf, io_u->xfer_buflen, id);
	} else if (io_u->ddir == DDIR_WRITE) {
		*op = remote_op_write(at, io_u->xfer_buf, io_u->xfer_buflen, id);
	} else if (ddir_sync(io_u->ddir)) {
		*op = remote_op_release(id);
	} else {
		io_u->error = EOPNOTSUPP; /* a part of a region can't be given back */
		return FIO_Q_COMPLETED;
	}
	job->collected++;
	return FIO_Q_QUEUED;
}

static int remora_commit(struct thread_data *td)
{
	struct remora_job *job = td->io_ops_data;
	unsigned int submitted = 0;

	/* The queue holds iodepth operations, so it has room. */
	while (submitted < job->collected) {
		const int started = remote_queue_submit(job->queue, job->ops + submitted, job->collected - submitted);

		if (started < 0) {
			remora_failed("submission", started);
			job->collected = 0;
			return started;
		}
		io_u_mark_submit(td, started);
		submitted += started;
	}
	job->collected = 0;
	return 0;
}

static int remora_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct remora_job *job = td->io_ops_data;
	const uint64_t limit_us = t ? t->tv_sec * UINT64_C(1000000) + t->tv_nsec / 1000 : UINT64_MAX;

	return remote_queue_wait(job->queue, job->completions, max < job->depth ? max : job->depth, min, limit_us);
}

static struct io_u *remora_event(struct thread_data *td, int event)
{
	const struct remora_job *job = td->io_ops_data;
	const struct remote_completion *ended = &job->completions[event];
	struct io_u *io_u = (struct io_u *)(uintptr_t)ended->user_data;

	io_u->error = ended->result < 0 ? -ended->result : 0;
	return io_u;
}

static int remora_cancel(struct thread_data *td, struct io_u *io_u)
{
	struct remora_job *job = td->io_ops_data;

	return remote_queue_cancel(job->queue, (uintptr_t)io_u) > 0 ? 0 : 1;
}

static int remora_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

/* fio looks it up by this name. */
struct ioengine_ops ioengine = {
	.name = "remora",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
	.init = remora_init,
	.queue = remora_queue,
	.commit = remora_commit,
	.getevents = remora_getevents,
	.event = remora_event,
	.cancel = remora_cancel,
	.cleanup = remora_cleanup,
	.open_file = remora_file,
	.close_file = remora_file,
	.option_struct_size = sizeof(struct remora_options),
	.options = options,
};
