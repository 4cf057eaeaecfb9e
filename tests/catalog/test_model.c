/*
 * Random operations on the catalog and on a real directory: both must answer the same, and look the same afterwards.
 * Then the journal alone must give the same namespace again. The seed is printed by GLib; give it back with --seed.
 */
#include "catalog/journal.h"
#include "fixture.h"

#include <dirent.h>

#define N_STEPS 4000

static const char *const names[] = {"a", "b", "c", "d"};

typedef struct Model {
    Fixture f;
    int root;          /* directory that the kernel works on */
    bool counts_links; /* its file system counts subdirectories as links */
} Model;

static char *random_path (void)
{
    GString *path = g_string_new (names[g_test_rand_int_range (0, G_N_ELEMENTS (names))]);
    for (int depth = g_test_rand_int_range (0, 4); depth > 0; depth--)
        g_string_append_printf (path, "/%s", names[g_test_rand_int_range (0, G_N_ELEMENTS (names))]);
    return g_string_free (path, FALSE);
}

/* The directory and last name of a path, as the kernel hands them to a file system. Returns 0 or an errno. */
static int split (Model *m, const char *path, uint64_t *ret_parent, const char **ret_name)
{
    const char *slash = strrchr (path, '/');
    g_autofree char *dir = g_strndup (path, slash == NULL ? 0 : (gsize) (slash - path));
    EcfsAttr attr;
    int code = CODE (e, ecfs_catalog_resolve (m->f.catalog, dir, &attr, &e));
    *ret_parent = attr.ino;
    *ret_name = slash == NULL ? path : slash + 1;
    return code != 0 ? code : S_ISDIR (attr.mode) ? 0 : ENOTDIR;
}

static int kernel (int result)
{
    if (result < 0)
        return errno;
    return 0;
}

static void check_same (const char *what, const char *path, const char *other, int expected, int got)
{
    if (expected != got)
        g_test_message ("%s %s %s: the kernel says %s, the catalog says %s", what, path, other, g_strerror (expected),
                        g_strerror (got));
    g_assert_cmpint (got, ==, expected);
}

static void step_make (Model *m, const char *path, uint32_t mode)
{
    uint64_t parent;
    const char *name;
    int got = split (m, path, &parent, &name);
    EcfsNewInode new = {.mode = mode, .target = S_ISLNK (mode) ? "/dev/null" : NULL};
    if (got == 0)
        got = CODE (e, ecfs_catalog_make (m->f.catalog, parent, name, &new, NULL, NULL, &e));
    int result = S_ISDIR (mode)   ? mkdirat (m->root, path, 0755)
                 : S_ISLNK (mode) ? symlinkat ("/dev/null", m->root, path)
                                  : mknodat (m->root, path, mode, 0);
    check_same ("make", path, "", kernel (result), got);
}

static void step_link (Model *m, const char *path, const char *to)
{
    uint64_t parent;
    const char *name;
    EcfsAttr attr;
    int got = CODE (e, ecfs_catalog_resolve (m->f.catalog, path, &attr, &e));
    if (got == 0)
        got = split (m, to, &parent, &name);
    if (got == 0)
        got = CODE (e, ecfs_catalog_link (m->f.catalog, attr.ino, parent, name, NULL, &e));
    check_same ("link", path, to, kernel (linkat (m->root, path, m->root, to, 0)), got);
}

static void step_remove (Model *m, const char *path, bool dir)
{
    uint64_t parent;
    const char *name;
    EcfsAttr attr = {.ino = 0};
    int got = split (m, path, &parent, &name);
    if (got == 0 && dir)
        got = CODE (e, ecfs_catalog_rmdir (m->f.catalog, parent, name, &attr, &e));
    else if (got == 0)
        got = CODE (e, ecfs_catalog_unlink (m->f.catalog, parent, name, &attr, &e));
    check_same ("remove", path, "", kernel (unlinkat (m->root, path, dir ? AT_REMOVEDIR : 0)), got);
    if (got == 0)
        OK (e, ecfs_catalog_drop (m->f.catalog, attr.ino, &e)); /* nothing happens while it has names */
}

static void step_rename (Model *m, const char *from, const char *to, unsigned flags)
{
    uint64_t parent, new_parent;
    const char *name, *new_name;
    EcfsAttr replaced = {.ino = 0};
    int got = split (m, from, &parent, &name);
    if (got == 0)
        got = split (m, to, &new_parent, &new_name);
    if (got == 0)
        got = CODE (e, ecfs_catalog_rename (m->f.catalog, parent, name, new_parent, new_name, flags, &replaced, &e));
    int expected = kernel (renameat2 (m->root, from, m->root, to, flags));
    /* Onto a directory above it: the kernel says so before it looks at types, and never asks a file system. */
    if (expected == ENOTEMPTY && g_str_has_prefix (from, to) && got == EISDIR)
        got = ENOTEMPTY;
    check_same (flags == RENAME_EXCHANGE ? "exchange" : "rename", from, to, expected, got);
    if (got == 0 && replaced.ino != 0)
        OK (e, ecfs_catalog_drop (m->f.catalog, replaced.ino, &e));
}

static void step (Model *m)
{
    static const unsigned flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    g_autofree char *path = random_path (), *other = random_path ();
    switch (g_test_rand_int_range (0, 10)) {
    case 0:
    case 1:
        step_make (m, path, S_IFREG | 0644);
        break;
    case 2:
    case 3:
        step_make (m, path, S_IFDIR | 0755);
        break;
    case 4:
        step_make (m, path, S_IFLNK | 0777);
        break;
    case 5:
        step_link (m, path, other);
        break;
    case 6:
        step_remove (m, path, false);
        break;
    case 7:
        step_remove (m, path, true);
        break;
    default:
        step_rename (m, path, other, flags[g_test_rand_int_range (0, G_N_ELEMENTS (flags))]);
    }
}

/* The directory's listing in both, and what is below. Returns the number of inodes that it met. */
static void compare_dir (Model *m, int fd, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (m->f.catalog, ino, 0, 1000, &error);
    g_assert_no_error (error);
    DIR *dir = fdopendir (openat (fd, ".", O_RDONLY | O_DIRECTORY));
    g_assert_nonnull (dir);
    guint n = 0;
    for (struct dirent *entry = readdir (dir); entry != NULL; entry = readdir (dir))
        n += entry->d_name[0] != '.';
    g_assert_cmpuint (entries->len, ==, n);
    closedir (dir);
    for (guint i = 0; i < entries->len; i++) {
        const EcfsDirent *entry = g_ptr_array_index (entries, i);
        struct stat st;
        g_assert_cmpint (fstatat (fd, entry->name, &st, AT_SYMLINK_NOFOLLOW), ==, 0);
        g_assert_cmphex (entry->attr.mode & S_IFMT, ==, st.st_mode & S_IFMT);
        if (m->counts_links || !S_ISDIR (st.st_mode))
            g_assert_cmpuint (entry->attr.nlink, ==, st.st_nlink);
        if (S_ISDIR (st.st_mode)) {
            int below = openat (fd, entry->name, O_RDONLY | O_DIRECTORY);
            g_assert_cmpint (below, >=, 0);
            compare_dir (m, below, entry->attr.ino);
            close (below);
        }
    }
}

/* The journal applied to nothing: "parent/name" → inode number, inode number → attributes. */
typedef struct Replayed {
    GHashTable *entries;
    GHashTable *inodes;
} Replayed;

static char *entry_key (const EcfsJournalItem *item)
{
    return g_strdup_printf ("%" PRIu64 "/%.*s", item->parent, (int) item->name.size, (const char *) item->name.bytes);
}

static uint64_t *new_u64 (uint64_t value)
{
    return g_memdup2 (&value, sizeof value);
}

static void apply (Replayed *r, const EcfsJournalItem *item)
{
    EcfsAttr *attr = g_hash_table_lookup (r->inodes, &item->attr.ino);
    switch (item->type) {
    case ECFS_JOURNAL_INODE:
        g_hash_table_replace (r->inodes, new_u64 (item->attr.ino), g_memdup2 (&item->attr, sizeof item->attr));
        break;
    case ECFS_JOURNAL_TOUCH:
        g_assert_nonnull (attr);
        attr->nlink = item->attr.nlink;
        attr->mtime_ns = item->attr.mtime_ns;
        attr->ctime_ns = item->attr.ctime_ns;
        break;
    case ECFS_JOURNAL_NAME_ADDED:
        g_hash_table_replace (r->entries, entry_key (item), new_u64 (item->attr.ino));
        break;
    case ECFS_JOURNAL_NAME_REMOVED: {
        g_autofree char *key = entry_key (item);
        g_assert_true (g_hash_table_remove (r->entries, key));
        break;
    }
    case ECFS_JOURNAL_INODE_DROPPED:
        g_assert_true (g_hash_table_remove (r->inodes, &item->attr.ino));
        break;
    default:
        break;
    }
}

static void replay (Model *m, Replayed *r)
{
    uint64_t after = 0;
    for (;;) {
        g_autoptr (GError) error = NULL;
        g_autoptr (GPtrArray) rows = ecfs_catalog_journal (m->f.catalog, after, 100, &error);
        g_assert_no_error (error);
        if (rows->len == 0)
            break;
        for (guint i = 0; i < rows->len; i++) {
            const EcfsJournalRow *row = g_ptr_array_index (rows, i);
            EcfsCursor cursor;
            EcfsJournalItem item;
            g_assert_cmpuint (row->sequence, ==, ++after); /* without gaps */
            g_assert_cmpint (ecfs_journal_open (&cursor, row->record->data, row->record->len), ==, 0);
            int more;
            while ((more = ecfs_journal_next (&cursor, &item)) == 1)
                apply (r, &item);
            g_assert_cmpint (more, ==, 0);
        }
    }
    g_assert_cmpuint (after, ==, ecfs_catalog_sequence (m->f.catalog));
}

static guint check_replayed (Model *m, Replayed *r, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (m->f.catalog, ino, 0, 1000, &error);
    g_assert_no_error (error);
    guint n = entries->len;
    for (guint i = 0; i < entries->len; i++) {
        const EcfsDirent *entry = g_ptr_array_index (entries, i);
        g_autofree char *key = g_strdup_printf ("%" PRIu64 "/%s", ino, entry->name);
        const uint64_t *found = g_hash_table_lookup (r->entries, key);
        g_assert_nonnull (found);
        g_assert_cmpuint (*found, ==, entry->attr.ino);
        const EcfsAttr *attr = g_hash_table_lookup (r->inodes, found);
        g_assert_nonnull (attr);
        EcfsAttr told = entry->attr; /* nothing is staged, so the journal has these as size and mtime */
        g_assert_cmpuint (told.committed_size, ==, told.size);
        g_assert_cmpint (told.committed_mtime_ns, ==, told.mtime_ns);
        told.committed_size = 0;
        told.committed_mtime_ns = 0;
        g_assert_cmpmem (attr, sizeof *attr, &told, sizeof told);
        if (S_ISDIR (attr->mode))
            n += check_replayed (m, r, entry->attr.ino);
    }
    return n;
}

static void test_against_the_kernel (void)
{
    Model m;
    fixture_init (&m.f);
    g_autofree char *dir = g_dir_make_tmp ("ecfs-model-XXXXXX", NULL);
    m.root = open (dir, O_RDONLY | O_DIRECTORY);
    g_assert_cmpint (m.root, >=, 0);
    struct stat st;
    g_assert_cmpint (mkdirat (m.root, "probe", 0755) | fstat (m.root, &st) | unlinkat (m.root, "probe", AT_REMOVEDIR),
                     ==, 0);
    m.counts_links = st.st_nlink == 3;
    for (int i = 0; i < N_STEPS; i++) {
        step (&m);
        if (i % 500 == 499) {
            compare_dir (&m, m.root, ECFS_ROOT_INO);
            fixture_reopen (&m.f);
        }
    }
    compare_dir (&m, m.root, ECFS_ROOT_INO);
    Replayed r = {.entries = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free),
                  .inodes = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free)};
    replay (&m, &r);
    g_assert_cmpuint (check_replayed (&m, &r, ECFS_ROOT_INO), ==, g_hash_table_size (r.entries));
    EcfsTotals totals = get_totals (&m.f);
    g_assert_cmpuint (totals.n_inodes, ==, g_hash_table_size (r.inodes));
    g_assert_cmpuint (totals.journal_records, ==, ecfs_catalog_sequence (m.f.catalog));
    g_hash_table_unref (r.entries);
    g_hash_table_unref (r.inodes);
    close (m.root);
    g_autofree char *remove = g_strdup_printf ("rm -rf '%s'", dir);
    g_assert_cmpint (system (remove), ==, 0);
    fixture_clear (&m.f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/model/random-operations-answer-as-the-kernel-and-the-journal-repeats-them",
                     test_against_the_kernel);
    return g_test_run ();
}
