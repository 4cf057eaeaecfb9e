#include "verbs/prune_note.h"

#include <inttypes.h>
#include <string.h>

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
    *self = (EcfsPruneNotes){.text = g_strdup ("")};
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        g_autoptr (GString) text = g_string_new (NULL);
        Look look = {.name = endpoint->name, .notes = self, .text = text};
        if (endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
            continue;
        GError *why = NULL;
        /* Where nobody answers, the others tell. */
        if (!ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SCRATCH_DIRECTORY, on_listed, &look, &why) &&
            why->code != ENOENT)
            g_string_append_printf (text, "%s ?\n", endpoint->name);
        g_clear_error (&why);
        g_autofree char *before = self->text;
        self->text = g_strconcat (before, text->str, NULL);
    }
}

bool ecfs_prune_notes_are_new (const EcfsPruneNotes *self, const char *before)
{
    g_auto (GStrv) were = g_strsplit (before, "\n", -1), are = g_strsplit (self->text, "\n", -1);
    for (char **line = are; *line != NULL; line++) {
        g_autofree char *silent = g_strdup_printf ("%.*s ?", (int) strcspn (*line, " "), *line);
        if (**line != '\0' && !g_str_has_suffix (*line, " ?") && !g_strv_contains ((const char *const *) were, *line) &&
            !g_strv_contains ((const char *const *) were, silent))
            return true;
    }
    return false;
}

int64_t ecfs_prune_notes_last (const char *text)
{
    int64_t last_s = 0;
    g_auto (GStrv) lines = g_strsplit (text == NULL ? "" : text, "\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        const char *word = strrchr (*line, ' ');
        int64_t time_s = word == NULL ? 0 : g_ascii_strtoll (word, NULL, 10); /* 0 where nobody answered */
        last_s = MAX (last_s, time_s);
    }
    return last_s;
}

void ecfs_prune_notes_clear (EcfsPruneNotes *self)
{
    g_clear_pointer (&self->text, g_free);
    g_clear_pointer (&self->running_at, g_free);
}
