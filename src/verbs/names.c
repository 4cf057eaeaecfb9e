#include "verbs/names.h"

#include "archive/common.h"
#include "staging/staged.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <stdio.h>
#include <string.h>

#define BATCH 256 /* entries of a directory that are removed between two looks at it */

char **ecfs_names_split (const char *path, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (path, "/", -1);
    g_autoptr (GStrvBuilder) names = g_strv_builder_new ();
    for (char **part = parts; *part != NULL; part++) {
        if (strcmp (*part, "..") == 0) {
            (void) !ecfs_fail (error, EINVAL, "%s: a path in the archive has no \"..\"", path);
            return NULL;
        }
        if (**part != '\0' && strcmp (*part, ".") != 0)
            g_strv_builder_add (names, *part);
    }
    return g_strv_builder_end (names);
}

/* A name and the directory that it is in. */
typedef struct Place {
    uint64_t parent;
    char *name; /* owned */
} Place;

static void place_clear (Place *self)
{
    g_clear_pointer (&self->name, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Place, place_clear)

static EcfsCatalog *catalog_of (const EcfsNames *self)
{
    return ecfs_archive_catalog (self->archive);
}

static bool find_directory (const EcfsNames *self, char **names, size_t n_names, uint64_t *ret_ino, GError **error)
{
    EcfsAttr attr;
    *ret_ino = ECFS_ROOT_INO;
    for (size_t i = 0; i < n_names; i++) {
        if (!ecfs_catalog_lookup (catalog_of (self), *ret_ino, names[i], &attr, error))
            return false;
        if (!S_ISDIR (attr.mode))
            return ecfs_fail (error, ENOTDIR, "%s: it is not a directory", names[i]);
        *ret_ino = attr.ino;
    }
    return true;
}

/* EBUSY for the root, which has no name. */
static bool find_place (const EcfsNames *self, const char *path, Place *ret_place, GError **error)
{
    g_auto (GStrv) names = ecfs_names_split (path, error);
    if (names == NULL)
        return false;
    size_t n_names = g_strv_length (names);
    if (n_names == 0)
        return ecfs_fail (error, EBUSY, "%s is the root of the archive, which cannot be changed", path);
    if (!find_directory (self, names, n_names - 1, &ret_place->parent, error))
        return ecfs_prefix (error, "%s", path);
    ret_place->name = g_strdup (names[n_names - 1]);
    return true;
}

/* Content that waits in staging is the next mount's, which drops it with its inode. */
static bool is_staged (const EcfsNames *self, uint64_t ino)
{
    bool is_staged;
    return !ecfs_catalog_is_staged (catalog_of (self), ino, &is_staged, NULL) || is_staged;
}

void ecfs_names_changed (const EcfsNames *self, uint64_t parent, const char *name, const EcfsAttr *lost)
{
    g_autoptr (GError) error = NULL;
    /* Others may have open what they share: who leads drops it later. */
    bool is_last =
        lost->ino != 0 && (lost->nlink == 0 || S_ISDIR (lost->mode)) && !ecfs_catalog_is_shared (catalog_of (self));
    if (self->watch != NULL && self->watch->renamed != NULL)
        self->watch->renamed (self->watch->user, parent, name, lost);
    else if (is_last && !is_staged (self, lost->ino) && !ecfs_catalog_drop (catalog_of (self), lost->ino, &error))
        g_info ("%s", error->message); /* done again at the next mount */
}

/* Removing */

static bool remove_name (const EcfsNames *self, uint64_t parent, const char *name, bool is_directory, GError **error)
{
    EcfsAttr lost;
    bool removed = is_directory ? ecfs_catalog_rmdir (catalog_of (self), parent, name, &lost, error)
                                : ecfs_catalog_unlink (catalog_of (self), parent, name, &lost, error);
    if (removed)
        ecfs_names_changed (self, parent, name, &lost);
    return removed;
}

/* A directory that is being emptied. */
typedef struct Level {
    Place place;
    uint64_t ino;
} Level;

static void level_clear (void *data)
{
    Level *self = data;
    place_clear (&self->place);
}

static void descend (GArray *levels, uint64_t parent, const char *name, uint64_t ino)
{
    const Level level = {.place = {.parent = parent, .name = g_strdup (name)}, .ino = ino};
    g_array_append_val (levels, level);
}

/* Removes what has no entries of its own in a directory, up to the first directory, which becomes the last level. */
static bool remove_some (const EcfsNames *self, GArray *levels, bool *ret_empty, GError **error)
{
    uint64_t ino = g_array_index (levels, Level, levels->len - 1).ino;
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (catalog_of (self), ino, 0, BATCH, error);
    if (entries == NULL)
        return false;
    *ret_empty = entries->len == 0;
    for (guint i = 0; i < entries->len; i++) {
        const EcfsDirent *entry = g_ptr_array_index (entries, i);
        g_autoptr (GError) why = NULL;
        if (S_ISDIR (entry->attr.mode)) {
            descend (levels, ino, entry->name, entry->attr.ino);
            return true;
        }
        if (!remove_name (self, ino, entry->name, false, &why) && ecfs_errno (why) != ENOENT) {
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
    }
    return true;
}

/* Without recursion: directories may be as deep as somebody made them. */
static bool remove_tree (const EcfsNames *self, const Place *place, uint64_t ino, GError **error)
{
    g_autoptr (GArray) levels = g_array_new (FALSE, FALSE, sizeof (Level));
    g_array_set_clear_func (levels, level_clear);
    descend (levels, place->parent, place->name, ino);
    while (levels->len > 0) {
        bool is_empty;
        guint last = levels->len - 1;
        if (!remove_some (self, levels, &is_empty, error))
            return false;
        if (!is_empty)
            continue;
        const Level *level = &g_array_index (levels, Level, last);
        g_autoptr (GError) why = NULL;
        bool removed = remove_name (self, level->place.parent, level->place.name, true, &why);
        if (removed || ecfs_errno (why) == ENOENT)
            g_array_set_size (levels, last);
        else if (ecfs_errno (why) != ENOTEMPTY) { /* somebody has put something in: it goes, too */
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
    }
    return true;
}

bool ecfs_names_remove (const EcfsNames *self, const char *path, bool recursive, GError **error)
{
    g_auto (Place) place = {0};
    EcfsAttr attr;
    if (!find_place (self, path, &place, error))
        return false;
    bool removed = ecfs_catalog_lookup (catalog_of (self), place.parent, place.name, &attr, error);
    if (removed && S_ISDIR (attr.mode) && recursive)
        removed = remove_tree (self, &place, attr.ino, error);
    else if (removed)
        removed = remove_name (self, place.parent, place.name, S_ISDIR (attr.mode), error);
    return removed ? ecfs_catalog_barrier (catalog_of (self), error) : ecfs_prefix (error, "%s", path);
}

/* Moving */

typedef struct Waiter {
    EcfsMutex lock;
    EcfsCond changed;
    bool done;     /* guarded by lock, as the next */
    GError *error; /* owned */
} Waiter;

static void on_ready (void *user, const GError *error)
{
    Waiter *self = user;
    ecfs_mutex_lock (&self->lock);
    self->done = true;
    self->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_cond_signal (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

/* What takes the place of another file is durable on this machine before. */
static bool settle (const EcfsNames *self, const Place *from, const Place *to, GError **error)
{
    Waiter waiter = {.done = false};
    ecfs_mutex_init (&waiter.lock);
    ecfs_cond_init (&waiter.changed);
    ecfs_staged_before_rename (self->archive, from->parent, from->name, to->parent, to->name, on_ready, &waiter);
    ecfs_mutex_lock (&waiter.lock);
    while (!waiter.done)
        (void) ecfs_cond_wait_until (&waiter.changed, &waiter.lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&waiter.lock);
    ecfs_cond_clear (&waiter.changed);
    ecfs_mutex_clear (&waiter.lock);
    if (waiter.error == NULL)
        return true;
    g_propagate_error (error, waiter.error);
    return false;
}

/* Without a mount nobody makes staged content durable, or stores it. */
static bool check_stored (const EcfsNames *self, const Place *from, const Place *to, GError **error)
{
    EcfsAttr attr, old;
    if (!ecfs_catalog_lookup (catalog_of (self), from->parent, from->name, &attr, error))
        return false;
    return !ecfs_catalog_lookup (catalog_of (self), to->parent, to->name, &old, NULL) || !is_staged (self, attr.ino) ||
           ecfs_fail (
               error, EBUSY,
               "its content is not stored yet, and would replace a file that is: mount the archive to store it first");
}

/* Into the directory @to under the own name, or to the name @to. */
static bool find_target (const EcfsNames *self, const char *to, const Place *from, Place *ret_place, GError **error)
{
    EcfsAttr attr;
    bool is_directory = ecfs_catalog_resolve (catalog_of (self), to, &attr, NULL) && S_ISDIR (attr.mode);
    if (is_directory) {
        *ret_place = (Place){.parent = attr.ino, .name = g_strdup (from->name)};
        return true;
    }
    if (g_str_has_suffix (to, "/"))
        return ecfs_fail (error, ENOTDIR, "%s: there is no such directory", to);
    return find_place (self, to, ret_place, error);
}

bool ecfs_names_move (const EcfsNames *self, const char *from, const char *to, bool keep, GError **error)
{
    static const EcfsAttr nobody = {.ino = 0};
    g_auto (Place) old = {0};
    g_auto (Place) new = {0};
    EcfsAttr lost = {0};
    if (!find_place (self, from, &old, error) || !find_target (self, to, &old, &new, error))
        return false;
    unsigned flags = keep ? RENAME_NOREPLACE : 0;
    bool is_served = self->watch != NULL;
    if (!keep && !(is_served ? settle (self, &old, &new, error) : check_stored (self, &old, &new, error)))
        return ecfs_prefix (error, "%s", from);
    if (!ecfs_catalog_rename (catalog_of (self), old.parent, old.name, new.parent, new.name, flags, &lost, error))
        return ecfs_prefix (error, "%s to %s", from, to);
    ecfs_names_changed (self, old.parent, old.name, &nobody);
    ecfs_names_changed (self, new.parent, new.name, &lost);
    return ecfs_catalog_barrier (catalog_of (self), error);
}

/* Making */

static bool make_one (const EcfsNames *self, uint64_t parent, const char *name, uint32_t mode, bool may_be_there,
                      uint64_t *ret_ino, GError **error)
{
    static const EcfsAttr nobody = {.ino = 0};
    const EcfsNewInode inode = {.mode = S_IFDIR | (mode & 07777), .uid = self->uid, .gid = self->gid};
    g_autoptr (GError) why = NULL;
    EcfsAttr attr;
    bool made = ecfs_catalog_make (catalog_of (self), parent, name, &inode, &attr, NULL, &why);
    bool is_there = !made && may_be_there && ecfs_errno (why) == EEXIST &&
                    ecfs_catalog_lookup (catalog_of (self), parent, name, &attr, NULL) && S_ISDIR (attr.mode);
    if (!made && !is_there) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    if (made)
        ecfs_names_changed (self, parent, name, &nobody);
    *ret_ino = attr.ino;
    return true;
}

bool ecfs_names_make_directory (const EcfsNames *self, const char *path, uint32_t mode, bool parents, GError **error)
{
    g_auto (GStrv) names = ecfs_names_split (path, error);
    if (names == NULL)
        return false;
    size_t n_names = g_strv_length (names);
    uint64_t ino = ECFS_ROOT_INO;
    bool made = n_names > 0 || parents || ecfs_fail (error, EEXIST, "it is there already");
    if (made && !parents && n_names > 0)
        made = find_directory (self, names, n_names - 1, &ino, error);
    for (size_t i = parents || n_names == 0 ? 0 : n_names - 1; made && i < n_names; i++)
        made = make_one (self, ino, names[i], i + 1 < n_names ? 0755 : mode, parents, &ino, error);
    return made ? ecfs_catalog_barrier (catalog_of (self), error) : ecfs_prefix (error, "%s", path);
}

/* Whoever asks */

static bool ask (Ecfs *self, JsonObject *request, GError **error)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, request);
    g_autoptr (JsonNode) answer = ecfs_control_call (ecfs_archive_directory (self->archive), node, error);
    return answer != NULL;
}

static JsonObject *request_new (const char *verb, const char *path)
{
    JsonObject *request = json_object_new ();
    g_autofree char *text = ecfs_control_escape (path);
    json_object_set_string_member (request, "verb", verb);
    json_object_set_string_member (request, "path", text);
    return request;
}

static bool may_change (Ecfs *self, GError **error)
{
    return self->writable || ecfs_fail (error, EROFS, "%s is open for reading", ecfs_archive_directory (self->archive));
}

static EcfsNames here (Ecfs *self)
{
    return (EcfsNames){.archive = self->archive, .uid = geteuid (), .gid = getegid ()};
}

bool ecfs_remove (Ecfs *self, const char *path, bool recursive, GError **error)
{
    const EcfsNames names = here (self);
    if (!may_change (self, error))
        return false;
    if (!self->mounted)
        return ecfs_names_remove (&names, path, recursive, error);
    JsonObject *request = request_new ("rm", path);
    json_object_set_boolean_member (request, "recursive", recursive);
    return ask (self, request, error);
}

bool ecfs_move (Ecfs *self, const char *from, const char *to, bool keep, GError **error)
{
    const EcfsNames names = here (self);
    if (!may_change (self, error))
        return false;
    if (!self->mounted)
        return ecfs_names_move (&names, from, to, keep, error);
    JsonObject *request = request_new ("mv", from);
    g_autofree char *text = ecfs_control_escape (to);
    json_object_set_string_member (request, "to", text);
    json_object_set_boolean_member (request, "keep", keep);
    return ask (self, request, error);
}

bool ecfs_make_directory (Ecfs *self, const char *path, uint32_t mode, bool parents, GError **error)
{
    const EcfsNames names = here (self);
    if (!may_change (self, error))
        return false;
    if (!self->mounted)
        return ecfs_names_make_directory (&names, path, mode, parents, error);
    JsonObject *request = request_new ("mkdir", path);
    json_object_set_int_member (request, "mode", mode);
    json_object_set_boolean_member (request, "parents", parents);
    return ask (self, request, error);
}
