// SPDX-License-Identifier: GPL-2.0
/*
 * chaser TARGET: a list in remote memory, and the functions of tools/offloads/chase on it. Exit code 0: each call ended as
 * it has to; else the first one that didn't is printed.
 *
 * chaser TARGET long: some chases to the end of a list of 1,000 elements.
 *
 * chaser TARGET greedy: calls that never end by themselves, as many under way as a queue takes, until SIGTERM; then it
 * closes its session. Exit code 0: each was stopped by its budget. It prints "greedy" when they are under way.
 */
#include <remote/queue.h>
#include <remote/remote.h>

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "offloads/chase/chase.h"

enum { elements = 100, element_bytes = 64, adds = 200, endless_calls = 64, long_elements = 1000, long_calls = 200 };

/* An element: key, next, value. */
static int write_elements(remote_t *r, raddr_t list, int count, int endless)
{
	uint64_t element[3];
	int error = 0, i;

	for (i = 0; i < count && !error; i++) {
		raddr_t next = i + 1 < count ? list + (i + 1) * element_bytes : endless ? list : 0;

		element[0] = htole64(1000 + i);
		element[1] = htole64(next);
		element[2] = 0;
		error = remote_write(r, list + i * element_bytes, element, sizeof(element));
	}
	return error;
}

static int write_list(remote_t *r, raddr_t list, int endless)
{
	return write_elements(r, list, elements, endless);
}

static int expect(const char *what, int error, int wanted)
{
	if (error == wanted)
		return 0;
	fprintf(stderr, "%s: %d (%s) in place of %d\n", what, error, remote_strerror(error), wanted);
	return 1;
}

static int expect_value(const char *what, uint64_t value, uint64_t wanted)
{
	if (value == wanted)
		return 0;
	fprintf(stderr, "%s: %#llx in place of %#llx\n", what, (unsigned long long)value,
		(unsigned long long)wanted);
	return 1;
}

static struct remote_function find_function(const struct chase_args *args, struct chase_found *found)
{
	return (struct remote_function){ .offload = CHASE_ID,
					 .function = CHASE_FIND,
					 .args = args,
					 .args_bytes = sizeof(*args),
					 .result = found,
					 .result_bytes = sizeof(*found) };
}

static int find(remote_t *r, raddr_t list)
{
	struct chase_args args = { htole64(list), htole64(1042), 0, htole32(8), 0 };
	struct chase_found found;
	struct remote_function what = find_function(&args, &found);

	if (expect("find", remote_query(r, &what), 0) ||
	    expect_value("address", le64toh(found.addr), list + 42 * element_bytes) ||
	    expect_value("steps", le64toh(found.steps), 43))
		return 1;
	args.key = htole64(7);
	if (expect("find of none", remote_query(r, &what), 0) ||
	    expect_value("address", found.addr, 0) ||
	    expect_value("steps", le64toh(found.steps), elements))
		return 1;
	args.start = htole64(8);
	if (expect("find in no memory", remote_query(r, &what), -EREMOTEIO) ||
	    expect_value("its errno", what.detail, EFAULT))
		return 1;
	what.args_bytes--;
	if (expect("too few arguments", remote_query(r, &what), -EREMOTEIO) ||
	    expect_value("its errno", what.detail, EINVAL))
		return 1;
	what.args_bytes++;
	what.function = CHASE_ADD;
	if (expect("query of a call's function", remote_query(r, &what), -EINVAL))
		return 1;
	what.offload = 77;
	return expect("no such offload", remote_query(r, &what), -ENOSYS);
}

/* The additions, and queries among them, are all under way at once. */
static int add(remote_t *r, raddr_t list)
{
	struct chase_add_args args = { { htole64(list), htole64(1050), 0, htole32(8), 0 },
				       htole32(16), 0, htole64(3) };
	static struct chase_added added[adds];
	static struct remote_function what[adds];
	struct remote_completion completion;
	remote_queue_t *q;
	uint64_t value, seen = 0;
	int i;

	if (expect("queue", remote_queue_open(&q, r, NULL), 0))
		return 1;
	for (i = 0; i < adds; i++) {
		what[i] = (struct remote_function){ .offload = CHASE_ID,
						    .function = CHASE_ADD,
						    .args = &args,
						    .args_bytes = sizeof(args),
						    .result = &added[i],
						    .result_bytes = sizeof(added[i]) };
		struct remote_op op = remote_op_call(&what[i], i);

		if (expect("submit", remote_queue_submit(q, &op, 1), 1))
			return 1;
	}
	for (i = 0; i < adds; i++) {
		if (expect("wait", remote_queue_wait(q, &completion, 1, 1, UINT64_MAX), 1) ||
		    expect("add", completion.result, 0))
			return 1;
		seen += le64toh(added[completion.user_data].value);
	}
	remote_queue_close(q);
	if (expect("read", remote_read(r, list + 50 * element_bytes + 16, &value, sizeof(value)), 0) ||
	    expect_value("sum", le64toh(value), 3 * adds))
		return 1;
	return expect_value("values found", seen, 3ULL * adds * (adds - 1) / 2);
}

/* A list without an end. */
static int endless(remote_t *r, raddr_t list)
{
	struct chase_args args = { htole64(list), htole64(7), 0, htole32(8), 0 };
	struct chase_found found;
	struct remote_function what = find_function(&args, &found);

	if (write_list(r, list, 1) || expect("endless", remote_query(r, &what), -ETIME))
		return 1;
	return what.detail < 10000 ? expect_value("time in us", what.detail, 10000) : 0;
}

static volatile sig_atomic_t told_to_stop;

static void stop(int signal)
{
	(void)signal;
	told_to_stop = 1;
}

static int greedy(remote_t *r, raddr_t list)
{
	struct chase_args args = { htole64(list), htole64(7), 0, htole32(8), 0 };
	static struct chase_found found[endless_calls];
	static struct remote_function what[endless_calls];
	struct remote_completion completion;
	remote_queue_t *q;
	int i, ended = 0;

	signal(SIGTERM, stop);
	if (write_list(r, list, 1) || expect("queue", remote_queue_open(&q, r, NULL), 0))
		return 1;
	for (i = 0; i < endless_calls; i++) {
		what[i] = (struct remote_function){ .offload = CHASE_ID,
						    .function = CHASE_FIND,
						    .args = &args,
						    .args_bytes = sizeof(args),
						    .result = &found[i],
						    .result_bytes = sizeof(found[i]) };
		struct remote_op op = remote_op_query(&what[i], i);

		if (expect("submit", remote_queue_submit(q, &op, 1), 1))
			return 1;
	}
	while (!told_to_stop) {
		struct remote_op op;

		if (expect("wait", remote_queue_wait(q, &completion, 1, 1, UINT64_MAX), 1) ||
		    expect("endless", completion.result, -ETIME))
			return 1;
		op = remote_op_query(&what[completion.user_data], completion.user_data);
		if (expect("submit", remote_queue_submit(q, &op, 1), 1))
			return 1;
		if (++ended == 1) {
			puts("greedy");
			fflush(stdout);
		}
	}
	remote_queue_close(q);
	return 0;
}

static int chase_long(remote_t *r, raddr_t list)
{
	struct chase_args args = { htole64(list), htole64(1000 + long_elements - 1), 0, htole32(8), 0 };
	struct chase_found found;
	struct remote_function what = find_function(&args, &found);
	int i, failed = write_elements(r, list, long_elements, 0);

	for (i = 0; i < long_calls && !failed; i++)
		failed = expect("long", remote_query(r, &what), 0) ||
			 expect_value("steps", le64toh(found.steps), long_elements);
	return failed || expect("free", remote_free(r, list), 0);
}

static int modest(remote_t *r, raddr_t list)
{
	int failed = write_list(r, list, 0) || find(r, list) || add(r, list) || endless(r, list);

	return failed || expect("fence", remote_fence(r), 0) ||
	       expect("free", remote_free(r, list), 0);
}

int main(int argc, char **argv)
{
	int is_greedy = argc == 3 && !strcmp(argv[2], "greedy");
	int is_long = argc == 3 && !strcmp(argv[2], "long");
	raddr_t list;
	remote_t *r;
	int failed;

	if ((argc != 2 && !is_greedy && !is_long) || remote_open(&r, argv[1], NULL)) {
		fprintf(stderr, "chaser TARGET [greedy|long]: %s\n", remote_why());
		return 2;
	}
	failed = expect("alloc", remote_alloc(r, 1 << 20, REMOTE_RW, &list), 0) ||
		 (is_greedy ? greedy(r, list) : is_long ? chase_long(r, list) : modest(r, list));
	remote_close(r);
	return failed;
}
