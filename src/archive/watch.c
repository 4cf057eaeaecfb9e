#include "archive/watch.h"

#include "archive/archive_priv.h"
#include "archive/key_watch.h"
#include "util/io.h"
#include "util/ticker.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP   "down-since"
#define LOOK_US (2 * G_USEC_PER_SEC)
#define REST_US (60 * G_USEC_PER_SEC)  /* between two runs of the hook about the same thing */
#define RUN_US  (300 * G_USEC_PER_SEC) /* that a command may take */

typedef struct Seen {
    bool down; /* at the last look, … */
    bool told; /* … and as the hook was told it */
    int64_t told_us;
} Seen;

struct EcfsWatch {
    EcfsArchive *archive; /* immutable, as the next */
    EcfsTicker *ticker;
    /* The ticker's. */
    Seen seen[ECFS_ENDPOINTS_MAX];
    Seen damage;
    GKeyFile *notes;
    GPid child; /* 0: no command runs */
    int64_t child_us;
};

static char *notes_path (const EcfsArchive *archive)
{
    return g_build_filename (archive->directory, ECFS_DOWN_SINCE_NAME, NULL);
}

/* A file that is absent or makes no sense says nothing. */
static GKeyFile *load_notes (const EcfsArchive *archive)
{
    g_autofree char *path = notes_path (archive);
    GKeyFile *notes = g_key_file_new ();
    (void) g_key_file_load_from_file (notes, path, G_KEY_FILE_NONE, NULL);
    return notes;
}

static int64_t noted (GKeyFile *notes, const EcfsUuid *endpoint)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (endpoint, text);
    return MAX (g_key_file_get_int64 (notes, GROUP, text, NULL), 0);
}

int64_t ecfs_watch_noted (EcfsArchive *archive, const EcfsUuid *endpoint)
{
    g_autoptr (GKeyFile) notes = load_notes (archive);
    return noted (notes, endpoint);
}

static void keep_notes (EcfsWatch *self)
{
    g_autofree char *path = notes_path (self->archive);
    g_autoptr (GError) error = NULL;
    gsize size = 0;
    g_autofree char *text = g_key_file_to_data (self->notes, &size, NULL);
    if (!ecfs_replace_file (path, text, size, 0600, &error))
        g_info ("%s", error->message); /* ecfs status knows less, and that is all */
}

/* The hook */

static char **environment (EcfsWatch *self, const char *event, const char *endpoint, const char *reason)
{
    char **variables = g_get_environ ();
    variables = g_environ_setenv (variables, "ECFS_EVENT", event, TRUE);
    variables = g_environ_setenv (variables, "ECFS_ARCHIVE", self->archive->directory, TRUE);
    variables = g_environ_setenv (variables, "ECFS_ENDPOINT", endpoint, TRUE);
    return g_environ_setenv (variables, "ECFS_REASON", reason, TRUE);
}

/* No shell sees the words: what a server said is an argument's content, whatever it looks like. */
static void run_hook (EcfsWatch *self, const char *event, const char *endpoint, const char *reason)
{
    g_autoptr (GError) error = NULL;
    g_auto (GStrv) words = NULL;
    int n_words;
    if (!g_shell_parse_argv (self->archive->config->hook, &n_words, &words, &error)) { /* it was checked when parsed */
        g_warning ("hook: %s", error->message);
        return;
    }
    g_autoptr (GPtrArray) arguments = g_ptr_array_new ();
    for (char **word = words; *word != NULL; word++)
        g_ptr_array_add (arguments, *word);
    g_ptr_array_add (arguments, (char *) event);
    g_ptr_array_add (arguments, self->archive->directory);
    g_ptr_array_add (arguments, (char *) endpoint);
    g_ptr_array_add (arguments, NULL);
    g_auto (GStrv) variables = environment (self, event, endpoint, reason);
    if (!g_spawn_async ("/", (char **) arguments->pdata, variables,
                        G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL,
                        &self->child, &error)) {
        self->child = 0;
        g_warning ("hook %s: %s", words[0], error->message);
        return;
    }
    self->child_us = ecfs_now_us ();
}

/* One command at a time, and none for ever. */
static bool is_idle (EcfsWatch *self)
{
    int status = 0;
    if (self->child == 0)
        return true;
    pid_t ended = waitpid (self->child, &status, WNOHANG);
    if (ended == 0 && ecfs_now_us () - self->child_us > RUN_US) {
        (void) kill (self->child, SIGKILL); /* a child that is not waited for yet: the number is its own */
        g_warning ("hook: the command took longer than %d s and was killed", (int) (RUN_US / G_USEC_PER_SEC));
    }
    if (ended == 0)
        return false;
    if (ended == self->child && status != 0)
        g_warning ("hook: the command ended with status %d", WIFEXITED (status) ? WEXITSTATUS (status) : -1);
    self->child = 0;
    return true;
}

static bool is_due (EcfsWatch *self, const Seen *seen)
{
    return self->archive->config->hook != NULL && seen->down != seen->told &&
           (seen->told_us == 0 || ecfs_now_us () - seen->told_us >= REST_US) && is_idle (self);
}

static void told (Seen *seen)
{
    seen->told = seen->down;
    seen->told_us = ecfs_now_us ();
}

/* Looking */

/* Returns whether something is to be noted. */
static bool look_at (EcfsWatch *self, const EcfsArchiveEndpoint *endpoint, Seen *seen)
{
    char text[ECFS_UUID_TEXT_SIZE];
    EcfsEndpointHealth health = {0};
    ecfs_endpoint_health (endpoint->endpoint, &health);
    int64_t since = noted (self->notes, &endpoint->uuid);
    bool changes = health.down ? since == 0 : since > 0 && health.connected;
    ecfs_uuid_text (&endpoint->uuid, text);
    if (changes && health.down) {
        g_key_file_set_int64 (self->notes, GROUP, text, health.down_since_s);
    } else if (changes) {
        (void) g_key_file_remove_key (self->notes, GROUP, text, NULL); /* it is there */
    }
    if (health.down || health.connected)
        seen->down = health.down;
    if (is_due (self, seen)) {
        run_hook (self, seen->down ? "down" : "up", endpoint->name, health.reason == NULL ? "" : health.reason);
        told (seen);
    }
    ecfs_endpoint_health_clear (&health);
    return changes;
}

static void look_for_damage (EcfsWatch *self)
{
    if (self->archive->config->hook == NULL)
        return;
    g_autoptr (GArray) repairs = ecfs_catalog_repairs (self->archive->catalog, 0, NULL); /* who uses it tells errors */
    self->damage.down = repairs != NULL && repairs->len > 0;
    if (!self->damage.down)
        self->damage.told = false; /* nobody wants to know that there is none */
    if (!is_due (self, &self->damage))
        return;
    run_hook (self, "damaged", "", g_array_index (repairs, EcfsRepairRow, 0).reason);
    told (&self->damage);
}

static void look (void *user)
{
    EcfsWatch *self = user;
    bool changes = false;
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        if (endpoint->endpoint != NULL && endpoint->state != ECFS_ENDPOINT_REMOVED)
            changes |= look_at (self, endpoint, &self->seen[i]);
    }
    if (changes)
        keep_notes (self);
    look_for_damage (self);
}

EcfsWatch *ecfs_watch_start (EcfsArchive *archive)
{
    EcfsWatch *self = g_new0 (EcfsWatch, 1);
    self->archive = archive;
    self->notes = load_notes (archive);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) /* an earlier mount has told these */
        self->seen[i].down = self->seen[i].told = noted (self->notes, &archive->endpoints[i].uuid) > 0;
    self->ticker = ecfs_ticker_start (LOOK_US, look, self);
    ecfs_key_watch_begin (ecfs_archive_service (archive, ECFS_SERVICE_KEY)); /* its key may be shared later */
    return self;
}

void ecfs_watch_stop (EcfsWatch *self)
{
    if (self == NULL)
        return;
    ecfs_key_watch_end (ecfs_archive_service (self->archive, ECFS_SERVICE_KEY));
    ecfs_ticker_stop (self->ticker);
    g_key_file_unref (self->notes);
    g_free (self);
}
