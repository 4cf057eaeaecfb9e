#include "archive/watch.h"

#include "archive/archive_priv.h"
#include "archive/key_watch.h"
#include "util/io.h"
#include "util/text.h"
#include "util/ticker.h"

#define GROUP   "down-since"
#define LOOK_US (2 * G_USEC_PER_SEC)

struct EcfsWatch {
    EcfsArchive *archive; /* immutable, as the next two */
    EcfsTicker *ticker;
    EcfsEvents *events;
    GKeyFile *notes; /* the ticker's */
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

/* Looking */

/* What is told of it, with a command to type; g_free () */
static char *down_text (EcfsWatch *self, const EcfsArchiveEndpoint *endpoint, const EcfsEndpointHealth *health)
{
    g_autofree char *directory = ecfs_shell_word (self->archive->directory), *name = ecfs_shell_word (endpoint->name);
    if (!health->down)
        return g_strdup_printf ("endpoint %s answers again", endpoint->name);
    return g_strdup_printf ("%s. To try it now: ecfs endpoint test %s %s",
                            health->reason != NULL ? health->reason : "it does not answer", directory, name);
}

/* Returns whether something is to be noted. */
static bool look_at (EcfsWatch *self, const EcfsArchiveEndpoint *endpoint)
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
    if (health.down || health.connected) {
        g_autofree char *told = down_text (self, endpoint, &health);
        ecfs_events_note (self->events, "down", endpoint->name, health.down ? "so" : NULL, told);
    }
    ecfs_endpoint_health_clear (&health);
    return changes;
}

static void look_for_damage (EcfsWatch *self)
{
    if (!ecfs_events_wanted (self->events))
        return;
    g_autoptr (GArray) repairs = ecfs_catalog_repairs (self->archive->catalog, 0, NULL); /* who uses it tells errors */
    const EcfsRepairRow *first =
        repairs == NULL || repairs->len == 0 ? NULL : &g_array_index (repairs, EcfsRepairRow, 0);
    g_autofree char *directory = ecfs_shell_word (self->archive->directory);
    g_autofree char *told =
        first == NULL
            ? NULL
            : g_strdup_printf ("%u stripes are damaged or gone: %s. To see what is left, and rebuild it now: ecfs "
                               "fsck -y %s",
                               repairs->len, first->reason, directory);
    ecfs_events_note (self->events, "damaged", "", first == NULL ? NULL : "so", told == NULL ? "" : told);
}

static void look (void *user)
{
    EcfsWatch *self = user;
    bool changes = false;
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        if (endpoint->endpoint != NULL && endpoint->state != ECFS_ENDPOINT_REMOVED)
            changes |= look_at (self, endpoint);
    }
    if (changes)
        keep_notes (self);
    look_for_damage (self);
    ecfs_events_step (self->events);
}

EcfsWatch *ecfs_watch_start (EcfsArchive *archive, EcfsEvents *events)
{
    EcfsWatch *self = g_new0 (EcfsWatch, 1);
    self->archive = archive;
    self->events = events;
    self->notes = load_notes (archive);
    self->ticker = ecfs_ticker_start (LOOK_US, look, self);
    if (ecfs_archive_leads (archive))
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
