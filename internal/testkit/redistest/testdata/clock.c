/*
 * Preloaded into a redis-server, this adds a number of microseconds to its wall
 * clock: the eight bytes, in the machine's order, at the start of the file that
 * REDISTEST_CLOCK names. They may be changed at any time. The monotonic clock is
 * left alone, as it is when an operator or NTP sets a real one.
 *
 * The calls below go to the kernel and not to the C library's own functions:
 * finding those takes dlsym, which allocates, and the allocator of redis-server
 * asks for the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *ahead;

__attribute__((constructor)) static void open_clock(void)
{
	const char *name = getenv("REDISTEST_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		ahead = at;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	long failed = syscall(SYS_clock_gettime, id, ts);
	if (failed || !ahead || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return (int)failed;
	long long by = *ahead;
	long long ns = ts->tv_nsec + by % 1000000 * 1000;
	ts->tv_sec += by / 1000000;
	if (ns < 0) {
		ns += 1000000000;
		ts->tv_sec--;
	} else if (ns >= 1000000000) {
		ns -= 1000000000;
		ts->tv_sec++;
	}
	ts->tv_nsec = (long)ns;
	return 0;
}

int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec ts;
	(void)zone;
	int failed = clock_gettime(CLOCK_REALTIME, &ts);
	if (!failed) {
		tv->tv_sec = ts.tv_sec;
		tv->tv_usec = ts.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *at)
{
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return (time_t)-1;
	if (at)
		*at = ts.tv_sec;
	return ts.tv_sec;
}
