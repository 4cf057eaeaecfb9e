/* Lines to and from ecfs-locate, what is announced, and what names and heads of published files are. */
#include "locate/locate.h"
#include "locate/published.h"
#include "util/uuid.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_lines_come_back (void)
{
    static const char value[] = "some \0 bytes";
    g_autoptr (GBytes) bytes = g_bytes_new_static (value, sizeof value);
    const EcfsLocateLine lines[] = {
        {.word = ECFS_LOCATE_BOOTSTRAP, .port = 4222, .text = (char *) "::1"},
        {.word = ECFS_LOCATE_PUT, .number = 1, .key = {1, 2, 255}, .bytes = bytes},
        {.word = ECFS_LOCATE_GET, .number = UINT64_MAX, .key = {9}},
        {.word = ECFS_LOCATE_READY, .port = 65535},
        {.word = ECFS_LOCATE_VALUE, .number = 7, .bytes = bytes},
        {.word = ECFS_LOCATE_DONE, .number = 7, .good = true},
        {.word = ECFS_LOCATE_DONE, .number = 8},
        {.word = ECFS_LOCATE_FAILED, .text = (char *) "no node can be started"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (lines); i++) {
        EcfsLocateLine back;
        g_autofree char *text = ecfs_locate_line_format (&lines[i]);
        size_t size = strlen (text);
        g_assert_cmpint (text[size - 1], ==, '\n');
        g_assert_true (ecfs_locate_line_parse (text, size - 1, &back));
        g_autofree char *again = ecfs_locate_line_format (&back);
        g_assert_cmpstr (again, ==, text);
        g_assert_true (back.good == lines[i].good && back.number == lines[i].number);
        ecfs_locate_line_clear (&back);
    }
}

static void test_what_is_no_line_is_refused (void)
{
    static const char *const lines[] = {
        "",
        "put",
        "put 1",
        "put 1 00 YQ==",
        "put -1 0000000000000000000000000000000000000000 YQ==",
        "put 1 000000000000000000000000000000000000000g YQ==",
        "put 1 0000000000000000000000000000000000000000 ",
        "put 1 0000000000000000000000000000000000000000 YQ",
        "put 1 0000000000000000000000000000000000000000 Y*Q==",
        "put 1 0000000000000000000000000000000000000000 YQ== more",
        "get 01 0000000000000000000000000000000000000000",
        "get 18446744073709551616 0000000000000000000000000000000000000000",
        "value 1",
        "value 1 YR==",
        "done 1 maybe",
        "done 1",
        "ready 0",
        "ready 65536",
        "bootstrap 1 a b",
        "failed ",
        "failed \033[2J",
        "shutdown",
        "Put 1 0000000000000000000000000000000000000000 YQ==",
    };
    EcfsLocateLine line;
    for (size_t i = 0; i < G_N_ELEMENTS (lines); i++)
        g_assert_false (ecfs_locate_line_parse (lines[i], strlen (lines[i]), &line));
    g_assert_false (ecfs_locate_line_parse ("ready 1\0", 8, &line));
    g_autofree char *endless = g_strnfill (ECFS_LOCATE_LINE_MAX, 'a');
    g_assert_false (ecfs_locate_line_parse (endless, ECFS_LOCATE_LINE_MAX, &line));
    g_autofree uint8_t *bytes = g_malloc0 (ECFS_LOCATE_VALUE_MAX + 1);
    for (size_t more = 0; more < 2; more++) {
        g_autofree char *value = g_base64_encode (bytes, ECFS_LOCATE_VALUE_MAX + more);
        g_autofree char *text = g_strdup_printf ("value 1 %s", value);
        g_assert_true (ecfs_locate_line_parse (text, strlen (text), &line) == (more == 0));
        if (more == 0)
            ecfs_locate_line_clear (&line);
    }
}

static void test_announcements_come_back (void)
{
    static const char *const wrong[] = {
        "ecfs peer 1\n5\n600\nhost:1",     "ecfs peer 2\n5\n600\nhost:1\n",     "ecfs peer 1\n-5\n600\nhost:1\n",
        "ecfs peer 1\n5\n600\nhost\n",     "ecfs peer 1\n5\n600\nhost:0\n",     "ecfs peer 1\n5\n600\nho st:1\n",
        "ecfs peer 1\n5\n86401\nhost:1\n", "ecfs peer 1\n5\n6\nhost:1\nmore\n",
    };
    EcfsLocateAnnounced back;
    const EcfsLocateAnnounced announced = {.counter = 5, .ttl_s = 600, .address = (char *) "[::1]:4711"};
    g_autofree char *text = ecfs_locate_announced_format (&announced);
    g_assert_true (ecfs_locate_announced_parse (text, strlen (text), &back));
    g_assert_cmpstr (back.address, ==, "[::1]:4711");
    g_assert_true (back.counter == 5 && back.ttl_s == 600);
    g_free (back.address);
    for (size_t size = 0; size < strlen (text); size++)
        g_assert_false (ecfs_locate_announced_parse (text, size, &back));
    for (size_t i = 0; i < G_N_ELEMENTS (wrong); i++)
        g_assert_false (ecfs_locate_announced_parse (wrong[i], strlen (wrong[i]), &back));
}

static void test_list_is_what_it_says (void)
{
    unsigned ways;
    g_autofree char *list = ecfs_locate_list_split ("a:1, dht , [::1]:2,b:3", &ways);
    g_assert_cmpuint (ways, ==, ECFS_LOCATE_BY_DHT);
    g_assert_cmpstr (list, ==, "a:1, [::1]:2, b:3");
    g_assert_null (ecfs_locate_list_split ("dht, catalog", &ways));
    g_assert_cmpuint (ways, ==, ECFS_LOCATE_BY_DHT | ECFS_LOCATE_BY_CATALOG);
    g_autofree char *same = ecfs_locate_list_split ("a:1,b:2", &ways);
    g_assert_cmpuint (ways, ==, 0);
    g_assert_cmpstr (same, ==, "a:1, b:2");
    EcfsLocate *locate = ecfs_locate_list_new ("a:1, b:2,a:1");
    g_assert_true (ecfs_locate_announce (locate, "c:3", 60, 0, NULL));
    g_autoptr (GPtrArray) found = ecfs_locate_find (locate, 10, 0, NULL);
    g_assert_cmpuint (found->len, ==, 2);
    g_autoptr (GPtrArray) one = ecfs_locate_find (locate, 1, 0, NULL);
    g_assert_cmpuint (one->len, ==, 1);
    ecfs_locate_free (locate);
    ecfs_locate_free (NULL);
}

static EcfsPublication publication_of (const char *name)
{
    EcfsPublication publication;
    g_autoptr (GError) error = NULL;
    ecfs_publication_new (name, 0xabc, "h:1,[::1]:2", &publication, &error);
    g_assert_no_error (error);
    return publication;
}

static void test_capabilities_come_back (void)
{
    EcfsPublishedName back;
    g_autoptr (GError) error = NULL;
    EcfsPublication publication = publication_of ("run-17.h5");
    g_autofree char *text = ecfs_published_name_format (&publication.name);
    g_assert_true (ecfs_published_name_parse (text, &back, &error));
    g_assert_no_error (error);
    g_assert_cmpmem (back.public_key, ECFS_KEY_BYTES, publication.name.public_key, ECFS_KEY_BYTES);
    g_assert_cmpstr (back.nodes, ==, "h:1,[::1]:2");
    g_assert_cmpstr (back.name, ==, "run-17.h5");
    g_assert_cmphex (back.network, ==, 0xabc);
    ecfs_published_name_clear (&back);
    char *slash = strchr (text, '/');
    for (char *c = text; c < slash + 53; c++) { /* up to the nodes */
        char was = *c;
        *c = '*';
        g_assert_false (ecfs_published_name_parse (text, &back, NULL));
        *c = was;
    }
    slash[54] = '\0';
    g_assert_true (ecfs_published_name_parse (text, &back, NULL));
    g_assert_null (back.nodes);
    ecfs_published_name_clear (&back);
    slash[53] = '\0';
    g_assert_false (ecfs_published_name_parse (text, &back, NULL));
    g_assert_false (ecfs_published_name_parse ("run-17.h5", &back, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    ecfs_publication_clear (&publication);
}

static void test_names_are_plain (void)
{
    static const char *const wrong[] = {"", ".a", "a/b", "a b", "ä", "a:b", "../x"};
    for (size_t i = 0; i < G_N_ELEMENTS (wrong); i++)
        g_assert_false (ecfs_published_is_name (wrong[i]));
    g_autofree char *longest = g_strnfill (ECFS_PUBLISHED_NAME_MAX, 'a');
    g_autofree char *longer = g_strnfill (ECFS_PUBLISHED_NAME_MAX + 1, 'a');
    g_assert_true (ecfs_published_is_name ("a") && ecfs_published_is_name (longest));
    g_assert_false (ecfs_published_is_name (longer));
}

static void test_only_who_has_the_key_makes_heads (void)
{
    EcfsPublication ours = publication_of ("a"), other = publication_of ("a");
    g_autofree EcfsPublishedHead *head = g_new0 (EcfsPublishedHead, 1), *back = g_new0 (EcfsPublishedHead, 1);
    *head = (EcfsPublishedHead){.counter = 9, .text_bytes = 20000, .packed_bytes = ECFS_PUBLISHED_PIECE + 1};
    memset (head->hashes, 0x77, sizeof head->hashes);
    g_autoptr (GByteArray) sealed = ecfs_published_head_seal (&ours.name, ours.key, head);
    g_assert_true (ecfs_published_head_open (&ours.name, sealed->data, sealed->len, back));
    g_assert_true (back->counter == 9 && back->text_bytes == 20000 && ecfs_published_n_pieces (back) == 2);
    g_assert_cmpmem (back->hashes, 32, head->hashes, 32);
    /* A reader can seal what is to be read, and cannot sign it. */
    g_autoptr (GByteArray) forged = ecfs_published_head_seal (&ours.name, other.key, head);
    g_assert_false (ecfs_published_head_open (&ours.name, forged->data, forged->len, back));
    g_assert_false (ecfs_published_head_open (&other.name, sealed->data, sealed->len, back));
    EcfsPublishedName renamed = ours.name;
    renamed.name = (char *) "b";
    g_assert_false (ecfs_published_head_open (&renamed, sealed->data, sealed->len, back));
    for (guint i = 0; i < sealed->len; i++) {
        sealed->data[i] ^= 1;
        g_assert_false (ecfs_published_head_open (&ours.name, sealed->data, sealed->len, back));
        sealed->data[i] ^= 1;
        g_assert_false (ecfs_published_head_open (&ours.name, sealed->data, i, back));
    }
    ecfs_publication_clear (&ours);
    ecfs_publication_clear (&other);
}

static void test_publications_are_kept (void)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_dir_make_tmp ("ecfs-locate-XXXXXX", &error), *long_text = g_strnfill (100000, 'x');
    EcfsPublication ours = publication_of ("a"), back;
    g_assert_false (ecfs_publication_load (directory, "a", &back, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    g_clear_error (&error);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t before = ours.counter;
        g_assert_true (ecfs_publication_set_text (&ours, "/a\xff", long_text, &error));
        g_assert_cmpuint (ours.counter, >, before);
        g_assert_true (ecfs_publication_save (&ours, directory, &error));
        g_assert_no_error (error);
        g_assert_true (ecfs_publication_load (directory, "a", &back, &error));
        g_assert_cmpstr (back.path, ==, "/a\xff");
        g_assert_true (back.counter == ours.counter && back.text_bytes == 100000);
        g_assert_true (g_bytes_equal (back.packed, ours.packed));
        g_assert_cmpmem (back.key, ECFS_KEY_BYTES, ours.key, ECFS_KEY_BYTES);
        ecfs_publication_clear (&back);
    }
    g_autoptr (GPtrArray) names = ecfs_publications (directory);
    g_assert_cmpuint (names->len, ==, 1);
    g_autofree char *folder = g_build_filename (directory, "published", NULL);
    g_autofree char *path = g_build_filename (folder, "a", NULL);
    struct stat st;
    g_assert_cmpint (stat (path, &st), ==, 0);
    g_assert_cmpint (st.st_mode & 0777, ==, 0600);
    g_assert_true (g_file_set_contents (path, "[published]\nformat=1\n", -1, NULL));
    g_assert_false (ecfs_publication_load (directory, "a", &back, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    g_clear_error (&error);
    g_assert_true (ecfs_publication_remove (directory, "a", &error));
    g_assert_cmpint (rmdir (folder), ==, 0);
    g_assert_cmpint (rmdir (directory), ==, 0);
    ecfs_publication_clear (&ours);
}

static void test_what_is_too_large_is_refused (void)
{
    g_autoptr (GError) error = NULL;
    EcfsPublication ours = publication_of ("a");
    g_autofree char *noise = g_malloc (8u << 20);
    for (size_t i = 0; i < (8u << 20) - 1; i++)
        noise[i] = (char) ('!' + g_random_int_range (0, 90));
    noise[(8u << 20) - 1] = '\0';
    g_assert_false (ecfs_publication_set_text (&ours, "/a", noise, &error));
    g_assert_error (error, ECFS_ERROR, EFBIG);
    ecfs_publication_clear (&ours);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/locate/lines-come-back", test_lines_come_back);
    g_test_add_func ("/locate/what-is-no-line-is-refused", test_what_is_no_line_is_refused);
    g_test_add_func ("/locate/announcements-come-back", test_announcements_come_back);
    g_test_add_func ("/locate/list-is-what-it-says", test_list_is_what_it_says);
    g_test_add_func ("/locate/capabilities-come-back", test_capabilities_come_back);
    g_test_add_func ("/locate/names-are-plain", test_names_are_plain);
    g_test_add_func ("/locate/only-who-has-the-key-makes-heads", test_only_who_has_the_key_makes_heads);
    g_test_add_func ("/locate/publications-are-kept", test_publications_are_kept);
    g_test_add_func ("/locate/what-is-too-large-is-refused", test_what_is_too_large_is_refused);
    return g_test_run ();
}
