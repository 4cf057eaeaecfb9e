#include "fixture.h"

#include <sys/xattr.h>

static int make_code (Fixture *f, uint64_t parent, const char *name, EcfsNewInode new)
{
    return CODE (e, ecfs_catalog_make (f->catalog, parent, name, &new, NULL, NULL, &e));
}

static int lookup_code (Fixture *f, uint64_t parent, const char *name)
{
    EcfsAttr attr;
    return CODE (e, ecfs_catalog_lookup (f->catalog, parent, name, &attr, &e));
}

static int rename_code (Fixture *f, uint64_t parent, const char *name, uint64_t to, const char *new, unsigned flags)
{
    return CODE (e, ecfs_catalog_rename (f->catalog, parent, name, to, new, flags, NULL, &e));
}

static void test_root (void)
{
    Fixture f;
    fixture_init (&f);
    EcfsAttr root = get_attr (&f, ECFS_ROOT_INO);
    g_assert_cmphex (root.mode, ==, S_IFDIR | 0755);
    g_assert_cmpuint (root.nlink, ==, 2);
    g_assert_cmpuint (root.uid, ==, geteuid ());
    g_assert_true (ecfs_uuid_equal (ecfs_catalog_archive (f.catalog), &f.archive));
    g_assert_cmpuint (ecfs_catalog_epoch (f.catalog), ==, 1);
    uint64_t parent;
    OK (e, ecfs_catalog_parent (f.catalog, ECFS_ROOT_INO, &parent, &e));
    g_assert_cmpuint (parent, ==, ECFS_ROOT_INO);
    fixture_clear (&f);
}

static void test_make (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir");
    EcfsAttr file = make_as (&f, dir, "file", S_IFREG | 0640);
    g_assert_cmphex (file.mode, ==, S_IFREG | 0640);
    g_assert_cmpuint (file.nlink, ==, 1);
    g_assert_cmpuint (file.uid, ==, 10);
    g_assert_cmpuint (file.gid, ==, 20);
    g_assert_cmpuint (file.size, ==, 0);
    g_assert_cmpuint (get_attr (&f, ECFS_ROOT_INO).nlink, ==, 3);
    EcfsAttr parent = get_attr (&f, dir);
    g_assert_cmpint (parent.mtime_ns, ==, file.ctime_ns);
    g_assert_cmpint (parent.ctime_ns, ==, file.ctime_ns);
    g_assert_cmpint (file.btime_ns, ==, file.ctime_ns);
    EcfsNewInode device = {.mode = S_IFCHR | 0600, .rdev = 0x0103};
    EcfsAttr attr;
    OK (e, ecfs_catalog_make (f.catalog, dir, "null", &device, &attr, NULL, &e));
    g_assert_cmphex (attr.rdev, ==, 0x0103);
    EcfsAttr found;
    OK (e, ecfs_catalog_lookup (f.catalog, dir, "null", &found, &e));
    g_assert_cmpmem (&found, sizeof found, &attr, sizeof attr);
    fixture_clear (&f);
}

static void test_make_errors (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t file = make_file (&f, ECFS_ROOT_INO, "file");
    EcfsNewInode new = {.mode = S_IFREG | 0600};
    g_autofree char *long_name = g_strnfill (256, 'x');
    uint64_t before = ecfs_catalog_sequence (f.catalog);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "file", new), ==, EEXIST);
    g_assert_cmpint (make_code (&f, file, "x", new), ==, ENOTDIR);
    g_assert_cmpint (make_code (&f, 999, "x", new), ==, ENOENT);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, long_name, new), ==, ENAMETOOLONG);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "", new), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, ".", new), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "..", new), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "a/b", new), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "x", (EcfsNewInode){.mode = 0644}), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "x", (EcfsNewInode){.mode = S_IFLNK | 0777}), ==, EINVAL);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "x", (EcfsNewInode){.mode = S_IFDIR | 0777, .staged = true}), ==,
                     EINVAL);
    g_assert_cmpuint (ecfs_catalog_sequence (f.catalog), ==, before);
    long_name[255] = '\0';
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, long_name, new), ==, 0);
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "\xff\x01 \n", new), ==, 0);
    g_assert_cmpint (lookup_code (&f, ECFS_ROOT_INO, "\xff\x01 \n"), ==, 0);
    g_assert_cmpint (lookup_code (&f, ECFS_ROOT_INO, "none"), ==, ENOENT);
    g_assert_cmpint (lookup_code (&f, file, "none"), ==, ENOTDIR);
    g_assert_cmpint (lookup_code (&f, 999, "none"), ==, ENOENT);
    fixture_clear (&f);
}

static void test_setgid (void)
{
    Fixture f;
    fixture_init (&f);
    EcfsNewInode new = {.mode = S_IFDIR | S_ISGID | 0770, .uid = 1, .gid = 77};
    EcfsAttr dir, attr;
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "shared", &new, &dir, NULL, &e));
    attr = make_as (&f, dir.ino, "file", S_IFREG | 0644);
    g_assert_cmpuint (attr.gid, ==, 77);
    g_assert_cmphex (attr.mode, ==, S_IFREG | 0644);
    attr = make_as (&f, dir.ino, "sub", S_IFDIR | 0755);
    g_assert_cmpuint (attr.gid, ==, 77);
    g_assert_cmphex (attr.mode, ==, S_IFDIR | S_ISGID | 0755);
    fixture_clear (&f);
}

static void test_setattr (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    EcfsAttr set = {.mode = S_IFDIR | 04711, .uid = 5, .gid = 6, .atime_ns = -7, .mtime_ns = 8, .ctime_ns = 9};
    EcfsAttr got;
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &set,
                                 ECFS_ATTR_MODE | ECFS_ATTR_UID | ECFS_ATTR_GID | ECFS_ATTR_ATIME | ECFS_ATTR_MTIME |
                                     ECFS_ATTR_CTIME,
                                 &got, &e));
    g_assert_cmphex (got.mode, ==, S_IFREG | 04711);
    fixture_reopen (&f);
    got = get_attr (&f, ino);
    g_assert_cmpuint (got.uid, ==, 5);
    g_assert_cmpuint (got.gid, ==, 6);
    g_assert_cmpint (got.atime_ns, ==, -7);
    g_assert_cmpint (got.mtime_ns, ==, 8);
    g_assert_cmpint (got.ctime_ns, ==, 9);
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &set, ECFS_ATTR_UID, &got, &e));
    g_assert_cmpint (got.ctime_ns, >, 9);
    set.size = 100;
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &set, ECFS_ATTR_SIZE, &got, &e));
    g_assert_cmpuint (got.size, ==, 100);
    set.size = UINT64_MAX;
    g_assert_cmpint (CODE (e, ecfs_catalog_setattr (f.catalog, ino, &set, ECFS_ATTR_SIZE, NULL, &e)), ==, EFBIG);
    g_assert_cmpint (CODE (e, ecfs_catalog_setattr (f.catalog, 1, &set, ECFS_ATTR_SIZE, NULL, &e)), ==, EISDIR);
    g_assert_cmpint (CODE (e, ecfs_catalog_setattr (f.catalog, 99, &set, 0, NULL, &e)), ==, ENOENT);
    fixture_clear (&f);
}

static void test_symlink (void)
{
    Fixture f;
    fixture_init (&f);
    EcfsNewInode new = {.mode = S_IFLNK | 0777, .target = "../some/where"};
    EcfsAttr attr;
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "link", &new, &attr, NULL, &e));
    g_assert_cmpuint (attr.size, ==, strlen (new.target));
    g_autoptr (GError) error = NULL;
    g_autofree char *target = ecfs_catalog_readlink (f.catalog, attr.ino, &error);
    g_assert_cmpstr (target, ==, new.target);
    g_assert_null (ecfs_catalog_readlink (f.catalog, ECFS_ROOT_INO, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_autofree char *long_target = g_strnfill (4096, 't');
    new.target = long_target;
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "long", new), ==, ENAMETOOLONG);
    new.target = "";
    g_assert_cmpint (make_code (&f, ECFS_ROOT_INO, "empty", new), ==, ENOENT);
    fixture_clear (&f);
}

static void test_links (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir"), file = make_file (&f, ECFS_ROOT_INO, "file");
    EcfsAttr attr;
    OK (e, ecfs_catalog_link (f.catalog, file, dir, "second", &attr, &e));
    g_assert_cmpuint (attr.nlink, ==, 2);
    g_assert_cmpint (CODE (e, ecfs_catalog_link (f.catalog, dir, dir, "d", NULL, &e)), ==, EPERM);
    g_assert_cmpint (CODE (e, ecfs_catalog_link (f.catalog, file, dir, "second", NULL, &e)), ==, EEXIST);
    g_assert_cmpint (CODE (e, ecfs_catalog_link (f.catalog, 99, dir, "x", NULL, &e)), ==, ENOENT);
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", &attr, &e));
    g_assert_cmpuint (attr.nlink, ==, 1);
    OK (e, ecfs_catalog_drop (f.catalog, file, &e)); /* it has a name: nothing happens */
    g_assert_cmpuint (get_attr (&f, file).nlink, ==, 1);
    OK (e, ecfs_catalog_unlink (f.catalog, dir, "second", &attr, &e));
    g_assert_cmpuint (get_attr (&f, file).nlink, ==, 0); /* it may be open */
    g_assert_cmpint (CODE (e, ecfs_catalog_link (f.catalog, file, dir, "third", NULL, &e)), ==, ENOENT);
    OK (e, ecfs_catalog_drop (f.catalog, file, &e));
    OK (e, ecfs_catalog_drop (f.catalog, file, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_getattr (f.catalog, file, &attr, &e)), ==, ENOENT);
    fixture_clear (&f);
}

static void test_remove (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir");
    make_file (&f, dir, "file");
    EcfsAttr attr;
#define UNLINK(parent, name) CODE (e, ecfs_catalog_unlink (f.catalog, parent, name, &attr, &e))
#define RMDIR(parent, name)  CODE (e, ecfs_catalog_rmdir (f.catalog, parent, name, &attr, &e))
    g_assert_cmpint (UNLINK (ECFS_ROOT_INO, "dir"), ==, EISDIR);
    g_assert_cmpint (UNLINK (ECFS_ROOT_INO, "none"), ==, ENOENT);
    g_assert_cmpint (RMDIR (ECFS_ROOT_INO, "dir"), ==, ENOTEMPTY);
    g_assert_cmpint (RMDIR (dir, "file"), ==, ENOTDIR);
    g_assert_cmpint (RMDIR (dir, "none"), ==, ENOENT);
    g_assert_cmpint (UNLINK (dir, "file"), ==, 0);
    g_assert_cmpint (RMDIR (ECFS_ROOT_INO, "dir"), ==, 0);
    g_assert_cmpuint (attr.nlink, ==, 0);
    g_assert_cmpuint (get_attr (&f, ECFS_ROOT_INO).nlink, ==, 2);
    g_assert_cmpint (make_code (&f, dir, "late", (EcfsNewInode){.mode = S_IFREG}), ==, ENOENT);
#undef UNLINK
#undef RMDIR
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 3);
    fixture_reopen (&f);
    OK (e, ecfs_catalog_drop_orphans (f.catalog, INT64_MAX, &e));
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 1);
    uint64_t again = make_file (&f, ECFS_ROOT_INO, "new");
    g_assert_cmpuint (again, >, dir + 1); /* numbers never come back */
    fixture_clear (&f);
}

static void test_rename (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t a = make_dir (&f, ECFS_ROOT_INO, "a"), b = make_dir (&f, ECFS_ROOT_INO, "b"), sub = make_dir (&f, a, "s");
    uint64_t file = make_file (&f, a, "file"), other = make_file (&f, b, "other");
    EcfsAttr replaced;
    g_assert_cmpint (rename_code (&f, a, "none", b, "x", 0), ==, ENOENT);
    g_assert_cmpint (rename_code (&f, a, "file", ECFS_ROOT_INO, "b", 0), ==, EISDIR);
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "b", a, "file", 0), ==, ENOTDIR);
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "b", ECFS_ROOT_INO, "a", 0), ==, ENOTEMPTY);
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "a", sub, "a", 0), ==, EINVAL);
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "a", a, "a", 0), ==, EINVAL);
    g_assert_cmpint (rename_code (&f, a, "file", b, "other", RENAME_NOREPLACE), ==, EEXIST);
    g_assert_cmpint (rename_code (&f, a, "file", b, "none", RENAME_EXCHANGE), ==, ENOENT);
    g_assert_cmpint (rename_code (&f, a, "file", b, "x", RENAME_NOREPLACE | RENAME_EXCHANGE), ==, EINVAL);
    g_assert_cmpint (rename_code (&f, a, "file", b, "x", RENAME_WHITEOUT), ==, EINVAL);
    g_assert_cmpint (rename_code (&f, a, "file", b, "..", 0), ==, EINVAL);
    OK (e, ecfs_catalog_rename (f.catalog, a, "file", b, "other", 0, &replaced, &e));
    g_assert_cmpuint (replaced.ino, ==, other);
    g_assert_cmpuint (replaced.nlink, ==, 0);
    EcfsAttr attr;
    OK (e, ecfs_catalog_lookup (f.catalog, b, "other", &attr, &e));
    g_assert_cmpuint (attr.ino, ==, file);
    OK (e, ecfs_catalog_rename (f.catalog, a, "s", b, "t", 0, &replaced, &e));
    g_assert_cmpuint (replaced.ino, ==, 0);
    g_assert_cmpuint (get_attr (&f, a).nlink, ==, 2);
    g_assert_cmpuint (get_attr (&f, b).nlink, ==, 3);
    OK (e, ecfs_catalog_rename (f.catalog, b, "t", ECFS_ROOT_INO, "a", 0, &replaced, &e)); /* onto an empty one */
    g_assert_cmpuint (replaced.ino, ==, a);
    g_assert_cmpuint (get_attr (&f, ECFS_ROOT_INO).nlink, ==, 4);
    uint64_t parent;
    OK (e, ecfs_catalog_parent (f.catalog, sub, &parent, &e));
    g_assert_cmpuint (parent, ==, ECFS_ROOT_INO);
    fixture_clear (&f);
}

static void test_rename_same_inode (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t file = make_file (&f, ECFS_ROOT_INO, "one");
    OK (e, ecfs_catalog_link (f.catalog, file, ECFS_ROOT_INO, "two", NULL, &e));
    EcfsAttr replaced;
    OK (e, ecfs_catalog_rename (f.catalog, ECFS_ROOT_INO, "one", ECFS_ROOT_INO, "two", 0, &replaced, &e));
    g_assert_cmpuint (replaced.ino, ==, 0);
    g_assert_cmpint (lookup_code (&f, ECFS_ROOT_INO, "one"), ==, 0);
    g_assert_cmpuint (get_attr (&f, file).nlink, ==, 2);
    fixture_clear (&f);
}

static void test_exchange (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t a = make_dir (&f, ECFS_ROOT_INO, "a"), sub = make_dir (&f, a, "sub"), file = make_file (&f, 1, "file");
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "file", a, "sub", RENAME_EXCHANGE), ==, 0);
    EcfsAttr attr;
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "file", &attr, &e));
    g_assert_cmpuint (attr.ino, ==, sub);
    OK (e, ecfs_catalog_lookup (f.catalog, a, "sub", &attr, &e));
    g_assert_cmpuint (attr.ino, ==, file);
    g_assert_cmpuint (get_attr (&f, a).nlink, ==, 2);
    g_assert_cmpuint (get_attr (&f, ECFS_ROOT_INO).nlink, ==, 4);
    uint64_t deep = make_dir (&f, sub, "deep");
    g_assert_cmpint (rename_code (&f, sub, "deep", ECFS_ROOT_INO, "file", RENAME_EXCHANGE), ==, EINVAL);
    g_assert_cmpint (rename_code (&f, ECFS_ROOT_INO, "file", sub, "deep", RENAME_EXCHANGE), ==, EINVAL);
    g_assert_cmpuint (get_attr (&f, deep).nlink, ==, 2);
    fixture_clear (&f);
}

static GPtrArray *list (Fixture *f, uint64_t ino, int64_t after, size_t max)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *entries = ecfs_catalog_readdir (f->catalog, ino, after, max, &error);
    g_assert_no_error (error);
    return entries;
}

static void test_readdir (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir");
    for (int i = 0; i < 100; i++) {
        g_autofree char *name = g_strdup_printf ("f%d", 99 - i);
        make_file (&f, dir, name);
    }
    int64_t after = 0;
    int n = 0;
    for (;;) {
        g_autoptr (GPtrArray) entries = list (&f, dir, after, 7);
        if (entries->len == 0)
            break;
        for (guint i = 0; i < entries->len; i++) {
            const EcfsDirent *entry = g_ptr_array_index (entries, i);
            g_autofree char *name = g_strdup_printf ("f%d", 99 - n);
            g_assert_cmpstr (entry->name, ==, name);
            g_assert_cmpint (entry->offset, >, after);
            g_assert_cmphex (entry->attr.mode, ==, S_IFREG | 0644);
            after = entry->offset;
            n++;
        }
        /* What goes and changes its name between two calls disturbs nothing. */
        const EcfsDirent *first = g_ptr_array_index (entries, 0);
        if (n < 50)
            OK (e, ecfs_catalog_unlink (f.catalog, dir, first->name, NULL, &e));
        else {
            g_autofree char *name = g_strdup_printf ("%s.renamed", first->name);
            g_assert_cmpint (rename_code (&f, dir, first->name, dir, name, 0), ==, 0);
        }
    }
    g_assert_cmpint (n, ==, 100);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_readdir (f.catalog, dir + 1, 0, 1, &error));
    g_assert_error (error, ECFS_ERROR, ENOTDIR);
    g_clear_error (&error);
    g_assert_null (ecfs_catalog_readdir (f.catalog, 9999, 0, 1, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    fixture_clear (&f);
}

static void test_paths (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t a = make_dir (&f, ECFS_ROOT_INO, "a"), b = make_dir (&f, a, "b"), file = make_file (&f, b, "c d");
    static const char *const good[] = {"/a/b/c d", "a/b/c d", "//a///b//c d"};
    EcfsAttr attr;
    for (size_t i = 0; i < G_N_ELEMENTS (good); i++) {
        OK (e, ecfs_catalog_resolve (f.catalog, good[i], &attr, &e));
        g_assert_cmpuint (attr.ino, ==, file);
    }
    static const char *const roots[] = {"", "/", "//"};
    for (size_t i = 0; i < G_N_ELEMENTS (roots); i++) {
        OK (e, ecfs_catalog_resolve (f.catalog, roots[i], &attr, &e));
        g_assert_cmpuint (attr.ino, ==, ECFS_ROOT_INO);
    }
#define RESOLVE(path) CODE (e, ecfs_catalog_resolve (f.catalog, path, &attr, &e))
    g_assert_cmpint (RESOLVE ("/a/b/"), ==, 0);
    g_assert_cmpuint (attr.ino, ==, b);
    g_assert_cmpint (RESOLVE ("/a/../a"), ==, EINVAL);
    g_assert_cmpint (RESOLVE ("/a/x/y"), ==, ENOENT);
    g_assert_cmpint (RESOLVE ("/a/b/c d/e"), ==, ENOTDIR);
    g_assert_cmpint (RESOLVE ("/a/b/c d/"), ==, ENOTDIR);
#undef RESOLVE
    g_autofree char *path = ecfs_catalog_path (f.catalog, file), *root = ecfs_catalog_path (f.catalog, ECFS_ROOT_INO);
    g_autofree char *none = ecfs_catalog_path (f.catalog, 17);
    g_assert_cmpstr (path, ==, "/a/b/c d");
    g_assert_cmpstr (root, ==, "/");
    g_assert_cmpstr (none, ==, "inode 17 (no name)");
    fixture_clear (&f);
}

static void test_xattrs (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
#define SET(name, value, size, flags) CODE (e, ecfs_catalog_setxattr (f.catalog, ino, name, value, size, flags, &e))
    g_assert_cmpint (SET ("user.b", "\0\1", 2, XATTR_CREATE), ==, 0);
    g_assert_cmpint (SET ("user.b", "x", 1, XATTR_CREATE), ==, EEXIST);
    g_assert_cmpint (SET ("user.a", "x", 1, XATTR_REPLACE), ==, ENODATA);
    g_assert_cmpint (SET ("user.a", "", 0, 0), ==, 0);
    g_assert_cmpint (SET ("user.b", "yy", 2, XATTR_REPLACE), ==, 0);
    g_assert_cmpint (SET ("", "y", 1, 0), ==, ERANGE);
    g_autofree char *big = g_malloc0 (65537);
    g_assert_cmpint (SET ("user.big", big, 65537, 0), ==, E2BIG);
    g_assert_cmpint (SET ("user.big", big, 65536, 0), ==, 0);
    g_assert_cmpint (SET ("user.c", "y", 1, 7), ==, EINVAL);
#undef SET
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) value = ecfs_catalog_getxattr (f.catalog, ino, "user.b", &error);
    g_assert_cmpmem (value->data, value->len, "yy", 2);
    g_autoptr (GByteArray) empty = ecfs_catalog_getxattr (f.catalog, ino, "user.a", &error);
    g_assert_cmpuint (empty->len, ==, 0);
    g_autoptr (GByteArray) names = ecfs_catalog_listxattr (f.catalog, ino, &error);
    g_assert_cmpmem (names->data, names->len, "user.a\0user.b\0user.big", 23);
    OK (e, ecfs_catalog_removexattr (f.catalog, ino, "user.b", &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_removexattr (f.catalog, ino, "user.b", &e)), ==, ENODATA);
    g_assert_null (ecfs_catalog_getxattr (f.catalog, ino, "user.b", &error));
    g_assert_error (error, ECFS_ERROR, ENODATA);
    g_clear_error (&error);
    g_assert_null (ecfs_catalog_listxattr (f.catalog, 99, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", NULL, &e));
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    fixture_clear (&f);
}

static char *told_above (Fixture *f, uint64_t dir)
{
    GByteArray *value;
    OK (e, ecfs_catalog_xattr_above (f->catalog, dir, "user.rule", &value, &e));
    char *text = value == NULL ? NULL : g_strndup ((const char *) value->data, value->len);
    if (value != NULL)
        g_byte_array_unref (value);
    return text;
}

static void test_xattrs_above (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t top = make_dir (&f, ECFS_ROOT_INO, "top"), sub = make_dir (&f, top, "sub"),
             low = make_dir (&f, sub, "low"), file = make_file (&f, low, "file");
    g_assert_null (told_above (&f, low));
    OK (e, ecfs_catalog_setxattr (f.catalog, ECFS_ROOT_INO, "user.rule", "all", 3, 0, &e));
    OK (e, ecfs_catalog_setxattr (f.catalog, sub, "user.rule", "sub", 3, 0, &e));
    OK (e, ecfs_catalog_setxattr (f.catalog, low, "user.other", "low", 3, 0, &e));
    g_autofree char *of_low = told_above (&f, low), *of_sub = told_above (&f, sub), *of_top = told_above (&f, top);
    g_assert_cmpstr (of_low, ==, "sub");
    g_assert_cmpstr (of_sub, ==, "sub");
    g_assert_cmpstr (of_top, ==, "all");
    OK (e, ecfs_catalog_link (f.catalog, file, top, "link", NULL, &e));
    OK (e, ecfs_catalog_link (f.catalog, file, top, "another", NULL, &e));
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) directories = ecfs_catalog_file_directories (f.catalog, file, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (directories->len, ==, 2);
    g_assert_cmpuint (g_array_index (directories, uint64_t, 0) + g_array_index (directories, uint64_t, 1), ==,
                      top + low);
    g_autoptr (GArray) none = ecfs_catalog_object_directories (f.catalog, 17, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (none->len, ==, 0);
    fixture_clear (&f);
}

static const char *code_of (Fixture *f, uint64_t ino)
{
    char *code;
    OK (e, ecfs_catalog_get_code (f->catalog, ino, &code, &e));
    const char *interned = g_intern_string (code);
    g_free (code);
    return interned;
}

static void test_code_above (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t top = make_dir (&f, ECFS_ROOT_INO, "top"), sub = make_dir (&f, top, "sub"),
             low = make_dir (&f, sub, "low");
    uint64_t before = make_file (&f, low, "before");
    OK (e, ecfs_catalog_set_code (f.catalog, top, "copies:2", &e));
    fixture_reopen (&f);
    g_assert_cmpstr (code_of (&f, low), ==, "copies:2");
    g_assert_null (code_of (&f, before)); /* it was made under another rule */
    g_assert_null (code_of (&f, ECFS_ROOT_INO));
    uint64_t first = make_file (&f, low, "first"), other = make_file (&f, ECFS_ROOT_INO, "other");
    OK (e, ecfs_catalog_set_code (f.catalog, sub, "rs:4+2", &e)); /* nearer */
    uint64_t second = make_file (&f, low, "second");
    OK (e, ecfs_catalog_set_code (f.catalog, sub, NULL, &e));
    uint64_t third = make_file (&f, low, "third");
    EcfsAttr replaced;
    OK (e, ecfs_catalog_rename (f.catalog, sub, "low", ECFS_ROOT_INO, "low", 0, &replaced, &e));
    uint64_t fourth = make_file (&f, low, "fourth");
    OK (e, ecfs_catalog_set_code (f.catalog, ECFS_ROOT_INO, "copies:3", &e));
    uint64_t fifth = make_file (&f, low, "fifth");
    g_assert_cmpstr (code_of (&f, first), ==, "copies:2");
    g_assert_cmpstr (code_of (&f, second), ==, "rs:4+2");
    g_assert_cmpstr (code_of (&f, third), ==, "copies:2");
    g_assert_null (code_of (&f, other));
    g_assert_null (code_of (&f, fourth));
    g_assert_cmpstr (code_of (&f, fifth), ==, "copies:3");
    /* A directory that was removed and is still open. */
    uint64_t gone = make_dir (&f, sub, "gone");
    EcfsAttr attr;
    OK (e, ecfs_catalog_rmdir (f.catalog, sub, "gone", &attr, &e));
    g_assert_null (code_of (&f, gone));
    fixture_clear (&f);
}

static void test_code (void)
{
    Fixture f;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir");
    char *code;
    OK (e, ecfs_catalog_get_code (f.catalog, dir, &code, &e));
    g_assert_null (code);
    OK (e, ecfs_catalog_set_code (f.catalog, dir, "rs:4+2", &e));
    uint64_t sub = make_dir (&f, dir, "sub"), file = make_file (&f, sub, "file");
    fixture_reopen (&f);
    OK (e, ecfs_catalog_get_code (f.catalog, file, &code, &e));
    g_assert_cmpstr (code, ==, "rs:4+2");
    g_free (code);
    OK (e, ecfs_catalog_set_code (f.catalog, file, NULL, &e));
    OK (e, ecfs_catalog_get_code (f.catalog, file, &code, &e));
    g_assert_null (code);
    g_assert_cmpint (CODE (e, ecfs_catalog_set_code (f.catalog, file, "rs:0000000000000000000000000004+2", &e)), ==,
                     EINVAL);
    fixture_clear (&f);
}

static void test_nameless (void)
{
    Fixture f;
    EcfsAttr attr, replaced;
    int64_t one;
    fixture_init (&f);
    uint64_t dir = make_dir (&f, ECFS_ROOT_INO, "dir"), old = make_file (&f, dir, "name");
    OK (e, ecfs_catalog_set_code (f.catalog, dir, "copies:2", &e));
    const EcfsNewInode file = {.mode = S_IFREG | 0600}, folder = {.mode = S_IFDIR | 0700},
                       staged = {.mode = S_IFREG | 0600, .staged = true};
    g_assert_cmpint (CODE (e, ecfs_catalog_make (f.catalog, dir, NULL, &folder, &attr, NULL, &e)), ==, EINVAL);
    g_assert_cmpint (CODE (e, ecfs_catalog_make (f.catalog, dir, NULL, &staged, &attr, &one, &e)), ==, EINVAL);
    OK (e, ecfs_catalog_make (f.catalog, dir, NULL, &file, &attr, NULL, &e));
    g_assert_cmpuint (attr.nlink, ==, 0);
    char *code;
    OK (e, ecfs_catalog_get_code (f.catalog, attr.ino, &code, &e));
    g_assert_cmpstr (code, ==, "copies:2");
    g_free (code);
    OK (e, ecfs_catalog_link_over (f.catalog, attr.ino, dir, "name", &replaced, &e));
    g_assert_cmpuint (replaced.ino, ==, old);
    g_assert_cmpuint (replaced.nlink, ==, 0);
    OK (e, ecfs_catalog_link_over (f.catalog, attr.ino, dir, "name", &replaced, &e)); /* it has it already */
    g_assert_cmpuint (replaced.ino, ==, 0);
    OK (e, ecfs_catalog_link_over (f.catalog, attr.ino, dir, "second", &replaced, &e));
    g_assert_cmpuint (replaced.ino, ==, 0);
    g_assert_cmpint (CODE (e, ecfs_catalog_link_over (f.catalog, attr.ino, ECFS_ROOT_INO, "dir", &replaced, &e)), ==,
                     EISDIR);
    g_assert_cmpint (CODE (e, ecfs_catalog_link_over (f.catalog, dir, dir, "third", &replaced, &e)), ==, EPERM);
    fixture_reopen (&f);
    EcfsAttr found;
    OK (e, ecfs_catalog_lookup (f.catalog, dir, "name", &found, &e));
    g_assert_cmpuint (found.ino, ==, attr.ino);
    g_assert_cmpuint (found.nlink, ==, 2);
    fixture_clear (&f);
}

/* As after a crash before it got its name. */
static void test_nameless_dropped (void)
{
    Fixture f;
    EcfsAttr attr;
    const EcfsNewInode file = {.mode = S_IFREG | 0600};
    fixture_init (&f);
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, NULL, &file, &attr, NULL, &e));
    OK (e, ecfs_catalog_drop_orphans (f.catalog, INT64_MAX, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_getattr (f.catalog, attr.ino, &attr, &e)), ==, ENOENT);
    g_assert_cmpuint (get_totals (&f).n_files, ==, 0);
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/namespace/a-new-catalog-has-a-root", test_root);
    g_test_add_func ("/namespace/make-gives-all-types-their-attributes", test_make);
    g_test_add_func ("/namespace/make-refuses-what-posix-refuses", test_make_errors);
    g_test_add_func ("/namespace/set-group-id-directories-are-inherited", test_setgid);
    g_test_add_func ("/namespace/setattr-sets-what-the-mask-says", test_setattr);
    g_test_add_func ("/namespace/symlinks-keep-their-targets", test_symlink);
    g_test_add_func ("/namespace/hard-links-count-and-the-last-leaves-an-orphan", test_links);
    g_test_add_func ("/namespace/unlink-and-rmdir-refuse-what-posix-refuses", test_remove);
    g_test_add_func ("/namespace/rename-moves-and-replaces-as-posix-says", test_rename);
    g_test_add_func ("/namespace/rename-onto-the-same-inode-does-nothing", test_rename_same_inode);
    g_test_add_func ("/namespace/exchange-swaps-and-keeps-link-counts", test_exchange);
    g_test_add_func ("/namespace/readdir-sees-each-entry-once-while-entries-change", test_readdir);
    g_test_add_func ("/namespace/paths-are-found-and-resolved", test_paths);
    g_test_add_func ("/namespace/xattrs-are-set-listed-and-removed", test_xattrs);
    g_test_add_func ("/namespace/xattrs-are-found-above", test_xattrs_above);
    g_test_add_func ("/namespace/codes-are-inherited", test_code);
    g_test_add_func ("/namespace/a-file-has-the-code-of-the-nearest-directory-that-has-one", test_code_above);
    g_test_add_func ("/namespace/an-inode-without-a-name-gets-one-in-place-of-what-has-it", test_nameless);
    g_test_add_func ("/namespace/an-inode-that-never-got-a-name-is-dropped", test_nameless_dropped);
    return g_test_run ();
}
