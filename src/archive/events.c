#include "archive/events.h"

#include "util/io.h"
#include "util/lock.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REST_TIMES 60 /* what a rest may become: an hour */
#define STEP_US    100000
#define TEXT_BYTES 2000      /* that are told at most: with all else, less than a pipe takes without a reader */
#define COMMAND    "command" /* the group of the file that is about it; topics have a colon in their names */

_Atomic int64_t ecfs_events_rest_us = 60 * (int64_t) G_USEC_PER_SEC;
_Atomic int64_t ecfs_events_run_us = 300 * (int64_t) G_USEC_PER_SEC;

/* What may be so or not. */
typedef struct Topic {
    char *event;
    char *endpoint; /* "": of the archive */
    char *now;      /* its sign; NULL: it is not so */
    char *told;     /* the same as it was told last */
    char *text;
    int64_t told_us; /* monotonic; 0: not by this process */
    int64_t rest_us; /* until it may be told again */
} Topic;

struct EcfsEvents {
    const EcfsArchive *archive; /* immutable, as the next two */
    const char *command;        /* borrowed from the configuration; NULL: none */
    bool is_hook;               /* it is the form before */
    EcfsMutex lock;
    GPtrArray *topics; /* guarded by lock, as the rest */
    GPid child;        /* 0: no command runs */
    int64_t child_us;
    bool child_is_late;
};

/* What is kept */

static char *path_of (const EcfsArchive *archive)
{
    return g_build_filename (ecfs_archive_directory (archive), ECFS_EVENTS_NAME, NULL);
}

/* A file that is absent or makes no sense says nothing. */
static GKeyFile *load (const EcfsArchive *archive)
{
    g_autofree char *path = path_of (archive);
    GKeyFile *kept = g_key_file_new ();
    (void) g_key_file_load_from_file (kept, path, G_KEY_FILE_NONE, NULL);
    return kept;
}

static void save (const EcfsArchive *archive, GKeyFile *kept)
{
    gsize size = 0;
    g_autofree char *path = path_of (archive);
    g_autofree char *text = g_key_file_to_data (kept, &size, NULL);
    g_autoptr (GError) error = NULL;
    if (!ecfs_replace_file (path, text, size, 0600, &error))
        g_info ("%s", error->message); /* something may be told twice, and that is all */
}

static char *group_of (const Topic *topic)
{
    return g_strconcat (topic->event, ":", topic->endpoint, NULL);
}

/* The file is read anew each time: `ecfs report` keeps something in it as well. */
static void keep (const EcfsEvents *self, const Topic *topic)
{
    g_autoptr (GKeyFile) kept = load (self->archive);
    g_autofree char *group = group_of (topic);
    if (topic->told == NULL)
        (void) g_key_file_remove_group (kept, group, NULL); /* it may not be there */
    else
        g_key_file_set_string (kept, group, "told", topic->told);
    save (self->archive, kept);
}

static void keep_run (const EcfsEvents *self, const char *what)
{
    g_autoptr (GKeyFile) kept = load (self->archive);
    g_key_file_set_int64 (kept, COMMAND, "time", g_get_real_time () / G_USEC_PER_SEC);
    g_key_file_set_string (kept, COMMAND, "told", what);
    save (self->archive, kept);
}

/* @text NULL: it succeeded. */
static void keep_result (const EcfsEvents *self, const char *text)
{
    g_autoptr (GKeyFile) kept = load (self->archive);
    if (text != NULL) {
        g_key_file_set_string (kept, COMMAND, "failure", text);
        g_key_file_set_int64 (kept, COMMAND, "failed", g_get_real_time () / G_USEC_PER_SEC);
        g_warning ("%s: %s", self->is_hook ? "hook" : "on_event", text);
    } else if (!g_key_file_remove_key (kept, COMMAND, "failure", NULL)) {
        return; /* it did not fail before, either */
    }
    save (self->archive, kept);
}

void ecfs_events_facts (const EcfsArchive *archive, EcfsEventsFacts *ret_facts)
{
    g_autoptr (GKeyFile) kept = load (archive);
    *ret_facts = (EcfsEventsFacts){.failure = g_key_file_get_string (kept, COMMAND, "failure", NULL),
                                   .failed_s = g_key_file_get_int64 (kept, COMMAND, "failed", NULL),
                                   .told_s = g_key_file_get_int64 (kept, COMMAND, "time", NULL),
                                   .told = g_key_file_get_string (kept, COMMAND, "told", NULL)};
}

void ecfs_events_facts_clear (EcfsEventsFacts *facts)
{
    g_clear_pointer (&facts->failure, g_free);
    g_clear_pointer (&facts->told, g_free);
}

/* Topics */

static void topic_free (gpointer data)
{
    Topic *self = data;
    g_free (self->event);
    g_free (self->endpoint);
    g_free (self->now);
    g_free (self->told);
    g_free (self->text);
    g_free (self);
}

EcfsEvents *ecfs_events_new (const EcfsArchive *archive)
{
    EcfsEvents *self = g_new0 (EcfsEvents, 1);
    const EcfsConfig *config = ecfs_archive_config (archive);
    self->archive = archive;
    self->is_hook = config->on_event == NULL;
    self->command = self->is_hook ? config->hook : config->on_event;
    self->topics = g_ptr_array_new_with_free_func (topic_free);
    ecfs_mutex_init (&self->lock);
    return self;
}

void ecfs_events_free (EcfsEvents *self)
{
    if (self == NULL)
        return;
    g_ptr_array_unref (self->topics);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

bool ecfs_events_wanted (const EcfsEvents *self)
{
    return self->command != NULL;
}

static Topic *topic_locked (EcfsEvents *self, const char *event, const char *endpoint) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->topics->len; i++) {
        Topic *topic = g_ptr_array_index (self->topics, i);
        if (strcmp (topic->event, event) == 0 && strcmp (topic->endpoint, endpoint) == 0)
            return topic;
    }
    g_autoptr (GKeyFile) kept = load (self->archive);
    Topic *topic = g_new0 (Topic, 1);
    topic->event = g_strdup (event);
    topic->endpoint = g_strdup (endpoint);
    g_autofree char *group = group_of (topic);
    topic->told = g_key_file_get_string (kept, group, "told", NULL);
    g_ptr_array_add (self->topics, topic);
    return topic;
}

static bool is_of_hook (const char *event)
{
    static const char *const events[] = {"down", "damaged", NULL};
    return g_strv_contains (events, event);
}

void ecfs_events_note (EcfsEvents *self, const char *event, const char *endpoint, const char *sign, const char *text)
{
    if (self->command == NULL || (self->is_hook && !is_of_hook (event)))
        return;
    ecfs_mutex_lock (&self->lock);
    Topic *topic = topic_locked (self, event, endpoint);
    g_free (topic->now);
    topic->now = g_strdup (sign);
    g_free (topic->text);
    topic->text = ecfs_text_clean (text, TEXT_BYTES);
    ecfs_mutex_unlock (&self->lock);
}

/* The command */

/* Between fork and exec: what ends it ends all of it, and it gets the signals that this process keeps from its
 * threads. */
static void in_child (gpointer data)
{
    sigset_t none;
    (void) data;
    (void) setpgid (0, 0); /* at worst only the command itself is killed when it is late */
    (void) signal (SIGPIPE, SIG_DFL);
    sigemptyset (&none);
    (void) sigprocmask (SIG_SETMASK, &none, NULL);
}

static char **environment (const EcfsEvents *self, const Topic *topic, const char *event)
{
    char **variables = g_get_environ ();
    variables = g_environ_setenv (variables, "ECFS_EVENT", event, TRUE);
    variables = g_environ_setenv (variables, "ECFS_ARCHIVE", ecfs_archive_directory (self->archive), TRUE);
    variables = g_environ_setenv (variables, "ECFS_ENDPOINT", topic->endpoint, TRUE);
    variables = g_environ_setenv (variables, "ECFS_TEXT", topic->text, TRUE);
    return g_environ_setenv (variables, "ECFS_REASON", topic->text, TRUE); /* as the form before calls it */
}

/* The end of a pipe that has all of the line already, whether it is read or not; -1 and an error. */
static int line_of (const EcfsEvents *self, const Topic *topic, const char *event, GError **error)
{
    int fds[2];
    g_autofree char *directory = ecfs_text_clean (ecfs_archive_directory (self->archive), TEXT_BYTES);
    g_autofree char *line = g_strdup_printf ("ecfs %s %s%s%s: %s\n", directory, event,
                                             *topic->endpoint == '\0' ? "" : " ", topic->endpoint, topic->text);
    if (pipe2 (fds, O_CLOEXEC) != 0) {
        (void) !ecfs_fail_errno (error, errno, "cannot make a pipe"); /* told by the error */
        return -1;
    }
    (void) !ecfs_write_all (fds[1], line, strlen (line)); /* an empty pipe of our own takes it */
    (void) close (fds[1]);                                /* likewise */
    return fds[0];
}

/* No shell sees the words: what a server said is a variable's content, whatever it looks like. */
static bool spawn_locked (EcfsEvents *self, const Topic *topic, const char *event, GError **error)
    ECFS_REQUIRES (self->lock)
{
    g_auto (GStrv) words = NULL;
    if (!g_shell_parse_argv (self->command, NULL, &words, error)) /* it was checked when parsed */
        return false;
    g_autoptr (GPtrArray) arguments = g_ptr_array_new ();
    for (char **word = words; *word != NULL; word++)
        g_ptr_array_add (arguments, *word);
    if (self->is_hook) {
        g_ptr_array_add (arguments, (char *) event);
        g_ptr_array_add (arguments, (char *) ecfs_archive_directory (self->archive));
        g_ptr_array_add (arguments, topic->endpoint);
    }
    g_ptr_array_add (arguments, NULL);
    g_auto (GStrv) variables = environment (self, topic, event);
    ecfs_autofd line = line_of (self, topic, event, error);
    bool begun = line >= 0 &&
                 g_spawn_async_with_fds ("/", (char **) arguments->pdata, variables,
                                         G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL,
                                         in_child, NULL, &self->child, line, -1, -1, error);
    self->child = begun ? self->child : 0;
    self->child_us = ecfs_now_us ();
    self->child_is_late = false;
    return begun;
}

static void run_locked (EcfsEvents *self, const Topic *topic, const char *event) ECFS_REQUIRES (self->lock)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *what = g_strdup_printf ("%s%s%s", event, *topic->endpoint == '\0' ? "" : " ", topic->endpoint);
    keep_run (self, what);
    if (!spawn_locked (self, topic, event, &error))
        keep_result (self, error->message);
}

/* Whether no command runs any more. */
static bool is_idle_locked (EcfsEvents *self) ECFS_REQUIRES (self->lock)
{
    int status = 0;
    if (self->child == 0)
        return true;
    pid_t ended = waitpid (self->child, &status, WNOHANG);
    if (ended == 0 && !self->child_is_late && ecfs_now_us () - self->child_us > ecfs_events_run_us) {
        self->child_is_late = true;
        if (kill (-self->child, SIGKILL) != 0)
            (void) kill (self->child, SIGKILL); /* a child that is not waited for yet: the number is its own */
    }
    if (ended == 0)
        return false;
    g_autofree char *text = NULL;
    if (self->child_is_late)
        text = g_strdup_printf ("the command took longer than %d s and was killed",
                                (int) (ecfs_events_run_us / G_USEC_PER_SEC));
    else if (ended == self->child && WIFSIGNALED (status))
        text = g_strdup_printf ("the command was ended by signal %d", WTERMSIG (status));
    else if (ended == self->child && status != 0)
        text = g_strdup_printf ("the command ended with status %d", WEXITSTATUS (status));
    keep_result (self, text);
    self->child = 0;
    return true;
}

/* What is to be told of it; NULL: nothing. */
static const char *news_of (const Topic *topic)
{
    if (topic->now != NULL)
        return g_strcmp0 (topic->now, topic->told) == 0 ? NULL : topic->event;
    return topic->told != NULL && strcmp (topic->event, "down") == 0 ? "up" : NULL;
}

static bool may_be_told (const Topic *topic, int64_t now_us)
{
    return topic->told_us == 0 || now_us - topic->told_us >= topic->rest_us;
}

static void told_locked (EcfsEvents *self, Topic *topic, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    const int64_t most_us = ecfs_events_rest_us * REST_TIMES;
    bool quiet = topic->told_us == 0 || now_us - topic->told_us >= topic->rest_us + most_us;
    topic->rest_us = quiet ? ecfs_events_rest_us : MIN (topic->rest_us * 2, most_us);
    topic->told_us = now_us;
    g_free (topic->told);
    topic->told = g_strdup (topic->now);
    keep (self, topic);
}

/* Returns whether something is left to be told or to end. */
static bool step_locked (EcfsEvents *self) ECFS_REQUIRES (self->lock)
{
    bool idle = is_idle_locked (self), left = !idle;
    int64_t now_us = ecfs_now_us ();
    for (guint i = 0; i < self->topics->len; i++) {
        Topic *topic = g_ptr_array_index (self->topics, i);
        const char *event = news_of (topic);
        if (event == NULL && topic->now == NULL && topic->told != NULL) { /* over: another time it is told again */
            g_clear_pointer (&topic->told, g_free);
            keep (self, topic);
        }
        if (event == NULL || !may_be_told (topic, now_us))
            continue;
        left = true;
        if (!idle)
            continue;
        run_locked (self, topic, event);
        told_locked (self, topic, now_us);
        idle = self->child == 0;
    }
    return left;
}

void ecfs_events_step (EcfsEvents *self)
{
    if (self->command == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    (void) step_locked (self); /* the next call does what is left */
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_events_await (EcfsEvents *self, int64_t deadline_us)
{
    bool left = self->command != NULL;
    while (left) {
        ecfs_mutex_lock (&self->lock);
        left = step_locked (self);
        ecfs_mutex_unlock (&self->lock);
        if (ecfs_now_us () >= deadline_us)
            return;
        if (left)
            g_usleep (STEP_US);
    }
}
