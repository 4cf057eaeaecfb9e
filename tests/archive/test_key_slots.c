/* Slots come and go in revisions that only who has the keys can make. */
#include "archive/key_open.h"
#include "archive/key_slots.h"

static EcfsKeyRing *new_ring (void)
{
    const EcfsUuid archive = {{1, 2, 3}};
    return ecfs_key_ring_new (&archive);
}

static EcfsKeyShares *with_code (const EcfsKeyShares *before, const EcfsKeyRing *keys, uint8_t first)
{
    uint8_t code[ECFS_CODE_BYTES] = {first};
    const EcfsKeyOpener opener = {.code = code};
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (before, keys, ECFS_KEY_SLOT_CODE, &opener, NULL);
    return ecfs_key_shares_with (before, keys, slot, NULL);
}

/* As an endpoint without a share would have it. */
static bool is_taken (const EcfsKeyRing *keys, const EcfsKeyFile *file)
{
    g_autoptr (EcfsKeyShares) same = ecfs_key_shares_of (keys, file, NULL);
    return same != NULL;
}

static void test_revisions (void)
{
    g_autoptr (EcfsKeyRing) keys = new_ring (), others = new_ring ();
    g_autoptr (EcfsKeyShares) one = ecfs_key_shares_new (keys, 3), two = with_code (one, keys, 1);
    const EcfsKeyFile *file = ecfs_key_shares_file (two);
    g_autofree char *kinds = ecfs_key_shares_kinds (two);
    g_assert_cmpuint (ecfs_key_shares_file (one)->revision, ==, 1);
    g_assert_cmpuint (file->revision, ==, 2);
    g_assert_cmpstr (kinds, ==, "split code");
    g_assert_true (ecfs_uuid_equal (&file->generation, &ecfs_key_shares_file (one)->generation));
    g_assert_true (is_taken (keys, file) && !is_taken (others, file));
    const EcfsKeySlot *first = g_ptr_array_index (file->slots, 0);
    g_autoptr (EcfsKeyShares) three = ecfs_key_shares_without (two, keys, &first->id, NULL);
    g_autofree char *left = ecfs_key_shares_kinds (three);
    g_assert_cmpuint (ecfs_key_shares_file (three)->revision, ==, 3);
    g_assert_cmpstr (left, ==, "code");
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_key_shares_without (three, keys, &first->id, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
}

/* What an endpoint could do to a file, whose checksum it can make. */
static void test_forged (void)
{
    g_autoptr (EcfsKeyRing) keys = new_ring ();
    g_autoptr (EcfsKeyShares) empty = ecfs_key_shares_empty (keys, 0), one = with_code (empty, keys, 1),
                              two = with_code (one, keys, 2);
    EcfsKeyFile file = *ecfs_key_shares_file (two); /* borrowed */
    g_assert_true (is_taken (keys, &file));
    file.revision++;
    g_assert_false (is_taken (keys, &file));
    file.revision = 0; /* as before there was a MAC: then there was a secret as well */
    g_assert_false (is_taken (keys, &file));
    file.revision = 2;
    file.slots = ecfs_key_shares_file (one)->slots;
    g_assert_false (is_taken (keys, &file));
}

static void test_shared_later (void)
{
    g_autoptr (EcfsKeyRing) keys = new_ring ();
    const EcfsKeyOpener none = {.secret = NULL};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsKeyShares) empty = ecfs_key_shares_empty (keys, 0), code = with_code (empty, keys, 1);
    g_assert_null (ecfs_key_shares_make_slot (code, keys, ECFS_KEY_SLOT_SPLIT, &none, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_autoptr (EcfsKeyShares) shared = ecfs_key_shares_shared (code, keys, 2);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (shared, keys, ECFS_KEY_SLOT_SPLIT, &none, NULL);
    g_autoptr (EcfsKeyShares) both = ecfs_key_shares_with (shared, keys, slot, NULL);
    g_assert_cmpuint (ecfs_key_shares_threshold (both), ==, 2);
    g_assert_cmpuint (ecfs_key_shares_file (both)->revision, ==, 2);
    g_assert_true (is_taken (keys, ecfs_key_shares_file (both)));
}

/* As an endpoint of @zone has it. */
static void add_found (GArray *all, const EcfsKeyShares *shares, const char *zone)
{
    EcfsKeyFound found = {.endpoint = zone, .zone = zone};
    g_autoptr (GByteArray) bytes = ecfs_key_shares_file_of (shares, 0);
    g_assert_true (ecfs_key_file_parse (bytes->data, bytes->len, &found.file, NULL));
    g_array_append_val (all, found);
}

/* Two copies of an archive directory, of which one was given up, have each made the next. */
static void test_newest (void)
{
    g_autoptr (EcfsKeyRing) keys = new_ring ();
    g_autoptr (EcfsKeyShares) one = ecfs_key_shares_new (keys, 3), given_up = with_code (one, keys, 1),
                              two = with_code (one, keys, 2), three = with_code (two, keys, 3);
    g_autoptr (GArray) all = ecfs_key_found_new ();
    add_found (all, given_up, "a");
    add_found (all, two, "b");
    add_found (all, one, "c");
    add_found (all, two, "d");
    g_autoptr (EcfsKeyShares) newest = ecfs_key_newest (keys, all);
    g_assert_cmpmem (ecfs_key_shares_file (newest)->mac, ECFS_KEY_BYTES, ecfs_key_shares_file (two)->mac,
                     ECFS_KEY_BYTES);
    add_found (all, three, "e");
    g_autoptr (EcfsKeyShares) newer = ecfs_key_newest (keys, all);
    g_assert_cmpuint (ecfs_key_shares_file (newer)->revision, ==, 3);
}

static void test_names (void)
{
    static const char *const good[] = {"keys/7d234c57-25ee-4bc8-9977-374d7617bd53",
                                       "keys/7d234c57-25ee-4bc8-9977-374d7617bd53-2",
                                       "keys/7d234c57-25ee-4bc8-9977-374d7617bd53-18446744073709551615"};
    static const char *const bad[] = {"keys/7d234c57-25ee-4bc8-9977-374d7617bd53-",
                                      "keys/7d234c57-25ee-4bc8-9977-374d7617bd53-1",
                                      "keys/7d234c57-25ee-4bc8-9977-374d7617bd53-02",
                                      "keys/7d234c57-25ee-4bc8-9977-374d7617bd53-18446744073709551616",
                                      "keys/7D234C57-25ee-4bc8-9977-374d7617bd53",
                                      "keys/7d234c57-25ee-4bc8-9977-374d7617bd53x",
                                      "keys/id_ed25519"};
    for (size_t i = 0; i < G_N_ELEMENTS (good); i++)
        g_assert_true (ecfs_key_shares_is_name (good[i]));
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_key_shares_is_name (bad[i]));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/key-slots/each-change-is-a-revision", test_revisions);
    g_test_add_func ("/key-slots/what-nobody-signed-is-refused", test_forged);
    g_test_add_func ("/key-slots/a-secret-can-be-shared-later", test_shared_later);
    g_test_add_func ("/key-slots/of-two-that-are-as-new-the-one-that-more-have-counts", test_newest);
    g_test_add_func ("/key-slots/files-have-names-of-their-own", test_names);
    return g_test_run ();
}
