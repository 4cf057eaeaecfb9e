#include "catalog/compare.h"

#include "catalog/side.h"

/* What counts of an object is what files have of it. */
#define NAMED     "IN (SELECT e.ino FROM DB.entries e)"
#define IN_A_FILE "(SELECT 1 FROM DB.extents x JOIN DB.entries e ON e.ino = x.ino WHERE x.object = o.id)"

/* Rows of a catalog that is attached as DB. */
typedef struct Part {
    const char *what;
    const char *rows;
    bool may_have_more; /* the first of the two */
} Part;

static const Part parts[] = {
    {"names", "SELECT e.parent, e.name, e.ino FROM DB.entries e", false},
    {"attributes",
     "SELECT i.ino, i.mode, i.uid, i.gid, i.rdev, i.committed_size, i.data_bytes, i.code, i.target FROM DB.inodes i "
     "WHERE i.ino " NAMED,
     false},
    {"extended attributes", "SELECT x.ino, x.name, x.value FROM DB.xattrs x WHERE x.ino " NAMED, false},
    {"what files consist of",
     "SELECT x.ino, x.start, x.length, o.uuid, x.object_start FROM DB.extents x JOIN DB.objects o ON o.id = x.object "
     "WHERE x.ino " NAMED,
     false},
    {"objects",
     "SELECT o.uuid, o.code, o.size, o.segment_bytes, o.block_bytes, o.header_bytes, o.digest, o.sha256, o.seal, "
     "o.kind FROM DB.objects o WHERE EXISTS " IN_A_FILE,
     false},
    {"where stripes are",
     "SELECT o.uuid, s.idx, s.instance, p.uuid, s.size, s.digest FROM DB.stripes s JOIN DB.objects o ON o.id = "
     "s.object JOIN DB.endpoints p ON p.id = s.endpoint WHERE EXISTS " IN_A_FILE,
     false},
    {"marks", "SELECT m.name, m.epoch, m.sequence FROM DB.marks m", false},
    {"settings", "SELECT s.key, s.value FROM DB.settings s", false},
    {"codes", "SELECT c.code, c.parameters FROM DB.codes c", false},
    {"endpoints", "SELECT p.uuid FROM DB.endpoints p", true},
    {"what was deleted", "SELECT d.object, d.idx, d.instance FROM DB.deletions d", true},
};

enum { FORTH, BACK, N_WAYS };

static char *rows_of (const Part *part, const char *db)
{
    g_auto (GStrv) pieces = g_strsplit (part->rows, "DB.", -1);
    return g_strjoinv (db, pieces);
}

/* Whether one has rows of it that the other has not. */
static char *make_question (const Part *part, unsigned way)
{
    static const char *const dbs[] = {"main.", "other."};
    g_autofree char *left = rows_of (part, dbs[way]), *right = rows_of (part, dbs[1 - way]);
    return g_strdup_printf ("SELECT EXISTS (%s EXCEPT %s)", left, right);
}

static bool ask (EcfsSide *side, size_t question, bool *ret_differs, GError **error)
{
    EcfsQuery *query = ecfs_side_query (side, question, NULL, 0, error);
    bool asked = query != NULL && ecfs_side_step (side, query, error) == 1;
    *ret_differs = asked && ecfs_column_number (query, 0) != 0;
    ecfs_query_end (&query);
    return asked;
}

static bool compare (EcfsSide *side, const char **ret_difference, GError **error)
{
    *ret_difference = NULL;
    for (size_t i = 0; i < G_N_ELEMENTS (parts) && *ret_difference == NULL; i++) {
        bool more = false, less;
        if ((!parts[i].may_have_more && !ask (side, i * N_WAYS + FORTH, &more, error)) ||
            !ask (side, i * N_WAYS + BACK, &less, error))
            return false;
        *ret_difference = more || less ? parts[i].what : NULL;
    }
    return true;
}

bool ecfs_catalogs_compare (const char *path, const char *other, const char **ret_difference, GError **error)
{
    EcfsSide side = {.db = NULL};
    g_autoptr (GPtrArray) questions = g_ptr_array_new_with_free_func (g_free);
    for (size_t i = 0; i < G_N_ELEMENTS (parts); i++)
        for (unsigned way = 0; way < N_WAYS; way++)
            g_ptr_array_add (questions, make_question (&parts[i], way));
    g_auto (GStrv) quotes = g_strsplit (other, "'", -1);
    g_autofree char *quoted = g_strjoinv ("''", quotes);
    g_autofree char *setup = g_strdup_printf ("ATTACH '%s' AS other;", quoted);
    bool good = ecfs_side_open (&side, path, SQLITE_OPEN_READWRITE, setup, (const char *const *) questions->pdata,
                                questions->len, error) &&
                compare (&side, ret_difference, error);
    ecfs_side_close (&side);
    return good;
}
