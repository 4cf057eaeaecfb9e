#include "model.h"

#include <string.h>
#include <sys/stat.h>

#define MTIME_ANY INT64_MIN /* nobody set it */

/* Content and the time that travels with it. */
typedef struct Version {
    GBytes *bytes;
    int64_t mtime_s;
} Version;

typedef struct File {
    uint32_t type; /* S_IFREG, S_IFDIR, S_IFLNK */
    char *target;
    char *note;
    Version *durable; /* NULL: no content was ever flushed */
    bool loose;       /* it was fsynced, and is open still: what is written now may replace its bytes one by one */
    GPtrArray *ever;  /* of Version: all that it was */
    guint loose_from; /* of these, the first after it was fsynced */
    GPtrArray *maybe; /* of Version: what a flush that was not answered, or failed, may have stored */
    Version *newest;  /* what readers get; NULL: not a file */
    bool dirty;       /* the newest is not flushed */
    bool flushing;
    unsigned n_names;
    unsigned n_handles;
} File;

struct Model {
    GPtrArray *files;    /* of File, in the order in which they were made */
    GHashTable *names;   /* path → File */
    GHashTable *handles; /* path when it was opened → File */
};

static Version *version_new (GBytes *bytes, int64_t mtime_s)
{
    Version *version = g_new (Version, 1);
    *version = (Version){.bytes = g_bytes_ref (bytes), .mtime_s = mtime_s};
    return version;
}

static void version_free (gpointer data)
{
    Version *version = data;
    if (version == NULL)
        return;
    g_bytes_unref (version->bytes);
    g_free (version);
}

static void file_free (gpointer data)
{
    File *file = data;
    g_free (file->target);
    g_free (file->note);
    version_free (file->durable);
    version_free (file->newest);
    g_ptr_array_unref (file->ever);
    g_ptr_array_unref (file->maybe);
    g_free (file);
}

Model *model_new (void)
{
    Model *self = g_new0 (Model, 1);
    self->files = g_ptr_array_new_with_free_func (file_free);
    self->names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    self->handles = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    return self;
}

void model_free (Model *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->names);
    g_hash_table_unref (self->handles);
    g_ptr_array_unref (self->files);
    g_free (self);
}

/* Names */

static File *named (const Model *self, const char *path)
{
    return g_hash_table_lookup (self->names, path);
}

static void take_name (Model *self, const char *path)
{
    File *file = named (self, path);
    if (file != NULL) {
        file->n_names--;
        g_hash_table_remove (self->names, path);
    }
}

static void give_name (Model *self, const char *path, File *file)
{
    take_name (self, path);
    file->n_names++;
    g_hash_table_insert (self->names, g_strdup (path), file);
}

static File *add_file (Model *self, const char *path, uint32_t type)
{
    File *file = g_new0 (File, 1);
    file->type = type;
    file->ever = g_ptr_array_new_with_free_func (version_free);
    file->maybe = g_ptr_array_new_with_free_func (version_free);
    g_ptr_array_add (self->files, file);
    give_name (self, path, file);
    return file;
}

/* Content */

static void set_newest (File *file, GBytes *bytes, int64_t mtime_s)
{
    version_free (file->newest);
    file->newest = version_new (bytes, mtime_s);
    file->dirty = true;
    g_ptr_array_add (file->ever, version_new (bytes, mtime_s));
    if (file->flushing)
        g_ptr_array_add (file->maybe, version_new (bytes, mtime_s));
}

static void set_durable (File *file, bool by_fsync)
{
    if (file->dirty || file->durable == NULL)
        file->loose = by_fsync;
    file->loose_from = file->ever->len;
    version_free (file->durable);
    file->durable = version_new (file->newest->bytes, file->newest->mtime_s);
    file->dirty = false;
    g_ptr_array_set_size (file->maybe, 0);
}

/* The newest bytes, as many of them as fit, and zeros behind. */
static uint8_t *copy_newest (const File *file, gsize size)
{
    gsize old_size;
    const uint8_t *old = g_bytes_get_data (file->newest->bytes, &old_size);
    uint8_t *bytes = g_malloc0 (size + 1);
    if (old_size > 0) /* else old is NULL */
        memcpy (bytes, old, MIN (old_size, size));
    return bytes;
}

static void resize (File *file, uint64_t size)
{
    uint8_t *bytes = copy_newest (file, size);
    g_autoptr (GBytes) resized = g_bytes_new_take (bytes, size);
    set_newest (file, resized, MTIME_ANY);
}

static void write_to (File *file, const Op *op)
{
    gsize new_size = MAX (g_bytes_get_size (file->newest->bytes), op->a + op->b);
    uint8_t *bytes = copy_newest (file, new_size);
    g_autoptr (GBytes) written = script_bytes (op->seed, op->b);
    memcpy (bytes + op->a, g_bytes_get_data (written, NULL), op->b);
    g_autoptr (GBytes) all = g_bytes_new_take (bytes, new_size);
    set_newest (file, all, MTIME_ANY);
}

static void begin_flush (File *file)
{
    file->flushing = true;
    g_ptr_array_add (file->maybe, version_new (file->newest->bytes, file->newest->mtime_s));
}

/* At least what was there when it began is durable now; perhaps something later. */
static void end_flush (File *file)
{
    const Version *begun = file->maybe->pdata[0];
    bool moved = file->maybe->len > 1;
    file->flushing = false;
    version_free (file->durable);
    file->durable = version_new (begun->bytes, begun->mtime_s);
    file->loose = false;
    if (moved)
        return;
    file->dirty = false;
    g_ptr_array_set_size (file->maybe, 0);
}

static void set_mtime (File *file, int64_t mtime_s)
{
    Version *version = file->dirty ? file->newest : file->durable;
    if (version != NULL)
        version->mtime_s = mtime_s;
    if (file->newest != NULL)
        file->newest->mtime_s = mtime_s;
}

/* Renaming */

static void rename_below (Model *self, const char *from, const char *to)
{
    g_autofree char *prefix = g_strconcat (from, "/", NULL);
    g_autoptr (GList) paths = g_hash_table_get_keys (self->names);
    for (GList *l = paths; l != NULL; l = l->next) {
        const char *path = l->data;
        if (!g_str_has_prefix (path, prefix))
            continue;
        File *file = named (self, path);
        g_autofree char *new_path = g_strconcat (to, "/", path + strlen (prefix), NULL);
        give_name (self, new_path, file);
        take_name (self, path);
    }
}

static void rename_name (Model *self, const char *from, const char *to)
{
    File *file = named (self, from);
    if (file == named (self, to))
        return;
    /* What takes the place of another is stored with the name: else nothing would be left of either. */
    if (file->dirty && named (self, to) != NULL)
        set_durable (file, true);
    give_name (self, to, file);
    take_name (self, from);
    if (file->type == S_IFDIR)
        rename_below (self, from, to);
}

/* What is open when the mount ends may be stored as it is, or not. */
static void end_all (Model *self)
{
    for (guint i = 0; i < self->files->len; i++) {
        File *file = self->files->pdata[i];
        if (file->type == S_IFREG && file->dirty)
            g_ptr_array_add (file->maybe, version_new (file->newest->bytes, file->newest->mtime_s));
    }
}

/* Operations */

static void open_handle (Model *self, const char *path, bool truncate)
{
    File *file = named (self, path);
    file->n_handles++;
    g_hash_table_insert (self->handles, g_strdup (path), file);
    if (truncate)
        resize (file, 0);
}

static void make_file (Model *self, const char *path)
{
    g_autoptr (GBytes) nothing = g_bytes_new (NULL, 0);
    File *file = add_file (self, path, S_IFREG);
    set_newest (file, nothing, MTIME_ANY);
}

static void close_handle (Model *self, const char *path)
{
    File *file = g_hash_table_lookup (self->handles, path);
    file->n_handles--;
    g_hash_table_remove (self->handles, path);
}

/* A file of its own, in place of what had the name. */
static void put_file (Model *self, const Op *op)
{
    make_file (self, op->path);
    File *file = named (self, op->path);
    g_autoptr (GBytes) bytes = script_bytes (op->seed, op->a);
    set_newest (file, bytes, MTIME_ANY);
    set_durable (file, false);
}

static void apply_content (Model *self, const Op *op)
{
    File *file = g_hash_table_lookup (self->handles, op->path);
    switch (op->kind) {
    case OP_WRITE:
        write_to (file, op);
        break;
    case OP_RESIZE:
        resize (file, op->a);
        break;
    case OP_BEGIN:
        begin_flush (file);
        break;
    case OP_AWAIT:
        end_flush (file);
        break;
    case OP_FLUSH:
    case OP_FSYNC:
    case OP_CLOSE:
        if (file->n_names > 0 && (file->dirty || file->durable == NULL))
            set_durable (file, op->kind == OP_FSYNC);
        if (op->kind == OP_CLOSE)
            close_handle (self, op->path);
        break;
    default:
        g_assert_not_reached ();
    }
}

static void apply_name (Model *self, const Op *op)
{
    switch (op->kind) {
    case OP_LINK:
        give_name (self, op->other, named (self, op->path));
        break;
    case OP_RENAME:
        rename_name (self, op->path, op->other);
        break;
    case OP_UNLINK:
    case OP_RMDIR:
        take_name (self, op->path);
        break;
    case OP_MKDIR:
        (void) add_file (self, op->path, S_IFDIR);
        break;
    case OP_SYMLINK:
        add_file (self, op->path, S_IFLNK)->target = g_strdup (op->other);
        break;
    case OP_SETXATTR:
    case OP_REMOVEXATTR:
        g_free (named (self, op->path)->note);
        named (self, op->path)->note = op->kind == OP_SETXATTR ? g_strdup (op->other) : NULL;
        break;
    case OP_MTIME:
        set_mtime (named (self, op->path), (int64_t) op->a);
        break;
    default:
        g_assert_not_reached ();
    }
}

/* A flush that was answered with an error promises nothing, and is tried again behind. So is one before a rename. */
static void apply_failure (Model *self, const Op *op)
{
    File *file = op->path == NULL ? NULL : g_hash_table_lookup (self->handles, op->path);
    if (op->kind == OP_RENAME)
        model_begin (self, op);
    if (file == NULL) /* it could not be opened */
        return;
    if (op->kind == OP_FLUSH || op->kind == OP_CLOSE || op->kind == OP_FSYNC)
        g_ptr_array_add (file->maybe, version_new (file->newest->bytes, file->newest->mtime_s));
    if (op->kind == OP_CLOSE)
        close_handle (self, op->path);
}

void model_apply (Model *self, const Op *op, bool failed)
{
    if (failed) {
        apply_failure (self, op);
        return;
    }
    switch (op->kind) {
    case OP_CREATE:
        make_file (self, op->path);
        open_handle (self, op->path, false);
        break;
    case OP_OPEN:
    case OP_TRUNCATE:
        open_handle (self, op->path, op->kind == OP_TRUNCATE);
        break;
    case OP_PUT:
        put_file (self, op);
        break;
    case OP_WRITE:
    case OP_RESIZE:
    case OP_FLUSH:
    case OP_FSYNC:
    case OP_CLOSE:
    case OP_BEGIN:
    case OP_AWAIT:
        apply_content (self, op);
        break;
    case OP_HIDE:
    case OP_SHOW:
    case OP_WAIT:
    case OP_REMOUNT:
    case OP_SYNC:
    case OP_DRAIN:
    case OP_EMPTY:
    case OP_TAKE_OUT:
    case OP_RECODE:
    case OP_COOL:
    case OP_PACK:
    case OP_READ:
    case OP_FSCK:
    case OP_REPLACE:
    case OP_READONLY:
    case OP_ACTIVE:
    case OP_DAMAGE:
    case OP_LOSE:
    case OP_HEAL:
    case OP_RECOVER:
    case OP_BACKUP:
    case OP_STALE:
    case OP_BLOT:
    case OP_WAY:
    case OP_ROTATE:
    case OP_KEYED:
    case OP_ELSEWHERE:
    case OP_RESUME:
    case OP_OUTCOME:
    case OP_FREEZE:
    case OP_KILL:
    case OP_CANCEL:
    case OP_WITHOUT:
    case OP_SPOIL:
        break;
    case OP_END:
        end_all (self);
        break;
    default:
        apply_name (self, op);
        break;
    }
}

void model_begin (Model *self, const Op *op)
{
    File *file = op->kind == OP_RENAME ? named (self, op->path) : NULL;
    if (file != NULL && file->dirty && named (self, op->other) != NULL)
        g_ptr_array_add (file->maybe, version_new (file->newest->bytes, file->newest->mtime_s));
}

GBytes *model_content (const Model *self, const char *path)
{
    const File *file = named (self, path);
    return file == NULL || file->newest == NULL ? NULL : file->newest->bytes;
}

bool model_makes_durable (const Model *self, const Op *op)
{
    const File *file = op->path == NULL ? NULL : g_hash_table_lookup (self->handles, op->path);
    switch (op->kind) {
    case OP_WAIT:
    case OP_REMOUNT:
    case OP_SYNC:
    case OP_PUT:
    case OP_RECODE:
    case OP_COOL:
    case OP_FSCK:
    case OP_RECOVER:
    case OP_BACKUP:
    case OP_STALE:
    case OP_WAY:
    case OP_ROTATE:
    case OP_KEYED:
    case OP_FSYNC:
        return true;
    case OP_AWAIT: /* nothing is committed of what has no name any more */
        return file->n_names > 0;
    case OP_FLUSH:
    case OP_CLOSE: /* what changed nothing is answered at once */
        return file->dirty && file->n_names > 0;
    default:
        return false;
    }
}

/* Comparing */

void found_free (Found *found)
{
    g_clear_pointer (&found->content, g_bytes_unref);
    g_free (found->note);
    g_free (found);
}

static bool is_version (const Version *version, const Found *found)
{
    return version != NULL && g_bytes_equal (version->bytes, found->content) &&
           (version->mtime_s == MTIME_ANY || version->mtime_s == found->mtime_s);
}

/* Whether each byte is that of @a or that of @b at its place. */
static bool is_between (GBytes *bytes, GBytes *a, GBytes *b)
{
    gsize size, a_size, b_size;
    const uint8_t *at = g_bytes_get_data (bytes, &size);
    const uint8_t *a_at = g_bytes_get_data (a, &a_size), *b_at = g_bytes_get_data (b, &b_size);
    if (size < MIN (a_size, b_size) || size > MAX (a_size, b_size))
        return false;
    for (gsize i = 0; i < size; i++)
        if (!(i < a_size && at[i] == a_at[i]) && !(i < b_size && at[i] == b_at[i]))
            return false;
    return true;
}

static bool has_at (const Version *version, gsize at, uint8_t byte)
{
    gsize size;
    const uint8_t *bytes = g_bytes_get_data (version->bytes, &size);
    return at < size && bytes[at] == byte;
}

/* Whether each byte is one that the file had at its place since it was fsynced: writes reach the disk in any order,
 * @later ones too. */
static bool is_loosely (const File *file, const File *later, GBytes *content)
{
    gsize size, least = g_bytes_get_size (file->durable->bytes), most = least;
    const uint8_t *bytes = g_bytes_get_data (content, &size);
    for (guint v = file->loose_from; v < later->ever->len; v++) {
        gsize version_size = g_bytes_get_size (((const Version *) later->ever->pdata[v])->bytes);
        least = MIN (least, version_size);
        most = MAX (most, version_size);
    }
    for (gsize i = 0; i < size; i++) {
        bool found = has_at (file->durable, i, bytes[i]);
        for (guint v = file->loose_from; v < later->ever->len && !found; v++)
            found = has_at (later->ever->pdata[v], i, bytes[i]);
        if (!found)
            return false;
    }
    return size >= least && size <= most;
}

static bool may_hold (const File *file, const File *later, const Found *found)
{
    if (is_version (file->durable, found))
        return true;
    for (guint i = 0; i < file->maybe->len; i++)
        if (is_version (file->maybe->pdata[i], found))
            return true;
    return file->loose && is_loosely (file, later, found->content);
}

static char *describe (GBytes *bytes)
{
    g_autofree char *digest = g_compute_checksum_for_bytes (G_CHECKSUM_MD5, bytes);
    return g_strdup_printf ("%zu bytes %.8s", g_bytes_get_size (bytes), digest);
}

static char *describe_expected (const File *file)
{
    GString *text = g_string_new (NULL);
    for (guint i = 0; i <= file->maybe->len; i++) {
        const Version *version = i == 0 ? file->durable : file->maybe->pdata[i - 1];
        if (version == NULL)
            continue;
        g_autofree char *one = describe (version->bytes);
        g_string_append_printf (text, "%s%s", text->len > 0 ? " or " : "", one);
        if (version->mtime_s != MTIME_ANY)
            g_string_append_printf (text, " of %" G_GINT64_FORMAT " s", version->mtime_s);
    }
    return g_string_free (text, FALSE);
}

static char *match_file (const File *file, const File *later, const char *path, const Found *found)
{
    if ((found->mode & S_IFMT) != file->type)
        return g_strdup_printf ("%s is of type %o and not %o", path, found->mode & S_IFMT, file->type);
    if (g_strcmp0 (found->note, file->note) != 0)
        return g_strdup_printf ("%s has the note %s and not %s", path, found->note, file->note);
    if (file->type == S_IFLNK && g_strcmp0 (g_bytes_get_data (found->content, NULL), file->target) != 0)
        return g_strdup_printf ("%s leads elsewhere", path);
    if (file->type != S_IFREG || may_hold (file, later, found))
        return NULL;
    g_autofree char *is = describe (found->content), *shall = describe_expected (file);
    return g_strdup_printf ("%s holds %s of %" G_GINT64_FORMAT " s and not %s", path, is, found->mtime_s, shall);
}

/* The same file under all of its names, and no other. */
static char *match_identity (GHashTable *inos, const File *file, const char *path, const Found *found)
{
    const File *known = g_hash_table_lookup (inos, &found->ino);
    g_autoptr (GList) others = g_hash_table_get_values (inos);
    if (known != NULL && known != file)
        return g_strdup_printf ("%s is the same file as another", path);
    if (known == NULL && g_list_find (others, file) != NULL)
        return g_strdup_printf ("%s is not the same file as its other names", path);
    g_hash_table_insert (inos, g_memdup2 (&found->ino, sizeof found->ino), (gpointer) file);
    return NULL;
}

/* The file in a model of more operations. */
static const File *in_later (const Model *self, const Model *later, const File *file)
{
    guint index;
    bool found = g_ptr_array_find (self->files, file, &index);
    g_assert (found && index < later->files->len);
    return later->files->pdata[index];
}

/* The file of that number in a model; NULL: it was made later. */
static const File *numbered (const Model *self, guint index)
{
    return index < self->files->len ? self->files->pdata[index] : NULL;
}

/* Whether a file held this in one of @models, or may have. */
static bool held_once (const GPtrArray *models, guint index, const Found *found)
{
    const Model *last = models->pdata[models->len - 1];
    for (guint i = 0; i < models->len; i++) {
        const File *file = numbered (models->pdata[i], index);
        if (file != NULL && file->type == S_IFREG && may_hold (file, numbered (last, index), found))
            return true;
    }
    return false;
}

static guint index_of (const Model *self, const File *file)
{
    guint index;
    bool found = g_ptr_array_find (self->files, file, &index);
    g_assert (found);
    return index;
}

/* What the journal tells of a name. */
static char *match_recovered (const GPtrArray *models, guint index, const File *file, const char *path,
                              const Found *found)
{
    if (found != NULL && file->type == S_IFREG && (found->mode & S_IFMT) == S_IFREG)
        return held_once (models, index, found) ? NULL : g_strdup_printf ("%s holds what it never held", path);
    const File *first = numbered (models->pdata[0], index);
    bool optional = file->type == S_IFREG && (first == NULL || first->durable == NULL);
    if (found == NULL)
        return optional ? NULL : g_strdup_printf ("%s is missing", path);
    return match_file (file, file, path, found);
}

/* Whether all that is not a hole was at its place in a version. */
static bool is_part (GBytes *content, const Version *version)
{
    gsize size, whole_size;
    const uint8_t *bytes = g_bytes_get_data (content, &size), *whole = g_bytes_get_data (version->bytes, &whole_size);
    for (gsize i = 0; i < size; i++)
        if (bytes[i] != 0 && (i >= whole_size || bytes[i] != whole[i]))
            return false;
    return true;
}

/* Of what a file ever was. */
static bool is_part_of_any (const Model *self, const Found *found)
{
    for (guint i = 0; i < self->files->len; i++) {
        const File *file = self->files->pdata[i];
        for (guint v = 0; v < file->ever->len; v++)
            if (is_part (found->content, file->ever->pdata[v]))
                return true;
    }
    return false;
}

/* What a stripe's footer tells of: whole files that were stored behind the journal, where they stood. */
static char *match_hinted (const GPtrArray *models, const char *path, const Found *found)
{
    bool apart = g_str_has_prefix (path, "recovered");
    if (S_ISDIR (found->mode))
        return NULL;
    if (apart && g_str_has_suffix (path, ".partial"))
        return is_part_of_any (models->pdata[models->len - 1], found) ? NULL
                                                                      : g_strdup_printf ("%s holds other bytes", path);
    for (guint i = 0; i < models->len && S_ISREG (found->mode); i++) {
        const Model *model = models->pdata[i];
        const File *file = named (model, path);
        for (guint j = 0; apart && j < model->files->len; j++)
            if (held_once (models, j, found))
                return NULL;
        if (file != NULL && held_once (models, index_of (model, file), found))
            return NULL;
    }
    return g_strdup_printf ("%s is there", path);
}

char *model_match_recovered (const GPtrArray *models, guint at, GHashTable *tree)
{
    const Model *self = models->pdata[at];
    GHashTableIter iter;
    gpointer key, value;
    char *wrong = NULL;
    g_hash_table_iter_init (&iter, self->names);
    while (wrong == NULL && g_hash_table_iter_next (&iter, &key, &value))
        wrong = match_recovered (models, index_of (self, value), value, key, g_hash_table_lookup (tree, key));
    g_hash_table_iter_init (&iter, tree);
    while (wrong == NULL && g_hash_table_iter_next (&iter, &key, &value))
        if (named (self, key) == NULL)
            wrong = match_hinted (models, key, value);
    return wrong;
}

char *model_match (Model *self, const Model *later, GHashTable *tree)
{
    g_autoptr (GHashTable) inos = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init (&iter, self->names);
    while (g_hash_table_iter_next (&iter, &key, &value)) {
        const File *file = value;
        const Found *found = g_hash_table_lookup (tree, key);
        bool optional = file->type == S_IFREG && file->durable == NULL;
        if (found == NULL && !optional)
            return g_strdup_printf ("%s is missing", (char *) key);
        if (found == NULL)
            continue;
        char *wrong = match_file (file, in_later (self, later, file), key, found);
        if (wrong == NULL)
            wrong = match_identity (inos, file, key, found);
        if (wrong != NULL)
            return wrong;
    }
    g_hash_table_iter_init (&iter, tree);
    while (g_hash_table_iter_next (&iter, &key, NULL))
        if (named (self, key) == NULL)
            return g_strdup_printf ("%s is there", (char *) key);
    return NULL;
}

/* What was interrupted */

static bool is_interrupted (const File *file)
{
    return file->type == S_IFREG && file->dirty && g_bytes_get_size (file->newest->bytes) > 0;
}

/* What lies behind the bytes that are durable; NULL: nothing does. */
static GBytes *tail_of (const File *file)
{
    gsize size = g_bytes_get_size (file->newest->bytes);
    gsize durable_size = file->durable == NULL ? size : g_bytes_get_size (file->durable->bytes);
    return size <= durable_size ? NULL
                                : g_bytes_new_from_bytes (file->newest->bytes, durable_size, size - durable_size);
}

static bool is_tail (const File *file, GBytes *bytes)
{
    g_autoptr (GBytes) tail = tail_of (file);
    g_autoptr (GBytes) nothing = g_bytes_new (NULL, 0);
    return tail != NULL && is_between (bytes, nothing, tail);
}

bool model_may_be_interrupted (const Model *self, const Model *next, GBytes *bytes)
{
    for (guint i = 0; i < self->files->len; i++) {
        const File *file = self->files->pdata[i];
        const File *later = next != NULL ? next->files->pdata[i] : file;
        bool whole = (is_interrupted (file) || is_interrupted (later)) &&
                     is_between (bytes, file->newest->bytes, later->newest->bytes);
        if (whole || (is_interrupted (later) && is_tail (later, bytes)) ||
            (is_interrupted (file) && is_tail (file, bytes)))
            return true;
    }
    return false;
}

/* Holes alone are nothing that anybody wrote. */
static bool has_data (GBytes *bytes)
{
    gsize size;
    const uint8_t *at = g_bytes_get_data (bytes, &size);
    for (gsize i = 0; i < size; i++)
        if (at[i] != 0)
            return true;
    return false;
}

static bool touches (const Model *self, const Op *op, const File *file)
{
    const char *paths[] = {op->path, op->other};
    for (size_t i = 0; i < G_N_ELEMENTS (paths); i++)
        if (paths[i] != NULL &&
            (named (self, paths[i]) == file || g_hash_table_lookup (self->handles, paths[i]) == file))
            return true;
    return op->kind == OP_WAIT || op->kind == OP_REMOUNT || op->kind == OP_PUT || op->kind == OP_END;
}

static bool is_kept (const File *file, const GPtrArray *contents)
{
    g_autoptr (GBytes) tail = tail_of (file);
    for (guint i = 0; i < contents->len; i++)
        if (g_bytes_equal (contents->pdata[i], file->newest->bytes) ||
            (tail != NULL && g_bytes_equal (contents->pdata[i], tail)))
            return true;
    /* Bytes that took the place of others in a file that was fsynced and is open still are in the file itself. */
    return file->loose && tail == NULL;
}

char *model_match_interrupted (const Model *self, const Op *under_way, const GPtrArray *contents)
{
    for (guint i = 0; i < self->files->len; i++) {
        const File *file = self->files->pdata[i];
        bool touched = under_way != NULL && touches (self, under_way, file);
        if (is_interrupted (file) && has_data (file->newest->bytes) && file->n_names > 0 && file->maybe->len == 0 &&
            !touched && !is_kept (file, contents))
            return g_strdup_printf ("%zu bytes that were written and not flushed",
                                    g_bytes_get_size (file->newest->bytes));
    }
    return NULL;
}
