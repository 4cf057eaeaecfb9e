#include "program/program.h"

#include <errno.h>
#include <sys/resource.h>

void ecfs_allow_many_files (void)
{
    struct rlimit limit;
    if (getrlimit (RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit (RLIMIT_NOFILE, &limit) != 0)
        g_info ("cannot raise the number of open files: %s", g_strerror (errno));
}
