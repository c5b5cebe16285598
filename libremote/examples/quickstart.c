/* SPDX-License-Identifier: MIT */
#include <remote/remote.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char text[] = "hello, remote memory", back[sizeof(text)];
	remote_t *r;
	raddr_t a;
	int error = remote_open(&r, argc > 1 ? argv[1] : "embedded:size=64M", NULL);

	if (error) {
		fprintf(stderr, "%s\n", remote_why());
		return 1;
	}
	error = ralloc(r, 4 << 20, REMOTE_RW, &a);
	error = error ? error : rwrite(r, a, text, sizeof(text));
	error = error ? error : rread(r, a, back, sizeof(back));
	error = error ? error : rfree(r, a);
	remote_close(r);
	printf("%s\n", error ? remote_strerror(error) : back);
	return error != 0;
}
