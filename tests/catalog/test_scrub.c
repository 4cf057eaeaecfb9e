/* What is kept of scrubs: ranges that were verified, damage, orphans; and the spool of a check. */
#include "catalog/scrub.h"
#include "catalog/spool.h"
#include "util/error.h"

#include <glib/gstdio.h>
#include <limits.h>
#include <sqlite3.h>
#include <unistd.h>

static EcfsUuid at (uint8_t first)
{
    return (EcfsUuid){.bytes = {first}};
}

/* The pass of each first byte, as a walk would see it. */
static void passes (const GArray *ranges, uint64_t ret[256])
{
    for (unsigned i = 0; i < 256; i++) {
        EcfsUuid after = at ((uint8_t) i);
        ret[i] = ecfs_ranges_at (ranges, &after)->pass;
        EcfsUuid end = ecfs_ranges_end (ranges, &after);
        g_assert_cmpint (memcmp (&end, &after, sizeof end), >, 0);
    }
}

/* Against an array with one number for each first byte. */
static void test_ranges_as_a_plain_array (void)
{
    for (unsigned round = 0; round < 300; round++) {
        g_autoptr (GArray) ranges = ecfs_ranges_new ();
        uint64_t expected[256] = {0}, found[256];
        for (uint64_t step = 1; step < 40; step++) {
            unsigned from = (unsigned) g_test_rand_int_range (0, 256), to = (unsigned) g_test_rand_int_range (0, 257);
            EcfsUuid after = at ((uint8_t) from), last = to == 256 ? ecfs_uuid_last : at ((uint8_t) to);
            uint64_t pass = step / 4;
            ecfs_ranges_set (ranges, &after, &last, pass, (int64_t) step);
            for (unsigned i = from; i < to; i++)
                expected[i] = pass;
            passes (ranges, found);
            g_assert_cmpmem (found, sizeof found, expected, sizeof expected);
            g_assert_cmpuint (ranges->len, <=, 2 * step + 1);
        }
        unsigned n = 0;
        for (unsigned i = 0; i < 256; i++)
            n += expected[i] >= 5;
        g_assert_cmpfloat_with_epsilon (ecfs_ranges_share (&ranges, 1, 5, NULL), n / 256.0, 1e-9);
    }
}

/* Going on with the oldest sees everything once, however it is interrupted. */
static void test_oldest_first_goes_round (void)
{
    g_autoptr (GArray) ranges = ecfs_ranges_new ();
    int64_t clock = 0;
    for (uint64_t pass = 1; pass < 20; pass++) {
        unsigned seen[256] = {0};
        int64_t newest = -1;
        const EcfsScrubRange *oldest;
        while ((oldest = ecfs_ranges_oldest (ranges, pass)) != NULL) {
            EcfsUuid after = oldest->after, end = ecfs_ranges_end (ranges, &after);
            unsigned last = MIN (after.bytes[0] + (unsigned) g_test_rand_int_range (1, 90), 256);
            EcfsUuid reached = last == 256 ? ecfs_uuid_last : at ((uint8_t) last);
            if (memcmp (&reached, &end, sizeof end) > 0)
                reached = end;
            g_assert_cmpint (oldest->time_ns, >=, pass == 1 ? 0 : newest);
            newest = MAX (newest, oldest->time_ns);
            for (unsigned i = after.bytes[0]; i < (reached.bytes[1] == 255 ? 256 : reached.bytes[0]); i++)
                seen[i]++;
            ecfs_ranges_set (ranges, &after, &reached, pass, ++clock);
        }
        for (unsigned i = 0; i < 256; i++)
            g_assert_cmpuint (seen[i], ==, 1);
        g_assert_cmpfloat (ecfs_ranges_share (&ranges, 1, pass, NULL), ==, 1);
    }
}

typedef struct Place {
    char *directory;
} Place;

static void begin (Place *self)
{
    self->directory = g_dir_make_tmp ("ecfs-scrub-XXXXXX", NULL);
    g_assert_nonnull (self->directory);
}

static void end (Place *self)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_SCRUB_NAME, NULL);
    (void) g_unlink (path); /* it may not have been made */
    g_assert_cmpint (g_rmdir (self->directory), ==, 0);
    g_free (self->directory);
}

static EcfsScrub *open_notes (const Place *self, bool writable)
{
    g_autoptr (GError) error = NULL;
    EcfsScrub *notes = ecfs_scrub_open (self->directory, writable, &error);
    g_assert_no_error (error);
    return notes;
}

static void test_kept_is_what_was_kept (void)
{
    Place place;
    begin (&place);
    EcfsScrubState state = {.pass = 7, .open = true, .began_ns = 5, .full_began_ns = 3, .full_ended_ns = 4};
    EcfsScrubDamage damage = {.object = 9, .index = 2, .instance = UINT64_MAX}, other = {.object = 10};
    g_autoptr (GArray) ranges = ecfs_ranges_new ();
    EcfsUuid from = at (3), to = at (77);
    ecfs_ranges_set (ranges, &from, &to, 7, 42);
    EcfsScrub *notes = open_notes (&place, true);
    g_assert_true (ecfs_scrub_set_state (notes, &state, NULL) && ecfs_scrub_set_ranges (notes, 4, ranges, NULL));
    g_assert_true (ecfs_scrub_set_damage (notes, &damage, true, NULL) &&
                   ecfs_scrub_set_damage (notes, &other, true, NULL) && ecfs_scrub_keep (notes, NULL));
    g_assert_true (ecfs_scrub_set_damage (notes, &other, false, NULL) && ecfs_scrub_keep (notes, NULL));
    g_assert_true (ecfs_scrub_set_damage (notes, &damage, false, NULL)); /* is not kept */
    ecfs_scrub_close (notes);
    notes = open_notes (&place, false);
    EcfsScrubState found;
    g_assert_true (ecfs_scrub_state (notes, &found, NULL));
    g_assert_true (found.pass == 7 && found.open && found.began_ns == 5 && found.full_began_ns == 3 &&
                   found.full_ended_ns == 4);
    g_autoptr (GArray) kept = ecfs_scrub_ranges (notes, 4, G_MAXUINT64, NULL),
                       none = ecfs_scrub_ranges (notes, 5, G_MAXUINT64, NULL);
    g_assert_cmpuint (kept->len, ==, ranges->len);
    g_assert_true (memcmp (kept->data, ranges->data, ranges->len * sizeof (EcfsScrubRange)) == 0);
    g_assert_cmpuint (none->len, ==, 1);
    g_autoptr (GArray) damages = ecfs_scrub_damages (notes, NULL, 10, NULL);
    g_assert_cmpuint (damages->len, ==, 1);
    g_assert_cmpuint (g_array_index (damages, EcfsScrubDamage, 0).instance, ==, UINT64_MAX);
    g_autoptr (GArray) behind = ecfs_scrub_damages (notes, &damage, 10, NULL);
    g_assert_cmpuint (behind->len, ==, 0);
    ecfs_scrub_close (notes);
    end (&place);
}

static void test_one_writer (void)
{
    Place place;
    begin (&place);
    g_autoptr (GError) error = NULL;
    EcfsScrub *first = open_notes (&place, true);
    g_assert_null (ecfs_scrub_open (place.directory, true, &error));
    g_assert_error (error, ECFS_ERROR, EALREADY);
    EcfsScrub *reader = open_notes (&place, false);
    ecfs_scrub_close (reader);
    ecfs_scrub_close (first);
    EcfsScrub *second = open_notes (&place, true);
    ecfs_scrub_close (second);
    ecfs_scrub_close (NULL);
    end (&place);
}

static void test_garbage_is_begun_anew (void)
{
    Place place;
    begin (&place);
    g_autofree char *path = g_build_filename (place.directory, ECFS_SCRUB_NAME, NULL);
    EcfsScrubState state = {.pass = 3};
    for (unsigned writable = 0; writable < 2; writable++) {
        g_assert_true (g_file_set_contents (path, "no database, but text of some length", -1, NULL));
        g_test_expect_message (NULL, G_LOG_LEVEL_WARNING, "*");
        EcfsScrub *notes = open_notes (&place, writable != 0);
        g_test_assert_expected_messages ();
        g_assert_true (ecfs_scrub_state (notes, &state, NULL) && state.pass == 0);
        ecfs_scrub_close (notes);
    }
    EcfsScrub *notes = open_notes (&place, true);
    ecfs_scrub_close (notes);
    end (&place);
}

/* As it was before digests were kept: readers cannot make their table, and writers do. */
static void test_one_without_digests_is_read (void)
{
    Place place;
    begin (&place);
    g_autofree char *path = g_build_filename (place.directory, ECFS_SCRUB_NAME, NULL);
    EcfsScrubState state = {.pass = 3};
    const EcfsScrubDigest digest = {.object = 1, .index = 2, .instance = 3, .endpoint = 4, .text = "b2:00"};
    bool has;
    EcfsScrub *notes = open_notes (&place, true);
    g_assert_true (ecfs_scrub_set_state (notes, &state, NULL) && ecfs_scrub_keep (notes, NULL));
    ecfs_scrub_close (notes);
    sqlite3 *db;
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_exec (db, "DROP TABLE digests", NULL, NULL, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
    for (unsigned writable = 0; writable < 2; writable++) {
        notes = open_notes (&place, writable != 0);
        state.pass = 0;
        g_assert_true (ecfs_scrub_state (notes, &state, NULL) && state.pass == 3);
        if (writable != 0)
            g_assert_true (ecfs_scrub_set_digest (notes, &digest, 4, NULL) &&
                           ecfs_scrub_has_digest (notes, &digest, &has, NULL) && has);
        ecfs_scrub_close (notes);
    }
    end (&place);
}

static void test_orphans_age (void)
{
    Place place;
    begin (&place);
    EcfsScrub *notes = open_notes (&place, true);
    const EcfsScrubOrphan one = {.endpoint = 1, .object = at (1), .index = 2, .instance = 3};
    const EcfsScrubOrphan two = {.endpoint = 2, .object = at (1), .index = 2, .instance = 3};
    int64_t first;
    g_assert_true (ecfs_scrub_see_orphan (notes, &one, 100, &first, NULL) && first == 100);
    g_assert_true (ecfs_scrub_see_orphan (notes, &two, 150, &first, NULL) && first == 150);
    g_assert_true (ecfs_scrub_see_orphan (notes, &one, 200, &first, NULL) && first == 100);
    g_assert_true (ecfs_scrub_forget_orphans (notes, 200, NULL));
    g_assert_true (ecfs_scrub_see_orphan (notes, &one, 300, &first, NULL) && first == 100);
    g_assert_true (ecfs_scrub_see_orphan (notes, &two, 300, &first, NULL) && first == 300);
    g_assert_true (ecfs_scrub_see_orphan (notes, &one, 50, &first, NULL) && first == 50); /* a clock was set back */
    ecfs_scrub_close (notes);
    end (&place);
}

static void test_spool (void)
{
    g_autoptr (EcfsSpool) spool = ecfs_spool_new (NULL);
    for (unsigned i = 250; i-- > 0;) {
        EcfsUuid uuid = at ((uint8_t) (i + 1));
        EcfsSpoolFault fault = {.index = i % 3, .fault = 2, .instance = i, .endpoint = 5, .text = (char *) "x\xff"};
        EcfsSpoolDamage damage = {.object = i, .urgency = (int) (i % 5) - 1, .is_lost = i % 2, .uuid = uuid};
        g_assert_true (ecfs_spool_add_fault (spool, &uuid, i, &fault, NULL));
        fault.fault = 3;
        g_assert_true (ecfs_spool_add_fault (spool, &uuid, i, &fault, NULL)); /* the first stays */
        g_assert_true (ecfs_spool_add_damage (spool, &damage, NULL));
        g_assert_true (ecfs_spool_name (spool, &uuid, i, NULL) && ecfs_spool_name (spool, &uuid, i, NULL));
    }
    EcfsUuid uuid = {.bytes = {0}};
    int64_t object;
    for (unsigned i = 0; i < 250; i++) {
        g_assert_cmpint (ecfs_spool_next_faulty (spool, &uuid, &object, NULL), ==, 1);
        g_autoptr (GArray) faults = ecfs_spool_faults (spool, &uuid, NULL);
        const EcfsSpoolFault *fault = &g_array_index (faults, EcfsSpoolFault, 0);
        g_assert_true (faults->len == 1 && object == i && fault->instance == i && fault->fault == 2);
        g_assert_cmpstr (fault->text, ==, "x\xff");
    }
    g_assert_cmpint (ecfs_spool_next_faulty (spool, &uuid, &object, NULL), ==, 0);
    EcfsSpoolDamage damage = {.urgency = INT_MIN};
    unsigned n = 0;
    for (int last = INT_MIN; ecfs_spool_next_damage (spool, &damage, NULL) == 1; last = damage.urgency, n++)
        g_assert_cmpint (damage.urgency, >=, last);
    g_assert_cmpuint (n, ==, 250);
    EcfsUuid after = {.bytes = {0}};
    uint64_t n_named;
    g_assert_true (ecfs_spool_count_named (spool, &n_named, NULL) && n_named == 250);
    g_autoptr (GArray) some = ecfs_spool_named (spool, &after, 200, NULL);
    g_autoptr (GArray) rest = ecfs_spool_named (spool, &after, 200, NULL);
    g_assert_true (some->len == 200 && rest->len == 50 && g_array_index (rest, int64_t, 49) == 249);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/scrub/ranges-are-what-a-plain-array-would-be", test_ranges_as_a_plain_array);
    g_test_add_func ("/scrub/the-oldest-first-goes-round", test_oldest_first_goes_round);
    g_test_add_func ("/scrub/what-was-kept-is-there", test_kept_is_what_was_kept);
    g_test_add_func ("/scrub/has-one-writer", test_one_writer);
    g_test_add_func ("/scrub/garbage-is-begun-anew", test_garbage_is_begun_anew);
    g_test_add_func ("/scrub/one-without-digests-is-read", test_one_without_digests_is_read);
    g_test_add_func ("/scrub/orphans-have-an-age", test_orphans_age);
    g_test_add_func ("/spool/gives-back-in-order", test_spool);
    return g_test_run ();
}
