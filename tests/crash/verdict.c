#include "verdict.h"

#include "actor.h"
#include "model.h"
#include "verbs.h"

#include "../catalog/check_db.h"
#include "archive/key_shares.h"
#include "catalog/journal_file.h"
#include "ecfs/ecfs.h"
#include "object/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Judge {
    const Case *fact;
    Progress *progress;
    Actor actor;
} Judge;

static bool wrong (Judge *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* The first counts. Returns false. */
static bool wrong (Judge *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    if (self->progress->verdict[0] == '\0')
        g_vsnprintf (self->progress->verdict, sizeof self->progress->verdict, format, arguments);
    va_end (arguments);
    return false;
}

/* The tree */

static bool has_failed (const Judge *self, unsigned i)
{
    return i < self->progress->n_done && self->progress->codes[i] != 0;
}

/* The model after the first @n operations of the script. */
static Model *model_after (const Judge *self, unsigned n)
{
    Model *model = model_new ();
    for (unsigned i = 0; i < n; i++)
        model_apply (model, self->fact->script->pdata[i], has_failed (self, i));
    return model;
}

/* How many operations cannot be missing. */
static unsigned count_durable (const Judge *self)
{
    unsigned n_durable = 0;
    g_autoptr (Model) model = model_new ();
    for (unsigned i = 0; i < self->progress->n_done; i++) {
        const Op *op = self->fact->script->pdata[i];
        if (!has_failed (self, i) && model_makes_durable (model, op))
            n_durable = i + 1;
        model_apply (model, op, has_failed (self, i));
    }
    return n_durable;
}

static bool judge_tree (Judge *self, GHashTable *tree, const char *when)
{
    unsigned n = self->progress->n_begun, n_durable = count_durable (self);
    g_autofree char *first = NULL;
    g_autoptr (Model) all = model_after (self, n);
    for (unsigned i = n;; i--) {
        g_autoptr (Model) model = model_after (self, i);
        if (i < n)
            model_begin (model, self->fact->script->pdata[i]);
        g_autofree char *difference = model_match (model, i < n ? all : model, tree);
        if (difference == NULL)
            return true;
        if (first == NULL)
            first = g_steal_pointer (&difference);
        if (i == n_durable)
            return wrong (self, "%s: none of the trees after %u to %u operations; after all of them: %s; after %u: %s",
                          when, n_durable, n, first, i, difference != NULL ? difference : first);
    }
}

bool verdict_same (GHashTable *before, GHashTable *after, const char *when, Progress *progress)
{
    Judge self = {.progress = progress};
    GHashTableIter iter;
    gpointer key, value;
    if (g_hash_table_size (before) != g_hash_table_size (after))
        return wrong (&self, "there are %u names, and %u %s", g_hash_table_size (before), g_hash_table_size (after),
                      when);
    g_hash_table_iter_init (&iter, before);
    while (g_hash_table_iter_next (&iter, &key, &value)) {
        const Found *a = value, *b = g_hash_table_lookup (after, key);
        if (b == NULL || a->ino != b->ino || a->mode != b->mode || g_strcmp0 (a->note, b->note) != 0)
            return wrong (&self, "%s: is another %s", (char *) key, when);
        if (a->mtime_s != b->mtime_s)
            return wrong (&self, "%s: its time is %" PRId64 " s, and %" PRId64 " s %s", (char *) key, a->mtime_s,
                          b->mtime_s, when);
        if (a->content != NULL && !g_bytes_equal (a->content, b->content))
            return wrong (&self, "%s: its %zu bytes are others %s", (char *) key, g_bytes_get_size (a->content), when);
    }
    return true;
}

static bool judge_same (Judge *self, GHashTable *before, GHashTable *after)
{
    return verdict_same (before, after, "when all is stored", self->progress);
}

/* What readers got */

static bool judge_reads (Judge *self)
{
    g_autoptr (Model) model = model_new ();
    for (unsigned i = 0; i < self->progress->n_done; i++) {
        const Op *op = self->fact->script->pdata[i];
        GBytes *content = op->kind == OP_READ ? model_content (model, op->path) : NULL;
        int code = self->progress->codes[i];
        if (content != NULL && code == 0 && self->progress->hashes[i] != script_hash (content))
            return wrong (self, "operation %u: wrong bytes are read of %s", i, op->path);
        /* Where it may be an old copy it does not open for changes, and the actor opens it for nothing else. */
        if (content != NULL && code != 0 && code != ESTALE && !self->fact->may_not_read)
            return wrong (self, "operation %u: %s cannot be read: %s", i, op->path, g_strerror (code));
        model_apply (model, op, has_failed (self, i));
    }
    return true;
}

/* interrupted/ */

static GPtrArray *interrupted_files (const char *base)
{
    GPtrArray *contents = g_ptr_array_new_with_free_func ((GDestroyNotify) g_bytes_unref);
    g_autofree char *path = g_build_filename (base, "archive/interrupted", NULL);
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *name;
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *file = g_build_filename (path, name, NULL);
        char *bytes;
        gsize size;
        g_assert_true (g_file_get_contents (file, &bytes, &size, NULL));
        g_ptr_array_add (contents, g_bytes_new_take (bytes, size));
    }
    return contents;
}

static bool may_be_there (const Judge *self, GBytes *content)
{
    unsigned n = self->progress->n_begun;
    g_autoptr (Model) last = model_after (self, n);
    for (unsigned i = count_durable (self); i <= n; i++) {
        g_autoptr (Model) model = model_after (self, i);
        if (model_may_be_interrupted (model, i + 1 == n ? last : NULL, content))
            return true;
    }
    return false;
}

static bool judge_interrupted (Judge *self)
{
    g_autoptr (GPtrArray) contents = interrupted_files (self->fact->base);
    if (self->fact->power)
        return true; /* whatever of them reached the disk */
    for (guint i = 0; i < contents->len; i++)
        if (!may_be_there (self, contents->pdata[i]))
            return wrong (self, "interrupted/ has %zu bytes that were flushed, or never written",
                          g_bytes_get_size (contents->pdata[i]));
    bool under_way = self->progress->n_begun > self->progress->n_done;
    const Op *op = under_way ? self->fact->script->pdata[self->progress->n_done] : NULL;
    g_autoptr (Model) model = model_after (self, self->progress->n_done);
    g_autofree char *lack = model_match_interrupted (model, op, contents);
    return lack == NULL || wrong (self, "interrupted/ lacks %s", lack);
}

/* Stripes */

static bool has_begun (const Judge *self, OpKind kind)
{
    for (unsigned i = 0; i < self->progress->n_begun; i++)
        if (((const Op *) self->fact->script->pdata[i])->kind == kind)
            return true;
    return false;
}

static void add_files_below (const char *path, const char *prefix, GHashTable *names)
{
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *name;
    EcfsJournalFile file;
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *child = g_build_filename (path, name, NULL);
        g_autofree char *relative = g_strconcat (prefix, name, NULL);
        /* What was being written when an endpoint was added, or got a key file, is looked at by nobody. */
        if (g_str_equal (name, "salvage") || g_str_has_prefix (name, ECFS_MARKER_NAME ".") ||
            g_str_has_prefix (name, "salvage-") || g_str_equal (name, ECFS_KEYS_DIRECTORY) ||
            g_str_has_prefix (name, ECFS_KEYS_DIRECTORY "-"))
            continue;
        if (g_file_test (child, G_FILE_TEST_IS_DIR)) {
            g_autofree char *below = g_strconcat (relative, "/", NULL);
            add_files_below (child, below, names);
        } else if (!g_str_equal (name, ECFS_MARKER_NAME) &&
                   !ecfs_journal_file_name_parse (strchr (relative, ' ') + 1, &file)) {
            g_hash_table_add (names, g_steal_pointer (&relative));
        }
    }
}

/* What was to be deleted at an endpoint that was taken out before stays there, for the user. */
static GHashTable *stored_names (const Judge *self)
{
    GHashTable *names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    for (unsigned i = 0; i < N_PLACES; i++) {
        g_autofree char *path = endpoint_path (&self->actor.fixture, i);
        g_autofree char *name = g_strdup_printf ("e%u", i), *prefix = g_strconcat (name, " ", NULL);
        if (!(has_begun (self, OP_REPLACE) || has_begun (self, OP_TAKE_OUT)) ||
            ecfs_archive_endpoint_named (self->actor.fixture.archive, name, NULL) != NULL)
            add_files_below (path, prefix, names);
    }
    return names;
}

/* Endpoints are named as their directories are. */
static char *stripe_name (const Judge *self, const EcfsUuid *object, const EcfsStripeRow *stripe)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (object, stripe->index, stripe->instance, name);
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self->actor.fixture.archive, stripe->endpoint);
    return g_strdup_printf ("%s %s", endpoint->name, name);
}

/* A log is in the catalog before its first byte is at an endpoint, and a copy of it may have ended before that. */
static bool may_lack_file (const EcfsObjectRow *object, const EcfsStripeRow *stripe)
{
    return object->kind == ECFS_OBJECT_LOG && (object->size == 0 || ecfs_stripe_lacks (object, stripe, 1024));
}

static bool judge_stripes (Judge *self)
{
    g_autoptr (GHashTable) names = stored_names (self);
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->actor.fixture.archive);
    g_autoptr (GPtrArray) objects = ecfs_catalog_objects (catalog, 0, 10000, &error);
    g_assert_no_error (error);
    for (guint i = 0; i < objects->len; i++) {
        const EcfsObjectRow *object = objects->pdata[i];
        for (guint j = 0; j < object->stripes->len; j++) {
            const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, j);
            g_autofree char *name = stripe_name (self, &object->uuid, stripe);
            if (!g_hash_table_remove (names, name) && !may_lack_file (object, stripe))
                return wrong (self, "the catalog has a stripe that is not there: %s", name);
        }
    }
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init (&iter, names);
    /* No fsync follows a removal: what the power brings back is left to ecfs-fsck, as is what was to be deleted when
     * the archive directory was lost. */
    bool may_stay = self->fact->power || has_begun (self, OP_RECOVER);
    if (!may_stay && g_hash_table_iter_next (&iter, &key, NULL))
        return wrong (self, "%u files at endpoints are no stripes of the catalog: %s", g_hash_table_size (names),
                      (char *) key);
    return true;
}

static bool judge_drained (Judge *self)
{
    EcfsTotals totals;
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->actor.fixture.archive);
    do {
        g_usleep (500);
        g_assert_true (ecfs_catalog_totals (catalog, &totals, NULL));
    } while (totals.n_deletions > 0 && ecfs_now_us () < deadline_us);
    if (totals.n_deletions > 0)
        return wrong (self, "%" PRIu64 " deletions are not worked off", totals.n_deletions);
    if (totals.n_not_full > 0 && !self->fact->may_lack_stripes)
        return wrong (self, "%" PRIu64 " objects are not full", totals.n_not_full);
    return judge_stripes (self);
}

/* The catalog */

static bool judge_sql (Judge *self, sqlite3 *db, const char *what, const char *condition)
{
    sqlite3_stmt *query = NULL;
    g_autofree char *sql = g_strdup_printf ("SELECT %s FROM counters", condition);
    g_assert_cmpint (sqlite3_prepare_v2 (db, sql, -1, &query, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_step (query), ==, SQLITE_ROW);
    bool fine = sqlite3_column_int (query, 0) == 1;
    sqlite3_finalize (query);
    return fine || wrong (self, "the catalog's %s", what);
}

static bool judge_catalog (Judge *self)
{
    static const char *const conditions[][2] = {
        {"number of inodes is wrong", "n_inodes = (SELECT count(*) FROM inodes)"},
        {"number of objects is wrong", "n_objects = (SELECT count(*) FROM objects)"},
        {"number of bytes is wrong", "content_bytes = (SELECT ifnull(sum(size), 0) FROM objects)"},
        {"number of stripe bytes is wrong", "stripe_bytes = (SELECT ifnull(sum(size), 0) FROM stripes)"},
        {"number of staged files is wrong", "n_staged = (SELECT count(*) FROM staging)"},
        {"number of deletions is wrong", "n_deletions = (SELECT count(*) FROM deletions)"},
        {"journal has gaps", "sequence = (SELECT max(seq) FROM journal) AND "
                             "(SELECT max(seq) - min(seq) + 1 = count(*) FROM journal)"},
        {"staging is not empty", "n_staged = 0"},
        {"intents were not ended", "NOT EXISTS (SELECT * FROM intents)"},
        {"unlinked inodes stay", "NOT EXISTS (SELECT * FROM inodes WHERE nlink = 0)"},
        {"links are counted wrong", "NOT EXISTS (SELECT * FROM inodes WHERE mode & 61440 = 32768 AND nlink <> "
                                    "(SELECT count(*) FROM entries WHERE entries.ino = inodes.ino))"},
    };
    g_autofree char *path = g_build_filename (self->fact->base, "archive/catalog.sqlite", NULL);
    sqlite3 *db = NULL;
    bool fine = true;
    check_integrity (path);
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    for (size_t i = 0; fine && i < G_N_ELEMENTS (conditions); i++)
        fine = judge_sql (self, db, conditions[i][0], conditions[i][1]);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
    return fine;
}

static bool judge_when_stored (Judge *self, GHashTable *tree)
{
    Fixture *fixture = &self->actor.fixture;
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    wait_until_stored (fixture);
    while (count_in (fixture, "staging") > 0 && ecfs_now_us () < deadline_us)
        g_usleep (500);
    if (count_in (fixture, "staging") > 0)
        return wrong (self, "staging/ is not empty when all is stored");
    g_autoptr (GHashTable) stored = actor_tree (&self->actor);
    return judge_same (self, tree, stored) && judge_interrupted (self);
}

/* What a crash has ended of an endpoint's last days goes on when it is asked for again. */
static bool judge_resumed (Judge *self)
{
    for (unsigned i = 0; i < self->progress->n_begun; i++) {
        const Op *op = self->fact->script->pdata[i];
        bool resumes = op->kind == OP_EMPTY || op->kind == OP_TAKE_OUT || op->kind == OP_REPLACE;
        int code = resumes ? actor_do (&self->actor, op) : 0;
        if (code != 0 && code != ENOENT) /* it is none of the archive's any more */
            return wrong (self, "operation %u does not end what it had begun: %s", i, g_strerror (code));
    }
    return true;
}

/* What was damaged is still there, or not: ecfs-fsck -y leaves no difference. */
static bool judge_damage (Judge *self)
{
    if (!has_begun (self, OP_DAMAGE) && !has_begun (self, OP_LOSE))
        return true;
    unsigned flags = ECFS_FSCK_DEEP | (self->fact->healed ? 0 : ECFS_FSCK_REPAIR);
    g_autofree char *left = verbs_check (self->fact->base, flags);
    return left == NULL || wrong (self, "damage stays: %s", left);
}

void verdict_find (const Case *fact, Progress *progress)
{
    Judge self = {.fact = fact, .progress = progress};
    actor_show_endpoints (fact->base);
    actor_open (&self.actor, fact->base);
    g_autoptr (GHashTable) tree = actor_tree (&self.actor);
    bool fine = judge_reads (&self) && judge_tree (&self, tree, "after the crash") && judge_when_stored (&self, tree) &&
                judge_resumed (&self);
    actor_close (&self.actor);
    if (!fine || !judge_catalog (&self) || !judge_damage (&self))
        return;
    actor_open (&self.actor, fact->base);                  /* which works off deletions at once */
    ecfs_archive_end_repairs (self.actor.fixture.archive); /* no pack is on its way while endpoints are looked at */
    g_autoptr (GHashTable) again = actor_tree (&self.actor);
    (void) (judge_same (&self, tree, again) && judge_drained (&self)); /* the verdict says it */
    actor_close (&self.actor);
}

/* Another machine's */

/* The model after each number of operations, from the last on that was answered with "stored". */
static GPtrArray *models_since_stored (const Judge *self)
{
    unsigned n = self->progress->n_begun, n_stored = self->fact->n_before;
    for (unsigned i = 0; i < self->progress->n_done; i++)
        if (((const Op *) self->fact->script->pdata[i])->kind == OP_WAIT && !has_failed (self, i))
            n_stored = MAX (n_stored, i + 1);
    GPtrArray *models = g_ptr_array_new_with_free_func ((GDestroyNotify) model_free);
    for (unsigned i = n_stored; i <= n; i++) {
        Model *model = model_after (self, i);
        if (i < n)
            model_begin (model, self->fact->script->pdata[i]);
        g_ptr_array_add (models, model);
    }
    return models;
}

static void judge_recovered (Judge *self, GHashTable *tree)
{
    g_autoptr (GPtrArray) models = models_since_stored (self);
    g_autofree char *first = NULL;
    for (guint i = models->len; i-- > 0;) {
        g_autofree char *difference = model_match_recovered (models, i, tree);
        if (difference == NULL)
            return;
        if (i == 0)
            (void) wrong (self, "recovered elsewhere: none of the trees since what was stored; after all: %s; then: %s",
                          first == NULL ? difference : first, difference);
        if (first == NULL)
            first = g_steal_pointer (&difference);
    }
}

void verdict_find_recovered (const Case *fact, Progress *progress)
{
    Judge self = {.fact = fact, .progress = progress};
    actor_open (&self.actor, fact->base);
    g_autoptr (GHashTable) tree = actor_tree (&self.actor);
    judge_recovered (&self, tree);
    actor_close (&self.actor);
    if (progress->verdict[0] == '\0')
        (void) judge_catalog (&self); /* the verdict says it */
}
