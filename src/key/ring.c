#include "key/ring.h"

#include "util/bytes.h"
#include "util/xxh3.h"

#include <stdatomic.h>

/*
 *   offset size
 *     0      8   0x89 "ECR" CR LF 0x1a LF
 *     8      2   version of this format: 1 where there is one key, 2 where some are retired
 *    10      2   number of keys
 *    12      4   zeros
 *    16     16   UUID of the archive
 *    32     32   each key; the first is the active one
 *           12   version 2, behind each key: its end, epoch (4) and sequence (8); zeros for the active one
 *    end     8   XXH3-64 of all before
 */
#define VERSION    2
#define HEAD_BYTES 32
#define END_BYTES  12
#define HASH_BYTES 8

static const uint8_t magic[8] = {0x89, 'E', 'C', 'R', '\r', '\n', 0x1a, '\n'};

typedef struct RingKey {
    EcfsUuid id;
    EcfsKeyEnd end; /* zeros: it is active */
    uint8_t bytes[ECFS_KEY_BYTES];
    uint8_t uses[ECFS_N_KEY_USES][ECFS_KEY_BYTES];
} RingKey;

struct EcfsKeyRing {
    atomic_uint references;
    EcfsUuid archive;
    unsigned n;
    RingKey *keys; /* n; the first is active */
};

static const char *const use_labels[ECFS_N_KEY_USES] = {
    [ECFS_KEY_USE_CONTENT] = "ecfs content", [ECFS_KEY_USE_TAG] = "ecfs tag",
    [ECFS_KEY_USE_FRAME] = "ecfs frame",     [ECFS_KEY_USE_RECORDS] = "ecfs records",
    [ECFS_KEY_USE_JOURNAL] = "ecfs journal", [ECFS_KEY_USE_MARKER] = "ecfs marker",
    [ECFS_KEY_USE_SHARES] = "ecfs shares",   [ECFS_KEY_USE_PEERS] = "ecfs peers",
    [ECFS_KEY_USE_LOCATE] = "ecfs locate",
};

static EcfsKeyRing *ring_new (const EcfsUuid *archive, unsigned n)
{
    EcfsKeyRing *self = g_new0 (EcfsKeyRing, 1);
    atomic_init (&self->references, 1);
    self->archive = *archive;
    self->n = n;
    self->keys = g_new0 (RingKey, n);
    return self;
}

static void set_key (EcfsKeyRing *self, unsigned index, const uint8_t *bytes)
{
    RingKey *key = &self->keys[index];
    const uint8_t *salt = self->archive.bytes;
    uint8_t id[ECFS_KEY_BYTES];
    memcpy (key->bytes, bytes, ECFS_KEY_BYTES);
    ecfs_key_derive (bytes, ECFS_KEY_BYTES, salt, sizeof self->archive.bytes, "ecfs key id", id);
    memcpy (key->id.bytes, id, sizeof key->id.bytes);
    for (unsigned use = 0; use < ECFS_N_KEY_USES; use++)
        ecfs_key_derive (bytes, ECFS_KEY_BYTES, salt, sizeof self->archive.bytes, use_labels[use], key->uses[use]);
}

EcfsKeyRing *ecfs_key_ring_new (const EcfsUuid *archive)
{
    uint8_t bytes[ECFS_KEY_BYTES];
    EcfsKeyRing *self = ring_new (archive, 1);
    ecfs_random (bytes, sizeof bytes);
    set_key (self, 0, bytes);
    ecfs_key_forget (bytes, sizeof bytes);
    return self;
}

EcfsKeyRing *ecfs_key_ring_rotate (const EcfsKeyRing *self, const EcfsKeyEnd *end, GError **error)
{
    uint8_t bytes[ECFS_KEY_BYTES];
    if (self->n == ECFS_KEY_RING_MAX) {
        (void) !ecfs_fail (error, ENOSPC, "the archive has had %u keys, and none more can be added", self->n);
        return NULL;
    }
    EcfsKeyRing *next = ring_new (&self->archive, self->n + 1);
    ecfs_random (bytes, sizeof bytes);
    set_key (next, 0, bytes);
    ecfs_key_forget (bytes, sizeof bytes);
    memcpy (next->keys + 1, self->keys, self->n * sizeof *self->keys);
    next->keys[1].end = *end;
    return next;
}

EcfsKeyRing *ecfs_key_ring_ref (const EcfsKeyRing *self)
{
    EcfsKeyRing *shared = (EcfsKeyRing *) self;
    atomic_fetch_add (&shared->references, 1);
    return shared;
}

void ecfs_key_ring_unref (const EcfsKeyRing *self)
{
    EcfsKeyRing *shared = (EcfsKeyRing *) self;
    if (shared == NULL || atomic_fetch_sub (&shared->references, 1) > 1)
        return;
    ecfs_key_forget (shared->keys, shared->n * sizeof *shared->keys);
    g_free (shared->keys);
    g_free (shared);
}

const EcfsUuid *ecfs_key_ring_archive (const EcfsKeyRing *self)
{
    return &self->archive;
}

const EcfsUuid *ecfs_key_ring_active (const EcfsKeyRing *self)
{
    return &self->keys[0].id;
}

unsigned ecfs_key_ring_n_retired (const EcfsKeyRing *self)
{
    return self->n - 1;
}

const EcfsUuid *ecfs_key_ring_retired (const EcfsKeyRing *self, unsigned index)
{
    return &self->keys[1 + index].id;
}

static const RingKey *find (const EcfsKeyRing *self, const EcfsUuid *id)
{
    for (unsigned i = 0; i < self->n; i++)
        if (ecfs_uuid_equal (&self->keys[i].id, id))
            return &self->keys[i];
    return NULL;
}

bool ecfs_key_ring_has (const EcfsKeyRing *self, const EcfsUuid *id)
{
    return find (self, id) != NULL;
}

bool ecfs_key_ring_covers (const EcfsKeyRing *self, const EcfsUuid *id, uint32_t epoch, uint64_t sequence)
{
    const RingKey *key = find (self, id);
    return key != NULL &&
           (key == self->keys || epoch < key->end.epoch || (epoch == key->end.epoch && sequence <= key->end.sequence));
}

bool ecfs_key_ring_derive (const EcfsKeyRing *self, const EcfsUuid *id, EcfsKeyUse use, const void *salt,
                           size_t salt_bytes, uint8_t ret_key[ECFS_KEY_BYTES], GError **error)
{
    const RingKey *key = find (self, id);
    if (key == NULL) {
        char text[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (id, text);
        return ecfs_fail (error, ENOKEY, "the archive's keys here have none with id %s", text);
    }
    if (salt_bytes == 0)
        memcpy (ret_key, key->uses[use], ECFS_KEY_BYTES);
    else
        ecfs_key_derive (key->uses[use], ECFS_KEY_BYTES, salt, salt_bytes, use_labels[use], ret_key);
    return true;
}

GByteArray *ecfs_key_ring_format (const EcfsKeyRing *self)
{
    GByteArray *to = g_byte_array_sized_new (ECFS_KEY_RING_MAX_BYTES); /* so that no part of it is left behind */
    g_byte_array_append (to, magic, sizeof magic);
    ecfs_append_le (to, self->n > 1 ? VERSION : 1, 2);
    ecfs_append_le (to, self->n, 2);
    ecfs_append_le (to, 0, 4);
    g_byte_array_append (to, self->archive.bytes, sizeof self->archive.bytes);
    for (unsigned i = 0; i < self->n; i++) {
        g_byte_array_append (to, self->keys[i].bytes, ECFS_KEY_BYTES);
        if (self->n == 1)
            break;
        ecfs_append_le (to, self->keys[i].end.epoch, 4);
        ecfs_append_le (to, self->keys[i].end.sequence, 8);
    }
    ecfs_append_le (to, ecfs_xxh3_64 (to->data, to->len), HASH_BYTES);
    return to;
}

EcfsKeyRing *ecfs_key_ring_parse (const uint8_t *bytes, size_t size, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = size};
    EcfsUuid archive;
    const uint8_t *start = ecfs_cursor_bytes (&from, sizeof magic);
    uint64_t version = ecfs_cursor_le (&from, 2);
    uint64_t n = ecfs_cursor_le (&from, 2);
    uint64_t zeros = ecfs_cursor_le (&from, 4);
    ecfs_cursor_copy (&from, archive.bytes, sizeof archive.bytes);
    if (from.bad || memcmp (start, magic, sizeof magic) != 0) {
        (void) !ecfs_fail (error, EBADMSG, "these are no keys of an archive");
        return NULL;
    }
    if (version == 0 || version > VERSION || zeros != 0) {
        (void) !ecfs_fail (error, ENOTSUP, "these keys were written by a later ecfs");
        return NULL;
    }
    const size_t key_bytes = ECFS_KEY_BYTES + (version > 1 ? END_BYTES : 0);
    if (n == 0 || (n > 1) != (version > 1) || n > ECFS_KEY_RING_MAX ||
        size != HEAD_BYTES + n * key_bytes + HASH_BYTES ||
        ecfs_get_le (bytes + size - HASH_BYTES, HASH_BYTES) != ecfs_xxh3_64 (bytes, size - HASH_BYTES)) {
        (void) !ecfs_fail (error, EBADMSG, "the keys are damaged");
        return NULL;
    }
    g_autoptr (EcfsKeyRing) self = ring_new (&archive, (unsigned) n);
    for (unsigned i = 0; i < n; i++) {
        set_key (self, i, ecfs_cursor_bytes (&from, ECFS_KEY_BYTES));
        if (version > 1) {
            self->keys[i].end.epoch = (uint32_t) ecfs_cursor_le (&from, 4);
            self->keys[i].end.sequence = ecfs_cursor_le (&from, 8);
        }
    }
    if (self->keys[0].end.epoch != 0 || self->keys[0].end.sequence != 0) {
        (void) !ecfs_fail (error, EBADMSG, "the keys are damaged");
        return NULL;
    }
    return g_steal_pointer (&self);
}
