/* SPDX-License-Identifier: MIT */
/*
 * Copies a file from this program's memory into the memory of a program on another machine.
 *
 *   remora-cmmc-file receive PEER-PORT ADDRESS TCP-PORT BYTES
 *   remora-cmmc-file send ADDRESS TCP-PORT FILE
 *
 * The receiver grants its memory to the peer at a port of the bridge, and passes the handle to the
 * sender by TCP. The bytes go by cmmc_write(). Both print the SHA-256 of their memory.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <remote/cmmc.h>

struct offer {
	cmmc_handle_t handle;
	uint64_t bytes; /* of the receiver's memory */
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "remora-cmmc-file: %s: %s\n", what, strerror(error));
	exit(1);
}

static int check(const char *what, int result)
{
	if (result < 0)
		fail(what, -result);
	return result;
}

/* Prints the digest that the machine's sha256sum makes of some memory. */
static void print_digest(const void *memory, size_t bytes)
{
	FILE *sum;

	fflush(stdout);
	sum = popen("sha256sum", "w");
	if (!sum || fwrite(memory, 1, bytes, sum) != bytes || pclose(sum))
		fail("sha256sum", errno);
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
		fail(address, EINVAL);
	return at;
}

static void *memory_of(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap", errno);
	return memory;
}

static void receive(char **argument)
{
	struct sockaddr_in at = address_of(argument[1], argument[2]);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, sender;
	int cmmc = check("/dev/cmmc", cmmc_open(NULL)), signals = eventfd(0, EFD_CLOEXEC);
	struct offer offer = {.bytes = strtoull(argument[3], NULL, 0)};
	void *memory = memory_of(offer.bytes);
	uint64_t count, bytes;

	check("translate", cmmc_translate(cmmc, (unsigned)atoi(argument[0]), memory, offer.bytes,
					  CMMC_WRITE, signals, &offer.handle));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 1))
		fail("listen", errno);
	puts("ready");
	fflush(stdout);
	sender = accept(listener, NULL, NULL);
	if (sender < 0 || send(sender, &offer, sizeof(offer), 0) != sizeof(offer) ||
	    recv(sender, &bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes) || bytes > offer.bytes)
		fail("no offer was made", errno);
	/* The signal comes after the bytes. */
	if (read(signals, &count, sizeof(count)) != sizeof(count))
		fail("eventfd", errno);
	check("revoke", cmmc_revoke(cmmc, &offer.handle));
	print_digest(memory, bytes);
}

static void send_file(char **argument)
{
	struct sockaddr_in at = address_of(argument[0], argument[1]);
	int to = socket(AF_INET, SOCK_STREAM, 0), cmmc = check("/dev/cmmc", cmmc_open(NULL));
	int file = open(argument[2], O_RDONLY), buffer;
	struct timespec began, ended;
	struct offer offer;
	struct stat status;
	uint64_t bytes;
	char *memory;

	if (file < 0 || fstat(file, &status))
		fail(argument[2], errno);
	bytes = (uint64_t)status.st_size;
	memory = memory_of(bytes);
	for (uint64_t done = 0; done < bytes;) {
		ssize_t got = read(file, memory + done, bytes - done);

		if (got <= 0)
			fail(argument[2], got ? errno : EIO);
		done += (uint64_t)got;
	}
	if (connect(to, (struct sockaddr *)&at, sizeof(at)) ||
	    recv(to, &offer, sizeof(offer), MSG_WAITALL) != sizeof(offer) ||
	    send(to, &bytes, sizeof(bytes), 0) != sizeof(bytes))
		fail("no offer came", errno);
	buffer = check("register", cmmc_register(cmmc, memory, bytes));
	clock_gettime(CLOCK_MONOTONIC, &began);
	check("write", cmmc_write_buffer(cmmc, &offer.handle, 0, buffer, 0, bytes, CMMC_SIGNAL));
	clock_gettime(CLOCK_MONOTONIC, &ended);
	print_digest(memory, bytes);
	printf("%.0f us\n", (double)(ended.tv_sec - began.tv_sec) * 1e6 +
				    (double)(ended.tv_nsec - began.tv_nsec) / 1e3);
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "receive")) {
		receive(argv + 2);
	} else if (argc == 5 && !strcmp(argv[1], "send")) {
		send_file(argv + 2);
	} else {
		fprintf(stderr, "usage: remora-cmmc-file receive PEER-PORT ADDRESS TCP-PORT BYTES\n"
				"       remora-cmmc-file send ADDRESS TCP-PORT FILE\n");
		return 2;
	}
	return 0;
}
