/* A clock that is three seconds ahead, for a program that preloads this library: containers and namespaces share the
 * clock of their machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*original)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int status = original(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += 3;
    return status;
}
