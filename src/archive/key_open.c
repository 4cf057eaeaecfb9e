#include "archive/key_open.h"

#include "key/recipient.h"
#include "util/lock.h"

#include <stdarg.h>
#include <string.h>

#define FILES_MOST  64                   /* of one endpoint that are looked at, … */
#define FIND_US     (5 * G_USEC_PER_SEC) /* … and no more after this */
#define SCRYPT_UNIT (8u << 17)           /* what a slot of ours asks of scrypt */
#define SCRYPT_MOST 64                   /* of these that are done in all: some 30 s */

/* Finding */

static void found_clear (gpointer data)
{
    ecfs_key_file_clear (&((EcfsKeyFound *) data)->file);
}

GArray *ecfs_key_found_new (void)
{
    GArray *all = g_array_new (FALSE, FALSE, sizeof (EcfsKeyFound));
    g_array_set_clear_func (all, found_clear);
    return all;
}

G_GNUC_PRINTF (3, 4)
static void say (EcfsKeyTell tell, void *user, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    tell (user, text);
}

typedef struct Listing {
    GPtrArray *names; /* owned */
    GArray *sizes;    /* of uint64_t */
} Listing;

static void on_listed (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    if (!ecfs_key_shares_is_name (listed->name) || listed->size > ECFS_KEY_FILE_MAX_BYTES ||
        self->names->len == FILES_MOST)
        return;
    g_ptr_array_add (self->names, g_strdup (listed->name));
    g_array_append_val (self->sizes, listed->size);
}

static bool read_file (EcfsEndpoint *endpoint, const char *name, uint64_t size, EcfsKeyFile *ret_file, GError **error)
{
    GByteArray *bytes = g_byte_array_new ();
    g_byte_array_set_size (bytes, (guint) size);
    const EcfsRange range = {.size = bytes->len, .to = bytes->data};
    bool good = (size == 0 || ecfs_endpoint_read_wait (endpoint, name, &range, 1, error)) &&
                ecfs_key_file_parse (bytes->data, bytes->len, ret_file, error);
    ecfs_key_forget_array (bytes);
    return good;
}

static void find_one (EcfsEndpoint *endpoint, const EcfsUuid *archive, const char *name, uint64_t size,
                      const EcfsKeyFound *where, GArray *all, EcfsKeyTell tell, void *user)
{
    g_autoptr (GError) error = NULL;
    EcfsKeyFound found = *where;
    if (!read_file (endpoint, name, size, &found.file, &error)) {
        say (tell, user, "endpoint %s: %s cannot be used: %s", where->endpoint, name, error->message);
        return;
    }
    if (ecfs_uuid_equal (&found.file.archive, archive))
        g_array_append_val (all, found);
    else /* left behind by one that was there before */
        ecfs_key_file_clear (&found.file);
}

void ecfs_key_find (EcfsEndpoint *endpoint, const EcfsUuid *archive, const EcfsKeyFound *where, GArray *all,
                    EcfsKeyTell tell, void *user)
{
    Listing listing = {.names = g_ptr_array_new_with_free_func (g_free),
                       .sizes = g_array_new (FALSE, FALSE, sizeof (uint64_t))};
    g_autoptr (GError) error = NULL;
    if (!ecfs_endpoint_list_wait (endpoint, ECFS_KEYS_DIRECTORY, on_listed, &listing, &error) && error->code != ENOENT)
        say (tell, user, "endpoint %s: its share of a key cannot be looked for: %s", where->endpoint, error->message);
    int64_t late_us = ecfs_now_us () + FIND_US;
    guint i = 0;
    for (; i < listing.names->len && ecfs_now_us () < late_us; i++)
        find_one (endpoint, archive, g_ptr_array_index (listing.names, i), g_array_index (listing.sizes, uint64_t, i),
                  where, all, tell, user);
    if (i < listing.names->len)
        say (tell, user, "endpoint %s: it takes too long to show its %u key files: %u of them are left out",
             where->endpoint, listing.names->len, listing.names->len - i);
    g_ptr_array_unref (listing.names);
    g_array_unref (listing.sizes);
}

/* Opening */

/* A slot, and who has it. */
typedef struct Candidate {
    const EcfsKeySlot *slot; /* borrowed */
    GHashTable *zones;
} Candidate;

typedef struct Opening {
    const EcfsUuid *archive;
    const GArray *all;
    const EcfsKeyGiven *given;
    bool has_secret;
    EcfsUuid generation; /* of the secret */
    uint8_t secret[ECFS_SECRET_BYTES];
    uint8_t code[ECFS_CODE_BYTES];
    uint8_t identity[ECFS_KEY_BYTES];
    bool has_code, has_identity, asked_passphrase, asked_code;
    char *asked;    /* passphrase; owned */
    size_t n_zones; /* that have any key file */
    guint n_candidates;
    bool any_bare; /* some file has no slot */
    uint64_t scrypt_left;
    bool tried[ECFS_KEY_SLOT_RECIPIENT + 1];  /* kinds of which one was tried, and did not open … */
    bool wanted[ECFS_KEY_SLOT_RECIPIENT + 1]; /* … or for which something is missing */
    bool costly;                              /* one was left out since it costs too much */
} Opening;

static void candidate_free (gpointer data)
{
    Candidate *self = data;
    g_hash_table_unref (self->zones);
    g_free (self);
}

static unsigned cost_of (EcfsKeySlotKind kind)
{
    return kind == ECFS_KEY_SLOT_SPLIT ? 0 : kind == ECFS_KEY_SLOT_PASSPHRASE || kind == ECFS_KEY_SLOT_ALONE ? 2 : 1;
}

static uint64_t scrypt_of (const EcfsKeySlot *slot)
{
    return (1ull << MIN (slot->log2_n, 40)) * slot->r * slot->p;
}

/* The kinds that cost little first, then those that most have, then what asks least of scrypt. */
static gint by_worth (gconstpointer a, gconstpointer b)
{
    const Candidate *one = *(const Candidate *const *) a, *two = *(const Candidate *const *) b;
    unsigned cost_one = cost_of (one->slot->kind), cost_two = cost_of (two->slot->kind);
    guint n_one = g_hash_table_size (one->zones), n_two = g_hash_table_size (two->zones);
    if (cost_one != cost_two)
        return cost_one < cost_two ? -1 : 1;
    if (n_one != n_two)
        return n_one > n_two ? -1 : 1;
    uint64_t scrypt_one = scrypt_of (one->slot), scrypt_two = scrypt_of (two->slot);
    return scrypt_one == scrypt_two ? 0 : scrypt_one < scrypt_two ? -1 : 1;
}

/* Whether a slot of this kind is among those that are to be tried. */
static bool is_wanted (const EcfsKeyGiven *given, EcfsKeySlotKind kind)
{
    if (kind < ECFS_KEY_SLOT_SPLIT || kind > ECFS_KEY_SLOT_RECIPIENT)
        return false; /* of a later ecfs */
    const char *const needs[] = {[ECFS_KEY_SLOT_PASSPHRASE] = given->passphrase,
                                 [ECFS_KEY_SLOT_ALONE] = given->passphrase,
                                 [ECFS_KEY_SLOT_CODE] = given->code,
                                 [ECFS_KEY_SLOT_RECIPIENT] = given->identity};
    bool any = given->passphrase != NULL || given->code != NULL || given->identity != NULL;
    return !given->only || !any || needs[kind] != NULL;
}

static void collect (const Opening *self, const EcfsKeyFound *found, GHashTable *known, GPtrArray *candidates)
{
    for (guint i = 0; i < found->file.slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (found->file.slots, i);
        if (!is_wanted (self->given, slot->kind))
            continue;
        if (self->has_secret && ecfs_key_slot_is_shared (slot->kind) &&
            !ecfs_uuid_equal (&found->file.generation, &self->generation))
            continue; /* of another secret */
        GBytes *bytes = g_byte_array_free_to_bytes (ecfs_key_slot_format (slot));
        Candidate *candidate = g_hash_table_lookup (known, bytes);
        if (candidate == NULL) {
            candidate = g_new (Candidate, 1);
            *candidate = (Candidate){.slot = slot, .zones = g_hash_table_new (g_str_hash, g_str_equal)};
            g_ptr_array_add (candidates, candidate);
            g_hash_table_insert (known, g_bytes_ref (bytes), candidate);
        }
        g_hash_table_add (candidate->zones, (char *) found->zone);
        g_bytes_unref (bytes);
    }
}

/* The most worthy first. */
static GPtrArray *candidates_of (Opening *self)
{
    GPtrArray *candidates = g_ptr_array_new_with_free_func (candidate_free);
    g_autoptr (GHashTable) known =
        g_hash_table_new_full (g_bytes_hash, g_bytes_equal, (GDestroyNotify) g_bytes_unref, NULL);
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (guint i = 0; i < self->all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (self->all, EcfsKeyFound, i);
        g_hash_table_add (zones, (char *) found->zone);
        if (found->distrusted)
            continue;
        collect (self, found, known, candidates);
        self->any_bare = self->any_bare || found->file.slots->len == 0;
    }
    self->n_zones = g_hash_table_size (zones);
    g_ptr_array_sort (candidates, by_worth);
    return candidates;
}

/* Once for each @what, and only for what most zones have: a few must not make anybody ask. */
static char *ask_for (Opening *self, const Candidate *candidate, const char *what, bool *asked)
{
    bool most = 2 * (size_t) g_hash_table_size (candidate->zones) > self->n_zones;
    if (*asked || !most || self->given->ask == NULL)
        return NULL;
    *asked = true;
    return self->given->ask (self->given->user, what);
}

static const char *passphrase_for (Opening *self, const Candidate *candidate)
{
    if (self->given->passphrase != NULL)
        return self->given->passphrase;
    if (self->asked == NULL)
        self->asked = ask_for (self, candidate, "passphrase", &self->asked_passphrase);
    return self->asked;
}

static const uint8_t *code_for (Opening *self, const Candidate *candidate)
{
    char *text = self->has_code ? NULL : ask_for (self, candidate, "code", &self->asked_code);
    if (text != NULL) {
        self->has_code = ecfs_code_parse (text, self->code);
        self->tried[ECFS_KEY_SLOT_CODE] = !self->has_code; /* no code is wrong, too */
        ecfs_key_forget (text, strlen (text));
        g_free (text);
    }
    return self->has_code ? self->code : NULL;
}

static bool is_affordable (Opening *self, const EcfsKeySlot *slot)
{
    uint64_t cost = scrypt_of (slot);
    if (cost > self->scrypt_left) {
        self->costly = true;
        return false;
    }
    self->scrypt_left -= cost;
    return true;
}

/* What there is to open it with. False: something is missing, or it would be too much work. */
static bool prepare (Opening *self, const Candidate *candidate, EcfsKeyOpener *ret_opener)
{
    const EcfsKeySlot *slot = candidate->slot;
    bool ready = true;
    *ret_opener = (EcfsKeyOpener){.secret = self->has_secret ? self->secret : NULL};
    if (ecfs_key_slot_is_shared (slot->kind))
        ready = self->has_secret;
    if (ready && (slot->kind == ECFS_KEY_SLOT_PASSPHRASE || slot->kind == ECFS_KEY_SLOT_ALONE)) {
        ret_opener->passphrase = passphrase_for (self, candidate);
        ready = ret_opener->passphrase != NULL;
        if (ready && !is_affordable (self, slot))
            return false;
    }
    if (slot->kind == ECFS_KEY_SLOT_CODE)
        ready = (ret_opener->code = code_for (self, candidate)) != NULL;
    if (slot->kind == ECFS_KEY_SLOT_RECIPIENT)
        ready = (ret_opener->private_key = self->has_identity ? self->identity : NULL) != NULL;
    self->wanted[slot->kind] = self->wanted[slot->kind] || !ready;
    return ready;
}

/* Zones that have the file as it is. */
static guint count_zones (const GArray *all, const EcfsKeyFile *file)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        if (!found->distrusted && found->file.revision == file->revision &&
            ecfs_uuid_equal (&found->file.generation, &file->generation) &&
            memcmp (found->file.mac, file->mac, sizeof file->mac) == 0)
            g_hash_table_add (zones, (char *) found->zone);
    }
    return g_hash_table_size (zones);
}

/* Two of one revision were made by two copies of the archive directory, and one of these was given up. */
static bool is_newer (const GArray *all, const EcfsKeyFile *file, const EcfsKeyFile *than)
{
    return file->revision > than->revision ||
           (file->revision == than->revision && count_zones (all, file) > count_zones (all, than));
}

EcfsKeyShares *ecfs_key_newest (const EcfsKeyRing *keys, const GArray *all)
{
    EcfsKeyShares *newest = NULL;
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        if (found->distrusted || (newest != NULL && !is_newer (all, &found->file, ecfs_key_shares_file (newest))))
            continue;
        EcfsKeyShares *shares = ecfs_key_shares_of (keys, &found->file, NULL); /* others tell of other keys */
        if (shares == NULL)
            continue;
        ecfs_key_shares_free (newest);
        newest = shares;
    }
    return newest;
}

static bool try_slot (Opening *self, const Candidate *candidate, EcfsKeyOpened *ret_opened)
{
    EcfsKeyOpener opener;
    if (!prepare (self, candidate, &opener))
        return false;
    GByteArray *bytes = ecfs_key_slot_open (candidate->slot, self->archive, &opener, NULL); /* another one may open */
    g_autoptr (EcfsKeyRing) keys = bytes == NULL ? NULL : ecfs_key_ring_parse (bytes->data, bytes->len, NULL);
    ecfs_key_forget_array (bytes);
    g_autoptr (EcfsKeyShares) shares = keys == NULL ? NULL : ecfs_key_newest (keys, self->all);
    if (shares == NULL) {
        self->tried[candidate->slot->kind] = true;
        return false;
    }
    *ret_opened = (EcfsKeyOpened){.keys = g_steal_pointer (&keys),
                                  .shares = g_steal_pointer (&shares),
                                  .kind = candidate->slot->kind,
                                  .slot = candidate->slot->id};
    return true;
}

static EcfsShareWitness *witnesses_of (const GArray *all)
{
    EcfsShareWitness *witnesses = g_new0 (EcfsShareWitness, all->len + 1);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        witnesses[i] = (EcfsShareWitness){.zone = found->zone, .file = found->distrusted ? NULL : &found->file};
    }
    return witnesses;
}

/* Whether the endpoint has a file that contradicts nothing, or was named for one. */
static bool has_another (const Opening *self, const EcfsShareWitness *witnesses, guint at)
{
    const char *endpoint = g_array_index (self->all, EcfsKeyFound, at).endpoint;
    for (guint i = 0; i < self->all->len; i++)
        if (i != at && g_str_equal (g_array_index (self->all, EcfsKeyFound, i).endpoint, endpoint) &&
            witnesses[i].file != NULL && (!witnesses[i].contradicts || i < at))
            return true;
    return false;
}

/* The secret, where there are enough shares of it; else *ret_why. */
static void gather (Opening *self, EcfsKeyTell tell, void *user, GError **ret_why)
{
    g_autofree EcfsShareWitness *witnesses = witnesses_of (self->all);
    self->has_secret =
        ecfs_secret_gather (self->archive, witnesses, self->all->len, self->secret, &self->generation, ret_why);
    bool differ = ecfs_errno (*ret_why) == ENOTUNIQ;
    for (guint i = 0; (self->has_secret || differ) && i < self->all->len; i++) {
        const char *endpoint = g_array_index (self->all, EcfsKeyFound, i).endpoint;
        if (!witnesses[i].contradicts || has_another (self, witnesses, i))
            continue;
        bool same = !differ && ecfs_uuid_equal (&witnesses[i].file->generation, &self->generation);
        say (tell, user, "endpoint %s: its share of the archive's key is not %s", endpoint,
             same ? "what was stored there" : "one of those that most tell of");
    }
}

static bool read_given (Opening *self, GError **error)
{
    const EcfsKeyGiven *given = self->given;
    if (given->code != NULL && !ecfs_code_parse (given->code, self->code))
        return ecfs_fail (error, EINVAL, "the given code is none: it has 32 letters and digits (2 to 7)");
    self->has_code = given->code != NULL;
    self->has_identity = given->identity != NULL;
    return given->identity == NULL || ecfs_identity_parse (given->identity, self->identity, error);
}

/* Shares */
static bool fail_sharing (const GError *why, GError **error)
{
    const char *cause = why->code == ENOTUNIQ ? "some of the endpoints that it is shared by lie"
                                              : "too few of the endpoints that it is shared by are here";
    return ecfs_fail (error, ENOKEY,
                      "the archive has a key, and %s: %s; name more of them, or those that lie with --distrust, or "
                      "give the key with --key FILE",
                      cause, why->message);
}

/* Of what was given, or would have to be. */
static bool fail_closed (const Opening *self, const GError *why, GError **error)
{
    bool passphrase = self->tried[ECFS_KEY_SLOT_PASSPHRASE] || self->tried[ECFS_KEY_SLOT_ALONE];
    bool wants = self->wanted[ECFS_KEY_SLOT_ALONE] ||
                 (self->wanted[ECFS_KEY_SLOT_PASSPHRASE] && (self->has_secret || why == NULL));
    g_autoptr (GString) text = g_string_new (NULL);
    if (passphrase)
        g_string_append (text, "; the passphrase is wrong");
    else if (self->costly)
        g_string_append (text, "; what a passphrase would open asks for more than ecfs does, so endpoints lie");
    else if (wants)
        g_string_append (text, "; a passphrase opens it (--passphrase-file)");
    if (self->tried[ECFS_KEY_SLOT_CODE])
        g_string_append (text, "; the code is wrong");
    else if (self->wanted[ECFS_KEY_SLOT_CODE])
        g_string_append (text, "; a code opens it (--code-file)");
    if (self->tried[ECFS_KEY_SLOT_RECIPIENT])
        g_string_append (text, "; it was not made for the given identity");
    else if (self->wanted[ECFS_KEY_SLOT_RECIPIENT])
        g_string_append (text, "; a private key opens it (--identity)");
    if (self->n_zones == 0)
        return ecfs_fail (
            error, ENOKEY,
            "the archive's key does not open, as none of these endpoints has a file with it; name more of "
            "them, or give the key with --key FILE");
    if (self->n_candidates == 0 && self->any_bare)
        return ecfs_fail (error, ENOKEY,
                          "no slot is left in the key files of these endpoints, so nothing that they have opens the "
                          "archive's key: give it with --key FILE");
    if (self->n_candidates == 0 && self->given->only)
        return ecfs_fail (error, ENOKEY, "no key slot that endpoints have is opened by what was given");
    if (text->len == 0)
        return self->has_secret || why == NULL
                   ? ecfs_fail (error, ENOKEY,
                                "the endpoints' shares of the archive's key fit, and what they open is damaged")
                   : fail_sharing (why, error);
    bool shares = self->wanted[ECFS_KEY_SLOT_SPLIT] || self->wanted[ECFS_KEY_SLOT_PASSPHRASE];
    if (!self->has_secret && shares && why != NULL)
        g_string_append_printf (text, "; more endpoints may help, as %s", why->message);
    return ecfs_fail (error, ENOKEY, "the archive's key does not open%s", text->str);
}

static void forget (Opening *self)
{
    if (self->asked != NULL)
        ecfs_key_forget (self->asked, strlen (self->asked));
    g_free (self->asked);
    ecfs_key_forget (self, sizeof *self);
}

/* By the files in @all, whose shares are of one generation, or of several that contradict each other. */
static bool open_alike (const EcfsUuid *archive, const GArray *all, const EcfsKeyGiven *given, EcfsKeyTell tell,
                        void *user, EcfsKeyOpened *ret_opened, GError **error)
{
    Opening self = {
        .archive = archive, .all = all, .given = given, .scrypt_left = (uint64_t) SCRYPT_MOST * SCRYPT_UNIT};
    g_autoptr (GError) why = NULL;
    bool opened = false, read = read_given (&self, error);
    if (read) {
        gather (&self, tell, user, &why);
        g_autoptr (GPtrArray) candidates = candidates_of (&self);
        self.n_candidates = candidates->len;
        for (guint i = 0; i < candidates->len && !opened; i++)
            opened = try_slot (&self, g_ptr_array_index (candidates, i), ret_opened);
    }
    if (read && !opened)
        (void) fail_closed (&self, why, error);
    forget (&self);
    return opened;
}

/*
 * Generations. While keys are rotated, and at endpoints that were away then also later, there are files of two: the
 * newer one opens to all keys that the older one opens to, and to one more. Few must not be able to have theirs taken
 * for the newer one, so only those count that are in as many zones as any of them needs.
 */

typedef struct Generation {
    EcfsUuid id;
    unsigned threshold; /* files of the generation that tell of another one are another's */
    GHashTable *zones;  /* that have it, and the right share where there are any */
    EcfsKeyOpened opened;
    bool is_open;
} Generation;

static void generation_clear (gpointer data)
{
    Generation *self = data;
    g_hash_table_unref (self->zones);
    if (self->is_open)
        ecfs_key_opened_clear (&self->opened);
}

static bool is_of (const Generation *self, const EcfsKeyFile *file)
{
    return ecfs_uuid_equal (&self->id, &file->generation) && self->threshold == file->threshold;
}

static Generation *generation_of (GArray *generations, const EcfsKeyFile *file)
{
    for (guint i = 0; i < generations->len; i++) {
        Generation *one = &g_array_index (generations, Generation, i);
        if (is_of (one, file))
            return one;
    }
    const Generation one = {
        .id = file->generation, .threshold = file->threshold, .zones = g_hash_table_new (g_str_hash, g_str_equal)};
    g_array_append_val (generations, one);
    return &g_array_index (generations, Generation, generations->len - 1);
}

/* Of @zones those that do not have it. */
static guint n_without (const Generation *self, GHashTable *zones)
{
    guint n = 0;
    GHashTableIter iter;
    gpointer zone;
    g_hash_table_iter_init (&iter, zones);
    while (g_hash_table_iter_next (&iter, &zone, NULL))
        n += !g_hash_table_contains (self->zones, zone);
    return n;
}

/* Those that so many have that it is no few who made them up. */
static GArray *established (const GArray *all)
{
    unsigned most_needed = 0;
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    GArray *generations = g_array_new (FALSE, FALSE, sizeof (Generation));
    g_array_set_clear_func (generations, generation_clear);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        g_hash_table_add (zones, (char *) found->zone);
        if (found->distrusted)
            continue;
        Generation *one = generation_of (generations, &found->file);
        if (found->file.threshold == 0 || found->file.share.x > 0)
            g_hash_table_add (one->zones, (char *) found->zone);
        most_needed = MAX (most_needed, found->file.threshold);
    }
    for (guint i = generations->len; i-- > 0;) {
        const Generation *one = &g_array_index (generations, Generation, i);
        const guint n_zones = g_hash_table_size (one->zones);
        bool counts = one->threshold > 0
                          ? ecfs_zones_settle (n_zones, n_without (one, zones), one->threshold, most_needed)
                          : 2 * n_zones > g_hash_table_size (zones);
        if (!counts)
            g_array_remove_index (generations, i);
    }
    return generations;
}

/* Its files, which stay those of @all. */
static GArray *files_of (const GArray *all, const Generation *generation)
{
    GArray *files = g_array_new (FALSE, FALSE, sizeof (EcfsKeyFound));
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        if (is_of (generation, &found->file))
            g_array_append_val (files, *found);
    }
    return files;
}

static bool contains (const Generation *self, const Generation *other)
{
    return ecfs_key_ring_has (self->opened.keys, ecfs_key_ring_active (other->opened.keys));
}

static bool is_better (const Generation *self, const Generation *other, const EcfsKeyGiven *given)
{
    if (other == NULL)
        return true;
    if (given->weigh != NULL) {
        size_t own = given->weigh (given->weigh_user, self->opened.keys);
        size_t others = given->weigh (given->weigh_user, other->opened.keys);
        if (own != others)
            return own > others;
    }
    if (contains (self, other) != contains (other, self))
        return contains (self, other);
    return g_hash_table_size (self->zones) > g_hash_table_size (other->zones);
}

static bool open_generations (const EcfsUuid *archive, const GArray *all, GArray *generations,
                              const EcfsKeyGiven *given, EcfsKeyTell tell, void *user, EcfsKeyOpened *ret_opened,
                              GError **error)
{
    Generation *best = NULL;
    g_autoptr (GError) first = NULL;
    for (guint i = 0; i < generations->len; i++) {
        Generation *one = &g_array_index (generations, Generation, i);
        g_autoptr (GArray) files = files_of (all, one);
        one->is_open = open_alike (archive, files, given, tell, user, &one->opened, first == NULL ? &first : NULL);
        if (one->is_open && is_better (one, best, given))
            best = one;
    }
    if (best == NULL) {
        g_propagate_error (error, g_steal_pointer (&first));
        return false;
    }
    best->is_open = false;
    *ret_opened = best->opened;
    return true;
}

bool ecfs_key_open_found (const EcfsUuid *archive, GArray *all, const EcfsKeyGiven *given, EcfsKeyTell tell, void *user,
                          EcfsKeyOpened *ret_opened, GError **error)
{
    static const EcfsKeyGiven nothing = {.passphrase = NULL};
    g_autoptr (GArray) generations = established (all);
    if (given == NULL)
        given = &nothing;
    return generations->len < 2 ? open_alike (archive, all, given, tell, user, ret_opened, error)
                                : open_generations (archive, all, generations, given, tell, user, ret_opened, error);
}

void ecfs_key_opened_clear (EcfsKeyOpened *opened)
{
    ecfs_key_ring_unref (opened->keys);
    ecfs_key_shares_free (opened->shares);
    *opened = (EcfsKeyOpened){.keys = NULL};
}
