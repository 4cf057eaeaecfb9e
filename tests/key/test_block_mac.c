/* MACs of check blocks: against another implementation, and against whoever changes a bit. */
#include "key/block_mac.h"
#include "util/lock.h"

#include <glib.h>
#include <string.h>

/* Of the first bytes of a pattern under the key 0, 1, 2 ...: from an implementation of its own, whose GHASH multiplies
 * bit by bit as NIST SP 800-38D says. The last is as long as a check block can be, with what comes before it. */
static const struct {
    size_t size;
    const char *mac;
} known[] = {
    {0, "0b50dfb4adbbb0de0fd938106b49e374"},    {1, "b741484a2b6c202c482119e485deee45"},
    {16, "185fdfa92ac442e3c2b7d860d816359b"},   {24, "2ced8c35023a10d3be5b798b3dd5df46"},
    {25, "166da89ed1a53f21c5b55fe8a0e18fd1"},   {40, "d3e9b6263442a45ff3a5ff6c4d3c20d5"},
    {4096, "6bf997ee446e884865636afd89a9d897"}, {32792, "6896d80f223785e3ab118bd867749998"},
};

static void assert_hex (const uint8_t mac[ECFS_BLOCK_MAC_BYTES], const char *expected)
{
    char hex[2 * ECFS_BLOCK_MAC_BYTES + 1];
    for (unsigned i = 0; i < ECFS_BLOCK_MAC_BYTES; i++)
        g_snprintf (hex + 2 * i, 3, "%02x", mac[i]);
    g_assert_cmpstr (hex, ==, expected);
}

static EcfsBlockMac *mac_of_pattern (uint8_t *pattern, size_t size)
{
    uint8_t key[ECFS_KEY_BYTES];
    for (unsigned i = 0; i < sizeof key; i++)
        key[i] = (uint8_t) i;
    for (size_t i = 0; i < size; i++)
        pattern[i] = (uint8_t) (7 * i);
    return ecfs_block_mac_new (ECFS_BLOCK_MAC_GHASH, key);
}

static void test_known (void)
{
    static uint8_t pattern[32792];
    uint8_t mac[ECFS_BLOCK_MAC_BYTES];
    EcfsBlockMac *self = mac_of_pattern (pattern, sizeof pattern);
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++) {
        size_t size = known[i].size;
        for (size_t head = 0; head <= MIN (size, 40); head++) { /* whatever is the head, and again */
            ecfs_block_mac_compute (self, pattern, head, pattern + head, size - head, mac);
            assert_hex (mac, known[i].mac);
        }
    }
    ecfs_block_mac_free (self);
    ecfs_block_mac_free (NULL);
}

static void assert_other (EcfsBlockMac *self, const uint8_t *bytes, size_t size, const uint8_t *mac)
{
    uint8_t other[ECFS_BLOCK_MAC_BYTES];
    ecfs_block_mac_compute (self, bytes, 24, bytes + 24, size - 24, other);
    g_assert_cmpint (memcmp (mac, other, sizeof other), !=, 0);
}

/* Also one that is shorter or longer by zeros, and each bit of the key. */
static void test_bits (gconstpointer kind)
{
    uint8_t bytes[24 + 83], mac[ECFS_BLOCK_MAC_BYTES], key[ECFS_KEY_BYTES] = {5};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i < 100 ? (uint8_t) i : 0;
    EcfsBlockMac *self = ecfs_block_mac_new ((EcfsBlockMacKind) GPOINTER_TO_INT (kind), key);
    ecfs_block_mac_compute (self, bytes, 24, bytes + 24, 79, mac);
    for (unsigned bit = 0; bit < 8 * 103; bit++) {
        bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
        assert_other (self, bytes, 103, mac);
        bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    for (size_t size = 24; size <= sizeof bytes; size++)
        if (size != 103)
            assert_other (self, bytes, size, mac);
    for (unsigned bit = 0; bit < 8 * sizeof key; bit++) {
        key[bit / 8] ^= (uint8_t) (1 << bit % 8);
        EcfsBlockMac *other = ecfs_block_mac_new ((EcfsBlockMacKind) GPOINTER_TO_INT (kind), key);
        assert_other (other, bytes, 103, mac);
        ecfs_block_mac_free (other);
        key[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    ecfs_block_mac_free (self);
}

typedef struct Crowd {
    EcfsBlockMac *mac;
    const uint8_t *pattern;
} Crowd;

static void compute_often (void *data)
{
    const Crowd *crowd = data;
    for (unsigned i = 0; i < 500; i++) {
        uint8_t mac[ECFS_BLOCK_MAC_BYTES];
        size_t which = i % G_N_ELEMENTS (known), size = known[which].size;
        ecfs_block_mac_compute (crowd->mac, crowd->pattern, 0, crowd->pattern, size, mac);
        assert_hex (mac, known[which].mac);
    }
}

static void test_threads (void)
{
    static uint8_t pattern[32792];
    Crowd crowd = {.mac = mac_of_pattern (pattern, sizeof pattern), .pattern = pattern};
    EcfsWorkers *workers = ecfs_workers_new ("crowd", 8);
    for (unsigned i = 0; i < 16; i++)
        ecfs_workers_push (workers, compute_often, &crowd);
    ecfs_workers_free (workers);
    ecfs_block_mac_free (crowd.mac);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/block-mac/are-as-a-second-implementation-has-them", test_known);
    g_test_add_data_func ("/block-mac/no-bit-of-a-block-can-be-changed/hmac", GINT_TO_POINTER (ECFS_BLOCK_MAC_HMAC),
                          test_bits);
    g_test_add_data_func ("/block-mac/no-bit-of-a-block-can-be-changed/ghash", GINT_TO_POINTER (ECFS_BLOCK_MAC_GHASH),
                          test_bits);
    g_test_add_func ("/block-mac/many-threads-compute-at-once", test_threads);
    return g_test_run ();
}
