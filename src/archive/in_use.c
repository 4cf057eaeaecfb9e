#include "archive/in_use.h"

#include "util/error.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MOST       256 /* bytes in it */
#define NOTE_AT    64  /* where its second line begins */
#define NS_PER_S   1000000000
#define TIME_ERROR (NS_PER_S / 10) /* between a clock and an inode's time */
#define TRIES      5

struct EcfsInUse {
    char *path;
    char boot[64];
    int fd;
    bool untimed; /* inodes' times are not of this machine's clock: a file server's */
};

/* The file, as it is. */
typedef struct Found {
    bool is_there;
    char text[MOST + 1];
    char identity[NOTE_AT]; /* that it has */
    int64_t changed_ns;
} Found;

static void read_boot (char *ret_boot, size_t size)
{
    g_autofree char *text = NULL;
    ret_boot[0] = '\0';
    if (g_file_get_contents ("/proc/sys/kernel/random/boot_id", &text, NULL, NULL))
        (void) g_strlcpy (ret_boot, g_strstrip (text), size);
}

static int64_t ns_of (const struct statx_timestamp *time)
{
    return time->tv_sec * NS_PER_S + (int64_t) time->tv_nsec;
}

static bool look_at (int fd, Found *ret_found, GError **error)
{
    struct statx info;
    if (statx (fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME | STATX_CTIME, &info) != 0)
        return ecfs_fail_errno (error, errno, "what file it is");
    (void) snprintf (ret_found->identity, sizeof ret_found->identity, "%" PRIu64 " %" PRId64 "\n",
                     (uint64_t) info.stx_ino, (info.stx_mask & STATX_BTIME) != 0 ? ns_of (&info.stx_btime) : 0);
    ret_found->changed_ns = ns_of (&info.stx_ctime);
    return true;
}

/* Text and time of one moment: a mount may be writing it. */
static bool find (const char *path, Found *ret_found, GError **error)
{
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *ret_found = (Found){.is_there = fd >= 0};
    if (fd < 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "%s", path);
    for (unsigned i = 0; i < TRIES; i++) {
        Found before = {.is_there = true};
        if (!look_at (fd, &before, error))
            return ecfs_prefix (error, "%s", path);
        ssize_t got = ecfs_pread_all (fd, ret_found->text, MOST, 0);
        if (got < 0)
            return ecfs_fail_errno (error, (int) -got, "%s", path);
        ret_found->text[got] = '\0';
        if (!look_at (fd, ret_found, error))
            return ecfs_prefix (error, "%s", path);
        if (before.changed_ns == ret_found->changed_ns)
            break;
    }
    return true;
}

static bool is_apart (int64_t a_ns, int64_t b_ns)
{
    return a_ns > b_ns ? a_ns - b_ns > TIME_ERROR : b_ns - a_ns > TIME_ERROR;
}

static bool is_same_file (const Found *found)
{
    const char *end = strchr (found->text, '\n');
    return end == NULL || strncmp (found->text, found->identity, (size_t) (end - found->text) + 1) == 0;
}

/* What its second line says; false: nothing, as who made it died before, or is an earlier ecfs, or a power cut has left
 * some of it. */
static bool read_note (const Found *found, uint64_t *ret_sequence, int64_t *ret_time_ns, char ret_boot[64])
{
    uint64_t sum;
    const char *line = strlen (found->text) > NOTE_AT ? found->text + NOTE_AT : "";
    const char *end = strrchr (line, ' ');
    return end != NULL &&
           sscanf (line, "%" SCNu64 " %" SCNd64 " %63s %" SCNx64, ret_sequence, ret_time_ns, ret_boot, &sum) == 4 &&
           sum == XXH3_64bits (line, (size_t) (end - line));
}

bool ecfs_in_use_check (const char *directory, EcfsCatalog *catalog, GError **error)
{
    Found found;
    uint64_t sequence;
    int64_t time_ns;
    char said[64], boot[64];
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL);
    if (!find (path, &found, error))
        return false;
    if (!found.is_there)
        return true;
    bool is_noted = read_note (&found, &sequence, &time_ns, said);
    read_boot (boot, sizeof boot);
    /* Behind what the file says: a mount that goes on is never behind that itself. */
    if (is_noted && sequence > ecfs_catalog_sequence (catalog))
        return ecfs_fail (error, ESTALE,
                          "the catalog of %s is older than what was in use here last, and nobody can tell what was "
                          "stored since; make it the newest with 'ecfs takeover', or mount it for reading only with "
                          "'ecfs mount -o ro'",
                          directory);
    bool is_written =
        is_noted && time_ns != 0 && *boot != '\0' && strcmp (boot, said) == 0 && is_apart (found.changed_ns, time_ns);
    if (is_same_file (&found) && !is_written)
        return true;
    if (is_same_file (&found))
        return ecfs_fail (
            error, ESTALE,
            "something has changed %s since the archive was in use: if an older copy was put back over %s, "
            "nobody can tell what was stored since: make it the newest with 'ecfs takeover', or mount it "
            "for reading only with 'ecfs mount -o ro'; if nothing was put back, and only its owner, mode "
            "or links were changed, remove %s first",
            path, directory, path);
    return ecfs_fail (error, ESTALE,
                      "%s is a copy that was made while the archive was in use, and nobody can tell what was stored "
                      "since; make it the newest with 'ecfs takeover', or mount it for reading only with 'ecfs mount "
                      "-o ro'; where it was only moved after a crash, and nobody has another, remove %s first",
                      directory, path);
}

bool ecfs_in_use_is_copy (const char *directory)
{
    Found found;
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL);
    return find (path, &found, NULL) && found.is_there && !is_same_file (&found);
}

static int write_identity (int fd, const char *directory, const char *identity)
{
    ecfs_autofd dir_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char line[NOTE_AT];
    const size_t size = strlen (identity);
    if (dir_fd < 0 || ftruncate (fd, 0) != 0)
        return -errno;
    memset (line, ' ', sizeof line);
    memcpy (line, identity, size - 1);
    line[size - 1] = '\n'; /* and blanks, which are the beginning of the next line */
    int result = ecfs_pwrite_all (fd, line, sizeof line, 0);
    if (result == 0 && (fsync (fd) != 0 || fsync (dir_fd) != 0))
        result = -errno;
    return result;
}

/* @time_ns 0: nobody can tell. */
static int write_note (const EcfsInUse *self, uint64_t sequence, int64_t time_ns)
{
    char line[MOST - NOTE_AT];
    size_t size = (size_t) snprintf (line, sizeof line, "%020" PRIu64 " %020" PRId64 " %s", sequence, time_ns,
                                     *self->boot == '\0' ? "-" : self->boot);
    size += (size_t) snprintf (line + size, sizeof line - size, " %016" PRIx64 "\n", XXH3_64bits (line, size));
    return ecfs_pwrite_all (self->fd, line, size, NOTE_AT);
}

/* On a busy machine there may be some time between a look at the clock and the writing. */
void ecfs_in_use_note (void *user, uint64_t sequence)
{
    EcfsInUse *self = user;
    Found found;
    int result = 0;
    bool fits = false;
    for (unsigned i = 0; !self->untimed && i < TRIES && result == 0 && !fits; i++) {
        int64_t time_ns = g_get_real_time () * 1000;
        result = write_note (self, sequence, time_ns);
        fits = result == 0 && look_at (self->fd, &found, NULL) && !is_apart (found.changed_ns, time_ns);
    }
    self->untimed = self->untimed || !fits;
    if (self->untimed)
        result = write_note (self, sequence, 0);
    if (result != 0)
        g_info ("%s: %s", self->path, g_strerror (-result)); /* a copy that is put back is not recognised then */
}

EcfsInUse *ecfs_in_use_begin (const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL);
    Found found = {.is_there = true};
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void) !ecfs_fail_errno (error, errno, "%s", path);
        return NULL;
    }
    int result = look_at (fd, &found, error) ? write_identity (fd, directory, found.identity) : 1;
    if (result < 0)
        (void) !ecfs_fail_errno (error, -result, "%s", path);
    if (result != 0)
        return NULL;
    EcfsInUse *self = g_new0 (EcfsInUse, 1);
    self->path = g_steal_pointer (&path);
    self->fd = fd;
    fd = -1;
    read_boot (self->boot, sizeof self->boot);
    ecfs_in_use_note (self, 0);
    return self;
}

void ecfs_in_use_end (EcfsInUse *self)
{
    if (self == NULL)
        return;
    if (unlink (self->path) != 0 && errno != ENOENT)
        g_info ("%s: %s", self->path, g_strerror (errno));
    ecfs_in_use_leave (self);
}

void ecfs_in_use_leave (EcfsInUse *self)
{
    if (self == NULL)
        return;
    (void) close (self->fd); /* nobody needs what it says any more */
    g_free (self->path);
    g_free (self);
}
