#include "verbs/prune_note.h"

#include <inttypes.h>

typedef struct Look {
    const char *name;
    EcfsPruneNotes *notes;
    GString *text;
} Look;

static void on_listed (void *user, const EcfsListed *listed)
{
    Look *self = user;
    const bool is_running = g_str_equal (listed->name, ECFS_PRUNE_NOTE);
    if (is_running && self->notes->running_at == NULL)
        self->notes->running_at = g_strdup (self->name);
    if (is_running || g_str_equal (listed->name, ECFS_PRUNE_DONE_NOTE))
        g_string_append_printf (self->text, "%s %s %" PRId64 "\n", self->name, listed->name, listed->mtime_s);
}

void ecfs_prune_notes_look (EcfsPruneNotes *self, EcfsArchive *archive)
{
    *self = (EcfsPruneNotes){.text = NULL};
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        g_autoptr (GString) text = g_string_new (NULL);
        Look look = {.name = endpoint->name, .notes = self, .text = text};
        if (endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint) ||
            ecfs_endpoint_retain_us (endpoint->endpoint) == ECFS_RETAIN_NOT)
            continue;
        /* Where there is none, or nobody answers, the others tell. */
        (void) !ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SCRATCH_DIRECTORY, on_listed, &look, NULL);
        g_autofree char *before = self->text;
        self->text = g_strconcat (before == NULL ? "" : before, text->str, NULL);
    }
}

void ecfs_prune_notes_clear (EcfsPruneNotes *self)
{
    g_clear_pointer (&self->text, g_free);
    g_clear_pointer (&self->running_at, g_free);
}
