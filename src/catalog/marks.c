#include "catalog/marks.h"

#include "catalog/content_priv.h"
#include "util/units.h"

#define BATCH 4096 /* stripes of one operation */

bool ecfs_mark_check (const char *name, GError **error)
{
    int64_t ns;
    size_t size = strlen (name);
    bool good = size > 0 && size <= ECFS_MARK_MAX && g_ascii_isalnum (name[0]);
    for (size_t i = 0; i < size && good; i++)
        good = g_ascii_isalnum (name[i]) || strchr ("._-", name[i]) != NULL;
    if (!good)
        return ecfs_fail (
            error, EINVAL,
            "this is no name of a mark: up to %d letters, digits, '.', '_' and '-', the first a letter or "
            "digit",
            ECFS_MARK_MAX);
    return !ecfs_parse_moment (name, &ns) ||
           ecfs_fail (error, EINVAL, "%s: this is a moment, and so no name of a mark", name);
}

static bool read_mark (EcfsQuery *query, EcfsMark *ret_mark, GError **error)
{
    uint64_t epoch;
    const char *name = ecfs_column_text (query, 0);
    *ret_mark = (EcfsMark){.time_ns = ecfs_column_number (query, 3)};
    if (name == NULL || !ecfs_mark_check (name, NULL) || !ecfs_column_u64 (query, 1, UINT32_MAX, &epoch) ||
        !ecfs_column_u64 (query, 2, INT64_MAX, &ret_mark->sequence))
        return ecfs_bad_row (error, "marks", ecfs_column_number (query, 2), "is impossible");
    ret_mark->epoch = (uint32_t) epoch;
    g_strlcpy (ret_mark->name, name, sizeof ret_mark->name);
    return true;
}

static GArray *list_marks (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) marks = g_array_new (false, true, sizeof (EcfsMark));
    autoquery *query = ecfs_query (self, STMT_MARK_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsMark mark;
        if (!read_mark (query, &mark, error))
            return NULL;
        g_array_append_val (marks, mark);
    }
    return found < 0 ? NULL : g_steal_pointer (&marks);
}

GArray *ecfs_catalog_marks (EcfsCatalog *self, GError **error)
{
    return READ (self, list_marks (self, error));
}

bool ecfs_catalog_mark_bytes (EcfsCatalog *self, const EcfsMark *mark, uint64_t *ret_bytes, GError **error)
{
    int64_t bytes = 0;
    bool good = READ (self, QUERY_NUMBER (self, MARK_BYTES, &bytes, error, INT (mark->sequence))) >= 0;
    *ret_bytes = (uint64_t) bytes;
    return good;
}

/* Of a shared catalog a number that is another when others have removed one. */
static unsigned count_removed (EcfsCatalog *self)
{
    unsigned n = self->n_marks_removed;
    g_autoptr (GArray) marks = self->is_member ? list_marks (self, NULL) : NULL; /* else they are looked at later */
    for (guint i = 0; marks != NULL && i < marks->len; i++)
        n += (unsigned) g_array_index (marks, EcfsMark, i).sequence + 1;
    return n;
}

unsigned ecfs_catalog_marks_removed (EcfsCatalog *self)
{
    return READ (self, count_removed (self));
}

static int find_mark (EcfsCatalog *self, const char *name, EcfsMark *ret_mark, GError **error)
{
    autoquery *query = QUERY (self, MARK_GET, error, TEXT (name));
    int found = ecfs_query_step (self, query, error);
    if (found == 1 && !read_mark (query, ret_mark, error))
        return -1;
    return found;
}

static bool get_mark (EcfsCatalog *self, const char *name, EcfsMark *ret_mark, GError **error)
{
    int found = find_mark (self, name, ret_mark, error);
    return found == 1 ||
           (found == 0 && ecfs_fail (error, ENOENT, "there is no mark %s: 'ecfs mark --list' shows them", name));
}

bool ecfs_catalog_mark_find (EcfsCatalog *self, const char *name, EcfsMark *ret_mark, GError **error)
{
    return READ (self, get_mark (self, name, ret_mark, error));
}

static bool put_mark (EcfsCatalog *self, const EcfsMark *mark, GError **error)
{
    return EXEC (self, MARK_SET, error, TEXT (mark->name), INT (mark->epoch), INT (mark->sequence),
                 INT (mark->time_ns));
}

static bool add_mark (EcfsCatalog *self, const char *name, GError **error)
{
    EcfsMark mark;
    int found = find_mark (self, name, &mark, error);
    if (found != 0)
        return found == 1 &&
               ecfs_fail (error, EEXIST, "there is a mark %s already: 'ecfs mark --remove' ends it", name);
    mark = (EcfsMark){.epoch = self->epoch, .time_ns = ecfs_real_ns ()};
    if (!ecfs_sequence_next (self, &mark.sequence, error))
        return false;
    g_strlcpy (mark.name, name, sizeof mark.name);
    ecfs_journal_put_mark (self->record, mark.name, mark.epoch, mark.sequence, mark.time_ns);
    return put_mark (self, &mark, error);
}

bool ecfs_catalog_mark_add (EcfsCatalog *self, const char *name, GError **error)
{
    return ecfs_mark_check (name, error) && CHANGE_DURABLE (self, error, add_mark (self, name, error));
}

static bool remove_mark (EcfsCatalog *self, const char *name, GError **error)
{
    EcfsMark mark;
    if (!get_mark (self, name, &mark, error))
        return false;
    self->n_marks_removed++;
    ecfs_journal_put_mark_removed (self->record, name);
    return EXEC (self, MARK_DELETE, error, TEXT (name));
}

bool ecfs_catalog_mark_remove (EcfsCatalog *self, const char *name, GError **error)
{
    return CHANGE_DURABLE (self, error, remove_mark (self, name, error));
}

static bool settle (EcfsCatalog *self, int64_t *after, bool *ret_more, GError **error)
{
    int64_t last = 0;
    int found = QUERY_NUMBER (self, DELETIONS_NEXT, &last, error, INT (*after), INT (BATCH));
    if (found < 0 || !EXEC (self, MARKED_SETTLE, error, INT (*after), INT (last)))
        return false;
    *ret_more = last > *after;
    *after = MAX (last, *after);
    return true;
}

bool ecfs_catalog_marks_settle (EcfsCatalog *self, int64_t *after, bool *ret_more, GError **error)
{
    int64_t last = *after;
    *ret_more = false;
    bool settled = CHANGE (self, error, (last = *after, settle (self, &last, ret_more, error)));
    *after = settled ? last : *after;
    return settled;
}

bool ecfs_mark_restore (EcfsCatalog *self, const EcfsJournalItem *item, GError **error)
{
    EcfsMark mark = {.epoch = item->epoch, .sequence = item->sequence, .time_ns = item->attr.mtime_ns};
    g_autofree char *name = g_strndup ((const char *) item->name.bytes, item->name.size);
    if (strlen (name) != item->name.size || !ecfs_mark_check (name, NULL))
        return ecfs_fail (error, EBADMSG, "the name of a mark is impossible");
    if (item->type == ECFS_JOURNAL_MARK_REMOVED)
        return EXEC (self, MARK_DELETE, error, TEXT (name));
    g_strlcpy (mark.name, name, sizeof mark.name);
    return put_mark (self, &mark, error);
}
