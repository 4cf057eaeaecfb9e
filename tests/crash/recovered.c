#include "recovered.h"

#include "actor.h"
#include "model.h"

#include "ecfs/ecfs.h"
#include "verbs.h"

static bool check (const Recovered *self, unsigned flags, const char *what, Progress *progress)
{
    g_autofree char *left = verbs_check (self->base, flags);
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

/* What some endpoints lose of the journal, and what others do afterwards, is mended in between. */
static bool blot_all (const Recovered *self, Progress *progress)
{
    for (unsigned i = 0; self->n_blot > 0 && i < N_ENDPOINTS; i++) {
        progress->n_blots++;
        verbs_blot (self->base, (self->seed + i) % N_ENDPOINTS, self->seed + i);
        if (((i + 1) % self->n_blot == 0 || i + 1 == N_ENDPOINTS) &&
            !check (self, ECFS_FSCK_DEEP | ECFS_FSCK_REPAIR, "ecfs-fsck -y of the journal", progress))
            return false;
    }
    return true;
}

void recovered_judge (const Recovered *self, Progress *progress)
{
    g_autoptr (GHashTable) before = tree_of (self);
    if (!check (self, ECFS_FSCK_DEEP | ECFS_FSCK_REPAIR, "ecfs-fsck -y", progress) ||
        !check (self, ECFS_FSCK_DEEP, "ecfs-fsck after that", progress) || !blot_all (self, progress))
        return;
    g_autoptr (GHashTable) checked = tree_of (self);
    if (!verdict_same (before, checked, "after ecfs-fsck -y", progress) || !self->recover)
        return;
    g_autofree char *wrong = verbs_recover (self->base, self->n_away, self->seed);
    if (wrong != NULL) {
        g_strlcpy (progress->verdict, wrong, sizeof progress->verdict);
        return;
    }
    g_autoptr (GHashTable) recovered = tree_of (self);
    (void) verdict_same (checked, recovered, "after ecfs recover", progress); /* it says it */
}
