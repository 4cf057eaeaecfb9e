#include "program/program.h"

#include "util/io.h"
#include "util/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX 16384 /* bytes */

static char *log_file; /* NULL: none; set before there are threads */
static atomic_bool syslog_wanted;
static atomic_int most_verbose;
static pthread_once_t installed = PTHREAD_ONCE_INIT;

static const struct {
    GLogLevelFlags level;
    int priority;
    const char *name;
} levels[] = {
    {G_LOG_LEVEL_ERROR, LOG_CRIT, "fatal: "},
    {G_LOG_LEVEL_CRITICAL, LOG_ERR, "error: "},
    {G_LOG_LEVEL_WARNING, LOG_WARNING, "warning: "},
    {G_LOG_LEVEL_MESSAGE, LOG_NOTICE, ""},
    {G_LOG_LEVEL_INFO, LOG_INFO, ""},
    {G_LOG_LEVEL_DEBUG, LOG_DEBUG, "debug: "},
};

/* In one line that orders nothing, whatever the names of files in it are; g_free (). */
static char *message_of (const GLogField *fields, gsize n_fields)
{
    const char *message = "";
    for (gsize i = 0; i < n_fields; i++)
        if (strcmp (fields[i].key, "MESSAGE") == 0)
            message = fields[i].value;
    g_auto (GStrv) lines = g_strsplit (message, "\n", -1);
    g_autofree char *line = g_strjoinv ("; ", lines);
    return ecfs_text_clean (line, MESSAGE_MAX);
}

/* systemd's journal says by JOURNAL_STREAM which file it reads, and has times and names of its own. */
static bool is_journal (void)
{
    struct stat status;
    const char *stream = g_getenv ("JOURNAL_STREAM");
    if (stream == NULL || fstat (STDERR_FILENO, &status) != 0)
        return false;
    g_autofree char *own = g_strdup_printf ("%" PRIu64 ":%" PRIu64, (uint64_t) status.st_dev, (uint64_t) status.st_ino);
    return strcmp (stream, own) == 0;
}

static void write_to_journal (int priority, const char *message)
{
    g_autofree char *line = g_strdup_printf ("<%d>%s\n", priority, message);
    (void) !ecfs_write_all (STDERR_FILENO, line, strlen (line)); /* there is nowhere else to complain */
}

static int open_log (void)
{
    return log_file == NULL
               ? -1
               : open (log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
}

/* One write per line, so that lines of threads and processes do not mix. */
static void write_line (int fd, const char *name, const char *message)
{
    struct timespec now;
    struct tm parts;
    char when[32] = "";
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    if (localtime_r (&now.tv_sec, &parts) != NULL)
        (void) strftime (when, sizeof when, "%F %T", &parts); /* fits */
    g_autofree char *line = g_strdup_printf ("%s.%03ld ecfs: %s%s\n", when, now.tv_nsec / 1000000, name, message);
    (void) !ecfs_write_all (fd, line, strlen (line)); /* there is nowhere else to complain */
}

static GLogWriterOutput write_log (GLogLevelFlags level, const GLogField *fields, gsize n_fields, gpointer data)
{
    for (size_t i = 0; i < G_N_ELEMENTS (levels); i++) {
        if (!(level & levels[i].level) || (int) levels[i].level > atomic_load (&most_verbose))
            continue;
        g_autofree char *message = message_of (fields, n_fields);
        ecfs_autofd fd = open_log ();
        if (fd >= 0)
            write_line (fd, levels[i].name, message);
        else if (atomic_load (&syslog_wanted))
            syslog (levels[i].priority, "%s%s", levels[i].name, message);
        else if (is_journal ())
            write_to_journal (levels[i].priority, message);
        else
            write_line (STDERR_FILENO, levels[i].name, message);
        break;
    }
    return G_LOG_WRITER_HANDLED;
}

static void install (void)
{
    g_log_set_writer_func (write_log, NULL, NULL); /* GLib wants this once only */
}

bool ecfs_log_to_file (const char *path, GError **error)
{
    g_free (log_file);
    log_file = g_strdup (path);
    ecfs_autofd fd = open_log ();
    if (fd >= 0)
        return true;
    int code = errno;
    g_clear_pointer (&log_file, g_free);
    return ecfs_fail_errno (error, code, "the log %s", path);
}

void ecfs_log_init (bool to_syslog, GLogLevelFlags level)
{
    if (to_syslog)
        openlog ("ecfs", LOG_PID, LOG_DAEMON);
    atomic_store (&syslog_wanted, to_syslog);
    atomic_store (&most_verbose, (int) level);
    (void) pthread_once (&installed, install); /* fails for an invalid control only */
}
