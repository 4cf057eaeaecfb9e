/* Ways to open an archive's keys come and go: by the mount where there is one, which gets no secret to see. */
#include "archive/init_key.h"
#include "archive/key_losses.h"
#include "archive/key_slots.h"
#include "key/recipient.h"
#include "verbs/key.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <string.h>

#define PASSPHRASE_MIN 8 /* bytes */

static const char *const words[] = {[ECFS_KEEPING_NONE] = "none",          [ECFS_KEEPING_FILE] = "file",
                                    [ECFS_KEEPING_SPLIT] = "split",        [ECFS_KEEPING_PASSPHRASE] = "passphrase",
                                    [ECFS_KEEPING_ALONE] = "alone",        [ECFS_KEEPING_CODE] = "code",
                                    [ECFS_KEEPING_RECIPIENT] = "recipient"};

static bool read_secret (const EcfsKeyWay *way, EcfsKeepingRead *self, GError **error)
{
    const char *secret = way->secret != NULL ? way->secret : "";
    switch (self->how) {
    case ECFS_KEEPING_PASSPHRASE:
    case ECFS_KEEPING_ALONE:
        self->opener.passphrase = secret;
        return strlen (secret) >= PASSPHRASE_MIN ||
               ecfs_fail (error, EINVAL, "a passphrase has at least %u characters", PASSPHRASE_MIN);
    case ECFS_KEEPING_CODE:
        self->opener.code = self->code;
        return ecfs_code_parse (secret, self->code) || ecfs_fail (error, EINVAL, "this is no code");
    case ECFS_KEEPING_RECIPIENT:
        self->opener.public_key = self->public_key;
        return ecfs_recipient_parse (secret, self->public_key, error);
    default:
        return true;
    }
}

bool ecfs_keeping_read (const EcfsKeyWay *way, EcfsKeepingRead *ret_keeping, GError **error)
{
    *ret_keeping = (EcfsKeepingRead){.how = ECFS_KEEPING_NONE};
    while (ret_keeping->how < G_N_ELEMENTS (words) && strcmp (way->kind, words[ret_keeping->how]) != 0)
        ret_keeping->how++;
    if (ret_keeping->how == G_N_ELEMENTS (words))
        return ecfs_fail (error, EINVAL,
                          "a key cannot be kept as \"%s\": none, file, split, passphrase, code or recipient",
                          way->kind);
    GError *why = NULL;
    if (read_secret (way, ret_keeping, &why))
        return true;
    why->code = EINVAL; /* whatever is wrong with it */
    g_propagate_error (error, why);
    return false;
}

void ecfs_keeping_forget (EcfsKeepingRead *keeping)
{
    ecfs_key_forget (keeping, sizeof *keeping);
}

char *ecfs_new_code (void)
{
    uint8_t code[ECFS_CODE_BYTES];
    char *text = g_malloc (ECFS_CODE_TEXT_SIZE);
    ecfs_random (code, sizeof code);
    ecfs_code_text (code, text);
    ecfs_key_forget (code, sizeof code);
    return text;
}

/* A new key file */

static void put_stored (const EcfsKeyStored *stored, JsonObject *reply)
{
    JsonArray *behind = json_array_new ();
    for (guint i = 0; i < stored->behind->len; i++)
        json_array_add_string_element (behind, g_ptr_array_index (stored->behind, i));
    json_object_set_array_member (reply, "behind", behind);
    json_object_set_boolean_member (reply, "safe", stored->is_safe);
}

static bool change_take (EcfsArchive *archive, EcfsKeyShares *shares, JsonObject *reply, GError **error)
{
    EcfsKeyStored stored;
    if (!ecfs_archive_change_key_file_take (archive, shares, &stored, error))
        return false;
    put_stored (&stored, reply);
    g_ptr_array_unref (stored.behind);
    return true;
}

bool ecfs_key_change_here (EcfsArchive *archive, const uint8_t *bytes, size_t size, JsonObject *reply, GError **error)
{
    EcfsKeyFile file;
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    if (!ecfs_key_file_parse (bytes, size, &file, error))
        return false;
    EcfsKeyShares *shares = keys == NULL ? NULL : ecfs_key_shares_of (keys, &file, error);
    ecfs_key_file_clear (&file);
    if (keys == NULL)
        return ecfs_fail (error, ENOKEY, "the archive has no key");
    return shares != NULL && change_take (archive, shares, reply, error);
}

static bool change_by_mount (Ecfs *self, const EcfsKeyShares *shares, JsonObject *reply, GError **error)
{
    g_autoptr (GByteArray) bytes = ecfs_key_file_format (ecfs_key_shares_file (shares));
    g_autofree char *text = g_base64_encode (bytes->data, bytes->len);
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", "key-file");
    json_object_set_string_member (object, "file", text);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (JsonNode) answer = ecfs_control_call (ecfs_archive_directory (self->archive), request, error);
    JsonObject *told = answer == NULL ? NULL : json_node_get_object (answer);
    JsonNode *behind = told == NULL ? NULL : json_object_get_member (told, "behind");
    if (told == NULL)
        return false;
    if (behind == NULL || !JSON_NODE_HOLDS_ARRAY (behind))
        return ecfs_fail (error, EPROTO, "control socket: the answer makes no sense");
    json_object_set_member (reply, "behind", json_node_copy (behind));
    json_object_set_boolean_member (reply, "safe", ecfs_control_flag (told, "safe"));
    return true;
}

/* @shares are taken. */
static char *change (Ecfs *self, EcfsKeyShares *shares, const EcfsUuid *slot, GError **error)
{
    char id[ECFS_UUID_TEXT_SIZE];
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    JsonObject *reply = json_object_new ();
    json_node_take_object (node, reply);
    ecfs_uuid_text (slot, id);
    json_object_set_string_member (reply, "id", id);
    bool changed = self->mounted ? change_by_mount (self, shares, reply, error)
                                 : change_take (self->archive, shares, reply, error);
    if (self->mounted)
        ecfs_key_shares_free (shares);
    return changed ? json_to_string (node, TRUE) : NULL;
}

/* What is there, to be changed. */
static bool check_changeable (const Ecfs *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    return ecfs_check_leads (self, error) &&
           (ecfs_archive_keys (self->archive) != NULL || ecfs_fail (error, ENOKEY, "%s has no key", directory));
}

/* Adding */

/* What the new slot goes into: with a shared secret where it needs one. ecfs_key_shares_free () */
static EcfsKeyShares *begin (EcfsArchive *archive, EcfsKeySlotKind kind, GError **error)
{
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    unsigned threshold = now == NULL ? 0 : ecfs_key_shares_threshold (now);
    bool shares = ecfs_key_slot_is_shared (kind) && threshold == 0;
    if (shares && !ecfs_key_find_threshold (archive, &threshold, error))
        return NULL;
    if (now == NULL)
        return ecfs_key_shares_empty (keys, threshold);
    return shares ? ecfs_key_shares_shared (now, keys, threshold)
                  : ecfs_key_shares_of (keys, ecfs_key_shares_file (now), error);
}

char *ecfs_key_add (Ecfs *self, const EcfsKeyWay *way, GError **error)
{
    const EcfsKeyRing *keys = ecfs_archive_keys (self->archive);
    EcfsKeepingRead keeping;
    if (!check_changeable (self, error) || !ecfs_archive_renew_key_slots (self->archive, error) ||
        !ecfs_keeping_read (way, &keeping, error))
        return NULL;
    if (keeping.how < ECFS_KEEPING_SPLIT) {
        (void) !ecfs_fail (error, EINVAL, "no way to open keys is called \"%s\"", way->kind);
        return NULL;
    }
    g_autoptr (EcfsKeyShares) before = begin (self->archive, ecfs_keeping_slot (keeping.how), error);
    EcfsKeySlot *slot = before == NULL ? NULL
                                       : ecfs_key_shares_make_slot (before, keys, ecfs_keeping_slot (keeping.how),
                                                                    &keeping.opener, error);
    ecfs_keeping_forget (&keeping);
    const EcfsUuid id = slot == NULL ? (EcfsUuid){{0}} : slot->id;
    EcfsKeyShares *after = slot == NULL ? NULL : ecfs_key_shares_with (before, keys, slot, error);
    return after == NULL ? NULL : change (self, after, &id, error);
}

/* Removing */

/* That of the slot whose id begins so. */
static bool find_slot (const EcfsKeyShares *shares, const char *text, EcfsUuid *ret_id, GError **error)
{
    unsigned n_found = 0;
    const GPtrArray *slots = shares == NULL ? NULL : ecfs_key_shares_file (shares)->slots;
    for (guint i = 0; slots != NULL && i < slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (slots, i);
        char id[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (&slot->id, id);
        if (*text == '\0' || !g_str_has_prefix (id, text))
            continue;
        *ret_id = slot->id;
        n_found++;
    }
    if (n_found > 1)
        return ecfs_fail (error, ENOTUNIQ, "the ids of %u key slots begin with %s", n_found, text);
    return n_found == 1 ||
           ecfs_fail (error, ENOENT, "there is no key slot %s: 'ecfs key list' shows those that there are", text);
}

char *ecfs_key_remove (Ecfs *self, const char *slot, bool force, GError **error)
{
    EcfsUuid id;
    if (!check_changeable (self, error) || !ecfs_archive_renew_key_slots (self->archive, error))
        return NULL;
    const EcfsKeyShares *now = ecfs_archive_key_shares (self->archive);
    if (!find_slot (now, slot, &id, error))
        return NULL;
    if (!force && ecfs_key_shares_file (now)->slots->len == 1) {
        (void) !ecfs_fail (error, EBUSY,
                           "this is the last key slot: without it the keys are in %s alone; add another one first",
                           ecfs_archive_directory (self->archive));
        return NULL;
    }
    EcfsKeyShares *after = ecfs_key_shares_without (now, ecfs_archive_keys (self->archive), &id, error);
    return after == NULL ? NULL : change (self, after, &id, error);
}
