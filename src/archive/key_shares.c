#include "archive/key_shares_priv.h"
#include "catalog/journal_rows.h"
#include "util/io.h"

#include <inttypes.h>
#include <stdio.h>

#define ZONE_SETTING      "key_share " /* and the name of a zone: which of the shares it has */
#define THRESHOLD_SETTING "key_threshold"
#define KINDS_SETTING     "key_slots"   /* the kinds of slots, in words */
#define STRIPES_SETTING   "key_stripes" /* how many a code may survive the loss of */
#define FORMER_SETTING    "key_former"  /* and a number: a generation that is superfluous */

void ecfs_key_shares_derive (const EcfsKeyRing *keys, const EcfsUuid *generation, unsigned threshold,
                             uint8_t ret_secret[ECFS_SECRET_BYTES], EcfsShare *ret_shares)
{
    uint8_t key[ECFS_KEY_BYTES];
    /* The ring has its own active key. */
    (void) ecfs_key_ring_derive (keys, ecfs_key_ring_active (keys), ECFS_KEY_USE_SHARES, generation->bytes,
                                 sizeof generation->bytes, key, NULL);
    EcfsCipher *stream = ecfs_cipher_new (key, 0);
    memset (ret_secret, 0, ECFS_SECRET_BYTES);
    ecfs_cipher_next (stream, ret_secret, ECFS_SECRET_BYTES);
    ecfs_secret_split (ret_secret, threshold, ECFS_SHARES_MAX, stream, ret_shares);
    ecfs_cipher_free (stream);
    ecfs_key_forget (key, sizeof key);
}

EcfsKeyShares *ecfs_key_shares_new (const EcfsKeyRing *keys, unsigned threshold)
{
    const EcfsKeyOpener none = {.secret = NULL};
    g_autoptr (EcfsKeyShares) self = ecfs_key_shares_empty (keys, threshold);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (self, keys, ECFS_KEY_SLOT_SPLIT, &none, NULL); /* all is there */
    return ecfs_key_shares_with (self, keys, slot, NULL);
}

/* Of slots that anybody may have written: those that bring back just these keys. */
static bool keep_own_slots (EcfsKeyShares *self, const EcfsKeyRing *keys, const uint8_t *secret)
{
    const EcfsKeyOpener opener = {.secret = secret};
    GByteArray *expected = ecfs_key_ring_format (keys);
    for (guint i = self->file.slots->len; i-- > 0;) {
        const EcfsKeySlot *slot = g_ptr_array_index (self->file.slots, i);
        GByteArray *bytes =
            slot->kind == ECFS_KEY_SLOT_SPLIT ? ecfs_key_slot_open (slot, &self->file.archive, &opener, NULL) : NULL;
        if (bytes == NULL || bytes->len != expected->len || memcmp (bytes->data, expected->data, bytes->len) != 0)
            g_ptr_array_remove_index (self->file.slots, i);
        ecfs_key_forget_array (bytes);
    }
    ecfs_key_forget_array (expected);
    return self->file.slots->len > 0;
}

static bool has_own_digests (const EcfsKeyShares *self)
{
    uint8_t digest[ECFS_KEY_BYTES];
    for (unsigned i = 0; i < ECFS_SHARES_MAX; i++) {
        ecfs_share_digest (&self->file.archive, &self->file.generation, &self->shares[i], digest);
        if (memcmp (digest, self->file.digests[i], sizeof digest) != 0)
            return false;
    }
    return true;
}

EcfsKeyShares *ecfs_key_shares_of (const EcfsKeyRing *keys, const EcfsKeyFile *file, GError **error)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    g_autoptr (EcfsKeyShares) self = g_new0 (EcfsKeyShares, 1);
    GByteArray *bytes = ecfs_key_file_format (file);
    (void) !ecfs_key_file_parse (bytes->data, bytes->len, &self->file, NULL); /* a copy of what was parsed before */
    ecfs_key_forget_array (bytes);
    self->file.share = (EcfsShare){.x = 0};
    bool shared = self->file.threshold > 0;
    bool fits = ecfs_uuid_equal (&self->file.archive, ecfs_key_ring_archive (keys)) &&
                (self->file.revision == 0 ? shared : ecfs_key_shares_is_signed (self, keys)) &&
                (!shared || self->file.n_shares == ECFS_SHARES_MAX);
    if (fits && shared) {
        ecfs_key_shares_derive (keys, &self->file.generation, self->file.threshold, secret, self->shares);
        fits = has_own_digests (self) && (self->file.revision > 0 || keep_own_slots (self, keys, secret));
        ecfs_key_forget (secret, sizeof secret);
    }
    if (fits)
        return g_steal_pointer (&self);
    (void) !ecfs_fail (error, EBADMSG, "they are shares of other keys");
    return NULL;
}

static void on_told (void *user, const char *key, const char *value)
{
    EcfsKeySlotsTold *told = user;
    guint64 threshold, stripes;
    if (strcmp (key, THRESHOLD_SETTING) == 0 &&
        g_ascii_string_to_unsigned (value, 10, 1, ECFS_SHARES_MAX, &threshold, NULL))
        told->threshold = (unsigned) threshold;
    if (strcmp (key, STRIPES_SETTING) == 0 &&
        g_ascii_string_to_unsigned (value, 10, 1, ECFS_CODEC_MAX_N, &stripes, NULL))
        told->stripes = (unsigned) stripes;
    if (strcmp (key, KINDS_SETTING) == 0) {
        g_strlcpy (told->kinds, value, sizeof told->kinds);
        told->has_kinds = true;
    }
}

bool ecfs_key_slots_told (EcfsCatalog *catalog, EcfsKeySlotsTold *ret_told, GError **error)
{
    *ret_told = (EcfsKeySlotsTold){.threshold = 0};
    if (!ecfs_catalog_settings (catalog, on_told, ret_told, error))
        return false;
    if (ret_told->threshold > 0 && !ret_told->has_kinds) /* before there were other kinds */
        g_strlcpy (ret_told->kinds, ecfs_key_slot_kind_text (ECFS_KEY_SLOT_SPLIT), sizeof ret_told->kinds);
    return true;
}

bool ecfs_key_shares_note_stripes (EcfsCatalog *catalog, unsigned stripes, GError **error)
{
    g_autofree char *value = g_strdup_printf ("%u", stripes);
    return ecfs_catalog_keep_setting (catalog, STRIPES_SETTING, value, error);
}

bool ecfs_key_shares_told (EcfsCatalog *catalog, unsigned *ret_threshold, GError **error)
{
    EcfsKeySlotsTold told;
    bool good = ecfs_key_slots_told (catalog, &told, error);
    *ret_threshold = told.threshold;
    return good;
}

bool ecfs_key_shares_tell_none (EcfsCatalog *catalog, GError **error)
{
    return ecfs_catalog_keep_setting (catalog, KINDS_SETTING, "", error) &&
           ecfs_key_shares_tell_newest (NULL, catalog, error);
}

bool ecfs_key_shares_tell (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error)
{
    EcfsKeySlotsTold told;
    g_autofree char *value = g_strdup_printf ("%u", self->file.threshold);
    g_autofree char *kinds = ecfs_key_shares_kinds (self);
    if (!ecfs_key_slots_told (catalog, &told, error))
        return false;
    return (told.threshold == self->file.threshold ||
            ecfs_catalog_keep_setting (catalog, THRESHOLD_SETTING, value, error)) &&
           ((told.has_kinds && strcmp (told.kinds, kinds) == 0) ||
            ecfs_catalog_keep_setting (catalog, KINDS_SETTING, kinds, error)) &&
           ecfs_key_shares_tell_newest (self, catalog, error);
}

/* Generations before */

static void on_former (void *user, const char *key, const char *value)
{
    EcfsKeyShares *self = user;
    EcfsUuid generation;
    if (g_str_has_prefix (key, FORMER_SETTING) && self->n_former < ECFS_KEY_RING_MAX &&
        ecfs_uuid_parse (value, &generation) && !ecfs_uuid_equal (&generation, &self->file.generation))
        self->former[self->n_former++] = generation;
}

bool ecfs_key_shares_recall_former (EcfsKeyShares *self, EcfsCatalog *catalog, GError **error)
{
    self->n_former = 0;
    return ecfs_catalog_settings (catalog, on_former, self, error);
}

bool ecfs_key_shares_note_former (EcfsCatalog *catalog, const EcfsUuid *generation, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (generation, text);
    g_autofree char *key = g_strconcat (FORMER_SETTING " ", text, NULL);
    return ecfs_catalog_keep_setting (catalog, key, text, error);
}

static bool is_former (const EcfsKeyShares *self, const EcfsUuid *generation)
{
    for (unsigned i = 0; i < self->n_former; i++)
        if (ecfs_uuid_equal (&self->former[i], generation))
            return true;
    return false;
}

/* In an archive directory */

static bool recall (EcfsKeyShares **shares, EcfsCatalog *catalog, GError **error)
{
    if (ecfs_key_shares_recall_former (*shares, catalog, error))
        return true;
    ecfs_key_shares_free (g_steal_pointer (shares));
    return false;
}

EcfsKeyShares *ecfs_key_shares_load_next (const char *directory, const EcfsKeyRing *keys)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEY_SLOTS_NEXT_NAME, NULL);
    g_autofree char *bytes = NULL;
    EcfsKeyFile file = {.slots = NULL};
    size_t size;
    if (!ecfs_read_file (path, ECFS_KEY_FILE_MAX_BYTES, &bytes, &size, NULL) ||
        !ecfs_key_file_parse ((const uint8_t *) bytes, size, &file, NULL))
        return NULL;
    EcfsKeyShares *shares = ecfs_key_shares_of (keys, &file, NULL);
    ecfs_key_file_clear (&file);
    return shares;
}

bool ecfs_key_shares_load (const char *directory, EcfsCatalog *catalog, const EcfsKeyRing *keys,
                           EcfsKeyShares **ret_shares, GError **error)
{
    EcfsKeySlotsTold told;
    g_autofree char *path = g_build_filename (directory, ECFS_KEY_SLOTS_NAME, NULL);
    g_autofree char *bytes = NULL;
    g_autoptr (GError) reason = NULL, why = NULL;
    EcfsKeyFile file = {.slots = NULL};
    size_t size;
    *ret_shares = NULL;
    if (keys == NULL)
        return true;
    *ret_shares = ecfs_key_shares_load_next (directory, keys); /* in use since a moment */
    if (*ret_shares != NULL)
        return recall (ret_shares, catalog, error);
    if (!ecfs_read_file (path, ECFS_KEY_FILE_MAX_BYTES, &bytes, &size, &reason)) {
        if (reason->code == ENOENT)
            return ecfs_key_slots_told (catalog, &told, error) &&
                   (*told.kinds == '\0' ||
                    ecfs_fail (error, ENOKEY,
                               "%s is gone, which new endpoints get their shares of the key by: restore it from a "
                               "backup, or make the archive directory again with 'ecfs recover' in another place",
                               path));
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    if (!ecfs_key_file_parse ((const uint8_t *) bytes, size, &file, error))
        return ecfs_prefix (error, "%s", path);
    *ret_shares = ecfs_key_shares_of (keys, &file, &why);
    ecfs_key_file_clear (&file);
    if (*ret_shares != NULL)
        return recall (ret_shares, catalog, error);
    const char *advice =
        ecfs_catalog_is_shared (catalog) ? ": copy key and key-slots from the machine that rotated it" : "";
    return ecfs_fail (error, EBADMSG, "%s: %s%s", path, why->message, advice);
}

static bool write_as (const EcfsKeyShares *self, const char *directory, const char *name, GError **error)
{
    g_autofree char *path = g_build_filename (directory, name, NULL);
    g_autoptr (GByteArray) bytes = ecfs_key_file_format (&self->file);
    return ecfs_replace_file (path, bytes->data, bytes->len, 0600, error);
}

bool ecfs_key_shares_write (const EcfsKeyShares *self, const char *directory, GError **error)
{
    return write_as (self, directory, ECFS_KEY_SLOTS_NAME, error);
}

bool ecfs_key_shares_write_next (const EcfsKeyShares *self, const char *directory, GError **error)
{
    return write_as (self, directory, ECFS_KEY_SLOTS_NEXT_NAME, error);
}

void ecfs_key_shares_free (EcfsKeyShares *self)
{
    if (self == NULL)
        return;
    ecfs_key_file_clear (&self->file);
    ecfs_key_forget (self, sizeof *self);
    g_free (self);
}

const EcfsKeyFile *ecfs_key_shares_file (const EcfsKeyShares *self)
{
    return &self->file;
}

unsigned ecfs_key_shares_threshold (const EcfsKeyShares *self)
{
    return self->file.threshold;
}

bool ecfs_key_shares_has (const EcfsKeyShares *self, const EcfsKeyFile *file)
{
    return file->share.x > 0 && ecfs_uuid_equal (&file->generation, &self->file.generation) &&
           memcmp (&file->share, &self->shares[file->share.x - 1], sizeof file->share) == 0;
}

/* The revision that is in a name; 1 is not, as it was left out before there were any. */
static bool parse_name (const char *name, EcfsUuid *ret_generation, guint64 *ret_revision)
{
    char text[ECFS_UUID_TEXT_SIZE];
    const char *at = g_str_has_prefix (name, ECFS_KEYS_DIRECTORY "/") ? name + strlen (ECFS_KEYS_DIRECTORY "/") : NULL;
    g_autofree char *uuid = at == NULL ? NULL : g_strndup (at, ECFS_UUID_TEXT_SIZE - 1);
    *ret_revision = 1;
    if (uuid == NULL || !ecfs_uuid_parse (uuid, ret_generation))
        return false;
    ecfs_uuid_text (ret_generation, text); /* others may have a directory of that name */
    at += strlen (uuid);
    return strcmp (uuid, text) == 0 &&
           (*at == '\0' || (*at == '-' && g_ascii_isdigit (at[1]) && at[1] != '0' &&
                            g_ascii_string_to_unsigned (at + 1, 10, 2, G_MAXUINT64, ret_revision, NULL)));
}

bool ecfs_key_shares_is_name (const char *name)
{
    EcfsUuid generation;
    guint64 revision;
    return parse_name (name, &generation, &revision);
}

/* Which share each zone has */

typedef struct ZoneSearch {
    const char *zone;
    unsigned x;                      /* that it has; 0: none */
    unsigned last;                   /* the highest that any has */
    bool taken[ECFS_SHARES_MAX + 1]; /* by any zone */
} ZoneSearch;

static void on_setting (void *user, const char *key, const char *value)
{
    ZoneSearch *self = user;
    guint64 x;
    if (!g_str_has_prefix (key, ZONE_SETTING) || !g_ascii_string_to_unsigned (value, 10, 1, ECFS_SHARES_MAX, &x, NULL))
        return;
    self->last = MAX (self->last, (unsigned) x);
    self->taken[x] = true;
    if (strcmp (key + strlen (ZONE_SETTING), self->zone) == 0)
        self->x = (unsigned) x;
}

bool ecfs_key_shares_give_zone (EcfsCatalog *catalog, const char *zone, unsigned x, GError **error)
{
    g_autofree char *key = g_strconcat (ZONE_SETTING, zone, NULL), *value = g_strdup_printf ("%u", x);
    return ecfs_catalog_keep_setting (catalog, key, value, error);
}

bool ecfs_key_shares_of_zone (EcfsCatalog *catalog, const char *zone, unsigned *ret_x, GError **error)
{
    ZoneSearch search = {.zone = zone};
    if (!ecfs_catalog_settings (catalog, on_setting, &search, error))
        return false;
    *ret_x = search.x;
    return true;
}

bool ecfs_key_shares_note_found (EcfsCatalog *catalog, const char *zone, unsigned x, GError **error)
{
    ZoneSearch search = {.zone = zone};
    return ecfs_catalog_settings (catalog, on_setting, &search, error) &&
           (search.x != 0 || search.taken[x] || ecfs_key_shares_give_zone (catalog, zone, x, error));
}

bool ecfs_key_shares_choose (EcfsCatalog *catalog, const char *zone, unsigned *ret_x, GError **error)
{
    ZoneSearch search = {.zone = zone};
    if (!ecfs_catalog_settings (catalog, on_setting, &search, error))
        return false;
    *ret_x = search.x != 0 ? search.x : search.last + 1;
    if (search.x != 0)
        return true;
    if (search.last == ECFS_SHARES_MAX)
        return ecfs_fail (error, ENOSPC, "there have been %u zones, and no share of the archive's key is left",
                          ECFS_SHARES_MAX);
    return ecfs_key_shares_give_zone (catalog, zone, *ret_x, error) && ecfs_catalog_barrier (catalog, error);
}

/* At an endpoint */

static void note_name (void *user, const EcfsListed *listed)
{
    if (ecfs_key_shares_is_name (listed->name))
        g_ptr_array_add (user, g_strdup (listed->name));
}

/* The file that an endpoint has, for ecfs_key_forget_array (); NULL: it has none, or none that can be ours. */
static GByteArray *read_file (EcfsEndpoint *endpoint, const char *name, GError **error)
{
    uint64_t size;
    if (!ecfs_endpoint_size_wait (endpoint, name, &size, error))
        return NULL;
    GByteArray *bytes = g_byte_array_new ();
    g_byte_array_set_size (bytes, (guint) MIN (size, ECFS_KEY_FILE_MAX_BYTES));
    const EcfsRange range = {.size = bytes->len, .to = bytes->data};
    if (size == 0 || ecfs_endpoint_read_wait (endpoint, name, &range, 1, error))
        return bytes;
    g_byte_array_unref (bytes);
    return NULL;
}

/* Whether the endpoint has just these bytes; *ret_same false: it has none or others. */
static bool compare (EcfsEndpoint *endpoint, const char *name, const GByteArray *bytes, bool *ret_same, GError **error)
{
    GError *why = NULL;
    GByteArray *found = read_file (endpoint, name, &why);
    *ret_same = found != NULL && found->len == bytes->len && memcmp (found->data, bytes->data, bytes->len) == 0;
    ecfs_key_forget_array (found);
    if (why == NULL)
        return true;
    if (why->code == ENOENT) {
        g_error_free (why);
        return true;
    }
    g_propagate_error (error, why);
    return false;
}

static bool write_bytes (EcfsEndpoint *endpoint, const char *name, const GByteArray *bytes, GError **error)
{
    GError *reason = NULL;
    if (ecfs_endpoint_write_wait (endpoint, name, bytes->data, bytes->len, &reason))
        return true;
    if (reason->code != EEXIST) {
        g_propagate_error (error, reason);
        return false;
    }
    g_error_free (reason); /* another share, or a damaged one */
    return ecfs_endpoint_remove_wait (endpoint, name, error) &&
           ecfs_endpoint_write_wait (endpoint, name, bytes->data, bytes->len, error);
}

void ecfs_key_shares_file_name (const EcfsKeyShares *self, char ret_name[ECFS_KEY_SHARE_NAME_SIZE])
{
    char generation[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->file.generation, generation);
    if (self->file.revision > 1)
        (void) snprintf (ret_name, ECFS_KEY_SHARE_NAME_SIZE, ECFS_KEYS_DIRECTORY "/%s-%" PRIu64, generation,
                         self->file.revision);
    else
        (void) snprintf (ret_name, ECFS_KEY_SHARE_NAME_SIZE, ECFS_KEYS_DIRECTORY "/%s", generation);
}

GByteArray *ecfs_key_shares_file_of (const EcfsKeyShares *self, unsigned x)
{
    EcfsKeyFile file = self->file; /* borrowed but for the share */
    if (x > 0)
        file.share = self->shares[x - 1];
    GByteArray *bytes = ecfs_key_file_format (&file);
    ecfs_key_forget (&file.share, sizeof file.share);
    return bytes;
}

EcfsShareVerdict ecfs_key_shares_judge (const EcfsKeyShares *self, const GByteArray *bytes, unsigned *ret_x)
{
    EcfsKeyFile file;
    *ret_x = 0;
    if (!ecfs_key_file_parse (bytes->data, bytes->len, &file, NULL))
        return ECFS_SHARE_DAMAGED;
    bool fits = self->file.threshold == 0 ? file.share.x == 0 : ecfs_key_shares_has (self, &file);
    GByteArray *own = fits ? ecfs_key_shares_file_of (self, file.share.x) : NULL;
    bool same = own != NULL && own->len == bytes->len && memcmp (own->data, bytes->data, own->len) == 0;
    *ret_x = same ? file.share.x : 0;
    ecfs_key_forget_array (own);
    ecfs_key_file_clear (&file);
    return same ? ECFS_SHARE_OURS : ECFS_SHARE_OTHER;
}

GByteArray *ecfs_key_shares_read (const EcfsKeyShares *self, EcfsEndpoint *endpoint, GError **error)
{
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    ecfs_key_shares_file_name (self, name);
    return read_file (endpoint, name, error);
}

bool ecfs_key_shares_look (const EcfsKeyShares *self, EcfsEndpoint *endpoint, unsigned *ret_x, GError **error)
{
    GError *why = NULL;
    GByteArray *bytes = ecfs_key_shares_read (self, endpoint, &why);
    if (bytes == NULL && why->code != ENOENT) {
        g_propagate_error (error, why);
        return false;
    }
    g_clear_error (&why);
    bool own = bytes != NULL && ecfs_key_shares_judge (self, bytes, ret_x) == ECFS_SHARE_OURS;
    ecfs_key_forget_array (bytes);
    return own || ecfs_fail (error, ENOENT, "its share of the archive's key is missing or damaged");
}

EcfsKeyRing *ecfs_key_file_open (const EcfsKeyFile *file, const uint8_t secret[ECFS_SECRET_BYTES])
{
    const EcfsKeyOpener opener = {.secret = secret};
    EcfsKeyRing *keys = NULL;
    for (guint i = 0; i < file->slots->len && keys == NULL; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (file->slots, i);
        GByteArray *bytes =
            slot->kind == ECFS_KEY_SLOT_SPLIT ? ecfs_key_slot_open (slot, &file->archive, &opener, NULL) : NULL;
        keys = bytes == NULL ? NULL : ecfs_key_ring_parse (bytes->data, bytes->len, NULL);
        ecfs_key_forget_array (bytes);
    }
    return keys;
}

void ecfs_key_shares_take_away (EcfsEndpoint *endpoint)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
    (void) ecfs_endpoint_list_wait (endpoint, ECFS_KEYS_DIRECTORY, note_name, names, NULL);
    for (guint i = 0; i < names->len; i++) /* what stays does no harm without a marker, as below */
        (void) ecfs_endpoint_remove_wait (endpoint, g_ptr_array_index (names, i), NULL);
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, ECFS_KEYS_DIRECTORY, NULL);
}

bool ecfs_key_shares_may_have_older (const EcfsKeyShares *self)
{
    return self->file.revision > 1 || self->n_former > 0;
}

bool ecfs_key_shares_is_older (const EcfsKeyShares *self, const char *name)
{
    EcfsUuid generation;
    guint64 revision;
    if (!parse_name (name, &generation, &revision))
        return false;
    return ecfs_uuid_equal (&generation, &self->file.generation) ? revision < self->file.revision
                                                                 : is_former (self, &generation);
}

bool ecfs_key_shares_older (const EcfsKeyShares *self, EcfsEndpoint *endpoint, GPtrArray **ret_names, GError **error)
{
    GError *why = NULL;
    g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
    if (ecfs_key_shares_may_have_older (self) &&
        !ecfs_endpoint_list_wait (endpoint, ECFS_KEYS_DIRECTORY, note_name, names, &why) && why->code != ENOENT) {
        g_propagate_error (error, why);
        return false;
    }
    g_clear_error (&why);
    for (guint i = names->len; i-- > 0;)
        if (!ecfs_key_shares_is_older (self, g_ptr_array_index (names, i)))
            g_ptr_array_remove_index (names, i);
    *ret_names = g_steal_pointer (&names);
    return true;
}

/* Which would still open what has been taken away since. */
static bool remove_older (const EcfsKeyShares *self, EcfsEndpoint *endpoint, GError **error)
{
    g_autoptr (GPtrArray) names = NULL;
    if (ecfs_endpoint_retain_us (endpoint) != ECFS_RETAIN_NOT)
        return true;
    bool good = ecfs_key_shares_older (self, endpoint, &names, error);
    for (guint i = 0; good && i < names->len; i++)
        good = ecfs_endpoint_remove_wait (endpoint, g_ptr_array_index (names, i), error);
    return good;
}

bool ecfs_key_shares_put (const EcfsKeyShares *self, EcfsCatalog *catalog, EcfsEndpoint *endpoint, const char *zone,
                          GError **error)
{
    unsigned x = 0;
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    if (!ecfs_key_shares_check_newest (self, catalog, error) ||
        (self->file.threshold > 0 && !ecfs_key_shares_choose (catalog, zone, &x, error)))
        return false;
    ecfs_key_shares_file_name (self, name);
    GByteArray *bytes = ecfs_key_shares_file_of (self, x);
    bool same, put = compare (endpoint, name, bytes, &same, error);
    if (put && !same)
        put = write_bytes (endpoint, name, bytes, error) && compare (endpoint, name, bytes, &same, error) &&
              (same ||
               ecfs_fail (error, EIO, "endpoint %s: its share of the archive's key does not read as it was written",
                          ecfs_endpoint_name (endpoint)));
    ecfs_key_forget_array (bytes);
    return put && remove_older (self, endpoint, error);
}
