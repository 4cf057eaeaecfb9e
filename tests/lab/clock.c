/*
 * lab-clock, to be preloaded: the time of day jumps as the file named by ECFS_LAB_CLOCK says, 8 bytes with the seconds
 * to add, whenever somebody writes another number there. All other clocks run on, as they do when an administrator or
 * NTP sets the time. The clock of the machine is left alone.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *jump_s;

__attribute__ ((constructor)) static void map_jump (void)
{
    const char *path = getenv ("ECFS_LAB_CLOCK");
    int fd = path != NULL ? open (path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap (NULL, sizeof *jump_s, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        abort ();
    (void) close (fd); /* the mapping stays */
    jump_s = mapped;
}

static time_t jump (void)
{
    return jump_s != NULL ? (time_t) *jump_s : 0;
}

int clock_gettime (clockid_t clock, struct timespec *ret_now)
{
    static int (*real) (clockid_t, struct timespec *);
    if (real == NULL)
        real = (int (*) (clockid_t, struct timespec *)) dlsym (RTLD_NEXT, "clock_gettime");
    int result = real (clock, ret_now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret_now->tv_sec += jump ();
    return result;
}

int gettimeofday (struct timeval *restrict ret_now, void *restrict zone)
{
    struct timespec now;
    (void) zone; /* obsolete; nobody asks for it */
    int result = clock_gettime (CLOCK_REALTIME, &now);
    *ret_now = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return result;
}

time_t time (time_t *ret_now)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    if (ret_now != NULL)
        *ret_now = now.tv_sec;
    return now.tv_sec;
}
