/* Putting into the table what is published, and finding it. */
#include "locate/published.h"

#include "util/bytes.h"
#include "util/lock.h"

#include <poll.h>
#include <string.h>
#include <zlib.h>

#define AGAIN_MS    250
#define ANSWER_US   (5 * G_USEC_PER_SEC) /* for a question; then it is asked again */
#define AT_ONCE     16                   /* pieces */
#define PATIENCE_US (5 * G_USEC_PER_SEC) /* with nobody who answers */

static void head_key (const EcfsPublishedName *name, uint8_t ret_key[ECFS_LOCATE_KEY_BYTES])
{
    ecfs_dht_key (name->public_key, sizeof name->public_key, name->name, strlen (name->name), "ecfs published name",
                  ret_key);
}

/* Where a piece is, and what it is sealed under, follows from what it is. */
static void piece_keys (const EcfsPublishedName *name, const uint8_t *hash, uint8_t ret_key[ECFS_LOCATE_KEY_BYTES],
                        uint8_t ret_seal[ECFS_KEY_BYTES])
{
    ecfs_dht_key (name->public_key, sizeof name->public_key, hash, ECFS_PUBLISHED_HASH_BYTES, "ecfs published piece",
                  ret_key);
    ecfs_key_derive (name->public_key, sizeof name->public_key, hash, ECFS_PUBLISHED_HASH_BYTES,
                     "ecfs published piece seal", ret_seal);
}

static void hash_of (const uint8_t *bytes, size_t size, uint8_t ret_hash[ECFS_PUBLISHED_HASH_BYTES])
{
    uint8_t digest[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    ecfs_sha256_update (sha256, bytes, size);
    ecfs_sha256_end (sha256, digest);
    memcpy (ret_hash, digest, ECFS_PUBLISHED_HASH_BYTES);
}

static size_t piece_bytes (const EcfsPublishedHead *head, unsigned index)
{
    return MIN (head->packed_bytes - (size_t) index * ECFS_PUBLISHED_PIECE, ECFS_PUBLISHED_PIECE);
}

/* Putting */

static EcfsPublishedHead *head_of (const EcfsPublication *publication)
{
    size_t size = 0;
    EcfsPublishedHead *head = g_new0 (EcfsPublishedHead, 1);
    const uint8_t *packed = publication->packed == NULL ? NULL : g_bytes_get_data (publication->packed, &size);
    head->counter = publication->counter;
    head->text_bytes = publication->text_bytes;
    head->packed_bytes = (uint32_t) size;
    for (unsigned i = 0; i < ecfs_published_n_pieces (head); i++)
        hash_of (packed + (size_t) i * ECFS_PUBLISHED_PIECE, piece_bytes (head, i), head->hashes[i]);
    return head;
}

static EcfsDhtQuestion *put_piece (EcfsDht *dht, const EcfsPublication *publication, const EcfsPublishedHead *head,
                                   unsigned index, int64_t deadline_us)
{
    uint8_t key[ECFS_LOCATE_KEY_BYTES], seal[ECFS_KEY_BYTES];
    const uint8_t *packed = g_bytes_get_data (publication->packed, NULL);
    piece_keys (&publication->name, head->hashes[index], key, seal);
    g_autoptr (GByteArray) sealed = ecfs_key_seal (
        seal, key, sizeof key, packed + (size_t) index * ECFS_PUBLISHED_PIECE, piece_bytes (head, index));
    return ecfs_dht_put (dht, key, sealed->data, sealed->len, deadline_us);
}

static bool await_put (EcfsDhtQuestion *question, int64_t deadline_us, GError **error)
{
    g_autoptr (GPtrArray) none = ecfs_dht_await (question, deadline_us, error);
    return none != NULL;
}

/* Pieces first: who finds the head finds them all. */
static bool put_once (EcfsDht *dht, const EcfsPublication *publication, int64_t deadline_us, GError **error)
{
    uint8_t key[ECFS_LOCATE_KEY_BYTES];
    g_autofree EcfsPublishedHead *head = head_of (publication);
    unsigned n = ecfs_published_n_pieces (head);
    for (unsigned first = 0; first < n; first += AT_ONCE) {
        EcfsDhtQuestion *questions[AT_ONCE];
        unsigned n_now = MIN (n - first, AT_ONCE);
        bool good = true;
        for (unsigned i = 0; i < n_now; i++)
            questions[i] = put_piece (dht, publication, head, first + i, deadline_us);
        for (unsigned i = 0; i < n_now; i++)
            good = await_put (questions[i], deadline_us, good ? error : NULL) && good;
        if (!good)
            return false;
    }
    head_key (&publication->name, key);
    g_autoptr (GByteArray) sealed = ecfs_published_head_seal (&publication->name, publication->key, head);
    return await_put (ecfs_dht_put (dht, key, sealed->data, sealed->len, deadline_us), deadline_us, error);
}

bool ecfs_published_put (EcfsDht *dht, const EcfsPublication *publication, int64_t deadline_us, GError **error)
{
    int64_t patient_until_us = MIN (ecfs_now_us () + PATIENCE_US, deadline_us);
    for (;;) {
        g_autoptr (GError) why = NULL;
        if (put_once (dht, publication, deadline_us, &why))
            return true;
        if (why->code != ENOTCONN || ecfs_now_us () + AGAIN_MS * 1000 >= patient_until_us)
            return g_propagate_error (error, g_steal_pointer (&why)), false;
        (void) poll (NULL, 0, AGAIN_MS); /* a node that has just begun knows nobody */
    }
}

/* First of all nobody renews it. */
bool ecfs_published_withdraw (EcfsDht *dht, EcfsPublication *publication, const char *directory, int64_t deadline_us,
                              GError **error)
{
    g_autoptr (GError) why = NULL;
    ecfs_publication_withdraw (publication);
    if (!ecfs_publication_remove (directory, publication->name.name, error))
        return false;
    return ecfs_published_put (dht, publication, deadline_us, &why) ||
           ecfs_fail (error, why->code,
                      "%s: it is not renewed any more, but that could not be told, and it is found for up to ten "
                      "minutes: %s",
                      publication->name.name, why->message);
}

/* Finding */

/* The one with the highest counter. */
static bool newest_of (const EcfsPublishedName *name, const GPtrArray *values, EcfsPublishedHead *ret_head)
{
    bool found = false;
    g_autofree EcfsPublishedHead *head = g_new0 (EcfsPublishedHead, 1);
    for (guint i = 0; i < values->len; i++) {
        size_t size;
        const uint8_t *bytes = g_bytes_get_data (values->pdata[i], &size);
        if (!ecfs_published_head_open (name, bytes, size, head) || (found && head->counter <= ret_head->counter))
            continue;
        *ret_head = *head;
        found = true;
    }
    return found;
}

/* A node that has just begun knows nobody, and hears of nothing: it is asked again. */
static bool find_head (EcfsDht *dht, const EcfsPublishedName *name, int64_t deadline_us, EcfsPublishedHead *ret_head,
                       GError **error)
{
    uint8_t key[ECFS_LOCATE_KEY_BYTES];
    head_key (name, key);
    for (bool answered = false;;) {
        g_autoptr (GError) why = NULL;
        int64_t until_us = MIN (ecfs_now_us () + ANSWER_US, deadline_us);
        g_autoptr (GPtrArray) values = ecfs_dht_await (ecfs_dht_get (dht, key, until_us), until_us, &why);
        answered = answered || values != NULL;
        if (values != NULL && newest_of (name, values, ret_head))
            return true;
        if (why != NULL && why->code == ECANCELED)
            return g_propagate_error (error, g_steal_pointer (&why)), false;
        if (ecfs_now_us () + AGAIN_MS * 1000 >= deadline_us) {
            if (answered || why == NULL)
                return ecfs_fail (error, ENOENT,
                                  "%s: nothing was found under this name; if it is published, nobody has renewed it "
                                  "for ten minutes, or who keeps it does not answer",
                                  name->name);
            g_propagate_error (error, g_steal_pointer (&why));
            return ecfs_prefix (error, "%s", name->name);
        }
        (void) poll (NULL, 0, AGAIN_MS);
    }
}

/* False: none of these is that piece. */
static bool take_piece (const EcfsPublishedName *name, const EcfsPublishedHead *head, unsigned index,
                        const GPtrArray *values, uint8_t *packed)
{
    uint8_t key[ECFS_LOCATE_KEY_BYTES], seal[ECFS_KEY_BYTES], hash[ECFS_PUBLISHED_HASH_BYTES];
    piece_keys (name, head->hashes[index], key, seal);
    for (guint i = 0; i < values->len; i++) {
        size_t size;
        const uint8_t *bytes = g_bytes_get_data (values->pdata[i], &size);
        g_autoptr (GByteArray) piece = ecfs_key_open (seal, key, sizeof key, bytes, size, NULL);
        if (piece == NULL || piece->len != piece_bytes (head, index))
            continue;
        hash_of (piece->data, piece->len, hash);
        if (memcmp (hash, head->hashes[index], sizeof hash) != 0)
            continue;
        memcpy (packed + (size_t) index * ECFS_PUBLISHED_PIECE, piece->data, piece->len);
        return true;
    }
    return false;
}

/* Asks for those that are missing, AT_ONCE at a time. Returns how many are missing then. */
static unsigned ask_pieces (EcfsDht *dht, const EcfsPublishedName *name, const EcfsPublishedHead *head, bool *has,
                            uint8_t *packed, int64_t deadline_us)
{
    unsigned n = ecfs_published_n_pieces (head), n_missing = 0, next = 0;
    while (next < n) {
        unsigned asked[AT_ONCE], n_asked = 0;
        EcfsDhtQuestion *questions[AT_ONCE];
        int64_t until_us = MIN (ecfs_now_us () + ANSWER_US, deadline_us);
        for (; next < n && n_asked < AT_ONCE; next++) {
            uint8_t key[ECFS_LOCATE_KEY_BYTES], seal[ECFS_KEY_BYTES];
            if (has[next])
                continue;
            piece_keys (name, head->hashes[next], key, seal);
            questions[n_asked] = ecfs_dht_get (dht, key, until_us);
            asked[n_asked++] = next;
        }
        for (unsigned i = 0; i < n_asked; i++) {
            g_autoptr (GPtrArray) values = ecfs_dht_await (questions[i], until_us, NULL); /* it is asked again */
            has[asked[i]] = values != NULL && take_piece (name, head, asked[i], values, packed);
            n_missing += !has[asked[i]];
        }
    }
    return n_missing;
}

static char *unpack (const EcfsPublishedHead *head, const uint8_t *packed, GError **error)
{
    uLongf size = head->text_bytes;
    char *text = g_malloc (head->text_bytes + (size_t) 1);
    if (uncompress ((Bytef *) text, &size, packed, head->packed_bytes) == Z_OK && size == head->text_bytes) {
        text[size] = '\0';
        return text;
    }
    g_free (text);
    (void) !ecfs_fail (error, EBADMSG, "what was published cannot be unpacked");
    return NULL;
}

char *ecfs_published_find (EcfsDht *dht, const EcfsPublishedName *name, int64_t deadline_us, uint64_t *ret_counter,
                           GError **error)
{
    bool has[ECFS_PUBLISHED_PIECES_MAX] = {false};
    g_autofree EcfsPublishedHead *head = g_new0 (EcfsPublishedHead, 1);
    if (!find_head (dht, name, deadline_us, head, error))
        return NULL;
    if (head->text_bytes == 0) {
        (void) !ecfs_fail (error, ENOENT, "%s: it was published, and withdrawn", name->name);
        return NULL;
    }
    g_autofree uint8_t *packed = g_malloc (head->packed_bytes);
    unsigned n_missing;
    while ((n_missing = ask_pieces (dht, name, head, has, packed, deadline_us)) > 0 &&
           ecfs_now_us () + AGAIN_MS * 1000 < deadline_us)
        (void) poll (NULL, 0, AGAIN_MS);
    if (n_missing > 0) {
        (void) !ecfs_fail (error, ENODATA, "%s: %u of %u parts were not found: try again", name->name, n_missing,
                           ecfs_published_n_pieces (head));
        return NULL;
    }
    *ret_counter = head->counter;
    char *text = unpack (head, packed, error);
    if (text == NULL)
        (void) !ecfs_prefix (error, "%s", name->name);
    return text;
}
