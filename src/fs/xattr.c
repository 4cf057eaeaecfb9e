/* Extended attributes: those of users are in the catalog, those named user.ecfs.* are made up and never listed. */
#include "archive/cached.h"
#include "archive/places_of.h"
#include "archive/policy.h"
#include "fs/fs_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define VIRTUAL_PREFIX "user.ecfs."
#define CAPABILITY     "security.capability"
#define TRUSTED        "trusted."

/* 0, or the errno for a name of no kind that is kept; access control lists (system.) would be kept and not obeyed. */
static int check_name (const char *name)
{
    static const char *const kinds[] = {"user.", TRUSTED, "security."};
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        if (g_str_has_prefix (name, kinds[i]))
            return name[strlen (kinds[i])] == '\0' ? EINVAL : 0;
    }
    return ENOTSUP;
}

/* The made-up attributes */

static GByteArray *take_text (char *text)
{
    return text == NULL ? NULL : g_byte_array_new_take ((guint8 *) text, strlen (text));
}

static GByteArray *get_code (EcfsFs *self, uint64_t ino, GError **error)
{
    char *code = NULL;
    if (!ecfs_catalog_get_code (self->catalog, ino, &code, error))
        return NULL;
    return take_text (code != NULL ? code : g_strdup (ecfs_archive_config (self->archive)->code));
}

static GByteArray *get_state (EcfsFs *self, uint64_t ino, GError **error)
{
    EcfsFileState state;
    if (!ecfs_archive_file_state (self->archive, ino, &state, error))
        return NULL;
    state.staged = state.staged || ecfs_staged_is_newer (self->archive, ino);
    return take_text (ecfs_file_state_text (&state));
}

static GByteArray *no_data (GError **error, const char *what)
{
    g_set_error (error, ECFS_ERROR, ENODATA, "it has no %s", what);
    return NULL;
}

static GByteArray *get_digest (EcfsFs *self, uint64_t ino, GError **error)
{
    EcfsContent *content = ecfs_content_open (self->archive, ino, error);
    if (content == NULL)
        return NULL;
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    GByteArray *value = NULL;
    /* The digest of an object is that of the file only when the file is this object, whole, and not enciphered. */
    if (object != NULL && object->seal.kind == ECFS_SEAL_NONE && ecfs_content_object (content, 1) == NULL &&
        object->size == ecfs_content_size (content) && !ecfs_staged_is_newer (self->archive, ino)) {
        GString *hex = g_string_new (NULL);
        for (size_t i = 0; i < ECFS_DIGEST_SIZE; i++)
            g_string_append_printf (hex, "%02x", object->digest[i]);
        value = take_text (g_string_free (hex, FALSE));
    }
    ecfs_content_unref (content);
    return value != NULL ? value : no_data (error, "digest");
}

static GByteArray *get_stripes (EcfsFs *self, uint64_t ino, GError **error)
{
    EcfsContent *content = ecfs_content_open (self->archive, ino, error);
    if (content == NULL)
        return NULL;
    GString *text = g_string_new (NULL);
    const EcfsObjectRow *object;
    for (size_t i = 0; (object = ecfs_content_object (content, i)) != NULL; i++) {
        for (guint j = 0; j < object->stripes->len; j++) {
            const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, j);
            const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self->archive, stripe->endpoint);
            g_string_append_printf (text, "%u %s %" PRIu64 "\n", stripe->index,
                                    endpoint != NULL ? endpoint->name : "(removed)", stripe->size);
        }
    }
    ecfs_content_unref (content);
    GByteArray *value = take_text (g_string_free (text, FALSE));
    if (value->len > 0)
        return value;
    g_byte_array_unref (value);
    return no_data (error, "stripes");
}

/* "41943040 of 83886080 bytes, 50%": of data, not of holes. */
static GByteArray *get_cached (EcfsFs *self, uint64_t ino, GError **error)
{
    uint64_t data = 0, cached = 0;
    if (ecfs_archive_cache (self->archive) == NULL)
        return no_data (error, "cache");
    g_autoptr (EcfsContent) content = ecfs_content_open (self->archive, ino, error);
    if (content == NULL || !ecfs_archive_cached_bytes (self->archive, content, &data, &cached, error))
        return NULL;
    unsigned percent = data == 0 ? 100 : (unsigned) (100 * (double) cached / (double) data);
    return take_text (g_strdup_printf ("%" PRIu64 " of %" PRIu64 " bytes, %u%%", cached, data, percent));
}

static GByteArray *get_pin (EcfsFs *self, uint64_t ino, GError **error)
{
    bool pinned = false;
    return ecfs_archive_is_pinned (self->archive, ino, &pinned, error) ? take_text (g_strdup (pinned ? "yes" : "no"))
                                                                       : NULL;
}

static const struct {
    const char *name;
    bool directories; /* exists on them too */
    GByteArray *(*get) (EcfsFs *self, uint64_t ino, GError **error);
} made_up[] = {
    {VIRTUAL_PREFIX "code", true, get_code},      {VIRTUAL_PREFIX "state", false, get_state},
    {VIRTUAL_PREFIX "digest", false, get_digest}, {VIRTUAL_PREFIX "cached", false, get_cached},
    {ECFS_PIN_ATTRIBUTE, true, get_pin},          {VIRTUAL_PREFIX "stripes", false, get_stripes},
};

static GByteArray *get_made_up (EcfsFs *self, uint64_t ino, const char *name, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, error))
        return NULL;
    for (size_t i = 0; i < G_N_ELEMENTS (made_up); i++) {
        if (strcmp (made_up[i].name, name) == 0 &&
            (S_ISREG (attr.mode) || (S_ISDIR (attr.mode) && made_up[i].directories)))
            return made_up[i].get (self, ino, error);
    }
    return no_data (error, name);
}

/* @value NULL: removed. */
static bool set_code (EcfsFs *self, uint64_t ino, const char *value, size_t size, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, error))
        return false;
    if (!S_ISDIR (attr.mode))
        return ecfs_fail (error, EPERM,
                          "a code is chosen for a directory's new files; stored files need `ecfs recode`");
    if (value == NULL)
        return ecfs_catalog_set_code (self->catalog, ino, NULL, error);
    g_autofree char *code = g_strndup (value, size);
    return (strlen (code) == size || ecfs_fail (error, EINVAL, "a code has no NUL")) &&
           ecfs_archive_check_code (self->archive, g_strstrip (code), error) &&
           ecfs_archive_check_ruled_code (self->archive, ino, code, error) &&
           ecfs_catalog_set_code (self->catalog, ino, code, error);
}

/* Kept as those of users are, and listed; only what it says is looked at, and what directories above say. */
static bool is_pin (const char *name)
{
    return strcmp (name, ECFS_PIN_ATTRIBUTE) == 0;
}

static bool check_pin (EcfsFs *self, uint64_t ino, const char *value, size_t size, GError **error)
{
    EcfsAttr attr;
    bool pins;
    return ecfs_catalog_getattr (self->catalog, ino, &attr, error) &&
           (S_ISREG (attr.mode) || S_ISDIR (attr.mode) ||
            ecfs_fail (error, EPERM, "only files and directories are pinned")) &&
           ecfs_pin_parse (value, size, &pins, error);
}

/* Kept as those of users are; only what it says is looked at. */
static bool is_policy (const char *name)
{
    return strcmp (name, ECFS_POLICY_ATTRIBUTE) == 0;
}

static bool check_policy (EcfsFs *self, uint64_t ino, const char *value, size_t size, GError **error)
{
    EcfsAttr attr;
    EcfsPolicy policy;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, error))
        return false;
    if (!S_ISDIR (attr.mode))
        return ecfs_fail (error, EPERM, "a policy is a directory's: it is for the files below it");
    g_autofree char *text = g_strndup (value, size);
    if (strlen (text) != size || size > ECFS_POLICY_MAX_BYTES)
        return ecfs_fail (error, EINVAL, "a policy is a line of at most %u bytes", ECFS_POLICY_MAX_BYTES);
    if (!ecfs_policy_parse (text, &policy, error))
        return false;
    bool good = policy.cold == NULL || ecfs_archive_check_code (self->archive, policy.cold, error);
    ecfs_policy_clear (&policy);
    return good;
}

/* Likewise, also against the archive's endpoints. */
static bool is_places (const char *name)
{
    return strcmp (name, ECFS_PLACES_ATTRIBUTE) == 0;
}

static bool check_places (EcfsFs *self, uint64_t ino, const char *value, size_t size, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, error))
        return false;
    if (!S_ISDIR (attr.mode))
        return ecfs_fail (error, EPERM, "a rule for places is a directory's: it is for the files below it");
    if (ecfs_archive_check_rule (self->archive, ino, value, size, error))
        return true;
    g_autofree char *path = ecfs_catalog_path (self->catalog, ino);
    g_warning ("%s: " ECFS_PLACES_ATTRIBUTE " was not set: %s", path, (*error)->message); /* as set_code () */
    return false;
}

static bool is_kept (const char *name)
{
    return is_policy (name) || is_places (name);
}

static bool change_made_up (EcfsFs *self, uint64_t ino, const char *name, const char *value, size_t size,
                            GError **error)
{
    if (strcmp (name, VIRTUAL_PREFIX "code") != 0)
        return ecfs_fail (error, EPERM, "%s can only be read", name);
    if (set_code (self, ino, value, size, error))
        return true;
    g_autofree char *path = ecfs_catalog_path (self->catalog, ino);
    g_warning ("%s: %s was not set: %s", path, name, (*error)->message); /* setfattr(1) tells the number alone */
    return false;
}

/* Operations */

static void reply_value (fuse_req_t req, const GByteArray *value, size_t size)
{
    if (size == 0)
        fuse_reply_xattr (req, value->len);
    else if (value->len > size)
        fuse_reply_err (req, ERANGE);
    else
        fuse_reply_buf (req, (const char *) value->data, value->len);
}

/* The kernel asks for this at every write(2). */
static bool known_without_capability (EcfsFs *self, uint64_t ino)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsInode *inode = g_hash_table_lookup (self->inodes, &ino);
    const int64_t known_us = inode == NULL ? 0 : inode->no_capability_us;
    ecfs_mutex_unlock (&self->lock);
    return known_us != 0 && !self->readonly && /* others may give it one */
           (double) (ecfs_now_us () - known_us) < self->timeout_s * G_USEC_PER_SEC;
}

void ecfs_fs_note_capability (EcfsFs *self, uint64_t ino, bool absent)
{
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = g_hash_table_lookup (self->inodes, &ino);
    if (inode != NULL)
        inode->no_capability_us = absent ? ecfs_now_us () : 0;
    ecfs_mutex_unlock (&self->lock);
}

static void op_getxattr (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    EcfsFs *self = ecfs_fs_of (req);
    bool capability = strcmp (name, CAPABILITY) == 0;
    g_autoptr (GError) error = NULL;
    int refused = check_name (name);
    if (refused != 0) {
        fuse_reply_err (req, refused);
        return;
    }
    if (capability && known_without_capability (self, ino)) {
        fuse_reply_err (req, ENODATA);
        return;
    }
    g_autoptr (GByteArray) value = g_str_has_prefix (name, VIRTUAL_PREFIX) && !is_kept (name)
                                       ? get_made_up (self, ino, name, &error)
                                       : ecfs_catalog_getxattr (self->catalog, ino, name, &error);
    if (capability)
        ecfs_fs_note_capability (self, ino, g_error_matches (error, ECFS_ERROR, ENODATA));
    if (value != NULL)
        reply_value (req, value, size);
    else
        ecfs_fs_reply_error (req, ino, name, error);
}

static void op_setxattr (fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    EcfsFs *self = ecfs_fs_of (req);
    g_autoptr (GError) error = NULL;
    int refused = check_name (name);
    if (refused != 0) {
        fuse_reply_err (req, refused);
        return;
    }
    bool ok = is_policy (name) ? check_policy (self, ino, value, size, &error) &&
                                     ecfs_catalog_setxattr (self->catalog, ino, name, value, size, flags, &error)
              : is_places (name) ? check_places (self, ino, value, size, &error) &&
                                       ecfs_catalog_setxattr (self->catalog, ino, name, value, size, flags, &error)
              : is_pin (name) ? check_pin (self, ino, value, size, &error) &&
                                    ecfs_catalog_setxattr (self->catalog, ino, name, value, size, flags, &error)
              : g_str_has_prefix (name, VIRTUAL_PREFIX)
                  ? change_made_up (self, ino, name, value, size, &error)
                  : ecfs_catalog_setxattr (self->catalog, ino, name, value, size, flags, &error);
    if (strcmp (name, CAPABILITY) == 0)
        ecfs_fs_note_capability (self, ino, false);
    if (ok && is_pin (name))
        ecfs_archive_hurry_pins (self->archive);
    if (ok)
        fuse_reply_err (req, 0);
    else
        ecfs_fs_reply_error (req, ino, name, error);
}

static void op_removexattr (fuse_req_t req, fuse_ino_t ino, const char *name)
{
    EcfsFs *self = ecfs_fs_of (req);
    g_autoptr (GError) error = NULL;
    int refused = check_name (name);
    if (refused != 0) {
        fuse_reply_err (req, refused);
        return;
    }
    bool ok = g_str_has_prefix (name, VIRTUAL_PREFIX) && !is_kept (name) && !is_pin (name)
                  ? change_made_up (self, ino, name, NULL, 0, &error)
                  : ecfs_catalog_removexattr (self->catalog, ino, name, &error);
    if (ok && is_pin (name))
        ecfs_archive_hurry_pins (self->archive);
    if (ok)
        fuse_reply_err (req, 0);
    else
        ecfs_fs_reply_error (req, ino, name, error);
}

/* What only root may read is not shown to others. */
static void hide_trusted (GByteArray *names)
{
    for (guint at = 0; at < names->len;) {
        const char *name = (const char *) names->data + at;
        guint size = (guint) strlen (name) + 1;
        if (g_str_has_prefix (name, TRUSTED))
            g_byte_array_remove_range (names, at, size);
        else
            at += size;
    }
}

static void op_listxattr (fuse_req_t req, fuse_ino_t ino, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) names = ecfs_catalog_listxattr (ecfs_fs_of (req)->catalog, ino, &error);
    if (names != NULL && fuse_req_ctx (req)->uid != 0)
        hide_trusted (names);
    if (names != NULL)
        reply_value (req, names, size);
    else
        ecfs_fs_reply_error (req, ino, "listing attributes", error);
}

void ecfs_fs_xattr_ops (struct fuse_lowlevel_ops *ops)
{
    ops->getxattr = op_getxattr;
    ops->setxattr = op_setxattr;
    ops->removexattr = op_removexattr;
    ops->listxattr = op_listxattr;
}
