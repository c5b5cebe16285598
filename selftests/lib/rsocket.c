/* SPDX-License-Identifier: GPL-2.0 */
/* A program that uses rdma-core's rsockets beside libremote: compiled and run by test_dist.py. */
#define REMOTE_NO_SHORT_NAMES
#include <rdma/rsocket.h>
#include <remote/lock.h>
#include <remote/queue.h>
#include <remote/remote.h>
#ifdef __cplusplus
#include <remote/coroutine.hpp>
#endif

int main(void)
{
	char text[6] = "hello";
	struct pollfd none = {-1, 0, 0};
	ssize_t (*volatile take)(int, void *, size_t) = rread;
	ssize_t (*volatile give)(int, const void *, size_t) = rwrite;
	remote_queue_t *q;
	remote_t *r;
	raddr_t a;

	if (remote_open(&r, "embedded:", NULL) || remote_alloc(r, 1 << 20, REMOTE_RW, &a))
		return 1;
	if (remote_write(r, a, text, sizeof(text)) || remote_read(r, a, text, sizeof(text)))
		return 2;
	if (remote_lock(r, a + 64) || remote_unlock(r, a + 64))
		return 3;
	if (remote_queue_open(&q, r, NULL))
		return 6;
	remote_queue_close(q);
	/* rdma-core's, which needs a socket for its rread() and rwrite(). */
	if (take == NULL || give == NULL)
		return 4;
	if (rpoll(&none, 1, 0) != 0)
		return 5;
	remote_close(r);
	return text[0] != 'h';
}
