#include "actor.h"

#include "elsewhere.h"
#include "model.h"
#include "util/io.h"
#include "verbs.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTE "user.note"

typedef struct Handle {
    uint64_t ino;
    EcfsStaged *staged;
} Handle;

static EcfsCatalog *catalog_of (Actor *self)
{
    return ecfs_archive_catalog (self->fixture.archive);
}

/* Life cycle */

/* An archive that was recovered elsewhere is an old copy, and may be one while endpoints are in trouble. */
static bool is_fenced (Actor *self)
{
    g_autoptr (GError) error = NULL;
    self->fixture.archive = ecfs_archive_open (self->fixture.directory, 0, &error);
    g_assert_no_error (error);
    if (ecfs_archive_start (self->fixture.archive, &error))
        return false;
    g_assert_error (error, ECFS_ERROR, ESTALE);
    ecfs_archive_free (g_steal_pointer (&self->fixture.archive));
    return true;
}

void actor_resume (Actor *self)
{
    if (self->may_be_fenced && is_fenced (self))
        return;
    if (self->may_be_fenced)
        ecfs_archive_await_session (self->fixture.archive);
    else
        reopen (&self->fixture);
    start (&self->fixture);
    ecfs_archive_pack_behind (self->fixture.archive);
}

static void open_it_all (Actor *self, const char *base, bool may_be_fenced)
{
    *self = (Actor){.fixture = {.base = g_strdup (base), .directory = g_build_filename (base, "archive", NULL)},
                    .handles = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free),
                    .answers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
                    .patience_us = PATIENCE_US,
                    .may_be_fenced = may_be_fenced};
    actor_resume (self);
}

void actor_open (Actor *self, const char *base)
{
    open_it_all (self, base, false);
}

void actor_open_beside (Actor *self, const char *base)
{
    open_it_all (self, base, true);
}

/* What stays is for the next to find. */
static void stop_patiently (Actor *self)
{
    unsigned n_left;
    if (self->fixture.archive != NULL)
        ecfs_staged_stop (self->fixture.archive, ecfs_now_us () + self->patience_us, &n_left);
}

void actor_suspend (Actor *self)
{
    stop_patiently (self);
    ecfs_archive_free (g_steal_pointer (&self->fixture.archive));
}

void actor_close (Actor *self)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, self->answers);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        (void) code_of (value, NULL); /* nobody awaited it */
    stop_patiently (self);
    g_hash_table_iter_init (&iter, self->handles);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        ecfs_staged_release (((Handle *) value)->staged);
    ecfs_archive_free (g_steal_pointer (&self->fixture.archive));
    g_hash_table_unref (self->handles);
    g_hash_table_unref (self->answers);
    g_free (self->fixture.base);
    g_free (self->fixture.directory);
}

/* Names */

static bool parent_of (Actor *self, const char *path, uint64_t *ret_parent, const char **ret_name)
{
    EcfsAttr attr;
    g_autofree char *parent = g_path_get_dirname (path);
    const char *slash = strrchr (path, '/');
    *ret_name = slash == NULL ? path : slash + 1;
    if (!ecfs_catalog_resolve (catalog_of (self), g_str_equal (parent, ".") ? "/" : parent, &attr, NULL))
        return false;
    *ret_parent = attr.ino;
    return true;
}

static uint64_t ino_of (Actor *self, const char *path)
{
    EcfsAttr attr;
    return ecfs_catalog_resolve (catalog_of (self), path, &attr, NULL) ? attr.ino : 0;
}

static bool is_open (Actor *self, uint64_t ino)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, self->handles);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        if (((Handle *) value)->ino == ino)
            return true;
    return false;
}

static bool drop (Actor *self, uint64_t ino, GError **error)
{
    ecfs_staged_drop (self->fixture.archive, ino);
    return ecfs_catalog_drop (catalog_of (self), ino, error);
}

static bool lost_name (Actor *self, const EcfsAttr *attr, GError **error)
{
    if (attr->ino == 0 || (attr->nlink > 0 && !S_ISDIR (attr->mode)))
        return true;
    if (!is_open (self, attr->ino))
        return drop (self, attr->ino, error);
    ecfs_staged_unlinked (self->fixture.archive, attr->ino);
    return true;
}

static bool remove_name (Actor *self, const Op *op, uint64_t parent, const char *name, GError **error)
{
    EcfsAttr attr;
    bool ok = op->kind == OP_RMDIR ? ecfs_catalog_rmdir (catalog_of (self), parent, name, &attr, error)
                                   : ecfs_catalog_unlink (catalog_of (self), parent, name, &attr, error);
    return ok && lost_name (self, &attr, error);
}

static bool rename_it (Actor *self, const Op *op, uint64_t parent, const char *name, GError **error)
{
    uint64_t new_parent;
    const char *new_name;
    EcfsAttr replaced;
    if (!parent_of (self, op->other, &new_parent, &new_name))
        return ecfs_fail (error, ENOENT, "%s", op->other);
    Answer *answer = answer_new ();
    ecfs_staged_before_rename (self->fixture.archive, parent, name, new_parent, new_name, done, answer);
    g_autoptr (GError) reason = error_of (answer, NULL);
    if (reason != NULL) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    return ecfs_catalog_rename (catalog_of (self), parent, name, new_parent, new_name, 0, &replaced, error) &&
           lost_name (self, &replaced, error);
}

static bool link_it (Actor *self, const Op *op, GError **error)
{
    uint64_t new_parent;
    const char *new_name;
    EcfsAttr attr;
    if (!parent_of (self, op->other, &new_parent, &new_name))
        return ecfs_fail (error, ENOENT, "%s", op->other);
    return ecfs_catalog_link (catalog_of (self), ino_of (self, op->path), new_parent, new_name, &attr, error);
}

static bool set_mtime (Actor *self, const Op *op, GError **error)
{
    EcfsAttr attr = {.mtime_ns = (int64_t) op->a * 1000000000};
    uint64_t ino = ino_of (self, op->path);
    EcfsStaged *staged = ecfs_staged_find (self->fixture.archive, ino);
    bool tell = staged == NULL || ecfs_staged_set_mtime (staged, attr.mtime_ns);
    ecfs_staged_unref (staged);
    return !tell || ecfs_catalog_setattr (catalog_of (self), ino, &attr, ECFS_ATTR_MTIME, &attr, error);
}

static bool make (Actor *self, const Op *op, uint64_t parent, const char *name, GError **error)
{
    EcfsNewInode inode = {.mode = op->kind == OP_MKDIR ? S_IFDIR | 0755 : S_IFLNK | 0777, .target = op->other};
    return ecfs_catalog_make (catalog_of (self), parent, name, &inode, NULL, NULL, error);
}

static int do_name (Actor *self, const Op *op)
{
    uint64_t parent;
    const char *name;
    g_autoptr (GError) error = NULL;
    if (!parent_of (self, op->path, &parent, &name))
        return ENOENT;
    bool ok;
    switch (op->kind) {
    case OP_LINK:
        ok = link_it (self, op, &error);
        break;
    case OP_RENAME:
        ok = rename_it (self, op, parent, name, &error);
        break;
    case OP_UNLINK:
    case OP_RMDIR:
        ok = remove_name (self, op, parent, name, &error);
        break;
    case OP_SETXATTR:
        ok = ecfs_catalog_setxattr (catalog_of (self), ino_of (self, op->path), NOTE, op->other, strlen (op->other), 0,
                                    &error);
        break;
    case OP_REMOVEXATTR:
        ok = ecfs_catalog_removexattr (catalog_of (self), ino_of (self, op->path), NOTE, &error);
        break;
    case OP_MTIME:
        ok = set_mtime (self, op, &error);
        break;
    default:
        ok = make (self, op, parent, name, &error);
        break;
    }
    return ok ? 0 : ecfs_errno (error);
}

/* Content */

static void add_handle (Actor *self, const char *path, uint64_t ino, EcfsStaged *staged)
{
    Handle *handle = g_new (Handle, 1);
    *handle = (Handle){.ino = ino, .staged = staged};
    g_hash_table_insert (self->handles, g_strdup (path), handle);
}

static int create_it (Actor *self, const Op *op)
{
    uint64_t parent;
    const char *name;
    EcfsAttr attr;
    int64_t row;
    EcfsNewInode inode = {.mode = S_IFREG | 0644, .staged = true};
    g_autoptr (GError) error = NULL;
    if (!parent_of (self, op->path, &parent, &name) ||
        !ecfs_catalog_make (catalog_of (self), parent, name, &inode, &attr, &row, &error))
        return ecfs_errno (error);
    EcfsStaged *staged = ecfs_staged_new (self->fixture.archive, &attr, row, &error);
    if (staged == NULL)
        return ecfs_errno (error);
    add_handle (self, op->path, attr.ino, staged);
    return 0;
}

static int open_it (Actor *self, const Op *op)
{
    EcfsStaged *staged = NULL;
    uint64_t ino = ino_of (self, op->path);
    int code = open_file (&self->fixture, ino, op->kind == OP_TRUNCATE, &staged);
    if (code == 0)
        add_handle (self, op->path, ino, staged);
    return code;
}

static int write_it (EcfsStaged *staged, const Op *op)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GBytes) bytes = script_bytes (op->seed, op->b);
    if (!ecfs_staged_change_begin (staged, op->a, op->b, &error))
        return ecfs_errno (error);
    int result = ecfs_pwrite_all (ecfs_staged_fd (staged), g_bytes_get_data (bytes, NULL), op->b, op->a);
    (void) ecfs_staged_change_end (staged, op->b, op->a + op->b, (int64_t) op->seed * 1000000000); /* goes on at once */
    return -result;
}

static int resize_it (EcfsStaged *staged, const Op *op)
{
    g_autoptr (GError) error = NULL;
    return ecfs_staged_truncate (staged, op->a, (int64_t) op->seed * 1000000000, &error) ? 0 : ecfs_errno (error);
}

static int sync_it (EcfsStaged *staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_fsync (staged, done, answer);
    return code_of (answer, NULL);
}

static int close_it (Actor *self, const char *path, Handle *handle)
{
    EcfsAttr attr;
    uint64_t ino = handle->ino;
    int code = flush (handle->staged);
    ecfs_staged_release (handle->staged);
    g_hash_table_remove (self->handles, path);
    /* An unlinked file goes with its last handle. */
    if (ecfs_catalog_getattr (catalog_of (self), ino, &attr, NULL) && attr.nlink == 0 && !is_open (self, ino))
        (void) drop (self, ino, NULL); /* what stays is dropped at the next mount */
    return code;
}

static int do_content (Actor *self, const Op *op)
{
    Handle *handle = g_hash_table_lookup (self->handles, op->path);
    if (handle == NULL) /* it could not be opened */
        return EBADF;
    EcfsStaged *staged = handle->staged;
    switch (op->kind) {
    case OP_WRITE:
        return write_it (staged, op);
    case OP_RESIZE:
        return resize_it (staged, op);
    case OP_FLUSH:
        return flush (staged);
    case OP_FSYNC:
        return sync_it (staged);
    case OP_CLOSE:
        return close_it (self, op->path, handle);
    case OP_BEGIN: {
        Answer *answer = answer_new ();
        g_hash_table_insert (self->answers, g_strdup (op->path), answer);
        ecfs_staged_flush (staged, done, answer);
        return 0;
    }
    default: { /* await */
        Answer *answer = g_hash_table_lookup (self->answers, op->path);
        g_hash_table_remove (self->answers, op->path);
        return code_of (answer, NULL);
    }
    }
}

/* Reading */

static GBytes *read_staged (EcfsStaged *staged, uint64_t size)
{
    uint8_t *bytes = g_malloc0 (size + 1);
    g_assert_cmpint (ecfs_pread_all (ecfs_staged_fd (staged), bytes, size, 0), ==, size);
    ecfs_staged_read_end (staged);
    return g_bytes_new_take (bytes, size);
}

static GBytes *read_content (Actor *self, uint64_t ino, uint64_t size, GError **error)
{
    GError *reason = NULL;
    EcfsStaged *staged = ecfs_staged_read_begin (self->fixture.archive, ino, &reason);
    if (staged != NULL)
        return read_staged (staged, size);
    EcfsContent *content = reason == NULL ? ecfs_content_open (self->fixture.archive, ino, &reason) : NULL;
    g_autofree uint8_t *bytes = g_malloc0 (size + 1);
    g_assert_true (content == NULL || ecfs_content_size (content) == size);
    for (size_t at = 0, got; at < size && reason == NULL; at += got)
        if (ecfs_content_read_wait (content, at, size - at, bytes + at, &got, &reason))
            g_assert_cmpuint (got, >, 0);
    ecfs_content_unref (content);
    if (reason == NULL)
        return g_bytes_new_take (g_steal_pointer (&bytes), size);
    g_propagate_error (error, reason);
    return NULL;
}

static int read_it (Actor *self, const Op *op)
{
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    unsigned moment = ecfs_staged_epoch (self->fixture.archive);
    if (!ecfs_catalog_resolve (catalog_of (self), op->path, &attr, &error))
        return ecfs_errno (error);
    if (!S_ISREG (attr.mode))
        return EISDIR;
    ecfs_staged_overlay (self->fixture.archive, moment, &attr);
    g_autoptr (GBytes) bytes = read_content (self, attr.ino, attr.size, &error);
    if (bytes == NULL)
        return ecfs_errno (error);
    self->hash = script_hash (bytes);
    return 0;
}

/* The rest */

static void move_endpoint (const char *base, unsigned i, bool hide)
{
    g_autofree char *here = g_strdup_printf ("%s/e%u", base, i);
    g_autofree char *away = g_strdup_printf ("%s/e%u.away", base, i);
    /* Straight to the kernel: that is no step of the archive. */
    (void) syscall (SYS_rename, hide ? here : away, hide ? away : here);
}

void actor_show_endpoints (const char *base)
{
    for (unsigned i = 0; i < N_PLACES; i++)
        move_endpoint (base, i, false);
}

static void wait_until_drained (Actor *self)
{
    EcfsTotals totals;
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    do {
        g_usleep (500);
        g_assert_true (ecfs_catalog_totals (catalog_of (self), &totals, NULL));
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    } while (totals.n_deletions > 0);
}

int actor_wait (Actor *self)
{
    g_autoptr (GError) error = NULL;
    int code = wait_for_all (&self->fixture, true);
    if (code == 0 && !ecfs_archive_store_journal (self->fixture.archive, NULL, NULL, &error))
        code = ecfs_errno (error);
    return code;
}

/* What is done from outside, and by other machines. */
static bool needs_archive (const Op *op)
{
    return op->kind < OP_BLOT && op->kind != OP_HIDE && op->kind != OP_SHOW;
}

int actor_do (Actor *self, const Op *op)
{
    if (self->fixture.archive == NULL && needs_archive (op))
        return ESTALE;
    switch (op->kind) {
    case OP_CREATE:
        return create_it (self, op);
    case OP_OPEN:
    case OP_TRUNCATE:
        return open_it (self, op);
    case OP_WRITE:
    case OP_RESIZE:
    case OP_FLUSH:
    case OP_FSYNC:
    case OP_CLOSE:
    case OP_BEGIN:
    case OP_AWAIT:
        return do_content (self, op);
    case OP_HIDE:
    case OP_SHOW:
        move_endpoint (self->fixture.base, (unsigned) op->a, op->kind == OP_HIDE);
        return 0;
    case OP_WAIT:
        return actor_wait (self);
    case OP_REMOUNT:
        actor_suspend (self);
        actor_resume (self);
        return 0;
    case OP_READ:
        return read_it (self, op);
    case OP_PUT:
    case OP_RECODE:
    case OP_COOL:
    case OP_PACK:
    case OP_EMPTY:
    case OP_TAKE_OUT:
    case OP_REPLACE:
    case OP_READONLY:
    case OP_ACTIVE:
    case OP_FSCK:
    case OP_RECOVER:
    case OP_BACKUP:
    case OP_STALE:
    case OP_DAMAGE:
    case OP_LOSE:
    case OP_HEAL:
    case OP_BLOT:
    case OP_WAY:
    case OP_ROTATE:
    case OP_KEYED:
        return verbs_do (self, op);
    case OP_ELSEWHERE:
    case OP_RESUME:
    case OP_OUTCOME:
    case OP_FREEZE:
    case OP_KILL:
    case OP_CANCEL:
    case OP_WITHOUT:
    case OP_SPOIL:
        return elsewhere_do (self->fixture.base, op);
    case OP_END:
        actor_close (self);
        return 0;
    case OP_DRAIN:
        wait_until_drained (self);
        return 0;
    case OP_SYNC:
        return ecfs_catalog_barrier (catalog_of (self), NULL) ? 0 : EIO;
    default:
        return do_name (self, op);
    }
}

/* Looking */

static Found *look_at (Actor *self, unsigned moment, EcfsAttr *attr)
{
    Found *found = g_new0 (Found, 1);
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) note = ecfs_catalog_getxattr (catalog_of (self), attr->ino, NOTE, NULL);
    ecfs_staged_overlay (self->fixture.archive, moment, attr);
    *found = (Found){.ino = attr->ino,
                     .mode = attr->mode,
                     .mtime_s = attr->mtime_ns / 1000000000,
                     .note = note == NULL ? NULL : g_strndup ((char *) note->data, note->len)};
    if (S_ISREG (attr->mode))
        found->content = read_content (self, attr->ino, attr->size, &error);
    g_assert_no_error (error);
    if (S_ISLNK (attr->mode)) {
        char *target = ecfs_catalog_readlink (catalog_of (self), attr->ino, &error);
        g_assert_no_error (error);
        found->content = g_bytes_new_take (target, strlen (target) + 1);
    }
    return found;
}

static void look_below (Actor *self, uint64_t ino, const char *prefix, GHashTable *tree)
{
    g_autoptr (GError) error = NULL;
    unsigned moment = ecfs_staged_epoch (self->fixture.archive);
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (catalog_of (self), ino, 0, 1000, &error);
    g_assert_no_error (error);
    for (guint i = 0; i < entries->len; i++) {
        EcfsDirent *entry = entries->pdata[i];
        char *path = g_strconcat (prefix, entry->name, NULL);
        g_autofree char *below = g_strconcat (path, "/", NULL);
        g_hash_table_insert (tree, path, look_at (self, moment, &entry->attr));
        if (S_ISDIR (entry->attr.mode))
            look_below (self, entry->attr.ino, below, tree);
    }
}

GHashTable *actor_tree (Actor *self)
{
    GHashTable *tree = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) found_free);
    look_below (self, ECFS_ROOT_INO, "", tree);
    return tree;
}
