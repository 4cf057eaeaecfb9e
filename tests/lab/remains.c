/*
 * lab-remains, to be preloaded: when the program ends, looks in all memory that it can write to for a code that opens
 * an archive's key, eight groups of four characters with dashes between them, and writes into the file named by
 * ECFS_LAB_REMAINS how often one is there. That is late: what exit () calls has run, and stdio's buffers are still
 * there.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CODE_BYTES 39
#define GROUP      5 /* four characters and a dash */

static char maps[1 << 20]; /* as the kernel tells them */

static bool is_code (const char *at)
{
    for (unsigned i = 0; i < CODE_BYTES; i++) {
        bool letter = (at[i] >= 'A' && at[i] <= 'Z') || (at[i] >= '2' && at[i] <= '7');
        if (i % GROUP == GROUP - 1 ? at[i] != '-' : !letter)
            return false;
    }
    return true;
}

static unsigned count_in (uintptr_t from, uintptr_t to)
{
    unsigned n = 0;
    for (uintptr_t at = from; at + CODE_BYTES <= to; at++)
        n += is_code ((const char *) at);
    return n;
}

static bool read_maps (void)
{
    size_t n = 0;
    int fd = open ("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (ssize_t got = 1; got > 0 && n + 1 < sizeof maps; n += got > 0 ? (size_t) got : 0)
        got = read (fd, maps + n, sizeof maps - 1 - n);
    maps[n] = '\0';
    return close (fd) == 0 && n > 0;
}

__attribute__ ((destructor)) static void look (void)
{
    const char *path = getenv ("ECFS_LAB_REMAINS");
    int fd = path != NULL ? open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    unsigned n = 0;
    char text[32], rights[5];
    if (fd < 0)
        return;
    (void) prctl (PR_SET_DUMPABLE, 1, 0, 0, 0); /* else who is not root cannot see its own maps */
    if (!read_maps ())
        abort ();
    for (char *line = maps; line != NULL && *line != '\0'; line = strchr (line, '\n'), line += line != NULL) {
        unsigned long from, to;
        if (sscanf (line, "%lx-%lx %4s", &from, &to, rights) == 3 && memcmp (rights, "rw-p", 4) == 0 &&
            !((uintptr_t) maps >= from && (uintptr_t) maps < to))
            n += count_in (from, to);
    }
    int size = snprintf (text, sizeof text, "%u\n", n);
    if (write (fd, text, (size_t) size) != size)
        abort ();
    (void) close (fd); /* it was written */
}
