/*
 * A mount that follows what another machine writes: a thread keeps the catalog up with the journal. The kernel is told
 * by another thread what changed, since it may wait for reads that wait for the first; names and attributes that it is
 * not told of are looked up again after a second, as in every mount for reading.
 *
 * Each open file has the content that it was opened with. A read may find that stripes of it are gone, since it was
 * deleted or moved: it is tried again once, behind what is newer by then.
 */
#include "recover/follow.h"
#include "archive/common.h"
#include "catalog/journal.h"
#include "fs/fs_priv.h"
#include "program/program.h"
#include "util/ticker.h"
#include "verbs/status.h"

#include <json-glib/json-glib.h>

#define LOOK_US (2 * G_USEC_PER_SEC) /* between looks at the endpoints */

typedef struct Waiting {
    void (*then) (void *user);
    void *user;
} Waiting;

struct EcfsFsFollow {
    EcfsFs *fs;
    struct fuse_session *session;
    EcfsFollow *follow; /* the ticker's */
    bool has_failed;    /* and it was said; likewise */
    EcfsTicker *ticker;
    EcfsWorkers *teller; /* of the kernel */
    EcfsMutex lock;
    GArray *waiting; /* of Waiting; guarded by lock */
};

/* The kernel */

typedef struct News {
    EcfsFsFollow *follow;
    GPtrArray *rows; /* of EcfsJournalRow; NULL: anything may have changed */
} News;

static uint64_t *known_inodes (EcfsFs *fs, guint *ret_n)
{
    GHashTableIter iter;
    gpointer value;
    ecfs_mutex_lock (&fs->lock);
    uint64_t *inodes = g_new (uint64_t, g_hash_table_size (fs->inodes) + 1);
    *ret_n = 0;
    g_hash_table_iter_init (&iter, fs->inodes);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        inodes[(*ret_n)++] = ((const EcfsInode *) value)->ino;
    ecfs_mutex_unlock (&fs->lock);
    return inodes;
}

static void tell_of_item (struct fuse_session *session, const EcfsJournalItem *item)
{
    g_autofree char *name = NULL;
    switch (item->type) {
    case ECFS_JOURNAL_NAME_ADDED:
    case ECFS_JOURNAL_NAME_REMOVED:
        name = g_strndup ((const char *) item->name.bytes, item->name.size);
        (void) fuse_lowlevel_notify_inval_entry (session, item->parent, name, strlen (name)); /* it may not know it */
        (void) fuse_lowlevel_notify_inval_inode (session, item->parent, 0, 0);
        break;
    case ECFS_JOURNAL_INODE:
    case ECFS_JOURNAL_TOUCH:
    case ECFS_JOURNAL_CONTENT:
        (void) fuse_lowlevel_notify_inval_inode (session, item->attr.ino, 0, 0); /* likewise */
        break;
    default:
        break;
    }
}

static void tell_each (void *user, const EcfsJournalItem *item)
{
    const EcfsFsFollow *self = user;
    tell_of_item (self->session, item);
}

static void tell_kernel (void *data)
{
    News *news = data;
    EcfsFsFollow *self = news->follow;
    if (news->rows != NULL) {
        ecfs_journal_each_item (news->rows, tell_each, self);
        g_ptr_array_unref (news->rows);
    } else {
        guint n;
        g_autofree uint64_t *inodes = known_inodes (self->fs, &n);
        for (guint i = 0; i < n; i++)
            (void) fuse_lowlevel_notify_inval_inode (self->session, inodes[i], 0, 0); /* likewise */
    }
    g_free (news);
}

/* Before any endpoint was reached, what is shown is what the mount before this one had followed. */
static void add_place (JsonObject *facts, const EcfsFollowed *state, const char *directory)
{
    static const char *const members[] = {"epoch", "sequence", "changed_ns", "endpoints"};
    const int64_t now[] = {state->epoch, (int64_t) state->sequence, state->time_ns, (int64_t) state->n_known};
    g_autoptr (JsonObject) before = state->n_known == 0 ? ecfs_status_followed (directory) : NULL;
    for (unsigned i = 0; i < G_N_ELEMENTS (members); i++)
        json_object_set_int_member (facts, members[i],
                                    before == NULL ? now[i]
                                                   : json_object_get_int_member_with_default (before, members[i], 0));
}

/* For `ecfs status`; without it that says less. */
static void keep_state (const EcfsFsFollow *self, const GError *why)
{
    const EcfsFollowed *state = ecfs_follow_state (self->follow);
    JsonObject *facts = json_object_new ();
    add_place (facts, state, ecfs_archive_directory (self->fs->archive));
    json_object_set_int_member (facts, "looked_s", g_get_real_time () / G_USEC_PER_SEC);
    json_object_set_int_member (facts, "endpoints_asked", (int64_t) state->n_asked);
    json_object_set_boolean_member (facts, "sure", state->is_sure);
    json_object_set_object_member (facts, "reads", ecfs_status_reads (ecfs_archive_read_log (self->fs->archive)));
    ecfs_status_add_peers (facts, self->fs->archive);
    if (why != NULL)
        json_object_set_string_member (facts, "trouble", why->message);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    g_autofree char *text = json_to_string (node, FALSE);
    g_autofree char *path = g_build_filename (ecfs_archive_directory (self->fs->archive), ECFS_FOLLOWED_NAME, NULL);
    g_autoptr (GError) error = NULL;
    if (!g_file_set_contents_full (path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0600, &error))
        g_info ("%s", error->message);
}

static void say (EcfsFsFollow *self, const GError *why)
{
    if (why != NULL && !self->has_failed)
        g_warning ("%s: what is new cannot be followed now: %s", ecfs_archive_directory (self->fs->archive),
                   why->message);
    if (why == NULL && self->has_failed)
        g_message ("%s: what is new is followed again", ecfs_archive_directory (self->fs->archive));
    self->has_failed = why != NULL;
}

static void step (EcfsFsFollow *self)
{
    GPtrArray *rows;
    g_autoptr (GError) why = NULL;
    bool went = ecfs_follow_step (self->follow, &rows, &why);
    say (self, why);
    keep_state (self, why);
    if (!went || (rows != NULL && rows->len == 0)) {
        g_clear_pointer (&rows, g_ptr_array_unref);
        return;
    }
    ecfs_archive_stripes_changed (self->fs->archive); /* so what is open looks where its content is */
    News *news = g_new (News, 1);
    *news = (News){.follow = self, .rows = rows};
    ecfs_workers_push (self->teller, tell_kernel, news);
}

static void serve_waiting (GArray *waiting)
{
    for (guint i = 0; i < waiting->len; i++) {
        const Waiting *one = &g_array_index (waiting, Waiting, i);
        one->then (one->user);
    }
    g_array_unref (waiting);
}

static GArray *take_waiting (EcfsFsFollow *self, bool at_end)
{
    ecfs_mutex_lock (&self->lock);
    GArray *waiting = self->waiting;
    self->waiting = at_end ? NULL : g_array_new (FALSE, FALSE, sizeof (Waiting));
    ecfs_mutex_unlock (&self->lock);
    return waiting;
}

static void tick (void *user)
{
    EcfsFsFollow *self = user;
    GArray *waiting = take_waiting (self, false); /* before the step: it is behind their errors */
    step (self);
    serve_waiting (waiting);
}

bool ecfs_fs_follow_then (EcfsFsFollow *self, void (*then) (void *user), void *user)
{
    const Waiting waiting = {.then = then, .user = user};
    if (self == NULL)
        return false;
    ecfs_mutex_lock (&self->lock);
    bool lives = self->waiting != NULL;
    if (lives)
        g_array_append_val (self->waiting, waiting);
    ecfs_mutex_unlock (&self->lock);
    ecfs_ticker_nudge (self->ticker);
    return lives;
}

/* Files that are open */

/* Whoever writes may set any modification time, but not when the inode was changed. Being moved changes neither. */
static bool is_same (const EcfsAttr *a, const EcfsAttr *b)
{
    return a->committed_size == b->committed_size && a->committed_mtime_ns == b->committed_mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

/* What the catalog says of the content now; damage that is met there is for who writes. */
static EcfsContent *open_now (EcfsFs *self, uint64_t ino, EcfsAttr *ret_attr, GError **error)
{
    EcfsAttr after;
    for (;;) { /* until the attributes are those of the content */
        if (!ecfs_catalog_getattr (self->catalog, ino, ret_attr, error))
            return NULL;
        EcfsContent *content = ecfs_content_open (self->archive, ino, error);
        if (content == NULL)
            return NULL;
        if (ecfs_catalog_getattr (self->catalog, ino, &after, NULL) && is_same (ret_attr, &after)) {
            ecfs_content_pass_over_damage (content);
            ecfs_content_set_caching (content, ECFS_CACHING_FILLS);
            return content;
        }
        ecfs_content_unref (content);
    }
}

void ecfs_fs_open_followed (fuse_req_t req, uint64_t ino, struct fuse_file_info *fi)
{
    EcfsAttr attr;
    EcfsFs *self = ecfs_fs_of (req);
    g_autoptr (GError) error = NULL;
    EcfsContent *content = open_now (self, ino, &attr, &error);
    if (content == NULL) {
        ecfs_fs_reply_error (req, ino, "opening it", error);
        return;
    }
    EcfsHandle *handle = ecfs_fs_handle_new (self, ino, NULL);
    ecfs_mutex_lock (&self->lock);
    handle->followed = content;
    handle->opened = attr;
    ecfs_mutex_unlock (&self->lock);
    fi->fh = (uintptr_t) handle;
    fi->direct_io = 1; /* the kernel would fill what it reads up to the size that it knows, or cut it there */
    if (fuse_reply_open (req, fi) != 0)
        ecfs_fs_handle_free (self, handle);
}

EcfsContent *ecfs_fs_followed (EcfsFs *self, EcfsHandle *handle, bool anew, GError **error)
{
    EcfsAttr now;
    ecfs_mutex_lock (&self->lock);
    EcfsContent *content = ecfs_content_ref (handle->followed);
    const EcfsAttr opened = handle->opened;
    ecfs_mutex_unlock (&self->lock);
    if (!anew && ecfs_content_is_current (content))
        return content;
    EcfsContent *moved = open_now (self, handle->inode->ino, &now, NULL); /* where there is none, it was removed */
    if (moved == NULL || !is_same (&opened, &now)) {
        ecfs_content_unref (moved);
        if (!anew)
            return content;
        ecfs_content_unref (content);
        (void) !ecfs_fail (error, ESTALE, "another machine has replaced or removed it, and its stripes are gone");
        return NULL;
    }
    ecfs_content_unref (content);
    ecfs_mutex_lock (&self->lock);
    EcfsContent *before = handle->followed;
    handle->followed = ecfs_content_ref (moved);
    ecfs_mutex_unlock (&self->lock);
    ecfs_content_unref (before);
    return moved;
}

bool ecfs_fs_followed_attr (EcfsFs *self, uint64_t ino, EcfsAttr *ret_attr)
{
    bool found = false;
    GHashTableIter iter;
    gpointer key;
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->handles);
    while (!found && g_hash_table_iter_next (&iter, &key, NULL)) {
        const EcfsHandle *handle = key;
        found = handle->followed != NULL && handle->inode->ino == ino;
        if (found)
            *ret_attr = handle->opened;
    }
    ecfs_mutex_unlock (&self->lock);
    if (found)
        ret_attr->nlink = 0;
    return found;
}

EcfsFsFollow *ecfs_fs_follow_begin (EcfsFs *fs, struct fuse_session *session, GError **error)
{
    EcfsFollow *follow = ecfs_follow_begin (fs->archive, error);
    if (follow == NULL)
        return NULL;
    EcfsFsFollow *self = g_new0 (EcfsFsFollow, 1);
    self->fs = fs;
    self->session = session;
    self->follow = follow;
    self->waiting = g_array_new (FALSE, FALSE, sizeof (Waiting));
    ecfs_mutex_init (&self->lock);
    self->teller = ecfs_workers_new ("ecfs-tell", 1);
    step (self); /* so that nobody sees what was there when it was mounted last, if it can be helped */
    return self;
}

void ecfs_fs_follow_start (EcfsFsFollow *self)
{
    if (self != NULL)
        self->ticker = ecfs_ticker_start (LOOK_US, tick, self);
}

void ecfs_fs_follow_stop (EcfsFsFollow *self)
{
    if (self == NULL)
        return;
    ecfs_ticker_stop (g_steal_pointer (&self->ticker));
    serve_waiting (take_waiting (self, true));
    ecfs_workers_free (g_steal_pointer (&self->teller));
}

void ecfs_fs_follow_free (EcfsFsFollow *self)
{
    if (self == NULL)
        return;
    ecfs_follow_end (self->follow);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
