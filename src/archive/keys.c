#include "archive/keys.h"

#include "archive/common.h"
#include "archive/key_shares.h"
#include "catalog/journal_rows.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MODE    077
#define END_SETTING    "open_journal_end" /* epoch and sequence */
#define OPEN_SETTING   "open_journal "    /* and the UUID of an endpoint: how many files it has */
#define STRAYS_SETTING "open_strays"

static bool check_private (const char *path, int fd, GError **error)
{
    struct stat status;
    if (fstat (fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    return ecfs_archive_check_owner (path, &status, error) &&
           ((status.st_mode & OTHERS_MODE) == 0 ||
            ecfs_fail (error, EPERM, "%s has the archive's keys, and others may read it: chmod 600 %s", path, path));
}

EcfsKeyRing *ecfs_keys_read (const char *path, GError **error)
{
    uint8_t bytes[ECFS_KEY_RING_MAX_BYTES];
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        (void) !ecfs_fail_errno (error, errno, "%s", path);
        return NULL;
    }
    if (!check_private (path, fd, error))
        return NULL;
    ssize_t size = ecfs_pread_all (fd, bytes, sizeof bytes, 0);
    if (size < 0) {
        ecfs_key_forget (bytes, sizeof bytes);
        (void) !ecfs_fail_errno (error, (int) -size, "%s", path);
        return NULL;
    }
    EcfsKeyRing *keys = ecfs_key_ring_parse (bytes, (size_t) size, error);
    ecfs_key_forget (bytes, sizeof bytes);
    if (keys == NULL)
        (void) !ecfs_prefix (error, "%s", path);
    return keys;
}

bool ecfs_keys_write_file (const char *path, const EcfsKeyRing *keys, GError **error)
{
    GByteArray *bytes = ecfs_key_ring_format (keys);
    bool written = ecfs_replace_file (path, bytes->data, bytes->len, 0600, error);
    ecfs_key_forget_array (bytes);
    return written;
}

bool ecfs_keys_write (const char *directory, const EcfsKeyRing *keys, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NAME, NULL);
    return ecfs_keys_write_file (path, keys, error);
}

/* The files that were made for the next key replace those of before, durably, whatever of them is there. */
static bool take_next (const char *directory, GError **error)
{
    /* The slots first: what they open is in both. */
    static const char *const names[][2] = {{ECFS_KEY_SLOTS_NEXT_NAME, ECFS_KEY_SLOTS_NAME},
                                           {ECFS_KEYS_NEXT_NAME, ECFS_KEYS_NAME}};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *from = g_build_filename (directory, names[i][0], NULL);
        g_autofree char *to = g_build_filename (directory, names[i][1], NULL);
        if (rename (from, to) != 0 && errno != ENOENT)
            return ecfs_fail_errno (error, errno, "%s", to);
    }
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", directory);
}

bool ecfs_keys_forget_next (const char *directory, GError **error)
{
    static const char *const names[] = {ECFS_KEY_SLOTS_NEXT_NAME, ECFS_KEYS_NEXT_NAME};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (directory, names[i], NULL);
        if (unlink (path) != 0 && errno != ENOENT)
            return ecfs_fail_errno (error, errno, "%s", path);
    }
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", directory);
}

static bool keep_state (EcfsCatalog *catalog, const char *state, const EcfsKeyRing *keys, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (ecfs_key_ring_active (keys), text);
    g_autofree char *value = g_strconcat (state, text, NULL);
    return ecfs_catalog_keep_setting (catalog, ECFS_KEY_SETTING, value, error);
}

bool ecfs_keys_keep_id (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error)
{
    return keep_state (catalog, "", keys, error);
}

bool ecfs_keys_begin (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error)
{
    return keep_state (catalog, ECFS_KEY_BEGUN, keys, error);
}

bool ecfs_keys_begin_rotation (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error)
{
    return keep_state (catalog, ECFS_KEY_ROTATES, keys, error);
}

/* Settings */

typedef struct Wanted {
    const char *key;
    char *value; /* owned; NULL: it is not set */
} Wanted;

static void on_setting (void *user, const char *key, const char *value)
{
    Wanted *self = user;
    if (strcmp (key, self->key) != 0)
        return;
    g_free (self->value);
    self->value = g_strdup (value);
}

/* *ret_value is NULL where it is not set; g_free (). */
static bool read_setting (EcfsCatalog *catalog, const char *key, char **ret_value, GError **error)
{
    Wanted wanted = {.key = key};
    bool read = ecfs_catalog_settings (catalog, on_setting, &wanted, error);
    *ret_value = wanted.value;
    return read;
}

static EcfsKeysState state_of (const char *id)
{
    if (id == NULL)
        return ECFS_KEYS_NONE;
    return g_str_has_prefix (id, ECFS_KEY_BEGUN)     ? ECFS_KEYS_BEGUN
           : g_str_has_prefix (id, ECFS_KEY_ROTATES) ? ECFS_KEYS_ROTATING
                                                     : ECFS_KEYS_ACTIVE;
}

bool ecfs_keys_state (EcfsCatalog *catalog, EcfsKeysState *ret_state, GError **error)
{
    g_autofree char *id = NULL;
    if (!read_setting (catalog, ECFS_KEY_SETTING, &id, error))
        return false;
    *ret_state = state_of (id);
    return true;
}

/* Loading */

/* That of the key that is meant, without the word before it. */
static const char *id_in (const char *value)
{
    static const size_t skipped[] = {
        [ECFS_KEYS_BEGUN] = strlen (ECFS_KEY_BEGUN), [ECFS_KEYS_ROTATING] = strlen (ECFS_KEY_ROTATES)};
    return value == NULL ? NULL : value + skipped[state_of (value)];
}

static bool check_keys (const char *path, EcfsCatalog *catalog, const char *id, const EcfsKeyRing *keys, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    const char *own = id_in (id);
    ecfs_uuid_text (ecfs_key_ring_active (keys), text);
    if (!ecfs_uuid_equal (ecfs_key_ring_archive (keys), ecfs_catalog_archive (catalog)))
        return ecfs_fail (error, ENOKEY, "%s has the keys of another archive", path);
    return own == NULL || strcmp (text, own) == 0 ||
           ecfs_fail (error, ENOKEY, "%s has key %s, and the archive is under key %s: %s", path, text, own,
                      ecfs_catalog_is_shared (catalog) ? "copy key and key-slots from the machine that rotated it"
                                                       : "restore that file");
}

bool ecfs_keys_read_next (const char *directory, const EcfsKeyRing *now, EcfsKeyRing **ret_next, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NEXT_NAME, NULL);
    g_autoptr (GError) why = NULL;
    g_autoptr (EcfsKeyRing) next = ecfs_keys_read (path, &why);
    *ret_next = NULL;
    if (next == NULL && why->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    bool follows = next != NULL && ecfs_key_ring_n_retired (next) > 0 &&
                   ecfs_uuid_equal (ecfs_key_ring_retired (next, 0), ecfs_key_ring_active (now));
    if (follows)
        *ret_next = g_steal_pointer (&next);
    return true;
}

/* Those that have just become active, and have not their name yet; NULL: there are none. */
static EcfsKeyRing *read_taken (const char *directory, EcfsCatalog *catalog, const char *id)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NEXT_NAME, NULL);
    g_autoptr (EcfsKeyRing) keys = ecfs_keys_read (path, NULL); /* what is not whole is in use nowhere */
    char text[ECFS_UUID_TEXT_SIZE];
    if (keys == NULL || !ecfs_uuid_equal (ecfs_key_ring_archive (keys), ecfs_catalog_archive (catalog)))
        return NULL;
    ecfs_uuid_text (ecfs_key_ring_active (keys), text);
    return strcmp (text, id) == 0 ? g_steal_pointer (&keys) : NULL;
}

static bool check_done (const char *directory, EcfsKeysState state, EcfsKeysFor what, GError **error)
{
    const char *verb = state == ECFS_KEYS_BEGUN ? "init" : "rotate";
    return what != ECFS_KEYS_FOR_WRITING || (state != ECFS_KEYS_BEGUN && state != ECFS_KEYS_ROTATING) ||
           ecfs_fail (error, EBUSY,
                      "%s: 'ecfs key %s' was interrupted, and nothing can be stored until it has ended: run it again%s",
                      directory, verb, state == ECFS_KEYS_ROTATING ? "; if it cannot end, it is taken back" : "");
}

bool ecfs_keys_load (const char *directory, EcfsCatalog *catalog, EcfsKeysFor what, EcfsKeyRing **ret_keys,
                     GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NAME, NULL);
    g_autofree char *id = NULL;
    g_autoptr (GError) reason = NULL;
    *ret_keys = NULL;
    if (!read_setting (catalog, ECFS_KEY_SETTING, &id, error))
        return false;
    EcfsKeysState state = state_of (id);
    if (!check_done (directory, state, what, error))
        return false;
    if ((state == ECFS_KEYS_NONE || state == ECFS_KEYS_BEGUN) && what != ECFS_KEYS_FOR_INIT)
        return true;
    if (state == ECFS_KEYS_ACTIVE)
        *ret_keys = read_taken (directory, catalog, id);
    if (*ret_keys != NULL)
        return what == ECFS_KEYS_FOR_READING || take_next (directory, error);
    g_autoptr (EcfsKeyRing) keys = ecfs_keys_read (path, &reason);
    if (keys == NULL && reason->code == ENOENT)
        return state == ECFS_KEYS_NONE ||
               ecfs_fail (error, ENOKEY,
                          "%s is gone, and what this archive stores can be read with that file only: restore it from "
                          "a backup; where endpoints share the key, 'ecfs recover' in another place brings it back",
                          path);
    if (keys == NULL) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    if (!check_keys (path, catalog, id, keys, error))
        return false;
    *ret_keys = g_steal_pointer (&keys);
    return true;
}

/* What lies open */

bool ecfs_keys_note_end (EcfsCatalog *catalog, const EcfsOpenEnd *end, GError **error)
{
    g_autofree char *value = g_strdup_printf ("%" PRIu32 " %" PRIu64, end->epoch, end->sequence);
    return ecfs_catalog_keep_setting (catalog, END_SETTING, value, error);
}

bool ecfs_keys_end (EcfsCatalog *catalog, EcfsOpenEnd *ret_end, GError **error)
{
    g_autofree char *value = NULL;
    guint64 epoch = 0, sequence = 0;
    if (!read_setting (catalog, END_SETTING, &value, error))
        return false;
    g_auto (GStrv) words = g_strsplit (value == NULL ? "" : value, " ", -1);
    bool is_set = g_strv_length (words) == 2 &&
                  g_ascii_string_to_unsigned (words[0], 10, 1, UINT32_MAX, &epoch, NULL) &&
                  g_ascii_string_to_unsigned (words[1], 10, 0, INT64_MAX, &sequence, NULL);
    *ret_end = (EcfsOpenEnd){.epoch = is_set ? (uint32_t) epoch : 0, .sequence = is_set ? sequence : 0};
    return value == NULL || is_set || ecfs_fail (error, EBADMSG, "the setting " END_SETTING " of the catalog is none");
}

static char *open_setting (const EcfsUuid *endpoint)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (endpoint, text);
    return g_strconcat (OPEN_SETTING, text, NULL);
}

static bool note_number (EcfsCatalog *catalog, const char *key, uint64_t number, GError **error)
{
    g_autofree char *value = g_strdup_printf ("%" PRIu64, number);
    return ecfs_catalog_keep_setting (catalog, key, value, error);
}

/* 0: it was not noted; G_MAXUINT64: nobody knows. */
static bool read_number (EcfsCatalog *catalog, const char *key, uint64_t *ret_number, GError **error)
{
    g_autofree char *value = NULL;
    guint64 number = 0;
    if (!read_setting (catalog, key, &value, error))
        return false;
    if (value != NULL && !g_ascii_string_to_unsigned (value, 10, 0, G_MAXUINT64, &number, NULL))
        number = G_MAXUINT64;
    *ret_number = number;
    return true;
}

bool ecfs_keys_note_open (EcfsCatalog *catalog, const EcfsUuid *endpoint, uint64_t n_files, GError **error)
{
    g_autofree char *key = open_setting (endpoint);
    return note_number (catalog, key, n_files, error);
}

bool ecfs_keys_open (EcfsCatalog *catalog, const EcfsUuid *endpoint, uint64_t *ret_n_files, GError **error)
{
    g_autofree char *key = open_setting (endpoint);
    return read_number (catalog, key, ret_n_files, error);
}

bool ecfs_keys_note_strays (EcfsCatalog *catalog, uint64_t n_stripes, GError **error)
{
    return note_number (catalog, STRAYS_SETTING, n_stripes, error);
}

bool ecfs_keys_strays (EcfsCatalog *catalog, uint64_t *ret_n_stripes, GError **error)
{
    return read_number (catalog, STRAYS_SETTING, ret_n_stripes, error);
}
