/* Tags: each tells its block from all others; and who has not the key can make none that a reader takes. */
#include "object/tag.h"
#include "store.h"

#include <errno.h>
#include <string.h>

#define SIZE ((uint64_t) 300000)

static const uint8_t key[ECFS_KEY_BYTES] = {1, 2, 3}, other_key[ECFS_KEY_BYTES] = {1, 2, 4};

/* Under any other object, stripe, number, length or byte it is another tag. */
static void tells_blocks_apart (const EcfsTagger *tagger, const EcfsTagger *other)
{
    uint8_t block[64] = {1, 2, 3}, tag[ECFS_TAG_MAX_BYTES], again[ECFS_TAG_MAX_BYTES];
    ecfs_tag_put (tagger, 3, 7, block, sizeof block, tag);
    ecfs_tag_put (tagger, 3, 7, block, sizeof block, again);
    g_assert_cmpmem (tag, ecfs_tag_bytes (tagger), again, ecfs_tag_bytes (tagger));
    g_assert_true (ecfs_tag_fits (tagger, 3, 7, block, sizeof block, tag));
    g_assert_false (ecfs_tag_fits (other, 3, 7, block, sizeof block, tag));
    g_assert_false (ecfs_tag_fits (tagger, 4, 7, block, sizeof block, tag));
    g_assert_false (ecfs_tag_fits (tagger, 3, 8, block, sizeof block, tag));
    g_assert_false (ecfs_tag_fits (tagger, 3, 7, block, sizeof block - 1, tag));
    for (unsigned bit = 0; bit < 8 * sizeof block; bit++) {
        block[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_false (ecfs_tag_fits (tagger, 3, 7, block, sizeof block, tag));
        block[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    for (unsigned bit = 0; bit < 8 * ecfs_tag_bytes (tagger); bit++) {
        tag[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_false (ecfs_tag_fits (tagger, 3, 7, block, sizeof block, tag));
        tag[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
}

static void test_checksums (void)
{
    const EcfsTagger tagger = {.object = ecfs_uuid_new ()}, other = {.object = ecfs_uuid_new ()};
    g_assert_cmpuint (ecfs_tag_bytes (&tagger), ==, ECFS_TAG_CHECKSUM_BYTES);
    tells_blocks_apart (&tagger, &other);
}

static void test_macs (gconstpointer data)
{
    const EcfsBlockMacKind kind = (EcfsBlockMacKind) GPOINTER_TO_INT (data);
    const EcfsTagger tagger = {.mac = ecfs_block_mac_new (kind, key)},
                     other = {.mac = ecfs_block_mac_new (kind, other_key)};
    g_assert_cmpuint (ecfs_tag_bytes (&tagger), ==, ECFS_TAG_MAC_BYTES);
    tells_blocks_apart (&tagger, &other);
    const uint8_t block[] = {9, 8, 7}, head[24] = {[0] = 3, [8] = 7, [9] = 1, [16] = sizeof block};
    uint8_t tag[ECFS_TAG_MAX_BYTES], mac[ECFS_BLOCK_MAC_BYTES];
    ecfs_tag_put (&tagger, 3, 256 + 7, block, sizeof block, tag);
    ecfs_block_mac_compute (tagger.mac, head, sizeof head, block, sizeof block, mac);
    g_assert_cmpmem (tag, sizeof tag, mac, sizeof tag);
    ecfs_block_mac_free (tagger.mac);
    ecfs_block_mac_free (other.mac);
}

/* What an endpoint can do that knows the format and not the key; each gives another stripe of the same size. */

typedef struct Forgery {
    const Object *object;
    unsigned index;
    uint8_t *stripe, *other; /* another stripe of the object */
    size_t size;
} Forgery;

static uint8_t *block_at (const Forgery *self, uint8_t *stripe, uint32_t block)
{
    return stripe + ecfs_layout_block_offset (&self->object->layout, 0, block);
}

static uint32_t bytes_of (const Forgery *self, uint32_t block)
{
    return ecfs_layout_block_bytes (&self->object->layout, 0, block);
}

static void change_and_sum (Forgery *self)
{
    const EcfsTagger tagger = {.object = self->object->job.header.object};
    uint8_t *at = block_at (self, self->stripe, 1);
    uint32_t bytes = bytes_of (self, 1);
    at[bytes / 2] ^= 0x10;
    memset (at + bytes, 0, ECFS_TAG_MAC_BYTES);
    ecfs_tag_put (&tagger, self->index, 1, at, bytes, at + bytes);
}

static void change_alone (Forgery *self)
{
    block_at (self, self->stripe, 0)[5] ^= 1;
}

static void exchange_blocks (Forgery *self)
{
    size_t step = bytes_of (self, 0) + ECFS_TAG_MAC_BYTES;
    g_autofree uint8_t *first = g_memdup2 (block_at (self, self->stripe, 0), step);
    memcpy (block_at (self, self->stripe, 0), block_at (self, self->stripe, 1), step);
    memcpy (block_at (self, self->stripe, 1), first, step);
}

static void give_another_stripe (Forgery *self)
{
    uint64_t from = self->object->layout.header_bytes;
    memcpy (self->stripe + from, self->other + from, ecfs_layout_area_bytes (&self->object->layout));
}

static void give_zeros (Forgery *self)
{
    memset (self->stripe + self->object->layout.header_bytes, 0, ecfs_layout_area_bytes (&self->object->layout));
}

static void (*const forgeries[]) (Forgery *) = {change_and_sum, change_alone, exchange_blocks, give_another_stripe,
                                                give_zeros};

static uint8_t *load (const Object *object, unsigned index, size_t *ret_size)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = object_stripe_path (object, index);
    char *bytes;
    g_file_get_contents (path, &bytes, ret_size, &error);
    g_assert_no_error (error);
    return (uint8_t *) bytes;
}

static void store (const Object *object, unsigned index, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = object_stripe_path (object, index);
    g_file_set_contents (path, (const char *) bytes, (gssize) size, &error);
    g_assert_no_error (error);
}

static void forge (const Object *object, unsigned index, void (*how) (Forgery *))
{
    Forgery forgery = {.object = object, .index = index};
    size_t other_size;
    g_autofree uint8_t *other = load (object, (index + 1) % object->store->n, &other_size);
    g_autofree uint8_t *stripe = load (object, index, &forgery.size);
    g_assert_cmpuint (other_size, ==, forgery.size);
    forgery.stripe = stripe;
    forgery.other = other;
    how (&forgery);
    store (object, index, forgery.stripe, forgery.size);
}

static int read_all (const Object *object)
{
    EcfsReader *reader = object_reader (object);
    int code = object_read (object, reader, 0, object->size, NULL);
    ecfs_reader_close (reader);
    return code;
}

/* Any two of six may lie in any way, and a third makes the object unreadable: never a wrong byte. */
static void test_forgeries (gconstpointer kind)
{
    Store archive;
    Object object;
    const EcfsUuid id = ecfs_uuid_new ();
    g_autoptr (EcfsKeyRing) ring = ecfs_key_ring_new (&id);
    store_init (&archive, "file", "rs:4+2", 0, 64 << 20);
    object_init (&object, &archive, SIZE, 1 << 20);
    object_seal (&object, ring, (EcfsSealKind) GPOINTER_TO_INT (kind));
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    g_assert_cmpuint (object.layout.tag_bytes, ==, ECFS_TAG_MAC_BYTES);
    g_assert_cmpuint (ecfs_layout_n_blocks (&object.layout, 0), >, 2);
    g_assert_cmpint (read_all (&object), ==, 0);
    uint8_t *honest[6];
    size_t sizes[6];
    for (unsigned i = 0; i < 6; i++)
        honest[i] = load (&object, i, &sizes[i]);
    for (size_t how = 0; how < G_N_ELEMENTS (forgeries); how++)
        for (unsigned a = 0; a < 6; a++) {
            for (unsigned b = 0; b < a; b++) {
                forge (&object, a, forgeries[how]);
                forge (&object, b, forgeries[how]);
                g_assert_cmpint (read_all (&object), ==, 0);
                store (&object, a, honest[a], sizes[a]);
                store (&object, b, honest[b], sizes[b]);
            }
        }
    for (unsigned i = 0; i < 3; i++)
        forge (&object, i, change_and_sum);
    g_assert_cmpint (read_all (&object), ==, EIO);
    for (unsigned i = 0; i < 6; i++)
        g_free (honest[i]);
    object_clear (&object);
    store_clear (&archive);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/tag/checksums-tell-blocks-apart", test_checksums);
    g_test_add_data_func ("/tag/macs-tell-blocks-apart/hmac", GINT_TO_POINTER (ECFS_BLOCK_MAC_HMAC), test_macs);
    g_test_add_data_func ("/tag/macs-tell-blocks-apart/ghash", GINT_TO_POINTER (ECFS_BLOCK_MAC_GHASH), test_macs);
    g_test_add_data_func ("/tag/two-of-six-may-lie-in-any-way/hmac", GINT_TO_POINTER (ECFS_SEAL_CTR_HMAC),
                          test_forgeries);
    g_test_add_data_func ("/tag/two-of-six-may-lie-in-any-way/ghash", GINT_TO_POINTER (ECFS_SEAL_CTR_GHASH),
                          test_forgeries);
    return g_test_run ();
}
