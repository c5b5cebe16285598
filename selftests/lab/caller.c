// SPDX-License-Identifier: GPL-2.0
/*
 * caller TARGET OFFLOAD FUNCTION [until VALUE]: asks a program beside the memory, whose answer is an integer of 8 bytes,
 * and prints that; or the error, its detail, and exits with 1. With `until` it asks again and again, and prints each answer
 * that differs from the one before.
 */
#include <remote/remote.h>

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	uint64_t answer = 0, before = 0, wanted = 0;
	struct remote_function what = { .result = &answer, .result_bytes = sizeof(answer) };
	int until = argc == 6 && !strcmp(argv[4], "until");
	remote_t *r;
	int error;

	if ((argc != 4 && !until) || remote_open(&r, argv[1], NULL)) {
		fprintf(stderr, "caller TARGET OFFLOAD FUNCTION [until VALUE]: %s\n", remote_why());
		return 2;
	}
	what.offload = strtoul(argv[2], NULL, 0);
	what.function = strtoul(argv[3], NULL, 0);
	if (until)
		wanted = strtoull(argv[5], NULL, 0);
	do {
		error = remote_query(r, &what);
		if (!error && (!until || answer != before)) {
			printf("%llu\n", (unsigned long long)le64toh(answer));
			fflush(stdout);
		}
		before = answer;
	} while (!error && until && le64toh(answer) != wanted);
	if (error)
		fprintf(stderr, "%s %llu\n", remote_strerror(error), (unsigned long long)what.detail);
	remote_close(r);
	return error != 0;
}
