/* What /proc tells about the process behind a request. */
#include "fs/fs_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define FIELD_FLAGS     9 /* of /proc/PID/stat, counted from 1 */
#define FIELD_PENDING   31
#define FIELD_EXIT_CODE 52
#define FLAG_EXITING    0x4u

/* The fields behind the program's name, which may hold anything; fields[0] is number 3. */
static char **read_fields (pid_t pid)
{
    char path[64];
    char text[1024];
    g_snprintf (path, sizeof path, "/proc/%d/stat", (int) pid);
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read (fd, text, sizeof text - 1);
    if (size <= 0)
        return NULL;
    text[size] = '\0';
    const char *behind = strrchr (text, ')');
    return behind == NULL || behind[1] != ' ' ? NULL : g_strsplit (behind + 2, " ", -1);
}

static guint64 field (char **fields, unsigned number)
{
    return g_strv_length (fields) > number - 3 ? g_ascii_strtoull (fields[number - 3], NULL, 10) : 0;
}

bool ecfs_fs_is_killed (pid_t pid)
{
    g_auto (GStrv) fields = pid <= 0 ? NULL : read_fields (pid);
    if (fields == NULL)
        return false;
    bool pending = (field (fields, FIELD_PENDING) >> (SIGKILL - 1)) & 1;
    bool dying = (field (fields, FIELD_FLAGS) & FLAG_EXITING) && (field (fields, FIELD_EXIT_CODE) & 0x7f) == SIGKILL;
    return pending || dying;
}
