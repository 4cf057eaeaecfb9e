#include "recovered.h"

#include "actor.h"
#include "model.h"

#include "archive/recover.h"
#include "ecfs/ecfs.h"

#include <stdio.h>

static bool check (const Recovered *self, unsigned flags, const char *what, Progress *progress)
{
    g_autofree char *left = actor_check (self->base, flags);
    if (left == NULL)
        return true;
    g_snprintf (progress->verdict, sizeof progress->verdict, "%s: %s", what, left);
    return false;
}

static GHashTable *tree_of (const Recovered *self)
{
    Actor actor;
    actor_open (&actor, self->base);
    GHashTable *tree = actor_tree (&actor);
    actor_close (&actor);
    return tree;
}

/* Recovering */

static void ignore_told (void *user, const char *text)
{
    g_string_append_printf (user, "; %s", text);
}

static bool go_on (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    return true;
}

/* Some endpoints go away for good; those that stay are in the configuration. */
static void lose_endpoints (const Recovered *self, EcfsConfig *config)
{
    for (unsigned i = 0; i < self->n_away; i++) {
        guint at = (self->seed * 7 + i) % config->endpoints->len;
        g_ptr_array_remove_index (config->endpoints, at);
    }
}

static bool recover (const Recovered *self, Progress *progress)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_build_filename (self->base, "archive", NULL);
    g_autofree char *lost = g_build_filename (self->base, "archive.lost", NULL);
    g_autofree char *path = g_build_filename (lost, "ecfs.conf", NULL);
    g_autofree char *text = NULL;
    g_assert_cmpint (rename (directory, lost), ==, 0);
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, &error);
    g_assert_no_error (error);
    lose_endpoints (self, config);
    g_autoptr (GString) told = g_string_new (NULL);
    EcfsRecovered sums;
    const EcfsRecover what = {
        .directory = directory, .config = config, .tell = ignore_told, .tick = go_on, .user = told};
    if (!ecfs_archive_recover (&what, &sums, &error))
        g_snprintf (progress->verdict, sizeof progress->verdict, "recover: %s%s", error->message, told->str);
    else if (sums.n_lost > 0 || sums.n_hinted > 0 || sums.n_set_apart > 0 || sums.n_unfinished > 0)
        g_snprintf (progress->verdict, sizeof progress->verdict, "recover did not find all%s", told->str);
    return progress->verdict[0] == '\0';
}

void recovered_judge (const Recovered *self, Progress *progress)
{
    g_autoptr (GHashTable) before = tree_of (self);
    if (!check (self, ECFS_FSCK_DEEP | ECFS_FSCK_REPAIR, "ecfs-fsck -y", progress) ||
        !check (self, ECFS_FSCK_DEEP, "ecfs-fsck after that", progress))
        return;
    g_autoptr (GHashTable) checked = tree_of (self);
    if (!verdict_same (before, checked, "after ecfs-fsck -y", progress) || !self->recover || !recover (self, progress))
        return;
    g_autoptr (GHashTable) recovered = tree_of (self);
    (void) verdict_same (checked, recovered, "after ecfs recover", progress); /* it says it */
}
