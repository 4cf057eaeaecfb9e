/* The calls in here are let through uncounted: steps.c sees to that. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR_BYTES 512 /* what a disk writes whole */

typedef enum ChangeKind {
    CHANGE_BYTES,
    CHANGE_TIMES,
    CHANGE_MADE,
    CHANGE_REMOVED,
    CHANGE_MOVED,
} ChangeKind;

typedef struct FileKey {
    dev_t dev;
    ino_t ino;
} FileKey;

typedef struct Change {
    ChangeKind kind;
    bool durable;
    FileKey file;      /* BYTES, TIMES: whose; else the directory of path */
    FileKey other_dir; /* MOVED: that of to */
    /* BYTES */
    off_t offset;
    off_t old_size; /* of the file */
    uint8_t *old;   /* n_old bytes from offset on */
    size_t n_old;
    /* TIMES */
    struct timespec old_mtime;
    /* Names; owned */
    char *path;
    char *to;
    char *grave; /* where the removed or replaced file is; NULL: there was none, or it is a directory */
    mode_t mode; /* REMOVED: of a directory; 0: a file */
} Change;

/* A descriptor of our own for each file that changed, and never closed: closing one would take SQLite's locks away. */
typedef struct OpenFile {
    FileKey key;
    int fd;
} OpenFile;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *grave_dir;
static Change *changes;
static size_t n_changes, n_pending; /* the last n_pending belong to the call under way */
static OpenFile *files;
static size_t n_files;
static unsigned n_buried;

void disk_init (const char *grave)
{
    grave_dir = grave;
}

void disk_lock (void)
{
    pthread_mutex_lock (&lock);
    n_pending = 0;
}

void disk_unlock (void)
{
    pthread_mutex_unlock (&lock);
}

static void give_up (const char *what)
{
    fprintf (stderr, "crash: %s: %s\n", what, strerror (errno));
    abort ();
}

static bool same_key (FileKey a, FileKey b)
{
    return a.dev == b.dev && a.ino == b.ino;
}

static Change *add_change (ChangeKind kind)
{
    changes = realloc (changes, (n_changes + 1) * sizeof *changes);
    if (changes == NULL)
        give_up ("no memory");
    Change *change = &changes[n_changes++];
    n_pending++;
    *change = (Change){.kind = kind};
    return change;
}

static FileKey key_of_fd (int fd)
{
    struct stat st;
    if (fstat (fd, &st) != 0)
        give_up ("fstat");
    return (FileKey){st.st_dev, st.st_ino};
}

/* The directory that @path is in. */
static FileKey key_of_dir (const char *path)
{
    struct stat st;
    char dir[4096];
    const char *slash = strrchr (path, '/');
    snprintf (dir, sizeof dir, "%.*s", (int) (slash - path), path);
    if (stat (dir, &st) != 0)
        return (FileKey){0, 0}; /* the call is going to fail */
    return (FileKey){st.st_dev, st.st_ino};
}

static int own_fd (FileKey key, int fd)
{
    for (size_t i = 0; i < n_files; i++)
        if (same_key (files[i].key, key))
            return files[i].fd;
    char path[64];
    snprintf (path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open (path, O_RDWR | O_CLOEXEC);
    files = realloc (files, (n_files + 1) * sizeof *files);
    if (own < 0 || files == NULL)
        give_up (path);
    files[n_files++] = (OpenFile){key, own};
    return own;
}

static uint8_t *read_bytes (int fd, off_t offset, size_t size)
{
    uint8_t *bytes = calloc (1, size + 1);
    if (bytes == NULL)
        give_up ("no memory");
    for (size_t done = 0; done < size;) {
        ssize_t got = pread (fd, bytes + done, size - done, offset + (off_t) done);
        if (got < 0)
            give_up ("pread");
        if (got == 0)
            break;
        done += (size_t) got;
    }
    return bytes;
}

static off_t size_of (int fd)
{
    struct stat st;
    if (fstat (fd, &st) != 0)
        give_up ("fstat");
    return st.st_size;
}

/* Noting */

void disk_note_bytes (int fd, off_t offset, off_t size)
{
    Change *change = add_change (CHANGE_BYTES);
    change->file = key_of_fd (fd);
    int own = own_fd (change->file, fd);
    change->offset = offset;
    change->old_size = size_of (own);
    off_t end = offset + size < change->old_size ? offset + size : change->old_size;
    change->n_old = end > offset ? (size_t) (end - offset) : 0;
    change->old = read_bytes (own, offset, change->n_old);
}

void disk_note_times (int fd)
{
    struct stat st;
    Change *change = add_change (CHANGE_TIMES);
    change->file = key_of_fd (fd);
    if (fstat (own_fd (change->file, fd), &st) != 0)
        give_up ("fstat");
    change->old_mtime = st.st_mtim;
}

void disk_note_made (const char *path)
{
    Change *change = add_change (CHANGE_MADE);
    change->file = key_of_dir (path);
    change->path = strdup (path);
}

static char *grave_name (void)
{
    char name[4096];
    snprintf (name, sizeof name, "%s/%d-%u", grave_dir, (int) getpid (), n_buried++);
    return strdup (name);
}

/* Keeps what has the name @path, if anything has. */
static void bury (Change *change, const char *path)
{
    struct stat st;
    if (lstat (path, &st) != 0)
        return;
    if (S_ISDIR (st.st_mode)) {
        change->mode = st.st_mode & 07777;
        return;
    }
    change->grave = grave_name ();
    if (link (path, change->grave) == 0)
        return;
    if (errno != ENOENT)
        give_up (path);
    free (change->grave); /* its endpoint was hidden just now */
    change->grave = NULL;
}

void disk_note_removed (const char *path)
{
    Change *change = add_change (CHANGE_REMOVED);
    change->file = key_of_dir (path);
    change->path = strdup (path);
    bury (change, path);
}

void disk_note_moved (const char *from, const char *to)
{
    Change *change = add_change (CHANGE_MOVED);
    change->file = key_of_dir (from);
    change->other_dir = key_of_dir (to);
    change->path = strdup (from);
    change->to = strdup (to);
    bury (change, to);
}

void disk_done (bool happened)
{
    if (!happened)
        n_changes -= n_pending; /* what they hold is lost memory until the end, which is near */
    n_pending = 0;
}

void disk_synced (int fd, bool data_only)
{
    FileKey key = key_of_fd (fd);
    for (size_t i = 0; i < n_changes; i++) {
        Change *change = &changes[i];
        bool named = change->kind == CHANGE_MOVED && same_key (change->other_dir, key);
        if ((same_key (change->file, key) || named) && !(data_only && change->kind == CHANGE_TIMES))
            change->durable = true;
    }
}

void disk_all_synced (void)
{
    for (size_t i = 0; i < n_changes; i++)
        changes[i].durable = true;
}

/* Losing */

static uint64_t mix (uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed ^ (a * UINT64_C (0x9e3779b97f4a7c15)) ^ (b * UINT64_C (0xbf58476d1ce4e5b9));
    x = (x ^ (x >> 31)) * UINT64_C (0x94d049bb133111eb);
    x = (x ^ (x >> 29)) * UINT64_C (0xbf58476d1ce4e5b9);
    return x ^ (x >> 32);
}

static bool is_name (const Change *change)
{
    return change->kind >= CHANGE_MADE;
}

/* Of an endpoint that is hidden, it stays away: that is another machine, whose power did not fail. */
static void bring_back (const char *grave, const char *path)
{
    if (rename (grave, path) != 0 && errno != ENOENT)
        give_up (path);
}

static void undo_name (const Change *change)
{
    char *nowhere = grave_name ();
    switch (change->kind) {
    case CHANGE_MADE:
        (void) rename (change->path, nowhere); /* also a directory with all in it; moved meanwhile is as good */
        break;
    case CHANGE_MOVED:
        (void) rename (change->to, change->path);
        if (change->grave != NULL)
            bring_back (change->grave, change->to);
        break;
    default:
        if (change->grave != NULL)
            bring_back (change->grave, change->path);
        if (change->grave == NULL && change->mode != 0 && mkdir (change->path, change->mode) != 0 && errno != ENOENT)
            give_up (change->path);
        break;
    }
    free (nowhere);
}

/* Names get lost from the newest on, as a journal of a file system loses them. */
static void lose_names (size_t n_kept)
{
    size_t n_volatile = 0;
    for (size_t i = 0; i < n_changes; i++)
        n_volatile += is_name (&changes[i]) && !changes[i].durable;
    size_t n_lost = n_volatile - n_volatile * n_kept / 100;
    for (size_t i = n_changes; i-- > 0 && n_lost > 0;) {
        if (!is_name (&changes[i]) || changes[i].durable)
            continue;
        undo_name (&changes[i]);
        n_lost--;
    }
}

static void write_bytes (int fd, const uint8_t *bytes, size_t size, off_t offset)
{
    if (size > 0 && pwrite (fd, bytes, size, offset) != (ssize_t) size)
        give_up ("pwrite");
}

/* The durable state of a file in place of its last one. */
static bool undo_bytes (const OpenFile *file)
{
    bool undone = false;
    for (size_t i = n_changes; i-- > 0;) {
        const Change *change = &changes[i];
        if (change->kind != CHANGE_BYTES || change->durable || !same_key (change->file, file->key))
            continue;
        if (ftruncate (file->fd, change->old_size) != 0)
            give_up ("ftruncate");
        write_bytes (file->fd, change->old, change->n_old, change->offset);
        undone = true;
    }
    return undone;
}

/* Sectors and size of a file reached the disk or did not, each by chance. */
static void mix_bytes (const OpenFile *file, uint64_t seed)
{
    off_t new_size = size_of (file->fd);
    uint8_t *newest = read_bytes (file->fd, 0, (size_t) new_size);
    if (undo_bytes (file)) {
        off_t size = mix (seed, file->key.ino, UINT64_MAX) & 1 ? new_size : size_of (file->fd);
        if (ftruncate (file->fd, size) != 0)
            give_up ("ftruncate");
        for (off_t at = 0; at < size && at < new_size; at += SECTOR_BYTES) {
            off_t end = at + SECTOR_BYTES < size ? at + SECTOR_BYTES : size;
            end = end < new_size ? end : new_size;
            if (mix (seed, file->key.ino, (uint64_t) at) & 1)
                write_bytes (file->fd, newest + at, (size_t) (end - at), at);
        }
    }
    free (newest);
}

static void lose_times (const Change *change)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, change->old_mtime};
    for (size_t i = 0; i < n_files; i++)
        if (same_key (files[i].key, change->file) && futimens (files[i].fd, times) != 0)
            give_up ("futimens");
}

void disk_lose (CrashLoss loss, uint64_t seed)
{
    for (size_t i = 0; i < n_files; i++) {
        if (loss == CRASH_LOSES_SOME)
            mix_bytes (&files[i], seed);
        else
            (void) undo_bytes (&files[i]); /* whether anything was to be undone */
    }
    for (size_t i = n_changes; i-- > 0;)
        if (changes[i].kind == CHANGE_TIMES && !changes[i].durable)
            lose_times (&changes[i]);
    lose_names (loss == CRASH_LOSES_SOME ? mix (seed, 0, 0) % 101 : 0);
}
