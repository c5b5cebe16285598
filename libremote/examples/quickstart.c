/* SPDX-License-Identifier: MIT */
#include <remote/remote.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	const char *target = argc > 1 ? argv[1] : "embedded:size=64M";
	char text[] = "hello, remote memory", back[sizeof(text)];
	remote_t *r;
	raddr_t a;

	if (remote_open(&r, target, NULL)) {
		fprintf(stderr, "%s\n", remote_why());
		return 1;
	}
	if (ralloc(r, 4 << 20, REMOTE_RW, &a) || rwrite(r, a, text, sizeof(text)) ||
	    rread(r, a, back, sizeof(back)) || rfree(r, a))
		return 1;
	printf("%s\n", back);
	remote_close(r);
	return 0;
}
