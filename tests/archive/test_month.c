/* The calendar month of endpoints: what is counted and kept, what is used up, and what another month does to it. */
#include "archive/month.h"
#include "fixture.h"

#include <string.h>

#define NOVEMBER 1793577600 /* 2026-11-02 */
#define DECEMBER 1796083200 /* 2026-12-01 00:00:00 */

static void configure (Fixture *fixture, unsigned i, const char *key, const char *value)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *section = g_strdup_printf ("endpoint %s", ecfs_archive_endpoint (fixture->archive, i)->name);
    EcfsConfigChange change = {.section = section, .key = (char *) key, .value = (char *) value};
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
    ecfs_config_rewrite (fixture->directory, &change, 1, &error);
    g_assert_no_error (error);
    reopen (fixture);
}

static EcfsMonth month_of (const Fixture *fixture)
{
    EcfsMonth month;
    ecfs_endpoint_month (ecfs_archive_endpoint (fixture->archive, 0)->endpoint, &month);
    return month;
}

static char *path_of (const Fixture *fixture)
{
    return g_build_filename (fixture->directory, ECFS_MONTH_NAME, NULL);
}

static void write_book (const Fixture *fixture, const char *text)
{
    g_autofree char *path = path_of (fixture);
    g_assert_true (g_file_set_contents (path, text, -1, NULL));
}

static void write_requests (const Fixture *fixture, const char *month, const char *requests)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&ecfs_archive_endpoint (fixture->archive, 0)->uuid, uuid);
    g_autofree char *text = g_strdup_printf ("[month]\nname=%s\n[%s]\nrequests=%s\negress=70\n", month, uuid, requests);
    write_book (fixture, text);
}

/* Another than the archive's own, which is told the time. */
static EcfsMonthBook *book_of (const Fixture *fixture)
{
    static const atomic_size_t n = N_ENDPOINTS;
    return ecfs_month_book_new (fixture->directory, ecfs_archive_endpoint (fixture->archive, 0), &n);
}

static void add (EcfsMonthBook *book, int64_t now_s)
{
    g_autoptr (GError) error = NULL;
    ecfs_month_book_add (book, now_s, &error);
    g_assert_no_error (error);
}

static void assert_text (int64_t now_s, const char *expected)
{
    g_autofree char *text = ecfs_month_text (now_s);
    g_assert_cmpstr (text, ==, expected);
}

/* Its limit ends what the endpoint is asked, and the month's change brings it back, in a process that goes on. */
static void test_another_month_begins_anew (Fixture *fixture, gconstpointer code)
{
    (void) code;
    configure (fixture, 0, "requests_per_month", "1000000");
    EcfsMonthBook *book = book_of (fixture);
    assert_text (DECEMBER - 1, "2026-11");
    assert_text (DECEMBER, "2026-12");
    write_requests (fixture, "2026-11", "999999");
    add (book, NOVEMBER);
    EcfsMonth month = month_of (fixture);
    g_assert_cmpuint (month.used.requests, >, 1000000); /* with what reopening asked for */
    g_assert_true (month.requests_spent);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (ecfs_archive_endpoint (fixture->archive, 0)->endpoint, &health);
    g_assert_true (health.spent && health.takes_none && !health.down && !health.refuses);
    g_assert_nonnull (strstr (health.reason, "requests of this month are used up"));
    ecfs_endpoint_health_clear (&health);
    add (book, DECEMBER - 1);
    g_assert_true (month_of (fixture).requests_spent);
    add (book, DECEMBER);
    month = month_of (fixture);
    g_assert_false (month.requests_spent);
    g_assert_cmpuint (month.used.requests, <, 1000);
    ecfs_month_book_free (book);
}

/* What two processes send is there for both, and nothing twice. */
static void test_books_add_up (Fixture *fixture, gconstpointer code)
{
    (void) code;
    configure (fixture, 0, "price_requests", "0.4");
    EcfsMonthUse sent;
    EcfsMonthBook *one = book_of (fixture), *other = book_of (fixture);
    write_requests (fixture, "2026-11", "5000");
    ecfs_endpoint_sent (ecfs_archive_endpoint (fixture->archive, 0)->endpoint, &sent);
    add (one, NOVEMBER);
    uint64_t used = month_of (fixture).used.requests;
    g_assert_cmpuint (used, >=, 5000 + sent.requests);
    add (one, NOVEMBER);
    g_assert_cmpuint (month_of (fixture).used.requests, <, 5000 + 2 * sent.requests); /* not once more */
    add (other, NOVEMBER);
    g_assert_cmpuint (month_of (fixture).used.requests, >=, used + sent.requests);
    g_assert_cmpuint (month_of (fixture).used.egress_bytes, >=, 70);
    ecfs_month_book_free (one);
    ecfs_month_book_free (other);
}

/* It is told, stays as it is, and what was sent is added when it makes sense again. */
/* It is put aside and told, and what was known counts on. */
static void test_nonsense_is_begun_anew (Fixture *fixture, gconstpointer code)
{
    (void) code;
    static const char *const nonsense[] = {"garbage", "[month]\n", "[other]\nname=2026-11\n",
                                           "[month\nname=", "\xff\xfe"};
    static const char *const numbers[] = {"-1", "1e3", "99999999999999999999", "", "0x10"};
    configure (fixture, 0, "egress_per_month", "1T");
    EcfsMonthBook *book = book_of (fixture);
    g_autofree char *path = path_of (fixture), *aside = g_strconcat (path, ".damaged", NULL);
    add (book, NOVEMBER);
    g_assert_cmpuint (month_of (fixture).used.requests, >, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (nonsense) + G_N_ELEMENTS (numbers); i++) {
        g_autofree char *before = NULL, *after = NULL, *told = NULL;
        const uint64_t known = month_of (fixture).used.requests;
        if (i < G_N_ELEMENTS (nonsense))
            write_book (fixture, nonsense[i]);
        else
            write_requests (fixture, "2026-11", numbers[i - G_N_ELEMENTS (nonsense)]);
        g_assert_true (g_file_get_contents (path, &before, NULL, NULL));
        add (book, NOVEMBER);
        told = ecfs_month_trouble (book);
        g_assert_nonnull (strstr (told, aside));
        g_assert_true (g_file_get_contents (aside, &after, NULL, NULL));
        g_assert_cmpstr (before, ==, after);
        g_assert_cmpuint (month_of (fixture).used.requests, >=, known);
        g_assert_cmpint (unlink (aside), ==, 0);
        g_assert_null (ecfs_month_trouble (book));
        add (book, NOVEMBER); /* and it makes sense now */
        g_assert_false (g_file_test (aside, G_FILE_TEST_EXISTS));
    }
    write_requests (fixture, "2026-11", "9223372036854775807");
    add (book, NOVEMBER); /* as far as it goes */
    g_assert_cmpuint (month_of (fixture).used.requests, >=, INT64_MAX);
    ecfs_month_book_free (book);
}

static void test_nothing_is_kept_without_limits (Fixture *fixture, gconstpointer code)
{
    (void) code;
    g_autofree char *path = path_of (fixture);
    make_file (fixture, "file");
    reopen (fixture);
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    g_assert_cmpuint (month_of (fixture).used.requests, ==, 0);
}

#define TEST(name, function) g_test_add (name, Fixture, "copies:3", set_up, function, tear_down)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK); /* what makes no sense is warned of */
    TEST ("/month/another-month-begins-anew", test_another_month_begins_anew);
    TEST ("/month/books-add-up", test_books_add_up);
    TEST ("/month/nonsense-is-begun-anew", test_nonsense_is_begun_anew);
    TEST ("/month/nothing-is-kept-without-limits", test_nothing_is_kept_without_limits);
    return g_test_run ();
}
