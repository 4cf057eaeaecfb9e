#include "util/bytes.h"
#include "util/error.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/text.h"
#include "util/units.h"
#include "util/uuid.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_sizes (void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},           {"17", 17},        {"2M", 2 << 20},  {"16K", 16384}, {"3G", 3ull << 30},
                {"1T", 1ull << 40}, {"5MiB", 5 << 20}, {"5MB", 5000000}, {"7kB", 7000},  {"1TiB", 1ull << 40}};
    static const char *const bad[] = {"",           "M", "-1", "1 M", "2Mb", "2iB", "1.5G", "99999999999999999999",
                                      "9999999999T"};
    uint64_t bytes;
    for (size_t i = 0; i < G_N_ELEMENTS (good); i++) {
        g_assert_true (ecfs_parse_size (good[i].text, &bytes));
        g_assert_cmpuint (bytes, ==, good[i].bytes);
    }
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_parse_size (bad[i], &bytes));
}

static void test_durations (void)
{
    int64_t us;
    g_assert_true (ecfs_parse_duration ("500ms", &us) && us == 500000);
    g_assert_true (ecfs_parse_duration ("10", &us) && us == 10000000);
    g_assert_true (ecfs_parse_duration ("2m", &us) && us == 120000000);
    g_assert_false (ecfs_parse_duration ("2 m", &us));
    g_assert_false (ecfs_parse_duration ("s", &us));
}

static int64_t moment (const char *text)
{
    int64_t ns;
    g_assert_true (ecfs_parse_moment (text, &ns));
    return ns;
}

static void test_moments (void)
{
    static const char *const bad[] = {"",           "yesterday",  "2026-13-01", "2026-11-25 25:00",
                                      "1969-12-31", "2300-01-01", "-1d"};
    const int64_t second = 1000000000, day = 86400 * second, end = second - 1;
    int64_t ns, now_ns = g_get_real_time () * 1000;
    g_assert_cmpint (moment ("2001-09-09T01:46:40Z"), ==, 1000000000 * second + end);
    g_assert_cmpint (moment ("2001-09-09 01:46:40.25Z"), ==, 1000000000 * second + second / 4);
    g_assert_cmpint (moment ("2001-09-09 01:46:40.000000Z"), ==, 1000000000 * second);
    g_assert_cmpint (moment ("2001-09-09T03:46:40+02:00"), ==, 1000000000 * second + end);
    g_assert_cmpint (moment ("2001-09-09 12:30") - moment ("2001-09-09"), ==, 45000 * second);
    g_assert_cmpint (moment ("2001-09-09 12:30"), ==, moment ("2001-09-09 12:30:00"));
    g_assert_cmpint (now_ns - moment ("2d"), <=, 2 * day);
    g_assert_cmpint (now_ns - moment ("2d"), >, 2 * day - 60 * second);
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_parse_moment (bad[i], &ns));
}

static void test_cursor (void)
{
    g_autoptr (GByteArray) bytes = g_byte_array_new ();
    ecfs_append_le (bytes, 0x1234, 2);
    ecfs_append_le (bytes, 0xfedcba9876543210, 8);
    EcfsCursor cursor = {.at = bytes->data, .left = bytes->len};
    g_assert_cmphex (ecfs_cursor_le (&cursor, 2), ==, 0x1234);
    g_assert_cmphex (ecfs_cursor_le (&cursor, 8), ==, 0xfedcba9876543210);
    g_assert_false (cursor.bad);
    g_assert_cmphex (ecfs_cursor_le (&cursor, 1), ==, 0);
    g_assert_true (cursor.bad);
}

static void test_errors (void)
{
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_fail (&error, ENOSPC, "packet %d", 3));
    g_assert_false (ecfs_prefix (&error, "endpoint %s", "a"));
    g_assert_cmpstr (error->message, ==, "endpoint a: packet 3");
    g_assert_cmpint (ecfs_errno (error), ==, ENOSPC);
    g_assert_cmpint (ecfs_errno (NULL), ==, 0);
    g_assert_false (ecfs_fail (NULL, EIO, "nobody listens"));
}

static void assert_clean (const char *text, const char *clean)
{
    g_autofree char *found = ecfs_text_clean (text, 40);
    g_assert_cmpstr (found, ==, clean);
    g_autofree char *again = ecfs_text_clean (found, 43);
    g_assert_cmpstr (again, ==, clean);
}

static void test_words_of_others (void)
{
    assert_clean ("", "");
    assert_clean ("disk quota: \303\244 \342\202\254", "disk quota: \303\244 \342\202\254");
    assert_clean ("\033[2J\033]0;x\007", "?[2J?]0;x?");
    assert_clean ("all is well\r\n2026-01-01 ecfs: removed", "all is well??2026-01-01 ecfs: removed");
    assert_clean ("a\302\2332J\177", "a?2J?");                   /* CSI as UTF-8 */
    assert_clean ("a\2332J\377", "a?2J?");                       /* as one byte */
    assert_clean ("a\342\200\256gpj.\342\200\250b", "a?gpj.?b"); /* right to left, line separator */
    assert_clean ("\303", "?");
    assert_clean ("\300\200", "??");
    assert_clean ("123456789 123456789 123456789 123456789 x", "123456789 123456789 123456789 123456789 ...");
    assert_clean ("123456789 123456789 123456789 12345678\342\202\254", "123456789 123456789 123456789 12345678...");
    g_autoptr (GError) error = g_error_new_literal (ECFS_ERROR, EIO, "a\nb");
    ecfs_text_clean_error (error, 2);
    g_assert_cmpstr (error->message, ==, "a?...");
    ecfs_text_clean_error (NULL, 2);
}

static void test_replace_file (void)
{
    g_autofree char *dir = g_dir_make_tmp ("ecfs-util-XXXXXX", NULL);
    g_autofree char *path = g_build_filename (dir, "file", NULL);
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_replace_file (path, "one", 3, 0600, &error));
    g_assert_true (ecfs_replace_file (path, "three", 5, 0640, &error));
    struct stat st;
    g_assert_cmpint (stat (path, &st), ==, 0);
    g_assert_cmphex (st.st_mode & 07777, ==, 0640);
    bool may = geteuid () == 0; /* give files away */
    struct stat like = {.st_mode = S_IFREG | 0604, .st_uid = may ? 12 : st.st_uid, .st_gid = may ? 34 : st.st_gid};
    g_assert_true (ecfs_replace_file_like (path, "three", 5, &like, &error));
    g_assert_cmpint (stat (path, &st), ==, 0);
    g_assert_true (st.st_uid == like.st_uid && st.st_gid == like.st_gid && st.st_mode == like.st_mode);
    g_autofree char *bytes = NULL;
    g_assert_true (ecfs_read_file (path, 5, &bytes, NULL, &error));
    g_assert_cmpstr (bytes, ==, "three");
    g_assert_false (ecfs_read_file (path, 4, &bytes, NULL, &error));
    g_assert_cmpint (ecfs_errno (error), ==, EFBIG);
    g_assert_cmpint (unlink (path), ==, 0);
    g_assert_cmpint (rmdir (dir), ==, 0); /* no temporary file was left */
}

typedef struct Counting {
    EcfsWorkers *workers;
    atomic_int left;
    atomic_int done;
} Counting;

static void count_and_push (void *data)
{
    Counting *counting = data;
    atomic_fetch_add (&counting->done, 1);
    if (atomic_fetch_sub (&counting->left, 1) > 0)
        ecfs_workers_push (counting->workers, count_and_push, counting);
}

static void test_workers (void)
{
    Counting counting = {.workers = ecfs_workers_new ("counting", 3)};
    atomic_init (&counting.left, 1000);
    atomic_init (&counting.done, 0);
    ecfs_workers_push (counting.workers, count_and_push, &counting);
    ecfs_workers_free (counting.workers);
    g_assert_cmpint (atomic_load (&counting.done), ==, 1001);
    ecfs_workers_free (NULL);
}

static void test_own_clock (void)
{
    int64_t now_us = ecfs_now_us (), missed_us = now_us - ecfs_own_us ();
    ecfs_missed (now_us - 1000, now_us); /* no sleep ends sooner */
    g_assert_cmpint (ecfs_own_us (), >=, now_us - missed_us);
    ecfs_missed (now_us + 1000000, now_us + 1500000);
    ecfs_missed (now_us + 1000000, now_us + 1600000); /* two that wake at once miss the same */
    int64_t own_us = ecfs_own_us (), since_us = ecfs_now_us () - now_us;
    g_assert_cmpint (own_us, >=, now_us - missed_us - 600000);
    g_assert_cmpint (own_us, <=, now_us - missed_us - 600000 + since_us);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/util/sizes-are-read-as-people-write-them", test_sizes);
    g_test_add_func ("/util/durations-are-read-as-people-write-them", test_durations);
    g_test_add_func ("/util/moments", test_moments);
    g_test_add_func ("/util/a-cursor-never-leaves-its-buffer", test_cursor);
    g_test_add_func ("/util/errors-carry-errno-and-context", test_errors);
    g_test_add_func ("/util/words-of-others-order-nothing", test_words_of_others);
    g_test_add_func ("/util/a-replaced-file-is-old-or-new-and-alone", test_replace_file);
    g_test_add_func ("/util/its-own-clock-stands-still-while-it-is-not-woken", test_own_clock);
    g_test_add_func ("/util/workers-run-jobs-that-jobs-push", test_workers);
    return g_test_run ();
}
