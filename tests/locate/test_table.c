/* Asking a hash table, and finding peers and published files in it: with a program for ecfs-locate that does what the
 * test says, or keeps a table in files, one for each key with a value in each line. */
#include "locate/locate.h"
#include "locate/published.h"
#include "util/bytes.h"
#include "util/lock.h"
#include "util/uuid.h"

#include <glib/gstdio.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define DAY_S 86400

static const char keeps_a_table[] = "echo ready 1\n"
                                    "while read -r word number key value; do\n"
                                    "  if [ $word = put ]; then echo \"$value\" >> $key; fi\n"
                                    "  if [ $word = get ] && [ -e $key ]; then\n"
                                    "    while read -r value; do echo value $number \"$value\"; done < $key\n"
                                    "  fi\n"
                                    "  echo done $number yes\n"
                                    "done\n";

typedef struct Place {
    char *directory;
    EcfsDht *dht;
} Place;

static void begin (Place *place, const char *script, int64_t mute_us)
{
    g_autoptr (GError) error = NULL;
    const EcfsDhtParams params = {.network = 7, .mute_us = mute_us};
    place->directory = g_dir_make_tmp ("ecfs-locate-XXXXXX", &error);
    g_autofree char *path = g_build_filename (place->directory, "helper", NULL);
    g_autofree char *text = g_strdup_printf ("#!/bin/sh\ncd %s\n%s", place->directory, script);
    g_assert_true (g_file_set_contents_full (path, text, -1, G_FILE_SET_CONTENTS_NONE, 0700, NULL));
    g_setenv ("ECFS_LOCATE_HELPER", path, TRUE);
    place->dht = ecfs_dht_new (&params, &error);
    g_assert_no_error (error);
}

static void end (Place *place)
{
    const char *name;
    GDir *dir = g_dir_open (place->directory, 0, NULL);
    ecfs_dht_free (place->dht);
    while ((name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *path = g_build_filename (place->directory, name, NULL);
        g_assert_cmpint (g_unlink (path), ==, 0);
    }
    g_dir_close (dir);
    g_assert_cmpint (rmdir (place->directory), ==, 0);
    g_free (place->directory);
}

/* Of @n_ms from now. */
static int64_t in_ms (int64_t n_ms)
{
    return ecfs_now_us () + n_ms * 1000;
}

/* The program */

static void check_helper (const char *script, int code)
{
    Place place;
    g_autoptr (GError) error = NULL;
    const uint8_t key[ECFS_LOCATE_KEY_BYTES] = {0};
    begin (&place, script, 0);
    int64_t deadline_us = in_ms (code == ETIMEDOUT ? 500 : 10000);
    g_autoptr (GPtrArray) values = ecfs_dht_await (ecfs_dht_get (place.dht, key, deadline_us), deadline_us, &error);
    if (code == 0) {
        g_assert_no_error (error);
        g_assert_cmpuint (values->len, ==, 1);
    } else {
        g_assert_error (error, ECFS_ERROR, code);
    }
    end (&place);
}

static void test_helper_is_not_trusted (void)
{
    check_helper (
        "echo ready 1; read line; echo value 1 YQ==; echo value 2 YQ==; echo done 3 yes; echo done 1 yes; read line",
        0);
    check_helper ("echo ready 1; read line; echo done 1 no; read line", ENOTCONN);
    check_helper ("echo ready 1; read line; echo get 1 0000000000000000000000000000000000000000; read line", ENOTCONN);
    check_helper ("echo ready 1; read line; echo ready 1 1; read line", ENOTCONN);
    check_helper ("echo ready 1; read line; echo value 1 YQ", ENOTCONN);
    check_helper ("read line", ETIMEDOUT);
}

static void test_what_has_failed_is_said (void)
{
    Place place;
    EcfsDhtState state = {.port = 0};
    g_autoptr (GError) error = NULL;
    const uint8_t key[ECFS_LOCATE_KEY_BYTES] = {0};
    begin (&place, "echo failed there is no network; read line", 0);
    int64_t deadline_us = in_ms (1000);
    g_assert_null (ecfs_dht_await (ecfs_dht_get (place.dht, key, deadline_us), deadline_us, &error));
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    ecfs_dht_state (place.dht, &state);
    g_assert_cmpstr (state.problem, ==, "there is no network");
    g_assert_false (state.is_up);
    ecfs_dht_state_clear (&state);
    end (&place);
}

/* Nor is there a signal where nobody ignores it, as in a verb. */
static void test_helper_that_ends_ends_nobody_else (void)
{
    Place place;
    EcfsDhtQuestion *questions[24];
    const uint8_t key[ECFS_LOCATE_KEY_BYTES] = {0};
    g_autofree uint8_t *bytes = g_malloc0 (ECFS_LOCATE_VALUE_MAX);
    begin (&place, "echo ready 1; read line; read line", 0); /* there is no room for 24 of them */
    int64_t deadline_us = in_ms (3000);
    for (size_t i = 0; i < G_N_ELEMENTS (questions); i++)
        questions[i] = ecfs_dht_put (place.dht, key, bytes, ECFS_LOCATE_VALUE_MAX, deadline_us);
    for (size_t i = 0; i < G_N_ELEMENTS (questions); i++)
        g_assert_null (ecfs_dht_await (questions[i], deadline_us, NULL));
    end (&place);
}

static void test_helper_that_is_mute_is_replaced (void)
{
    Place place;
    const uint8_t key[ECFS_LOCATE_KEY_BYTES] = {0};
    g_autofree char *script = g_strdup_printf (
        "if [ ! -e begun ]; then : > begun; echo ready 1; while read line; do :; done; fi\n%s", keeps_a_table);
    begin (&place, script, 200000);
    int64_t deadline_us = in_ms (10000);
    g_assert_null (ecfs_dht_await (ecfs_dht_put (place.dht, key, "a", 1, deadline_us), deadline_us, NULL));
    g_autoptr (GPtrArray) put = ecfs_dht_await (ecfs_dht_put (place.dht, key, "a", 1, deadline_us), deadline_us, NULL);
    g_assert_nonnull (put);
    end (&place);
}

static void test_without_a_helper_that_is_said (void)
{
    g_autoptr (GError) error = NULL;
    const EcfsDhtParams params = {.network = 7, .bootstrap = "nowhere"};
    g_setenv ("ECFS_LOCATE_HELPER", "/nonexistent/ecfs-locate", TRUE);
    g_assert_null (ecfs_dht_new (&params, &error));
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
    g_clear_error (&error);
    g_setenv ("ECFS_LOCATE_HELPER", "/bin/true", TRUE);
    g_assert_null (ecfs_dht_new (&params, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
}

/* Peers */

static const uint8_t archive_key[ECFS_KEY_BYTES] = {1, 2, 3};

/* Where peers are, and under what, some days from now. */
static void keys_of (int64_t days, uint8_t ret_key[ECFS_LOCATE_KEY_BYTES], uint8_t ret_seal[ECFS_KEY_BYTES])
{
    uint8_t salt[8];
    ecfs_put_le (salt, (uint64_t) (g_get_real_time () / G_USEC_PER_SEC / DAY_S + days), sizeof salt);
    ecfs_dht_key (archive_key, sizeof archive_key, salt, sizeof salt, "ecfs locate peers", ret_key);
    ecfs_key_derive (archive_key, sizeof archive_key, "", 0, "ecfs locate seal", ret_seal);
}

/* As somebody who has the key. */
static void put_announcement (Place *place, int64_t days, const EcfsLocateAnnounced *announced)
{
    uint8_t key[ECFS_LOCATE_KEY_BYTES], seal[ECFS_KEY_BYTES];
    int64_t deadline_us = in_ms (10000);
    keys_of (days, key, seal);
    g_autofree char *text = ecfs_locate_announced_format (announced);
    g_autoptr (GByteArray) sealed = ecfs_key_seal (seal, key, sizeof key, text, strlen (text));
    g_autoptr (GPtrArray) put =
        ecfs_dht_await (ecfs_dht_put (place->dht, key, sealed->data, sealed->len, deadline_us), deadline_us, NULL);
    g_assert_nonnull (put);
}

static GPtrArray *find (EcfsLocate *locate)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *found = ecfs_locate_find (locate, 10, in_ms (10000), &error);
    g_assert_no_error (error);
    return found;
}

static void assert_found (EcfsLocate *locate, const char *address, bool is_found)
{
    g_autoptr (GPtrArray) found = find (locate);
    g_assert_true (g_ptr_array_find_with_equal_func (found, address, g_str_equal, NULL) == is_found);
}

static void announce (EcfsLocate *locate, const char *address)
{
    g_autoptr (GError) error = NULL;
    (void) ecfs_locate_announce (locate, address, 600, in_ms (10000), &error);
    g_assert_no_error (error);
}

static void test_peers_find_each_other (void)
{
    Place place;
    g_autoptr (GError) error = NULL;
    begin (&place, keeps_a_table, 0);
    EcfsLocate *one = ecfs_locate_dht_new (place.dht, archive_key);
    EcfsLocate *other = ecfs_locate_dht_new (place.dht, archive_key);
    const uint8_t wrong_key[ECFS_KEY_BYTES] = {9};
    EcfsLocate *stranger = ecfs_locate_dht_new (place.dht, wrong_key);
    announce (one, "a:1");
    announce (other, "b:2");
    g_autoptr (GPtrArray) found = find (one);
    g_assert_cmpuint (found->len, ==, 2);
    g_autoptr (GPtrArray) nobody = find (stranger);
    g_assert_cmpuint (nobody->len, ==, 0);
    /* All that was ever put is still there, as if somebody put it there again. */
    (void) ecfs_locate_withdraw (one, "a:1", in_ms (10000), &error);
    g_assert_no_error (error);
    assert_found (other, "a:1", false);
    assert_found (one, "a:1", false);
    announce (one, "a:1");
    assert_found (other, "a:1", true);
    ecfs_locate_free (one);
    ecfs_locate_free (other);
    ecfs_locate_free (stranger);
    end (&place);
}

static void test_what_others_put_there_is_passed_over (void)
{
    Place place;
    uint8_t key[ECFS_LOCATE_KEY_BYTES], yesterday[ECFS_LOCATE_KEY_BYTES], seal[ECFS_KEY_BYTES];
    begin (&place, keeps_a_table, 0);
    EcfsLocate *locate = ecfs_locate_dht_new (place.dht, archive_key);
    keys_of (-1, yesterday, seal);
    keys_of (0, key, seal);
    /* Sealed for another place: one of another day cannot be brought back. */
    const EcfsLocateAnnounced announced = {5, 600, (char *) "moved:1"};
    g_autofree char *text = ecfs_locate_announced_format (&announced);
    g_autoptr (GByteArray) moved = ecfs_key_seal (seal, yesterday, sizeof yesterday, text, strlen (text));
    g_autoptr (GByteArray) no_text = ecfs_key_seal (seal, key, sizeof key, "no text", 7);
    int64_t deadline_us = in_ms (10000);
    EcfsDhtQuestion *questions[] = {ecfs_dht_put (place.dht, key, moved->data, moved->len, deadline_us),
                                    ecfs_dht_put (place.dht, key, no_text->data, no_text->len, deadline_us),
                                    ecfs_dht_put (place.dht, key, "junk", 4, deadline_us)};
    for (size_t i = 0; i < G_N_ELEMENTS (questions); i++) {
        g_autoptr (GPtrArray) put = ecfs_dht_await (questions[i], deadline_us, NULL);
        g_assert_nonnull (put);
    }
    announce (locate, "a:1");
    g_autoptr (GPtrArray) found = find (locate);
    g_assert_cmpuint (found->len, ==, 1);
    ecfs_locate_free (locate);
    end (&place);
}

/* By a clock that is a day ahead, or behind. */
static void test_clocks_may_be_wrong (void)
{
    Place place;
    begin (&place, keeps_a_table, 0);
    EcfsLocate *locate = ecfs_locate_dht_new (place.dht, archive_key);
    put_announcement (&place, -1, &(EcfsLocateAnnounced){5, 600, (char *) "behind:1"});
    put_announcement (&place, 1, &(EcfsLocateAnnounced){5, 600, (char *) "ahead:1"});
    put_announcement (&place, -3, &(EcfsLocateAnnounced){5, 600, (char *) "old:1"});
    assert_found (locate, "behind:1", true);
    assert_found (locate, "ahead:1", true);
    assert_found (locate, "old:1", false);
    ecfs_locate_free (locate);
    end (&place);
}

/* Where a clock was set back, what was announced before is overtaken. */
static void test_who_was_ahead_is_found_again (void)
{
    Place place;
    const uint64_t year_us = 365ull * DAY_S * G_USEC_PER_SEC;
    begin (&place, keeps_a_table, 0);
    EcfsLocate *other = ecfs_locate_dht_new (place.dht, archive_key);
    put_announcement (&place, 0, &(EcfsLocateAnnounced){(uint64_t) g_get_real_time () + year_us, 0, (char *) "a:1"});
    assert_found (other, "a:1", false);
    EcfsLocate *again = ecfs_locate_dht_new (place.dht, archive_key);
    announce (again, "a:1");
    assert_found (other, "a:1", true);
    /* Who has the key can keep it away, but nothing else happens. */
    put_announcement (&place, 0, &(EcfsLocateAnnounced){UINT64_MAX, 0, (char *) "a:1"});
    announce (again, "a:1");
    announce (again, "b:2");
    assert_found (other, "a:1", false);
    ecfs_locate_free (again);
    ecfs_locate_free (other);
    end (&place);
}

/* Names */

static char *find_text (Place *place, const EcfsPublication *publication, int64_t ms, int code)
{
    uint64_t counter = 0;
    g_autoptr (GError) error = NULL;
    char *text = ecfs_published_find (place->dht, &publication->name, in_ms (ms), &counter, &error);
    if (code == 0) {
        g_assert_no_error (error);
        g_assert_cmpuint (counter, ==, publication->counter);
    } else {
        g_assert_error (error, ECFS_ERROR, code);
    }
    return text;
}

static void put (Place *place, const EcfsPublication *publication)
{
    g_autoptr (GError) error = NULL;
    (void) ecfs_published_put (place->dht, publication, in_ms (10000), &error);
    g_assert_no_error (error);
}

static void set_text (EcfsPublication *publication, const char *text)
{
    g_autoptr (GError) error = NULL;
    (void) ecfs_publication_set_text (publication, "/a", text, &error);
    g_assert_no_error (error);
}

static EcfsPublication publication_of (const char *name)
{
    EcfsPublication publication;
    g_autoptr (GError) error = NULL;
    (void) ecfs_publication_new (name, 7, NULL, &publication, &error);
    g_assert_no_error (error);
    return publication;
}

/* Some that compresses to two pieces and a bit. */
static char *noise (void)
{
    size_t size = 5 * ECFS_PUBLISHED_PIECE / 2;
    char *text = g_malloc (size + 1);
    for (size_t i = 0; i < size; i++)
        text[i] = (char) ('!' + g_random_int_range (0, 90));
    text[size] = '\0';
    return text;
}

static void test_what_was_published_last_is_found (void)
{
    Place place;
    begin (&place, keeps_a_table, 0);
    EcfsPublication ours = publication_of ("a"), other = publication_of ("a");
    g_autofree char *first = noise ();
    set_text (&ours, first);
    put (&place, &ours);
    g_autofree char *found = find_text (&place, &ours, 10000, 0);
    g_assert_cmpstr (found, ==, first);
    g_assert_null (find_text (&place, &other, 300, ENOENT));
    g_autoptr (GBytes) before = g_bytes_ref (ours.packed);
    uint64_t counter = ours.counter;
    set_text (&ours, "another");
    put (&place, &ours);
    EcfsPublication old = ours; /* somebody puts it there again */
    old.packed = before;
    old.counter = counter;
    old.text_bytes = (uint32_t) strlen (first);
    put (&place, &old);
    g_autofree char *newest = find_text (&place, &ours, 10000, 0);
    g_assert_cmpstr (newest, ==, "another");
    ecfs_publication_withdraw (&ours);
    put (&place, &ours);
    g_assert_null (find_text (&place, &ours, 10000, ENOENT));
    ecfs_publication_clear (&ours);
    ecfs_publication_clear (&other);
    end (&place);
}

/* Who can read it puts other pieces where the right ones were. */
static void test_pieces_that_do_not_fit_are_passed_over (void)
{
    Place place;
    const char *name;
    begin (&place, keeps_a_table, 0);
    EcfsPublication ours = publication_of ("a");
    g_autofree char *text = noise ();
    set_text (&ours, text);
    put (&place, &ours);
    unsigned n = 0;
    GDir *dir = g_dir_open (place.directory, 0, NULL);
    while ((name = g_dir_read_name (dir)) != NULL) {
        gsize size;
        g_autofree char *path = g_build_filename (place.directory, name, NULL), *lines = NULL;
        if (strcmp (name, "helper") == 0)
            continue;
        g_assert_true (g_file_get_contents (path, &lines, &size, NULL));
        g_autofree char *more = g_strconcat ("anVuaw==\n", lines, NULL);
        g_assert_true (g_file_set_contents (path, more, -1, NULL));
        n++;
    }
    g_dir_close (dir);
    g_assert_cmpuint (n, >=, 3);
    g_autofree char *found = find_text (&place, &ours, 10000, 0);
    g_assert_cmpstr (found, ==, text);
    ecfs_publication_clear (&ours);
    end (&place);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/table/helper-is-not-trusted", test_helper_is_not_trusted);
    g_test_add_func ("/table/what-has-failed-is-said", test_what_has_failed_is_said);
    g_test_add_func ("/table/helper-that-ends-ends-nobody-else", test_helper_that_ends_ends_nobody_else);
    g_test_add_func ("/table/helper-that-is-mute-is-replaced", test_helper_that_is_mute_is_replaced);
    g_test_add_func ("/table/without-a-helper-that-is-said", test_without_a_helper_that_is_said);
    g_test_add_func ("/table/peers-find-each-other", test_peers_find_each_other);
    g_test_add_func ("/table/what-others-put-there-is-passed-over", test_what_others_put_there_is_passed_over);
    g_test_add_func ("/table/clocks-may-be-wrong", test_clocks_may_be_wrong);
    g_test_add_func ("/table/who-was-ahead-is-found-again", test_who_was_ahead_is_found_again);
    g_test_add_func ("/table/what-was-published-last-is-found", test_what_was_published_last_is_found);
    g_test_add_func ("/table/pieces-that-do-not-fit-are-passed-over", test_pieces_that_do_not_fit_are_passed_over);
    return g_test_run ();
}
