/* Where bytes lie: geometry that holds for all sizes, and names that say nothing else than they seem to. */
#include "object/layout.h"

#include <glib.h>
#include <string.h>

static EcfsLayout layout_of (uint64_t size, unsigned k, uint32_t segment_bytes, uint32_t block_bytes, uint32_t granule)
{
    EcfsLayout layout = {.size = size,
                         .segment_bytes = segment_bytes,
                         .block_bytes = block_bytes,
                         .header_bytes = 192,
                         .granule = granule,
                         .k = (uint16_t) k,
                         .tag_bytes = ECFS_TAG_CHECKSUM_BYTES};
    g_assert_true (ecfs_layout_valid (&layout));
    return layout;
}

/* Walks all blocks: they follow each other without gap or overlap, their numbers ascend, the content fits in. */
static void check_walk (const EcfsLayout *layout)
{
    uint64_t at = layout->header_bytes, content = 0, last_number = 0;
    bool first = true;
    for (uint64_t s = 0; s < ecfs_layout_n_segments (layout); s++) {
        uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, s);
        uint32_t n_blocks = ecfs_layout_n_blocks (layout, s);
        uint64_t begin = at, bytes = 0;
        g_assert_cmpuint (packet_bytes % layout->granule, ==, 0);
        g_assert_cmpuint ((uint64_t) packet_bytes * layout->k, >=, ecfs_layout_content_bytes (layout, s));
        g_assert_cmpuint ((uint64_t) packet_bytes * layout->k, <,
                          ecfs_layout_content_bytes (layout, s) + (uint64_t) layout->k * layout->granule);
        for (uint32_t b = 0; b < n_blocks; b++) {
            uint32_t block = ecfs_layout_block_bytes (layout, s, b);
            uint64_t number = ecfs_layout_block_number (layout, s, b);
            g_assert_cmpuint (block, >, 0);
            g_assert_cmpuint (block, <=, layout->block_bytes);
            g_assert_cmpuint (block % layout->granule, ==, 0);
            g_assert_cmpuint (ecfs_layout_block_offset (layout, s, b), ==, at);
            g_assert_true (first || number > last_number);
            first = false;
            last_number = number;
            bytes += block;
            at += block + layout->tag_bytes;
        }
        g_assert_cmpuint (bytes, ==, packet_bytes);
        g_assert_cmpuint (ecfs_layout_block_offset (layout, s, n_blocks), ==, at);
        g_assert_cmpuint (ecfs_layout_stored_bytes (layout, s), ==, at - begin);
        content += ecfs_layout_content_bytes (layout, s);
    }
    g_assert_cmpuint (content, ==, layout->size);
    g_assert_cmpuint (ecfs_layout_area_bytes (layout), ==, at - layout->header_bytes);
}

static void test_geometry (void)
{
    static const unsigned ks[] = {1, 2, 3, 4, 5, 8, 11, 29};
    static const uint32_t granules[] = {1, 8, 16, 64, 4096};
    static const uint64_t wanted[] = {1, 5000, 100000, 1 << 20};
    for (size_t i = 0; i < G_N_ELEMENTS (ks); i++)
        for (size_t g = 0; g < G_N_ELEMENTS (granules); g++)
            for (size_t w = 0; w < G_N_ELEMENTS (wanted); w++) {
                uint32_t segment = ecfs_layout_segment_bytes (wanted[w], ks[i], granules[g]);
                g_assert_cmpuint (segment, >=, wanted[w]);
                g_assert_cmpuint (segment / ks[i] % granules[g], ==, 0);
                const uint64_t sizes[] = {1,           2,           granules[g], granules[g] + 1, segment - 1,
                                          segment,     segment + 1, 2 * segment, 3 * segment - 1, 5 * segment + 7,
                                          4 * segment, 99991};
                for (size_t s = 0; s < G_N_ELEMENTS (sizes); s++) {
                    EcfsLayout layout = layout_of (sizes[s], ks[i], segment, ECFS_BLOCK_MAX_BYTES, granules[g]);
                    check_walk (&layout);
                    layout = layout_of (sizes[s], ks[i], segment, 4096, granules[g]);
                    check_walk (&layout);
                    layout.tag_bytes = ECFS_TAG_MAC_BYTES;
                    check_walk (&layout);
                }
            }
}

static void test_largest (void)
{
    uint32_t segment = ecfs_layout_segment_bytes (2 << 20, 8, 16);
    EcfsLayout layout = layout_of (ECFS_OBJECT_MAX_BYTES - 1, 8, segment, ECFS_BLOCK_MAX_BYTES, 16);
    uint64_t last = ecfs_layout_n_segments (&layout) - 1;
    uint64_t packets = last * (segment / 8) + ecfs_layout_packet_bytes (&layout, last);
    uint64_t tags = ecfs_layout_area_bytes (&layout) - packets;
    g_assert_cmpuint (tags % ECFS_TAG_CHECKSUM_BYTES, ==, 0);
    g_assert_cmpuint (tags, <=, (packets / ECFS_BLOCK_MAX_BYTES + last + 1) * ECFS_TAG_CHECKSUM_BYTES);
    g_assert_cmpuint (ecfs_layout_segment_bytes (UINT32_MAX, 8, 16), <=, ECFS_SEGMENT_MAX);
}

static void test_invalid (void)
{
    const EcfsLayout good = layout_of (1000000, 4, 1 << 20, ECFS_BLOCK_MAX_BYTES, 16);
    EcfsLayout bad[13];
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        bad[i] = good;
    bad[0].k = 0;
    bad[1].granule = 0;
    bad[2].granule = 8192;
    bad[3].block_bytes = 0;
    bad[4].block_bytes = 2 * ECFS_BLOCK_MAX_BYTES;
    bad[5].block_bytes = 1000;
    bad[6].segment_bytes = 0;
    bad[7].segment_bytes = ECFS_SEGMENT_MAX + 64;
    bad[8].segment_bytes = (1 << 20) + 16;
    bad[9].size = 0;
    bad[10].size = ECFS_OBJECT_MAX_BYTES + 1;
    bad[11].header_bytes = 0;
    bad[12].tag_bytes = 4;
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_layout_valid (&bad[i]));
}

static void test_names (void)
{
    for (unsigned i = 0; i < 256; i++) {
        EcfsUuid object = ecfs_uuid_new (), parsed;
        uint64_t instance = i == 0 ? 0 : UINT64_MAX / i, parsed_instance;
        uint16_t index;
        char name[ECFS_STRIPE_NAME_SIZE];
        ecfs_stripe_name (&object, (uint16_t) i, instance, name);
        g_assert_true (g_str_has_prefix (name, "stripes/"));
        g_assert_true (ecfs_stripe_name_parse (name, &parsed, &index, &parsed_instance));
        g_assert_true (ecfs_uuid_equal (&object, &parsed));
        g_assert_cmpuint (index, ==, i);
        g_assert_cmpuint (parsed_instance, ==, instance);
    }
}

static guint count_directories (unsigned from, unsigned step, unsigned n)
{
    g_autoptr (GHashTable) directories = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    for (unsigned i = 0; i < n; i++) {
        char name[ECFS_STRIPE_NAME_SIZE];
        EcfsUuid object = ecfs_object_uuid (from + i * step), again = ecfs_object_uuid (from + i * step);
        g_assert_false (ecfs_uuid_equal (&object, &again));
        ecfs_stripe_name (&object, 0, 0, name);
        name[strlen ("stripes/xxx")] = '\0';
        g_hash_table_add (directories, g_strdup (name));
    }
    return g_hash_table_size (directories);
}

static void test_directories (void)
{
    g_assert_cmpuint (count_directories (UINT_MAX - 500, 1, 1000), <=, 6); /* those made in a row share some */
    g_assert_cmpuint (count_directories (77, 64, 1u << 15), ==, 4096);     /* and all are used */
}

/* A valid name with one byte changed is refused or names something else; the outputs are untouched when refused. */
static void test_hostile_names (void)
{
    static const char *const bad[] = {"",
                                      "/",
                                      "stripes/",
                                      "stripes/012/",
                                      "0123456789abcdef0123456789abcdef-00-0000000000000000",
                                      "stripes/0123456789abcdef0123456789abcdef-00-0000000000000000",
                                      "stripes/013/0123456789abcdef0123456789abcdef-00-0000000000000000",
                                      "stripes/012/0123456789ABCDEF0123456789abcdef-00-0000000000000000",
                                      "stripes/012/0123456789abcdef0123456789abcdef-00-000000000000000",
                                      "stripes/012/0123456789abcdef0123456789abcdef-00-00000000000000000",
                                      "stripes/012/0123456789abcdef0123456789abcdef-0-0000000000000000",
                                      "stripes/012/0123456789abcdef0123456789abcdef-100-0000000000000000",
                                      "stripes/012/0123456789abcdef0123456789abcdef-00-0000000000000000.tmp",
                                      "../stripes/012/0123456789abcdef0123456789abcdef-00-0000000000000000",
                                      "stripes/012/../012/0123456789abcdef0123456789abcdef-00-0000000000000000"};
    EcfsUuid object = {0};
    uint16_t index = 9;
    uint64_t instance = 9;
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_stripe_name_parse (bad[i], &object, &index, &instance));
    g_assert_cmpuint (index + instance, ==, 18);
    char name[] = "stripes/012/0123456789abcdef0123456789abcdef-0a-00000000000000ff";
    g_assert_true (ecfs_stripe_name_parse (name, &object, &index, &instance));
    for (size_t at = 0; at < sizeof name - 1; at++) {
        for (int byte = 1; byte < 256; byte++) {
            char changed[sizeof name], again[ECFS_STRIPE_NAME_SIZE];
            memcpy (changed, name, sizeof name);
            changed[at] = (char) byte;
            if (!ecfs_stripe_name_parse (changed, &object, &index, &instance))
                continue;
            ecfs_stripe_name (&object, index, instance, again);
            g_assert_cmpstr (again, ==, changed);
        }
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/layout/blocks-follow-each-other-for-all-sizes", test_geometry);
    g_test_add_func ("/layout/the-largest-object-fits", test_largest);
    g_test_add_func ("/layout/numbers-that-make-no-sense-are-refused", test_invalid);
    g_test_add_func ("/layout/names-round-trip", test_names);
    g_test_add_func ("/layout/objects-in-a-row-share-directories", test_directories);
    g_test_add_func ("/layout/hostile-names-are-refused", test_hostile_names);
    return g_test_run ();
}
